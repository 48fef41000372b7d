#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# An agent that is stopped while the other agents meet learns at once of the round and of its end.
JOB_LIMIT=60
. "$srcdir/tests/support/job.sh"

# node RANK PORT WORKER: starts one of three nodes with a worker each, in the background.
node()
{
    job_background timeout $JOB_LIMIT "$builddir/distrun" --nnodes 3 --node-rank "$1" \
        --rdzv-endpoint "127.0.0.1:$2" -n 1 "$BASH" -c "$3"
}

# late PORT WORKER COMMAND...: node 1 joins and is stopped; the other nodes form the round of three,
# and COMMAND is run when their workers run. Then node 1 is continued. Returns its exit code.
late()
{
    local port=$1 worker=$2 first monitor last agent
    shift 2
    node 0 "$port" "$worker"
    first=$!
    job_until job_listens "$port"
    job_output=$job_output.1 node 1 "$port" "$worker"
    monitor=$!
    job_until agent_joined "$monitor" "$port"
    agent=$(job_agent "$(pgrep -P $monitor)")
    kill -STOP "$agent"
    job_output=$job_output.2 node 2 "$port" "$worker"
    last=$!
    job_until grep -q runs "$job_output" "$job_output.2"
    "$@"
    kill -CONT "$agent"
    wait $monitor
    monitor=$?
    wait $first $last
    cat "$job_output".[12] >>"$job_output"
    return $monitor
}

# True if its agent has a connection to the agents' port, on which it has identified itself.
agent_joined()
{
    local agent
    agent=$(job_agent "$(pgrep -P "$1")" 2>/dev/null) && sleep 0.5 &&
        ss -tnpH state established "dport = :$2" | grep -q "pid=$agent,"
}

# The worker of node 0 fails, so the round has ended before node 1 has begun it.
order_is_obeyed()
{
    late "$(job_port)" 'echo runs; [ $GROUP_RANK = 0 ] && sleep 0.5 && exit 3; sleep 50' sleep 1
    [ $? = 3 ] && grep -q 'exitcode  : 3' "$job_output.1"
}
job_check "an order that arrives with its round is obeyed" order_is_obeyed

stop_late() { kill -TERM "$(pgrep -P "$monitor")"; }
signal_is_obeyed()
{
    late "$(job_port)" 'echo runs; sleep 50' stop_late
    [ $? = 143 ] && grep -q 'stopped by SIGTERM' "$job_output.1"
}
job_check "a signal that arrives with its round is obeyed" signal_is_obeyed
