# SPDX-License-Identifier: BSD-3-Clause
# Runs multi-process cases, one per line; sourced by the scripts in tests/jobs/.
#
#   job       LAUNCHER RANKS PROGRAM ARGS...      must exit 0
#   job_fails TEXT LAUNCHER RANKS PROGRAM ARGS... must exit non-zero by itself and print TEXT
#   job_parallel COMMAND...                       runs one of the above in parallel with later cases
#   job_collect                                   waits for parallel cases and prints their results
#   job_has_modules                               false in a build without shared objects
#   job_needs_modules                             skips the rest of the script in such a build
#   job_background COMMAND...                     starts COMMAND in the background; its pid is $!, and
#                                                 its output goes to $job_output
#   job_until COMMAND...                          repeats COMMAND until it succeeds; false if it does
#                                                 not succeed within JOB_LIMIT seconds
#
# LAUNCHER is openmpi or mpich (their mpirun), shell (a loop that sets RANK, WORLD_SIZE,
# LOCAL_RANK, MASTER_ADDR and MASTER_PORT) or self (starts PROGRAM once, which starts its ranks
# itself; RANKS is ignored). PROGRAM is a path in the build tree, or absolute.
#
# Each case has a time limit of JOB_LIMIT seconds, and no process may remain after it. Its output is in
# the file $job_output until the next case. A program that exits with 77 skips the case. At the end of
# the script, this file makes it exit with 0, 1 or 77. `job_check NAME COMMAND...` adds a case that is
# not a job, and `job_skip NAME REASON` a case that cannot run here. CHECK_LONG is set in make
# check-long, CHECK_SHORT when the suite runs again under sanitizers, with fewer ranks.
#
# job_turn K N selects one of N similar cases, numbered from 0: it is true if K is CHECK_TURN modulo N, and
# always in the long form. CHECK_TURN is 0 by default and 1 with CHECK_SHORT, so that the two suites of
# .ci/run together run both of two cases.
#
# Scripts run in parallel under make -j. A script that measures sets JOB_ALONE=yes before it sources this
# file: then no other script runs at the same time, but unit tests may.

: "${srcdir:?run it through make check}" "${builddir:?run it through make check}"
: "${JOB_LIMIT:=120}"

# The tools of make check-tsan and check-valgrind (watched.sh) make ranks slow.
job_patience=$([ -n "${CHECK_WATCHED-}" ] && echo 10 || echo 1)

job_passed=0 job_failed=0 job_skipped=0 job_number=0 job_parallels=0 job_parallel_pids=()
job_folder=$(mktemp -d "${TMPDIR:-/tmp}/dist-job.XXXXXX") || exit 99
job_output=$job_folder/output

# A script that measures takes this lock exclusively; all other scripts share it.
exec 9>"$builddir/tests/jobs.lock"
if [ -n "${JOB_ALONE-}" ]; then flock -x 9; else flock -s 9; fi
job_start=$SECONDS job_from=$SECONDS

. "$srcdir/scripts/openmpi.sh"
# Open MPI's session folders are in /tmp, not in a test's TMPDIR: two mpirun cannot create them at the
# same time, and a killed mpirun leaves them behind.
export OMPI_MCA_orte_tmpdir_base=/tmp PRTE_MCA_prte_tmpdir_base=/tmp
export HYDRA_IFACE=lo UCX_NET_DEVICES=lo

# Leaks of MPI are suppressed by the names of functions on the stack. The fast unwinder cannot unwind
# libraries that were built without frame pointers.
job_mpi=(env "ASAN_OPTIONS=${ASAN_OPTIONS-}:fast_unwind_on_malloc=0")
# Lets ranks of Open MPI survive a rank that dies or exits without MPI_Finalize.
job_recovers()
{
    export OMPI_MCA_orte_enable_recovery=1   # Open MPI 4
    export PRTE_MCA_state_base_recoverable=1 # Open MPI 5
}
# job_preloaded LIBRARY: prints a script that runs a program with LIBRARY preloaded.
job_preloaded()
{
    cat >"$job_folder/preloaded" <<END
#!$BASH
export ASAN_OPTIONS="\$ASAN_OPTIONS:verify_asan_link_order=0"
LD_PRELOAD='$1' exec "\$@"
END
    chmod +x "$job_folder/preloaded"
    echo "$job_folder/preloaded"
}
# job LAUNCHER RANKS "${job_small_stack[@]}" PATH ARGS...: with a stack of 64 KiB, except under sanitizers
# and valgrind.
job_stack='ulimit -S -s 64'
[ -z "${CHECK_SHORT-}${CHECK_WATCHED-}" ] || job_stack=true
job_small_stack=("$BASH" -c "$job_stack; exec \"\$@\"" small)
# Options for MPICH's mpirun that a script may add.
job_mpich=()
# job_leaves_mpi: allows ranks to exit without MPI_Finalize in the following cases. MPICH's mpirun then
# sends SIGUSR1 to the other ranks, and its exit status is 0 or 1 at random. So each rank prints its own
# exit status, which job_launch checks.
job_unfinalized=()
job_leaves_mpi()
{
    job_recovers
    job_mpich=(-disable-auto-cleanup)
    job_unfinalized=(/bin/sh -c 'trap "" USR1; "$@"; echo "job: a rank ended with $?"' sh)
}

