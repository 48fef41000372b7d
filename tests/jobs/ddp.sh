#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Data-parallel training equals training in one process, for all buckets, compressions and numbers
# of ranks.
. "$srcdir/tests/support/job.sh"

program=tests/jobs/ddp faults=tests/jobs/ddp_faults
export DIST_TIMEOUT=60
ranks=(1 2 3) steps=steps=30 coded=steps=30
[ -z "${CHECK_LONG-}" ] || { ranks=(1 2 3 4 8); steps=steps=100; }
[ -z "${CHECK_SHORT-}" ] || ranks=(3)
[ -z "${CHECK_WATCHED-}" ] || steps=steps=3 coded=$steps

for n in "${ranks[@]}"; do
    job shell "$n" $program $steps bucket=65536 clip=0.3
    job shell "$n" $program $steps bucket=1048576 accumulate=4 own=1
    job shell "$n" $program $steps bucket=1 forward=1 unused=1
    job shell "$n" $program $steps unused=1 uneven=1 accumulate=2 own=1
    job shell "$n" $program $steps bucket=100000 wire=hook
    for wire in float16 bfloat16 int8; do
        job shell "$n" $program $coded wire=$wire bucket=65536 unused=1 uneven=1 tolerance=0.1
    done
done
DIST_TRANSPORT=tcp DIST_NODE_MEMORY=0 job shell 3 $program $steps bucket=20000 wire=int8 tolerance=0.1
DIST_PROGRESS_THREAD=0 job shell 2 $program $steps bucket=20000 uneven=1

for fault in missing mismatch leaves hook arguments nan early apart turned; do
    job shell 3 $faults $fault
done
[ -n "${CHECK_SHORT-}" ] || job shell 3 $faults scarce
job shell 3 "$BASH" "$srcdir/tests/support/killed.sh" "$builddir/$faults" killed
