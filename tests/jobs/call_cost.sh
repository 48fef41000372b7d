#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The cost of a short call: instructions of a call of 8 bytes whose input has already arrived, counted
# by callgrind. The number of instructions, unlike time, does not depend on the machine's load.
#
# The limits are for code of gcc 12 on x86-64. Code of gcc 14 and of clang 14 executes up to 3.2 % more
# instructions than they allow, so code of another compiler may execute 5 % more. On other processors, and
# without optimization, the numbers mean nothing, and the test is skipped.
. "$srcdir/tests/support/job.sh"

cd "$builddir" || exit 99
program=$builddir/tests/jobs/call_cost

if grep -qE '^(DISTI_)?(C|LD)FLAGS = .*(-fsanitize|-O0|--coverage)' "$builddir/Makefile"; then
    job_skip cost "the build is not optimized"
    exit
fi
# cost_compiler CONDITION: true if the preprocessor condition holds for the library's compiler.
cost_compiler()
{
    # shellcheck disable=SC2046
    printf '#if %s\nyes\n#endif\n' "$1" |
        $(sed -n 's/^CC = //p' "$builddir/Makefile") -E -P - | grep -qx yes
}
cost_compiler 'defined(__x86_64__)' || { job_skip cost "the limits are for x86-64"; exit; }
cost_percent=105
! cost_compiler '!defined(__clang__) && __GNUC__ == 12' || cost_percent=100
cost_limit() { echo $(($1 * cost_percent / 100)); }
# Ranks that share a CPU would rarely find each other's data.
[ "$(nproc)" -ge 2 ] || { job_skip cost "two ranks share a CPU"; exit; }
command -v valgrind >/dev/null || { job_skip cost "valgrind is missing"; exit; }

# cost_run COLLECTIVE ROOT: runs rank 0 under callgrind, which writes a file for each call.
cost_run()
(
    export MASTER_ADDR=127.0.0.1 MASTER_PORT WORLD_SIZE=2 DIST_BACKEND=gloo DIST_PROGRESS_THREAD=0
    MASTER_PORT=$(job_port)
    rm -f "$job_folder"/cost*
    RANK=1 LOCAL_RANK=1 timeout 60 "$program" 30 "$1" "$2" &
    RANK=0 LOCAL_RANK=0 timeout 60 valgrind -q --tool=callgrind --collect-atstart=no \
        --callgrind-out-file="$job_folder/cost" --zero-before="dist_$1" \
        --toggle-collect="dist_$1" --dump-after="dist_$1" "$program" 30 "$1" "$2" 2>/dev/null &&
        wait $!
)

# Prints the cost of the cheapest call, since other calls may have waited.
cost_least()
{
    cat "$job_folder"/cost.* | awk '$1 == "totals:" && $2 > 0 { print $2 }' | sort -n | head -n 1
}

# cost_is_small COLLECTIVE ROOT MOST
cost_is_small()
{
    local least most
    most=$(cost_limit "$3")
    cost_run "$1" "$2" || return 1
    least=$(cost_least)
    echo "      $1 of 8 bytes, root $2: $least instructions, at most $most"
    [ -n "$least" ] && [ "$least" -le "$most" ]
}

# Rank 0 sends, receives, or both.
cost_check() { job_check "$1, root $2" cost_is_small "$@"; }
cost_check all_reduce 0 308
cost_check barrier 0 245
cost_check broadcast 1 312
cost_check gather 0 364
cost_check gather_v 0 420
cost_check scatter_v 0 415
cost_check all_to_all_v 0 532
if [ -n "${CHECK_LONG-}" ]; then
    cost_check broadcast 0 300
    cost_check reduce 0 312
    cost_check reduce 1 255
    cost_check gather 1 253
    cost_check scatter 0 332
    cost_check scatter 1 321
    cost_check gather_v 1 378
    cost_check scatter_v 1 386
fi

