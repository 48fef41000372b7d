#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Worlds, groups and memory, made and destroyed many times: nothing grows, and no socket listens on
# the wildcard address.
. "$srcdir/tests/support/job.sh"
worlds=200 groups=500
[ -z "${CHECK_SHORT-}" ] || { worlds=20 groups=50; }
[ -z "${CHECK_LONG-}" ] || { worlds=10000 groups=10000 JOB_LIMIT=3000; }
export DIST_BACKEND=gloo DIST_TUNING=off

for transport in shm tcp; do
    export DIST_TRANSPORT=$transport
    job shell 2 tests/jobs/churn worlds $worlds
    job shell 3 tests/jobs/churn groups $groups
    job shell 2 tests/jobs/churn listeners
done
unset DIST_TRANSPORT
job shell 2 tests/jobs/churn memory $groups
job self 2 distrun --nproc-per-node=2 "$builddir/tests/jobs/churn" listeners
