#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The battery with each algorithm forced, on ranks that are a power of two and that are not.
. "$srcdir/tests/support/job.sh"

ranks_list="3 4"
[ -n "${CHECK_LONG-}" ] && ranks_list="2 3 4 5 8"
[ -n "${CHECK_SHORT-}" ] && ranks_list="3"

# An algorithm of each collective a run, until all of the table have had their turn.
mapfile -t runs < <(awk -F '[(,] *' '
    /^ALGORITHM\(/ { run = count[$2]++; runs[run] = runs[run] "," tolower($2) ":" $4 }
    END { for (run = 0; run in runs; run++) print substr(runs[run], 2) }' \
    "$srcdir/src/collectives/algorithms.def")
job_check "the table has algorithms" [ "${#runs[@]}" -gt 1 ]

for ranks in $ranks_list; do
    for run in "${runs[@]}"; do
        DIST_ALGO=$run job self $ranks tests/conformance/conformance gloo --spawn $ranks --brief
    done
    DIST_REPRODUCIBLE=1 DIST_SEGMENTS=3 \
        job self $ranks tests/conformance/conformance gloo --spawn $ranks --brief
    DIST_SEGMENTS=7 job self $ranks tests/conformance/conformance gloo --spawn $ranks --brief
done
