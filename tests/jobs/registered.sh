#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Collectives on buffers at any address, registered here and not there, side by side in their pages.
. "$srcdir/tests/support/job.sh"

program=tests/jobs/registered
calls=300
[ -z "${CHECK_SHORT-}" ] || calls=60
seeds="1 2"
[ -z "${CHECK_LONG-}" ] || seeds="1 2 3 4 5 6 7 8" calls=1000
for ranks in 2 3 5; do
    for seed in $seeds; do job self $ranks $program gloo $ranks $calls $seed; done
done
DIST_PROGRESS_THREAD=0 job self 2 $program gloo 2 $calls 3
DIST_NODE_MEMORY=0 job self 3 $program gloo 3 $calls 4
DIST_TRANSPORT=tcp job self 2 $program gloo 2 $((calls / 3)) 5
