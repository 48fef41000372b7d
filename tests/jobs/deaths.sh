#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Two ranks are killed, one of which may be rank 0, which serves the store: every other rank gets an
# error that names the right one. The long form tries each order of two deaths with 3, 4 and 5
# ranks, in each call, twice (DEATHS_REPEATS), and prints the longest time until a survivor got its
# error.
. "$srcdir/tests/support/job.sh"
. "$srcdir/tests/support/tls.sh"

JOB_LIMIT=60
program=tests/jobs/deaths
calls="short middle long all_to_all all_gather broadcast scatter reduce barrier recv send chain async test"
latencies=$job_folder/latencies
next=0 batch=0

# The time from the second death, or from the call if that was later, to the error: "NAME CALL RANKS
# ORDER SECONDS".
measure()
{
    awk -v name="$1" '
        $1 == "dead" && $3 > dead { dead = $3 }
        $1 == "knew" { began[++n] = $3; knew[n] = $4 }
        END { for (i = 1; i <= n && dead; i++) {
                took = knew[i] - (began[i] > dead ? began[i] : dead)
                printf "%s %.4f\n", name, (took > 0 ? took : 0) } }
    ' "$job_output"
}

# die NAME LAUNCHER RANKS BACKEND CALL FIRST SECOND GAP [HOW]
die()
{
    job "$2" "$3" $program "${@:4}"
    # A rank that fails without dying prints no time.
    case ${9-}:$job_status in
    abort:* | differ:* | *:77) ;;
    *) measure "$1 $5 $3 $6-$7" >>"$latencies.$BASHPID" ;;
    esac
}

# Three cases at a time, as they mostly wait.
beside()
{
    job_parallel die "$@"
    [ $((++batch % 3)) != 0 ] || job_collect
}

# all NAME LAUNCHER BACKEND: every case.
all()
{
    local ranks first second call repeat gap
    for ranks in 3 4 5; do
        for ((first = 0; first < ranks; first++)); do
            for ((second = 0; second < ranks; second++)); do
                # The group must keep one rank.
                [ $first != $second ] && { [ $ranks -gt 3 ] || [ $((first * second)) = 0 ]; } || continue
                for call in $calls; do
                    for ((repeat = 0; repeat < ${DEATHS_REPEATS:-2}; repeat++)); do
                        gap=$((repeat % 2 * 50))
                        beside "$1" "$2" $ranks "$3" "$call" $first $second $gap
                    done
                done
            done
        done
    done
}

# Without the long form every third case runs, so that each call is tried over some of the
# transports; under sanitizers every ninth.
share=$([ -n "${CHECK_SHORT-}" ] && echo 9 || echo 3)
is_next() { next=$((next + 1)); [ $((next % share)) = 0 ]; }

# battery NAME LAUNCHER BACKEND: all cases, or some of them, with orders that differ from call to
# call.
battery()
{
    local call orders=("3 0 1" "4 0 2" "4 2 0" "5 0 3" "5 4 0") order
    if [ -n "${CHECK_LONG-}" ]; then
        all "$@"
    else
        for call in $calls; do
            is_next || continue
            read -ra order <<<"${orders[next / share % 5]}"
            beside "$1" "$2" "${order[0]}" "$3" "$call" "${order[@]:1}" $((next / share % 2 * 50))
        done
    fi
    beside "$1" "$2" 4 "$3" recv 0 2 200 cold
    beside "$1" "$2" 4 "$3" short 0 2 500 abort
    [ -n "${CHECK_SHORT-}" ] || beside "$1" "$2" 4 "$3" short 0 2 500 differ
}

battery gloo-memory shell gloo
DIST_NODE_MEMORY=0 DIST_TRANSPORT=shm battery gloo-shm shell gloo
DIST_TRANSPORT=tcp battery gloo-tcp shell gloo
if tls_possible; then
    DIST_TRANSPORT=tcp tls_with battery tls shell gloo
fi
if [ -e "$builddir/.libs/dist_ucx.so" ]; then
    # UCX leaks memory of connections to killed ranks.
    export ASAN_OPTIONS=${ASAN_OPTIONS-}:detect_leaks=0
    battery ucx-memory shell ucx
    DIST_TRANSPORT=ucx battery ucx shell ucx
fi
job_collect

# mpirun kills the other ranks unless it is told not to.
job_recovers
[ -n "${CHECK_SHORT-}" ] || battery mpi-memory openmpi mpi
job_collect

# Ranks on two machines: a rank sees the processes of its own machine, but only connections to the
# other.
cluster=$srcdir/bench/netns-cluster
[[ $cluster == /* ]] || cluster=$PWD/$cluster
across()
{
    job self "$1x$2" "$cluster" -k "$1" -n "$2" -g 60 "$builddir/$program" gloo "${@:3}"
    case ${7-}:$job_status in
    abort:* | differ:* | *:77) ;;
    *) measure "machines-$1x$2 $3 $(($1 * $2)) $4-$5" >>"$latencies.$BASHPID" ;;
    esac
}
if "$cluster" true 2>"$job_folder/why"; then
    # If both die at once, the store may have notified only some survivors, and a survivor of
    # another machine may then name such a survivor (docs/reliability.md). So these deaths are 50 ms
    # apart.
    for call in $calls; do
        is_next || [ -n "${CHECK_LONG-}" ] || continue
        across 2 2 "$call" 0 $((1 + next / share % 2)) 50
        across 4 1 "$call" 0 $((1 + next / share % 3)) 50
    done
    across 2 2 recv 0 2 50 cold
    across 2 2 short 0 2 500 abort
    across 2 2 short 0 2 500 differ
else
    job_skip "several machines" "$(tail -n 1 "$job_folder/why")"
fi

job_check "survivors were timed" [ -n "$(cat "$latencies".* 2>/dev/null)" ]
cat "$latencies".* | sort -k1,1 -k5,5n | awk '
    function say() { if (n) printf "# %s: %d survivors got the error, half within %.0f ms, all within %.0f ms (%s)\n",
        name, n, 1e3 * all[int((n + 1) / 2)], 1e3 * all[n], last }
    $1 != name { say(); n = 0; name = $1 }
    { all[++n] = $5; last = $2 " of " $3 " ranks, " $4 " killed" }
    END { say() }'
