#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The peers of dist_bench: the results of each library are right, and a peer that is killed leaves
# no process behind.
. "$srcdir/tests/support/job.sh"

[ -z "${CHECK_SHORT-}" ] || { job_skip "peers" "the other suite measures"; exit; }

peers=$builddir/bench/peers
moves="broadcast reduce all_gather reduce_scatter all_to_all gather scatter all_gather_v
    reduce_scatter_v gather_v scatter_v all_to_all_v"
point="-t 0.01 -r 1 --format csv"

rows() { [ "$(grep -cE ",$1\$" "$job_output")" -ge "$2" ]; }
no_wrong() { ! grep -qE ',wrong$' "$job_output"; }

# right PEER RANKS LEAST [variant]: runs all its collectives, in place and not; at least LEAST must
# exist. A variant of a library differs only in memory or in how it waits.
right()
{
    [ -x "$peers/$1" ] || { job_skip "$1" "not built"; return; }
    # shellcheck disable=SC2086
    for place in "" -l; do
        job self "$2" dist_bench -n "$2" --compare "peer:$1" $point $place -m 30000:30000 -k 1 \
            all_reduce $moves
        [ -n "$job_status" ] || continue
        job_check "$1, $2 ranks $place: right" rows right "$3"
        job_check "$1, $2 ranks $place: none wrong" no_wrong
    done
    [ -z "${4-}" ] || [ -n "${CHECK_LONG-}" ] || return 0
    # shellcheck disable=SC2086
    job self "$2" dist_bench -n "$2" --compare "peer:$1" $point --timing osu -m 3000:3000 \
        all_reduce $moves
    job_check "$1, $2 ranks, timed as OSU's programs do: right" rows osu,right "$3"
    # shellcheck disable=SC2086
    job self "$2" dist_bench -n "$2" --compare "peer:$1" $point -T int8 -o max -m 9:9 all_reduce
    job_check "$1, $2 ranks: int8, max" rows right 1
    # shellcheck disable=SC2086
    job self "$2" dist_bench -n "$2" --compare "peer:$1" $point -m 64:64 latency bw barrier
    job_check "$1, $2 ranks: messages" rows '(right|unchecked)' 2
}

right openmpi 3 13
right openmpi-malloc 2 13 variant
right openmpi-yield 2 13 variant
right mpich 2 12
right gloo 3 4

# The probe prints why a peer cannot run, or its version.
"$srcdir/bench/peers/write-peer" "$job_folder/lost" openmpi none /nowhere/mpirun
mkdir "$job_folder/workers" && cp "$srcdir/bench/peers/start.sh" "$job_folder/workers/"
probe_refuses() { "$job_folder/lost" --probe 2>&1 | grep -q 'no /nowhere/mpirun'; }
job_check "a peer without its mpirun prints the reason" probe_refuses
probe_code() { "$job_folder/lost" --probe 2>/dev/null; [ $? -eq 77 ]; }
job_check "its probe has the exit code of a peer that cannot run" probe_code

# killed PEER: its ranks wait for dist_bench, which never sends an order.
killed()
{
    [ -x "$peers/$1" ] || { job_skip "$1 is killed" "not built"; return; }
    job_id=$$.killed.$1
    # Files that Open MPI cannot remove when it is killed are removed with the folder.
    OMPI_MCA_btl_vader_backing_directory=$job_folder TEST_JOB=$job_id DIST_BENCH_SOCKET=$job_folder/mute setsid "$peers/$1" 2 \
        >"$job_output" 2>&1 </dev/null 9>&- &
    job_until eval '[ "$(job_processes | wc -w)" -ge 3 ]'
    sleep 0.5
    kill -KILL $! 2>/dev/null
    wait $! 2>/dev/null
    for ((try = 0; try < 5; try++)); do job_leaked || return 0; done
    return 1
}

python=$(command -v python3)
if [ -n "$python" ]; then
    "$python" -c 'import socket, sys, time
s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(64); time.sleep(100)' \
        "$job_folder/mute" 9>&- &
    mute=$!
    job_until test -S "$job_folder/mute"
    for peer in openmpi mpich; do job_check "$peer is killed and leaves no process" killed $peer; done
    kill $mute 2>/dev/null
    wait $mute 2>/dev/null || true
else
    job_skip "a peer is killed" "no python3 here"
fi
