#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Collectives on buffers at any address, registered on some ranks only, adjacent in their pages.
. "$srcdir/tests/support/job.sh"

program=tests/jobs/registered
pairs=150
[ -z "${CHECK_SHORT-}" ] || pairs=40
seeds="1 2"
[ -z "${CHECK_LONG-}" ] || seeds="1 2 3 4 5 6 7 8" pairs=500
for ranks in 2 3 5; do
    for seed in $seeds; do job self $ranks $program gloo $ranks $pairs $seed; done
done
DIST_PROGRESS_THREAD=0 job self 2 $program gloo 2 $pairs 3
DIST_NODE_MEMORY=0 job self 3 $program gloo 3 $pairs 4
DIST_TRANSPORT=tcp job self 2 $program gloo 2 $((pairs / 3)) 5
