#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The battery with each algorithm forced, on ranks that are a power of two and that are not.
. "$srcdir/tests/support/job.sh"

ranks_list="3 4"
[ -n "${CHECK_LONG-}" ] && ranks_list="2 3 4 5 8"

for ranks in $ranks_list; do
    for algorithm in ring tree recursive_doubling halving_doubling direct hierarchical; do
        DIST_ALGO=all_reduce:$algorithm \
            job self $ranks tests/conformance/conformance gloo --spawn $ranks --brief
    done
    for pair in binomial,ring chain,direct tree,ring; do
        DIST_ALGO=broadcast:${pair%,*},all_gather:${pair#*,},barrier:tree \
            job self $ranks tests/conformance/conformance gloo --spawn $ranks --brief
    done
    DIST_SEGMENTS=7 job self $ranks tests/conformance/conformance gloo --spawn $ranks --brief
done
