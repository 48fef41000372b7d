#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Agents of several hosts: they join in any order, and a host is cut off and joins again.
. "$srcdir/tests/support/job.sh"

cluster=$srcdir/bench/netns-cluster
[[ $cluster == /* ]] || cluster=$PWD/$cluster
if ! "$cluster" true 2>"$job_folder/why"; then
    job_skip "agents of several hosts" "$(tail -n 1 "$job_folder/why")"
    exit
fi

export agent=$builddir/tests/jobs/agent log=$job_folder/node2
export agent_conf=last_call_timeout=5,join_timeout=20,keep_alive_interval=0.4,keep_alive_max_attempt=5

# Every line that a host prints begins with its rank.
on_hosts() { job self - "$cluster" -k 3 -g 5 --label bash -c "$1"; }
says() { grep -q "^\[$1\] $2" "$job_output"; }

# Host 0, which has the endpoint, joins last. Host 2 is cut off in round 0, and rejoins with a new
# agent.
on_hosts '
    run() { "$agent" node0 29400 2 3 1 "$agent_conf,join=now" 4000; }
    case $RANK in
    0) sleep 0.5; run ;;
    1) run ;;
    2)  run >"$log" &
        until grep -q "^round 0" "$log"; do sleep 0.05; done
        ip link set eth0 down
        wait $!
        echo "exit $?"
        cat "$log"
        sleep 1 # hosts 0 and 1 notice the silence before the link is up and the kernel resets the connections
        ip link set eth0 up
        run ;;
    esac'
for host in 0 1; do
    job_check "host $host begins with all three" says $host "round 0 restarts 0 node . of 3 world 6 at 10.10.0.1"
    job_check "host $host reports that host 2 is lost" \
        says $host "restart: node . (host node2) is lost: it sent nothing for 2.0 s"
    job_check "host $host continues without it" says $host "round 1 restarts 1 node . of 2 world 4 at 10.10.0.1"
    job_check "host $host is told that it rejoins" says $host "restart: the node node2 joins"
done
job_check "host 2 exits after it is cut off" says 2 "exit 4"
job_check "host 2 names the lost agent" says 2 "broken: the agent that serves the rendezvous was lost (host node0, "
for host in 0 1 2; do
    job_check "host $host ends with all three" says $host "round 2 restarts 1 node . of 3 world 6 at 10.10.0.1"
    job_check "host $host has finished" says $host "finished: "
done

# No agent serves: at an address, at a port, and at a name.
on_hosts '
    try() { "$agent" "$1" 29400 3 3 0 join_timeout=1 0 && exit 1; }
    case $RANK in
    0) try 10.10.0.77 ;;
    1) try node0 ;;
    2) try node77 ;;
    esac
    true'
for host in 0 1 2; do
    job_check "host $host gives up" says $host "broken: node$host found no agent that serves the rendezvous at "
done
job_check "a host where no agent serves" says 1 "broken: .* at node0 port 29400 .*: 10.10.0.1 port 29400: Connection refused"
job_check "an unknown host name" says 2 'broken: .* at node77 .*: cannot resolve "node77": '