# Prints the name of a case: the DIST_ variables that the script has set for it, and its words.
job_environment=$(env | grep '^DIST_' | sort)
job_name()
{
    local settings
    settings=$(comm -13 <(echo "$job_environment") <(env | grep '^DIST_' | sort) | tr '\n' ' ')
    echo "$settings${*//"$job_folder/"/}"
}

job_turns=${CHECK_TURN:-${CHECK_SHORT:+1}}
job_turns=${job_turns:-0}
job_turn()
{
    [ -n "${CHECK_LONG-}" ] || [ $((job_turns % $2)) = "$1" ]
}

job_pass()
{
    job_passed=$((job_passed + 1))
    echo "PASS: $* [$((SECONDS - job_from)) s]"
    job_from=$SECONDS
}
# False in a build without shared objects, which cannot load modules, simulated libraries or libdist.so.
job_has_modules()
{
    grep -q '^build_libtool_libs=yes' "$builddir/libtool" && return
    job_skip "modules" "configured with --disable-shared"
    return 1
}
job_needs_modules() { job_has_modules || exit 0; }
job_skip() { job_skipped=$((job_skipped + 1)); echo "SKIP: $1 ($2)"; }
job_fail()
{
    job_failed=$((job_failed + 1))
    echo "FAIL: $1 ($2)"
    [ -s "$job_output" ] && tail -n 40 "$job_output" | sed 's/^/    | /'
}

job_check()
{
    local name=$1
    shift
    if "$@"; then job_pass "$name"; else job_fail "$name" "$* is false"; fi
}

# Prints a free port below the kernel's ephemeral range. The port after it is free too; MindSpore's
# workers use it for their rendezvous. Each call takes the next two ports, so that no two scripts use
# the same port.
job_port()
{
    local file=$builddir/tests/jobs.port port
    {
        flock 8
        { read -r port <"$file"; } 2>/dev/null || port=$((20000 + RANDOM % 10000))
        while :; do
            port=$((port < 29997 ? port + 2 : 20000))
            (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null ||
                (exec 3<>"/dev/tcp/127.0.0.1/$((port + 1))") 2>/dev/null || break
        done
        echo "$port" | tee "$file"
    } 8>"$file.lock"
}

# Waits until the command is true; fails if that takes more than JOB_LIMIT seconds.
job_until()
{
    local end=$((SECONDS + JOB_LIMIT))
    until "$@"; do
        [ $SECONDS -lt $end ] || return 1
        sleep 0.02
    done
}
# Clears $job_output first, so that job_until cannot find the output of an earlier case. Standard error
# goes to descriptor $job_errors if that is set.
job_background()
{
    : >"$job_output"
    "$@" >>"$job_output" 2>&"${job_errors-1}" 9>&- &
}
# Prints the agent of the distrun process $1.
job_agent() { pgrep -x distrun -P "$(pgrep -x supervisor -P "$1")"; }
job_listens() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# The launcher `shell`: starts the ranks. Returns the exit status of the lowest rank that failed, or 0.
job_shell()
{
    local ranks=$1 rank pids=() status=0 result
    shift
    export MASTER_ADDR=127.0.0.1 MASTER_PORT
    MASTER_PORT=$(job_port)
    trap 'kill "${pids[@]}" 2>/dev/null' TERM
    for ((rank = 0; rank < ranks; rank++)); do
        RANK=$rank WORLD_SIZE=$ranks LOCAL_RANK=$rank "$@" &
        pids+=($!)
    done
    for rank in "${!pids[@]}"; do
        wait "${pids[rank]}"
        result=$?
        [ $status -eq 0 ] && status=$result
    done
    return $status
}
export -f job_shell job_port

# job_launch LAUNCHER RANKS PROGRAM ARGS...: runs the job with its output in $job_output. Sets
# job_status.
job_launch()
{
    local launcher=$1 ranks=$2 program=$builddir/$3 command
    [[ $3 == /* ]] && program=$3
    shift 3
    if [ "${CHECK_WATCHED-}" = valgrind ] && [ "$program" != "$BASH" ]; then
        set -- "$srcdir/tests/support/memcheck.sh" "$program" "$@"
        program=$BASH
    fi
    case $launcher in
    # Deadlock detection is off, because Open MPI acquires two of its locks in either order.
    openmpi) command=("${job_mpi[@]}" "TSAN_OPTIONS=${TSAN_OPTIONS-}:detect_deadlocks=0"
                      "$OPENMPI_RUN" -np "$ranks" "$program" "$@") ;;
    mpich) command=("${job_mpi[@]}" "$MPICH_RUN" -launcher fork ${job_mpich[@]+"${job_mpich[@]}"}
                    -np "$ranks" ${job_unfinalized[@]+"${job_unfinalized[@]}"} "$program" "$@") ;;
    shell) command=("$BASH" -c 'job_shell "$@"' job_shell "$ranks" "$program" "$@") ;;
    self) command=("$program" "$@") ;;
    *) echo "job.sh: no launcher $launcher" >&2; exit 99 ;;
    esac
    job_number=$((job_number + 1))
    job_id=$$.$job_number
    TEST_JOB=$job_id timeout -k 10 "$((job_patience * JOB_LIMIT))" "${command[@]}" \
        >"$job_output" 2>&1 </dev/null 7>&- 9>&-
    job_status=$?
    if [ "$launcher" = mpich ] && [ ${#job_unfinalized[@]} -gt 0 ] && [ $job_status -lt 124 ]; then
        [ "$(grep -c 'job: a rank ended with 0$' "$job_output")" = "$ranks" ]
        job_status=$?
    fi
}

job_processes() { grep -lsz "^TEST_JOB=$job_id\$" /proc/[0-9]*/environ | tr -dc '0-9\n'; }

# True if processes remain after the job. Waits up to 10 s for them to end, then kills them.
job_leaked()
{
    local left end=$((SECONDS + 10 * job_patience))
    while [ $SECONDS -lt $end ]; do
        left=$(job_processes)
        [ -z "$left" ] && return 1
        sleep 0.1
    done
    # shellcheck disable=SC2086
    kill -KILL $left 2>/dev/null
    return 0
}

# True if the launcher is available; otherwise skips the case.
job_possible()
{
    case ${CHECK_WATCHED-}:$2 in
    valgrind:openmpi | valgrind:mpich) job_skip "$1" "valgrind reports what MPI does"; return 1 ;;
    *:openmpi) [ -n "$OPENMPI_RUN" ] || { job_skip "$1" "no Open MPI here"; return 1; } ;;
    *:mpich) [ -n "$MPICH_RUN" ] || { job_skip "$1" "no MPICH here"; return 1; } ;;
    esac
}

