#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# An MPI program that does not use libdist, alone and with libdist_mpi.so preloaded: equal results,
# and the report shows who computed them.
. "$srcdir/tests/support/job.sh"
job_needs_modules
cd "$builddir" || exit 99

# embedding.sh relinks libdist_mpi.so.
exec 7>"$builddir/tests/install.lock"
flock -s 7

kinds="Barrier Allreduce Bcast Reduce Allgather Allgatherv Reduce_scatter Reduce_scatter_block
    Alltoall Alltoallv Gather Gatherv Scatter Scatterv"

library() { echo "$builddir/src/preload/$1/.libs/libdist_mpi.so"; }

# with MPI [LIMITS]: prints a script that runs a program with the library for that MPI preloaded,
# under limits, which are arguments of ulimit.
with()
{
    local script=$job_folder/with_$1${2// /}
    cat >"$script" <<END
#!$BASH
${2:+ulimit $2}
export ASAN_OPTIONS="\$ASAN_OPTIONS:verify_asan_link_order=0"
LD_PRELOAD='$(library "$1")' exec "\$@"
END
    chmod +x "$script"
    echo "$script"
}

# preload MPI RANKS PART...: as job. limits: as in `with`. MPI and libdist are not compared by
# default: the calls served would depend on the machine.
limits=
preload()
{
    local mpi=$1 ranks=$2
    shift 2
    DIST_MPI_COMPARE=${DIST_MPI_COMPARE-0} DIST_MPI_REPORT=1 job "$mpi" "$ranks" "$(with "$mpi" "$limits")" "tests/jobs/preload_$mpi" "$@"
}

hash() { sed -n 's/^hash \([0-9a-f]*\),.*/\1/p' "$job_output"; }
same_hash() { [ -n "$1" ] && [ "$(hash)" = "$1" ]; }

# Prints the calls of a kind and form in the report: "served handed-on".
row() { awk -v name="MPI_$1" '$2 == name { print $3, $4 }' "$job_output"; }
forwarded() { sed -n "s/^libdist: forwarded \([0-9]*\): $1.*/\1/p" "$job_output"; }

# Prints the calls that an MPI's library has, without MPI_. Old ones have no persistent collectives.
known() { nm -D --defined-only "$(library "$1")" | sed -n 's/.* MPIX\{0,1\}_\([A-Z][a-z_]*\)$/\1/p'; }
for mpi in openmpi mpich; do known $mpi >"$job_folder/known_$mpi"; done

# Every kind in every form was served, and none forwarded.
all_served()
{
    local kind forms=
    for kind in $kinds; do forms+=" $kind I${kind,} ${kind}_init"; done
    awk -v forms="$forms" '
        BEGIN { n = split(forms, form, " ") }
        FNR == NR { known[$1]; next }
        sub(/^MPI_/, "", $2) { served[$2] = $3; others[$2] = $4 }
        END {
            for (i = 1; i <= n; i++) {
                if (!(form[i] in known)) continue
                asked++
                if (served[form[i]] + 0 > 0 && others[form[i]] == "0") continue
                print form[i] " was not served"
                bad = 1
            }
            exit bad || !asked
        }' "$job_folder/known_$1" "$job_output" && ! grep -q 'forwarded [0-9]' "$job_output"
}

# Calls that libdist does not support are forwarded to MPI.
right_forwarded()
{
    local ranks=$1
    [ "$(forwarded "an operation")" = $((2 * ranks)) ] && [ "$(forwarded "a type")" = "$ranks" ] &&
        [ "$(forwarded "a communicator")" = $((2 * ranks)) ] && [ "$(row Allreduce)" = "$ranks $((3 * ranks))" ]
}

# Over TCP libdist is slower than MPI in shared memory. libdist serves the first 16
# of 150 calls, then 24 of 48, in turns of eight, and none of the remaining calls; or all calls, if the
# machine was too busy to measure.
right_compared()
{
    local ranks=$1 kind faster=0
    for kind in Barrier Bcast Allgather Alltoall Gather Scatter Allreduce Reduce_scatter_block; do
        case $(row $kind) in
        "$((40 * ranks)) $((110 * ranks))") faster=$((faster + 1)) ;;
        "$((126 * ranks)) $((24 * ranks))") ;;
        *) return 1 ;;
        esac
    done
    [ $faster -gt 0 ] && [ "$(row Reduce)" = "$((150 * ranks)) 0" ] &&
        [ "$(forwarded "to find out")" = $((8 * 24 * ranks)) ] &&
        [ "$(forwarded "found to be faster")" = $((faster * 86 * ranks)) ]
}

