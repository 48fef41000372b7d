#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The battery with each algorithm forced, on ranks that are a power of two and that are not.
. "$srcdir/tests/support/job.sh"

ranks_list="3 4"
[ -n "${CHECK_LONG-}" ] && ranks_list="2 3 4 5 8"
[ -n "${CHECK_SHORT-}" ] && ranks_list="3"

# An algorithm of each collective a run, until all have had their turn.
runs=(
    "all_reduce:ring broadcast:binomial barrier:tree all_gather:ring reduce:binomial
        reduce_scatter:ring gather:direct scatter:direct all_to_all:direct
        all_gather_v:ring reduce_scatter_v:ring all_to_all_v:direct"
    "all_reduce:tree broadcast:chain barrier:dissemination all_gather:direct reduce:chain
        reduce_scatter:recursive_halving gather:binomial scatter:binomial all_to_all:pairwise
        all_gather_v:direct reduce_scatter_v:direct all_to_all_v:pairwise"
    "all_reduce:recursive_doubling broadcast:tree all_gather:bruck reduce:tree
        reduce_scatter:direct all_to_all:bruck all_gather_v:bruck"
    "all_reduce:halving_doubling broadcast:scatter_all_gather reduce:direct
        all_gather:hierarchical all_gather_v:hierarchical reduce_scatter:hierarchical
        reduce_scatter_v:hierarchical"
    "all_reduce:direct reduce:scatter_gather reduce_scatter:direct_ordered
        reduce_scatter_v:direct_ordered"
    "all_reduce:hierarchical reduce:binomial_ordered"
    "all_reduce:direct_ordered reduce:direct_ordered"
)

for ranks in $ranks_list; do
    for run in "${runs[@]}"; do
        algorithms=$(echo $run | tr ' ' ,)
        DIST_ALGO=$algorithms job self $ranks tests/conformance/conformance gloo --spawn $ranks --brief
    done
    DIST_REPRODUCIBLE=1 DIST_SEGMENTS=3 \
        job self $ranks tests/conformance/conformance gloo --spawn $ranks --brief
    DIST_SEGMENTS=7 job self $ranks tests/conformance/conformance gloo --spawn $ranks --brief
done
