#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Short collectives in which a rank only sends: it runs ahead of the other ranks, and no data is
# lost.
. "$srcdir/tests/support/job.sh"

program=tests/jobs/rooted
for ranks in 2 3 5; do
    job shell $ranks $program gloo mixed
    job shell $ranks $program gloo ahead
    job shell $ranks $program gloo differ
    job shell $ranks $program gloo leave
done
job shell 3 $program gloo forked
DIST_PROGRESS_THREAD=0 job shell 3 $program gloo mixed
for ranks in 2 4; do
    job shell $ranks $program gloo lost
done