# The cost of optional parts: with DIST_FLIGHT=0 and no secret a call is cheaper by at most this
# number.
cost_of_trust()
{
    local on off
    cost_run all_reduce 0 || return 1
    on=$(cost_least)
    DIST_AUTH=none DIST_FLIGHT=0 DIST_LAUNCHER_WATCH=0 cost_run all_reduce 0 || return 1
    off=$(cost_least)
    echo "      all_reduce of 8 bytes: $on instructions, $off without recorder, secret and watch; at most $1 more"
    [ -n "$off" ] && [ $((on - off)) -le "$1" ]
}
job_check "the flight recorder and the other safety checks cost a call little" cost_of_trust 12

# cost_of_mpi MPI LIBRARY FUNCTION PART CALLS [COLLECTIVE]: a program that does not use libdist, with
# LIBRARY preloaded if that is not empty; rank 0 under callgrind, which counts FUNCTION.
# The program's threads are scheduled fairly: a polling thread would starve Open MPI's own.
cost_of_mpi()
{
    local script=$job_folder/cost_$1${2:+_preload}
    cat >"$script" <<END
#!$BASH
export LD_PRELOAD='$2' DIST_MPI_COMPARE=0 DIST_PROGRESS_THREAD=0
[ "\${OMPI_COMM_WORLD_RANK-\$PMI_RANK}" = 0 ] || exec "\$@"
exec valgrind -q --fair-sched=try --tool=callgrind --trace-children=yes --collect-atstart=no \
    --callgrind-out-file='$job_folder/cost.%p' --zero-before='$3' \
    --toggle-collect='$3' --dump-after='$3' "\$@" 2>/dev/null
END
    chmod +x "$script"
    rm -f "$job_folder"/cost.*
    job "$1" 2 "$script" "tests/jobs/preload_$1" "${@:4}"
}

# cost_check_mpi MPI COLLECTIVE MOST
cost_check_mpi()
{
    local least most
    most=$(cost_limit "$3")
    cost_of_mpi "$1" "$builddir/src/preload/$1/.libs/libdist_mpi.so" "MPI_$2" cost 300 "$2"
    [ "$job_status" = 0 ] || return
    least=$(cost_least)
    echo "      MPI_$2 of 8 bytes, $1 with libdist preloaded: $least instructions, at most $most"
    job_check "$1: instructions that the preload adds to $2" test "${least:-$most}" -lt "$most"
}

# cost_check_test MPI MOST: the preload must not make MPI_Test of messages expensive.
cost_check_test()
{
    local tests=1000 plain with
    cost_of_mpi "$1" "" program_tests polls $tests
    [ "$job_status" = 0 ] || return
    plain=$(cost_least)
    cost_of_mpi "$1" "$builddir/src/preload/$1/.libs/libdist_mpi.so" program_tests polls $tests
    [ "$job_status" = 0 ] || return
    with=$(cost_least)
    echo "      MPI_Test, $1: $((plain / tests)) instructions, $((with / tests)) with libdist preloaded"
    job_check "$1: the preload adds little to MPI_Test" test $((with - plain)) -le $(($2 * tests))
}

# cost_mpi MPI: all checks with that MPI.
cost_mpi()
{
    [ -e "$builddir/src/preload/$1/.libs/libdist_mpi.so" ] || { job_skip "preload, $1" "not built"; return; }
    cost_check_mpi "$1" Allreduce 525
    cost_check_mpi "$1" Alltoallv 1170 # 910, and on a busy machine one unsuccessful poll, 130, in each call
    cost_check_mpi "$1" Allgatherv 790
    if [ -n "${CHECK_LONG-}" ]; then
        cost_check_mpi "$1" Allgather 590
        cost_check_mpi "$1" Gatherv 890
        cost_check_mpi "$1" Scatterv 600
        cost_check_mpi "$1" Reduce_scatter 700
    fi
    cost_check_test "$1" 2
}
cost_mpi openmpi
[ -z "${CHECK_LONG-}" ] || cost_mpi mpich
