#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# A rank dies, leaves, stops calling or makes another call: every other rank gets an error.
. "$srcdir/tests/support/job.sh"

JOB_LIMIT=90
for transport in shm tcp; do
    export DIST_TRANSPORT=$transport
    for kind in kill kill-in exit exit-atexit count dtype op; do
        job shell 4 tests/jobs/mishap gloo $kind 2
    done
    job shell 4 tests/jobs/mishap gloo kill 0
    # These cases sleep.
    job_parallel job shell 3 tests/jobs/mishap gloo kill-fork 1
    job_parallel job shell 3 tests/jobs/mishap gloo kill-fork 0
    job_parallel job shell 3 tests/jobs/mishap gloo silent 1
done
job_collect
unset DIST_TRANSPORT
for kind in exit-atexit exit-thread exit-function; do
    job shell 3 tests/jobs/mishap gloo $kind 1
done

# Ranks in separate PID namespaces, in which each has the same process number, use messages without
# an error.
alone() { exec unshare --pid --fork --mount-proc "$@"; }
export -f alone
unset DIST_TRANSPORT
if unshare --pid --fork --mount-proc true 2>/dev/null; then
    DIST_DEBUG=error job shell 3 "$BASH" -c 'alone "$@"' alone "$builddir/examples/hello_all_reduce"
    job_check "no error is logged" [ "$(grep -c ' ERROR ' "$job_output")" = 0 ]
    DIST_DEBUG=info job shell 2 "$BASH" -c 'alone "$@"' alone "$builddir/examples/hello_all_reduce"
    job_check "the log has the reason" grep -q 'its owner is in another PID namespace' "$job_output"
else
    job_skip "ranks in PID namespaces" "none can be made here"
fi