# The results do not depend on who computed them, so one MPI that does not busy-wait provides the
# reference.
reference() { job "$1" "$2" tests/jobs/preload_"$1" tame; }
model=openmpi
[ -n "$OPENMPI_RUN" ] || model=mpich

# MPICH busy-waits, so that three ranks of it on few CPUs take long.
ranks_list="1 2 3" mpich_list="1 2"
[ -z "${CHECK_LONG-}" ] || ranks_list="1 2 3 4" mpich_list="1 2 3 4"
[ -z "${CHECK_SHORT-}" ] || ranks_list="2 3"
for ranks in $ranks_list; do
    reference $model $ranks
    wanted=$(hash)
    for mpi in openmpi mpich; do
        [ $mpi = openmpi ] || [[ " $mpich_list " == *" $ranks "* ]] || continue
        preload $mpi $ranks bold
        [ "$job_status" = 0 ] || continue
        job_check "$mpi, $ranks ranks: equal results" same_hash "$wanted"
        job_check "$mpi, $ranks ranks: every call was served" all_served $mpi
    done
done

# started MPI [unset]: counts MPI calls of MPI_Init and MPI_Finalize; unset: without the
# launcher's number of ranks per machine.
started()
{
    cat >"$job_folder/counted" <<END
${2:+unset OMPI_COMM_WORLD_LOCAL_SIZE MPI_LOCALNRANKS}
LD_PRELOAD='$builddir/.libs/preload_calls_$1.so $(library "$1")' DIST_MPI_COMPARE=0 exec "\$@"
END
    job "$1" 2 "$BASH" "$job_folder/counted" "tests/jobs/preload_$1" nothing
}
# has_started MOST MACHINE: each of two ranks has made at most MOST calls that wait for all ranks, and
# MACHINE calls that wait for the ranks of its machine.
has_started()
{
    sed -n 's/.*calls of all ranks: \([0-9]*\), and by machine: \([0-9]*\).*/\1 \2/p' "$job_output" |
        awk -v most="$1" -v machine="$2" '$1 <= most && $2 == machine { n++ } END { exit n != 2 }'
}

