# SPDX-License-Identifier: BSD-3-Clause
# Runs multi-process cases, one per line; sourced by the scripts in tests/jobs/.
#
#   job       LAUNCHER RANKS PROGRAM ARGS...      must exit 0
#   job_fails TEXT LAUNCHER RANKS PROGRAM ARGS... must exit non-zero by itself and print TEXT
#   job_parallel COMMAND...                       runs one of the above in parallel with later cases
#   job_collect                                   waits for parallel cases and prints their results
#   job_has_modules                               false in a build without shared objects
#   job_needs_modules                             skips the rest of the script in such a build
#   job_background COMMAND...                     starts it in the background, as $!, into $job_output
#   job_until COMMAND...                          repeats it until it is true, for JOB_LIMIT at most
#
# LAUNCHER is openmpi or mpich (their mpirun), shell (a loop that sets RANK, WORLD_SIZE,
# LOCAL_RANK, MASTER_ADDR and MASTER_PORT) or self (PROGRAM once, which starts its ranks
# itself; RANKS is for the reader). PROGRAM is a path in the build tree, or absolute.
#
# Each case has a time limit of JOB_LIMIT seconds, and may leave no process. Its output is in the file
# $job_output until the next case. A program that exits with 77 skips the case. A script exits by itself
# with 0, 1 or 77. `job_check NAME COMMAND...` adds a case that is not a job, and `job_skip NAME REASON`
# a case that cannot run here. CHECK_LONG is set in make check-long, CHECK_SHORT when the suite runs
# again under sanitizers, with fewer ranks.
#
# job_turn K N is true for one K of 0 to N - 1: for CHECK_TURN modulo N, by default 0, with CHECK_SHORT 1,
# so that both suites of .ci/run together cover N = 2. In the long form it is always true. It is for cases
# that differ in one dimension of a matrix only.
#
# Scripts run in parallel under make -j. A script that measures sets JOB_ALONE=yes before it sources this
# file: then no other script runs, but unit tests may.

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
# Two mpirun cannot create Open MPI's session folders at the same time, and a killed mpirun leaves
# them: they stay in their usual place, not in a test's TMPDIR.
export OMPI_MCA_orte_tmpdir_base=/tmp PRTE_MCA_prte_tmpdir_base=/tmp
export HYDRA_IFACE=lo UCX_NET_DEVICES=lo

# MPI's leaks are suppressed by the frames on the stack; the fast unwinder does not get through
# libraries without frame pointers.
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
# A script's own options for MPICH's mpirun.
job_mpich=()
# job_leaves_mpi: after it ranks may exit without MPI_Finalize. MPICH's mpirun then notifies the
# other ranks by SIGUSR1, and its exit status is 0 or 1 at random: each rank prints its own.
job_unfinalized=()
job_leaves_mpi()
{
    job_recovers
    job_mpich=(-disable-auto-cleanup)
    job_unfinalized=(/bin/sh -c 'trap "" USR1; "$@"; echo "job: a rank ended with $?"' sh)
}

# The name of a case is its words and the DIST_ variables that the script has set for it.
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
# For cases that load modules, stand-ins of libraries, or the shared library.
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

# Prints a free port, below the kernel's ephemeral range, and followed by another free one, at which
# MindSpore's workers meet. Each script takes the next two, so that no two scripts use the same
# port.
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
# Clears the output first, so that job_until cannot match an earlier case's. Errors go to descriptor
# $job_errors if that is set.
job_background()
{
    : >"$job_output"
    "$@" >>"$job_output" 2>&"${job_errors-1}" 9>&- &
}
# Prints the agent of the distrun process $1.
job_agent() { pgrep -x distrun -P "$(pgrep -x supervisor -P "$1")"; }
job_listens() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# The shell loop: starts the ranks, returns the first failure.
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

# job_launch LAUNCHER RANKS PROGRAM ARGS...: runs it into $job_output, sets job_status.
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
    # Open MPI takes two of its locks in either order.
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

# True if processes remain. Waits a moment for them to end, then kills them.
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

# For cases that sleep: their output and that of their jobs go to files of their own.
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
        grep -qE '^(PASS|FAIL|SKIP): ' "$said" || job_fail "a parallel case" "it says nothing"
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
    echo "# all of it in $((SECONDS - job_start)) s, CHECK_TURN=$job_turns"
    [ $status -ne 0 ] && exit $status
    [ $job_failed -gt 0 ] && exit 1
    [ $job_passed -gt 0 ] && exit 0
    [ $job_skipped -gt 0 ] && exit 77
    echo "FAIL: no case was run"
    exit 1
}
trap job_end EXIT
