#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# A rank has no memory for one allocation: its group ends on all ranks, or all go on in step; a group
# that is being made is made on all, or on none.
. "$srcdir/tests/support/job.sh"

JOB_LIMIT=60
step=61
[ -z "${CHECK_LONG-}" ] || step=2 JOB_LIMIT=300
for victim in 0 1; do
    job shell 3 tests/jobs/short_memory gloo $victim $((step / 10 + 1))
    for transport in shm tcp; do
        DIST_NODE_MEMORY=0 DIST_TRANSPORT=$transport job shell 3 tests/jobs/short_memory gloo $victim \
            $step
    done
done
# Rank 0 holds the store, which has no memory then.
for victim in 1 2; do
    job shell 3 tests/jobs/short_memory groups $victim
done
