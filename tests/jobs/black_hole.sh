#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# A network that drops large packets and passes small ones: the timeout's error suggests the cause.
. "$srcdir/tests/support/job.sh"

drops='ip link set lo up && tc qdisc add dev lo root tbf rate 10gbit burst 9000 latency 50ms'
unshare -rn "$BASH" -c "$drops" 2>"$job_folder/why" ||
    { job_skip "black hole" "$(tail -n 1 "$job_folder/why")"; exit; }

# Runs the ranks in a network namespace of their own.
inside()
{
    unshare -rn "$BASH" -c "$drops && "'job_shell "$@"' job_shell 2 "$@"
}
export -f inside
export DIST_TRANSPORT=tcp DIST_TIMEOUT=3 DIST_FLIGHT=0 drops
job_fails "compare the MTU" self 2 "$BASH" -c 'inside "$@"' inside \
    "$builddir/dist_bench" all_reduce -b 20000 -e 20000
