#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# A rank is killed in each phase of a job, over each backend: every other rank gets an error that
# names it. The long form does so twenty times for each rank, and prints how long it took to get the
# error.
. "$srcdir/tests/support/job.sh"
. "$srcdir/tests/support/training.sh"
. "$srcdir/tests/support/tls.sh"

JOB_LIMIT=60
program=tests/jobs/kills
phases="start connect join open idle barrier first middle reduce checkpoint destroy"
training="--reproducible --arch mlp --epochs 4 --train-samples 1200 --test-samples 100"
latencies=$job_folder/latencies
next=0 batch=0

# True for phases in which the store knows the rank before it dies: only their times measure failure
# notices.
has_joined() { [ "$1" != start ] && [ "$1" != connect ] && [ "$1 $2" != "join 0" ]; }

# The time from the death, or from the call if that was later, to the error: "NAME PHASE SECONDS".
measure()
{
    awk -v name="$1" -v phase="$2" '
        $1 == "dead" { dead = $2 }
        $1 == "knew" { began[++n] = $3; knew[n] = $4 }
        END { for (i = 1; i <= n && dead; i++)
            printf "%s %s %.4f\n", name, phase, knew[i] - (began[i] > dead ? began[i] : dead) }
    ' "$job_output"
}

# kill_one NAME LAUNCHER BACKEND PHASE VICTIM
kill_one()
{
    local measured=$latencies.$BASHPID
    if [ "$4" = checkpoint ]; then kill_training "$2" "$3" "$5"; else job "$2" 4 $program "$3" "$4" "$5"; fi
    ! has_joined "$4" "$5" || [ "$job_status" = 77 ] || measure "$1" "$4" >>"$measured"
    [ "$4" != checkpoint ] || go_on "$1" "$5"
}

# A training that is killed while it writes a checkpoint. It is resumed from the checkpoint and must
# end with the parameters of an undisturbed training, so the checkpoint was complete.
kill_training()
{
    # shellcheck disable=SC2086
    job "$1" 4 tests/jobs/kills_training "$job_folder/kept.$BASHPID" "$3" "$builddir/train_mnist" \
        $training --dist-backend "$2" --checkpoint "$job_folder/kept.$BASHPID" --checkpoint-interval 1
}
go_on()
{
    [ "$job_status" != 77 ] || return 0
    # shellcheck disable=SC2086
    job shell 1 train_mnist $training --dist-backend gloo --checkpoint "$job_folder/kept.$BASHPID"
    job_check "the training continued from its checkpoint" grep -q '^=> resuming from' "$job_output"
    job_check "the training ended with equal parameters: $1, rank $2 killed" [ "$(hash_of)" = "$whole" ]
    rm -f "$job_folder/kept.$BASHPID" "$job_folder/kept.$BASHPID.tmp-"*
}

# Three cases at a time, as they mostly wait.
beside()
{
    job_parallel kill_one "$@"
    [ $((++batch % 3)) != 0 ] || job_collect
}

# battery NAME LAUNCHER BACKEND: all cases, or one victim for each phase.
battery()
{
    local phase victim repeat
    for phase in $phases; do
        if [ -n "${CHECK_LONG-}" ]; then
            for ((repeat = 0; repeat < ${KILLS_REPEATS:-20}; repeat++)); do
                for victim in 0 1 2 3; do beside "$1" "$2" "$3" "$phase" $victim; done
            done
        elif [ -z "${CHECK_SHORT-}" ] || [ $((next % 3)) = 0 ]; then
            beside "$1" "$2" "$3" "$phase" $((next % 4))
        fi
        next=$((next + 1))
    done
}

if grep -q '^#define HAVE_JANSSON' "$builddir/config.h"; then
    # shellcheck disable=SC2086
    job shell 1 train_mnist $training --dist-backend gloo
    whole=$(hash_of)
    job_check "the reference run has a hash" [ -n "$whole" ]
else
    job_skip "phase checkpoint" "built without jansson: no checkpoints"
    phases=${phases/checkpoint /}
fi

# Stopped and slow ranks, which wait for deadlines.
for transport in shm tcp; do
    DIST_TRANSPORT=$transport job_parallel job shell 3 $program gloo stop 1
    DIST_TRANSPORT=$transport job_parallel job shell 3 $program gloo slow 1
done
DIST_TRANSPORT=shm battery "gloo-shm" shell gloo
DIST_TRANSPORT=tcp battery "gloo-tcp" shell gloo
if tls_possible; then
    DIST_TRANSPORT=tcp tls_with battery tls shell gloo
fi
[ ! -e "$builddir/.libs/dist_ucx.so" ] || DIST_TRANSPORT=ucx battery ucx shell ucx
job_collect

# MPI connects the ranks, so MPI determines what happens if one dies before that. Later its
# launchers leave the other ranks alive if asked to.
job_recovers
all="open idle barrier first middle reduce${whole:+ checkpoint} destroy"
phases=${CHECK_LONG:+$all} phases=${phases:-open idle reduce${whole:+ checkpoint}}
DIST_TRANSPORT=shm battery mpi-shm openmpi mpi
phases=${CHECK_LONG:+$all} phases=${phases:-barrier first middle destroy}
DIST_TRANSPORT=mpi battery mpi-mpi openmpi mpi
job_collect

# Prints how long it took to get the error, by backend.
percentiles()
{
    cat "$latencies".* | sort -k1,1 -k3,3n | awk '
        function say() { if (n) printf "# %s: %d survivors got the error, half within %.0f ms, 99 %% within %.0f ms, all within %.0f ms\n",
            name, n, 1e3 * all[int((n + 1) / 2)], 1e3 * all[int(n * 0.99 + 0.99)], 1e3 * all[n] }
        $1 != name { say(); n = 0; name = $1 }
        { all[++n] = $3 }
        END { say() }'
}
job_check "survivors were timed" [ -n "$(cat "$latencies".* 2>/dev/null)" ]
percentiles
