#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# dist_sim's predictions agree with dist_bench's measurements, on hosts whose links are slow enough
# to dominate.
JOB_ALONE=yes
. "$srcdir/tests/support/job.sh"

[ -z "${CHECK_SHORT-}" ] || { job_skip "predictions" "the other suite measures"; exit; }

cluster=$srcdir/bench/netns-cluster
[[ $cluster == /* ]] || cluster=$PWD/$cluster
export DIST_TIMEOUT=60

if ! "$cluster" -r 1gbit true 2>"$job_folder/why"; then
    job_skip "predictions" "$(tail -n 1 "$job_folder/why")"
    exit
fi

# Prints the value of the last line of csv in the column $1.
value() { awk -F, -v name="$1" 'NR == 1 || !c { for (i = 1; i <= NF; i++) if ($i == name) c = i; next } { v = $c } END { print v }' "$job_output"; }

# A frame of 1514 bytes contains 1448 bytes of data.
data_rate() { awk -v m="$1" 'BEGIN { printf "%.3f", m * 1448 / 1514 }'; }

within() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a > 0 && b > 0 && a / b < 1.25 && b / a < 1.25) }'; }
less() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(b == "" || a + 0 < b + 0) }'; }

# predicted HOSTS RANKS MBIT ALGORITHM: 4 MiB of floats, RANKS on each host. Other load of the
# machine only makes calls longer, so the shortest of some tries counts.
predicted()
{
    local predicted shortest='' try seconds
    local name="$1 hosts of $2, $3 Mbit/s, $4"
    job self - dist_sim all_reduce --topology "node:$1 core:$2" --bytes 1K,4M --algorithm "$4" \
        --links "other_node=50us/$(data_rate "$3")mbit/10us" --format csv
    predicted=$(value seconds)
    for try in 1 2 3 4 5 6; do
        DIST_ALGO=all_reduce:$4 job self - "$cluster" -k "$1" -n "$2" -r "$3mbit" \
            "$builddir/dist_bench" --backend gloo -b 4M -e 4M -i 3 -x 1 -r 1 --format csv all_reduce
        seconds=$(awk -v us="$(value min_us)" 'BEGIN { print us / 1e6 }')
        less "$seconds" "$shortest" && shortest=$seconds
        within "$predicted" "$shortest" && break
    done
    echo "$name: predicted $predicted s, measured $shortest s"
    job_check "$name" within "$predicted" "$shortest"
}

predicted 2 1 200 ring
predicted 4 1 200 ring
predicted 4 1 200 recursive_doubling
predicted 2 2 200 ring
# With faster links, other load of the CPUs matters more.
[ -n "${CHECK_LONG-}" ] || exit 0
predicted 2 1 1000 ring
predicted 4 1 1000 ring
