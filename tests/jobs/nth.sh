#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# A rank's n-th allocation or system call fails, somewhere between the beginning and the end of a
# job: both ranks get an error or success, soon.
. "$srcdir/tests/support/job.sh"

if grep -q 'FLAGS = .*-fsanitize' "$builddir/Makefile"; then
    job_skip "calls that fail" "a sanitizer replaces the allocator and makes system calls of its own"
    exit
fi
step=17
[ -z "${CHECK_LONG-}" ] || step=1 JOB_LIMIT=1800
export DIST_BACKEND=gloo DIST_TUNING=off DIST_TIMEOUT=10
for kind in system malloc; do
    for victim in 0 1; do
        for transport in shm tcp; do
            DIST_TRANSPORT=$transport job_parallel job self 2 tests/jobs/nth $kind $victim 1 $step
        done
    done
done
job_collect
