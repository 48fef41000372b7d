#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# One allocation of a rank fails: its group fails on all ranks, or all continue in step; a new group
# is made on all ranks or on none.
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
# Not rank 0, whose store would lack memory too.
for victim in 1 2; do
    job shell 3 tests/jobs/short_memory groups $victim
done
