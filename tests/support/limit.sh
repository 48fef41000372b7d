#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# limit.sh COMMAND...: runs a test with a limit of TEST_LIMIT seconds (20 minutes; 2 hours if CHECK_LONG
# is set).
#
# A test that takes longer fails: this prints where its processes wait and kills them all, so that the
# suite continues after a test that hangs. A test that leaves a process or a file behind fails too.
set -u
. "${BASH_SOURCE[0]%/*}/left.sh"
: "${TEST_LIMIT:=$([ -n "${CHECK_LONG-}" ] && echo 7200 || echo 1200)}"
limit_run=$$.$RANDOM

# Prints each process of the test: its parent, state, command, and where its threads wait.
limit_show()
{
    local pid task
    echo "FAIL: $* (not done within $TEST_LIMIT s; its processes, and where they wait:)"
    for pid in $(left_processes "$limit_run"); do
        ps -o pid=,ppid=,stat=,etimes=,args= -p "$pid" | cut -c1-300
        for task in "/proc/$pid/task/"*; do
            echo "    $(<"$task/comm"): $(<"$task/wchan"), call $(cut -d' ' -f1-3 "$task/syscall")"
        done
    done 2>/dev/null
}

limit_watch()
{
    local sleeper
    trap 'kill $sleeper; exit' TERM
    sleep "$TEST_LIMIT" &
    sleeper=$!
    wait $sleeper
    limit_show "$@"
    # shellcheck disable=SC2046
    kill -KILL $(left_processes "$limit_run") 2>/dev/null
}

limit_watch "$@" &
watch=$!
# Run the test in the foreground, because background processes ignore SIGINT.
left_before "$limit_run"
"$@"
status=$?
kill -TERM $watch 2>/dev/null
wait $watch 2>/dev/null
if left=$(left_after "$limit_run"); then
    sed "s/^left behind by $limit_run/FAIL: left behind/" <<<"$left"
    [ $status -ne 0 ] && [ $status -ne 77 ] || status=1
fi
exit $status