for mpi in openmpi mpich; do
    [ -x "tests/jobs/preload_$mpi" ] || continue
    if [ -n "${CHECK_SHORT-}" ]; then
        job_skip "$mpi: calls of MPI_Init" "a sanitizer wants to be loaded first"
    else
        started $mpi
        job_check "$mpi: MPI_Init and MPI_Finalize make 8 calls at most" has_started 8 0
        started $mpi unset
        job_check "$mpi: one more call to detect machines" has_started 9 1
    fi
    preload $mpi 4 handed-on
    [ "$job_status" = 0 ] && job_check "$mpi: no other calls are forwarded" right_forwarded 4
    preload $mpi 3 threads

    # Communicators one after another, and more at the same time than there are descriptors.
    rounds=${CHECK_LONG:+400}
    spinning=3
    [ $mpi = openmpi ] || spinning=2
    preload $mpi $spinning comms "${rounds:-20}" bold
    limits="-n 256" preload $mpi $spinning many 60
    limits="-S -n 256" preload $mpi $spinning many 20 bold
    [ -z "${CHECK_LONG-}" ] || limits="-n 1024" preload $mpi $spinning many 1000
    preload $mpi $spinning persistent
    preload $mpi $spinning memory 1
    DIST_MPI_SERVE=0 preload $mpi $spinning memory
    # 3 is MPI_THREAD_MULTIPLE, which the user sets for MPI_Init by a variable of each MPI.
    OMPI_MPI_THREAD_LEVEL=3 MPIR_CVAR_DEFAULT_THREAD_LEVEL=MPI_THREAD_MULTIPLE preload $mpi 2 level 3
    preload $mpi 3 errors
    job_check "$mpi: the error names the ranks' calls" grep -q 'called all_reduce(count 2, int32, sum)' "$job_output"
    preload $mpi $spinning refused
    ! job_turn 0 2 || DIST_MPI_COMPARE=1 preload $mpi $spinning refused
    [ -z "${CHECK_LONG-}" ] || preload $mpi 2 giant
    preload $mpi 3 overlaps
    preload $mpi $spinning again
    job_check "$mpi: a new communicator's calls are served" test "$(row Bcast)" = "$((24 * spinning)) 0"
    for backend in gloo mpi; do
        # One backend with the progress thread and the other without it; in the other suite vice
        # versa.
        turn=$([ $backend = gloo ] && echo 0 || echo 1)
        ! job_turn $turn 2 || DIST_BACKEND=$backend preload $mpi 3 progress
        ! job_turn $((1 - turn)) 2 || DIST_BACKEND=$backend DIST_PROGRESS_THREAD=0 preload $mpi 2 progress
    done
    JOB_LIMIT=60
    preload $mpi 2 blocked
    DIST_BACKEND=mpi DIST_TRANSPORT=mpi preload $mpi 2 blocked
    job_check "$mpi: a progress thread completes them" test "$(row Iallreduce | cut -d' ' -f2)" = 0
    DIST_BACKEND=mpi DIST_PROGRESS_THREAD=0 preload $mpi 3 blocked
    job_check "$mpi: without a permitted thread MPI executes them" test "$(row Iallreduce | cut -d' ' -f1)" = 0
    JOB_LIMIT=120
    DIST_BACKEND=mpi DIST_TRANSPORT=mpi preload $mpi 2 bold
    DIST_BACKEND=mpi DIST_TRANSPORT=mpi DIST_PROGRESS_THREAD=0 preload $mpi 2 progress
    # MPI's collectives that libdist calls are not the program's: they are not served again.
    DIST_BACKEND=mpi DIST_MPI_COLL=native preload $mpi 2 handed-on

    # Calls that MPI executes faster are forwarded, if libdist is clearly slower.
    # On a busy machine it may take several tries; MPICH busy-waits, and is slow too if CPUs are short.
    for _ in 1 2 3 4 5 6; do
        DIST_MPI_COMPARE=1 DIST_NODE_MEMORY=0 DIST_TRANSPORT=tcp preload $mpi 2 compare
        [ $mpi = openmpi ] && ! right_compared 2 || break
    done
    [ $mpi = mpich ] || job_check "$mpi: calls that MPI executes faster are forwarded" right_compared 2
    DIST_MPI_COMPARE=1 preload $mpi $spinning compare
    DIST_MPI_COMPARE=1 DIST_TIMEOUT=60 preload $mpi 2 compare
    job_check "$mpi: no call with a deadline is forwarded" test -z "$(forwarded "")"
    ! job_turn 1 2 || DIST_MPI_COMPARE=1 preload $mpi $spinning bold
    ! job_turn 0 2 || DIST_MPI_COMPARE=1 preload $mpi 3 threads

    # Switched off, completely and partly, and if libdist cannot start.
    DIST_MPI_SERVE=0 preload $mpi 2 tame
    job_check "$mpi: all calls are forwarded" grep -q 'forwarded [0-9]*: switched off' "$job_output"
    job_check "$mpi: no call is served" test "$(row Allreduce)" = "0 $(row Allreduce | cut -d' ' -f2)"
    DIST_MPI_SERVE=allreduce,bcast preload $mpi 2 tame
    job_check "$mpi: the selected calls are served" test "$(row Iallreduce | cut -d' ' -f2)" = 0
    job_check "$mpi: the other calls are not served" test "$(row Barrier | cut -d' ' -f1)" = 0
    DIST_BACKEND=glue preload $mpi 2 tame
    job_check "$mpi: rank 0 prints the reason" grep -q "could not join: backend 'glue'" "$job_output"
    job_check "$mpi: MPI executes the calls" test -n "$(forwarded "libdist could not start")"

    job_check "$mpi: the module calls MPI by its profiling names" \
        test -z "$(nm -D --undefined-only "$builddir/.libs/dist_mpi_$mpi.so" | grep -E ' MPI_[A-Z][a-z]')"
done

if [ -n "$OPENMPI_RUN" ] && [ -n "$MPICH_RUN" ]; then
    job_fails "for Open MPI, but the program runs MPICH" mpich 2 "$(with openmpi)" \
        tests/jobs/preload_mpich tame
    job_fails "for MPICH, but the program runs Open MPI" openmpi 2 "$(with mpich)" \
        tests/jobs/preload_openmpi tame
fi