job()
{
    local name leaked=no
    name=$(job_name "$@")
    job_status=
    job_possible "$name" "$1" || return 0
    job_launch "$@"
    job_leaked && leaked=yes
    if [ $job_status -eq 77 ]; then
        job_skip "$name" "$(tail -n 1 "$job_output")"
    elif [ $job_status -eq 124 ] || [ $job_status -eq 137 ]; then
        job_fail "$name" "not done within $((job_patience * JOB_LIMIT)) s"
    elif [ $job_status -ne 0 ]; then
        job_fail "$name" "exit $job_status"
    elif [ $leaked = yes ]; then
        job_fail "$name" "processes left behind"
    else
        job_pass "$name"
    fi
}

job_fails()
{
    local text=$1 name leaked=no
    shift
    name="$(job_name "$@") fails: $text"
    job_status=
    job_possible "$name" "$1" || return 0
    job_launch "$@"
    job_leaked && leaked=yes
    if [ $job_status -eq 124 ] || [ $job_status -eq 137 ]; then
        job_fail "$name" "not done within $((job_patience * JOB_LIMIT)) s"
    elif [ $job_status -eq 0 ]; then
        job_fail "$name" "exit 0"
    elif [ $job_status -ge 128 ]; then
        job_fail "$name" "ended by a signal, exit $job_status"
    elif ! grep -qF -- "$text" "$job_output"; then
        job_fail "$name" "the text is not in its output"
    elif [ $leaked = yes ]; then
        job_fail "$name" "processes left behind"
    else
        job_pass "$name"
    fi
}

# For cases that mostly sleep. Each case and its jobs write their output to separate files.
job_parallel()
{
    job_parallels=$((job_parallels + 1))
    (
        trap - EXIT
        job_output=$job_folder/parallel.output.$job_parallels job_number=$((1000 * job_parallels))
        "$@"
    ) >"$job_folder/parallel.$job_parallels" 2>&1 &
    job_parallel_pids+=($!)
}
job_collect()
{
    local number said
    wait "${job_parallel_pids[@]}"
    for ((number = 1; number <= job_parallels; number++)); do
        said=$job_folder/parallel.$number
        cat "$said"
        grep -qE '^(PASS|FAIL|SKIP): ' "$said" || job_fail "a parallel case" "it printed no result"
        job_passed=$((job_passed + $(grep -c '^PASS: ' "$said")))
        job_failed=$((job_failed + $(grep -c '^FAIL: ' "$said")))
        job_skipped=$((job_skipped + $(grep -c '^SKIP: ' "$said")))
    done
    job_parallels=0 job_parallel_pids=()
}

job_end()
{
    local status=$?
    rm -rf "$job_folder"
    echo "# total: $((SECONDS - job_start)) s, CHECK_TURN=$job_turns"
    [ $status -ne 0 ] && exit $status
    [ $job_failed -gt 0 ] && exit 1
    [ $job_passed -gt 0 ] && exit 0
    [ $job_skipped -gt 0 ] && exit 77
    echo "FAIL: no case was run"
    exit 1
}
trap job_end EXIT
