#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The conformance tests with each algorithm forced, on numbers of ranks that are powers of two and
# that are not.
. "$srcdir/tests/support/job.sh"

ranks_list="3 4"
[ -n "${CHECK_LONG-}" ] && ranks_list="2 3 4 5 8"
[ -n "${CHECK_SHORT-}" ] && ranks_list="3"

# Each run has an algorithm for each collective; the runs together cover the table.
mapfile -t runs < <(awk -F '[(,] *' '
    /^ALGORITHM\(/ { run = count[$2]++; runs[run] = runs[run] "," tolower($2) ":" $4 }
    END { for (run = 0; run in runs; run++) print substr(runs[run], 2) }' \
    "$srcdir/src/collectives/algorithms.def")
job_check "the table has algorithms" [ "${#runs[@]}" -gt 1 ]

# Three ranks run all modes; other numbers of ranks run one mode in turn.
manners=(blocking async group flood) turn=0
battery()
{
    local mode=all
    [ $1 = 3 ] || [ -n "${CHECK_LONG-}" ] || mode=${manners[turn++ % 4]}
    job self $1 tests/conformance/conformance gloo --spawn $1 --brief --mode $mode
}

for ranks in $ranks_list; do
    for run in "${runs[@]}"; do
        algorithms=$(echo $run | tr ' ' ,)
        DIST_ALGO=$algorithms battery $ranks
    done
    DIST_REPRODUCIBLE=1 DIST_SEGMENTS=3 battery $ranks
    DIST_SEGMENTS=7 battery $ranks
done
