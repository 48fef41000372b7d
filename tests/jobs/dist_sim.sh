#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# dist_sim: its predictions against closed forms, its drawings, and what it refuses.
. "$srcdir/tests/support/job.sh"

# All prices are zero unless a case sets them.
free=same_numa=0/0,same_node=0/0,other_node=0/0,copy=0,reduce=0,memory=0,network=0,step=0,switch=0

# column NAME: prints that column of the csv's first line of values.
column() { awk -F, -v name="$1" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == name) c = i } NR == 2 { print $c }' "$job_output"; }
near() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a > b * 0.9999 && a < b * 1.0001) }'; }

# A ring: 2 (n - 1) hops, each of one latency and 1/n of the vector.
job self - dist_sim all_reduce --topology node:8 --bytes 1M,8M --algorithm ring --segments 1 \
    --links "$free" --links other_node=100us/1gbit/0 --format csv
job_check "a ring equals its closed form" near "$(column seconds)" \
    "$(awk 'BEGIN { printf "%.9g", 14 * (100e-6 + 1048576 / 8 / 125e6) }')"
job_check "a ring sends 2 (n - 1) vectors" [ "$(column other_node_bytes)" = $((14 * 1048576)) ]
job_check "its plans are verified" [ "$(column verified)" = yes ]
job_check "a line for each size" [ "$(wc -l <"$job_output")" = 3 ]

# Two nodes, all data from one to the other: costs from a tuning file.
printf 'libdist tuning 1\nother_node_latency_ns 50000\nother_node_bytes_per_second 1000000\n' \
    >"$job_folder/tuning"
job self - dist_sim broadcast --topology node:2 --bytes 1M,2M --algorithm binomial \
    --links "$job_folder/tuning" --links other_node=50us/1MB/0,step=0 --format csv
job_check "a tuning file" near "$(column seconds)" 1.048626

job self - dist_sim all_reduce --topology 'rack:2 node:2 core:2' --bytes 1M
job_check "all algorithms are listed" [ "$(grep -cE '^(ring|tree|recursive_doubling|halving_doubling|direct|direct_ordered|hierarchical): verified' "$job_output")" = 7 ]
job_check "each size has a winner" [ "$(grep -o '\*' "$job_output" | wc -l)" = 3 ]
job_check "racks are among the links" grep -q '^other_rack .*GB/s' "$job_output"
# Between nodes: two trees of nodes - 1 edges, up and down, 64 segments each.
job self - dist_sim all_reduce --topology 'node:512 core:8' --bytes 1M,64M --algorithm tree \
    --format csv
job_check "a tree crosses each edge between nodes twice" \
    [ "$(awk -F, 'NR == 3 { print $20 }' "$job_output")" = $((2 * 511 * 2 * 64)) ]
job_check "a tree of 4096 ranks is verified" [ "$(column verified)" != no ]

# Equal ranks are simulated once, which is fast; the verification would need all plans.
job self - dist_sim all_reduce --topology node:8192 --bytes 8K,8M --algorithm ring --segments 1 \
    --links "$free" --links other_node=100us/1gbit/0
job_check "nodes that are alike are simulated once" grep -q '134201344 messages' "$job_output"
job_check "what is too long is not proved, and said" grep -q 'too long to be verified' "$job_output"

job self - dist_sim barrier --ranks 5 --format json
job_check "json" grep -q '"algorithm": "dissemination", "verified": "yes"' "$job_output"
job self - dist_sim all_reduce --ranks 1

for ranks in 1 8 64; do
    job self - dist_sim broadcast --ranks $ranks --bytes 1K --draw "$job_folder/$ranks.svg"
    job_check "a picture of $ranks ranks" \
        [ "$(grep -c '<circle' "$job_folder/$ranks.svg")" = $((4 * ranks)) ]
done


job_fails "has 2 ranks" self - dist_sim all_reduce --ranks 4 --topology node:2
job_fails "invalid item" self - dist_sim all_reduce --links other_node=fast
job_fails "No such file" self - dist_sim all_reduce --links "$job_folder/none"
job_fails "give the smaller sizes first" self - dist_sim all_reduce --bytes 2K,1K
job_fails "is not a collective that can be simulated" self - dist_sim all_reduces
job_fails "omit the option to see all" self - dist_sim all_reduce --algorithm rings
job_fails "there are only 8 ranks" self - dist_sim broadcast --root 8
job_fails "not one of text|csv|json" self - dist_sim all_reduce --format xml
job_check "wrong usage is exit 2" [ "$job_status" = 2 ]
job_fails "at most 256" self - dist_sim all_reduce --ranks 257 --draw "$job_folder/many.svg"
job_check "a drawing that is too large: exit 1" [ "$job_status" = 1 ]
job_fails "use fewer segments or fewer ranks" self - dist_sim all_reduce --algorithm ring \
    --ranks 1024 --segments 1024 --no-verify
job_check "a simulation that is too large: exit 1" [ "$job_status" = 1 ]
