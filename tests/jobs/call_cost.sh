#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# What a short call costs: instructions of an all-reduce of 8 bytes that finds the other rank there,
# counted by callgrind. A number of instructions, not a time: it is the same on a busy machine. With
# another compiler, or without optimization, it is another one.
. "$srcdir/tests/support/job.sh"

program=$builddir/tests/jobs/call_cost
most=700

if grep -qE '^(DISTI_)?(C|LD)FLAGS = .*(-fsanitize|-O0|--coverage)' "$builddir/Makefile"; then
    job_skip cost "the build is not optimized"
    exit
fi
# Of ranks that share a CPU hardly one finds the others there.
[ "$(nproc)" -ge 2 ] || { job_skip cost "two ranks share a CPU"; exit; }
command -v valgrind >/dev/null || { job_skip cost "valgrind is missing"; exit; }

# Rank 0 under callgrind, which writes a file for each call.
cost_run()
{
    local other
    export MASTER_ADDR=127.0.0.1 MASTER_PORT WORLD_SIZE=2 DIST_BACKEND=gloo DIST_PROGRESS_THREAD=0
    MASTER_PORT=$(job_port)
    RANK=1 LOCAL_RANK=1 timeout 60 "$program" 30 &
    other=$!
    RANK=0 LOCAL_RANK=0 timeout 60 valgrind -q --tool=callgrind --collect-atstart=no \
        --callgrind-out-file="$job_folder/cost" --zero-before=dist_all_reduce \
        --toggle-collect=dist_all_reduce --dump-after=dist_all_reduce "$program" 30 &&
        wait $other
}

# The cheapest call: others may have waited.
cost_least()
{
    cat "$job_folder"/cost.* | awk '$1 == "totals:" && $2 > 0 { print $2 }' | sort -n | head -n 1
}

cost_is_small()
{
    local least
    cost_run || return 1
    least=$(cost_least)
    echo "      an all-reduce of 8 bytes: $least instructions, at most $most"
    [ -n "$least" ] && [ "$least" -le $most ]
}

job_check "a call's instructions" cost_is_small
