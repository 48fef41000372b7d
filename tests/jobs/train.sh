#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The training harness with every way to start it: equal losses over every transport.
. "$srcdir/tests/support/job.sh"
. "$srcdir/tests/support/training.sh"

# Generated digits; real ones in the long form, and in train_accuracy.sh.
data=(--train-samples 4000) tested=200
if [ -n "${CHECK_LONG-}" ]; then
    data=() tested=1000
    [ -r "$DIST_TEST_MNIST/train-images-idx3-ubyte.gz" ] && data=(--data "$DIST_TEST_MNIST")
fi
steps=20 few=10 ranks=4 algorithms="ring hierarchical" arch=cnn
[ -z "${CHECK_SHORT-}" ] || arch=mlp
if [ -n "${CHECK_LONG-}" ]; then
    JOB_LIMIT=600 steps=100 few=30 ranks=8 algorithms="ring tree recursive_doubling halving_doubling direct hierarchical"
fi

all_agree() { grep -q "^Parameter hash: .* ($ranks ranks agree)" "$job_output"; }

# train NAME LAUNCHER RANKS ARGS...: makes $steps steps with a global batch of 64.
train()
{
    local name=$1 launcher=$2 ranks=$3
    shift 3
    job "$launcher" "$ranks" train_mnist "${data[@]}" --reproducible --arch $arch --seed 3 \
        --max-steps $steps \
        --test-samples $tested --loss-log "$job_folder/$name" "$@"
}

if [ -n "$OPENMPI_RUN" ]; then
    train mpi openmpi $ranks --dist-backend mpi
    job_check "all ranks agree on the parameters (mpi)" all_agree
    train gloo openmpi $ranks --dist-backend gloo
    job_check "all ranks agree on the parameters (gloo)" all_agree
else
    job_skip "train_mnist under mpirun" "no Open MPI here"
fi
train spawn self $ranks --multiprocessing-distributed --world-size $ranks --dist-backend gloo
job_check "all ranks agree on the parameters (spawn)" all_agree
# A killed rank cannot report; the process that spawned it does.
killed()
{
    local pid
    job_background "$builddir/train_mnist" --dummy --multiprocessing-distributed --world-size 2 \
        --epochs 1000 --log-interval 1
    job_until grep -q "Train Epoch" "$job_output"
    pid=$(pgrep -P $! | tail -n 1)
    kill -KILL "$pid"
    wait $!
    [ $? = 137 ] && grep -q "rank 1 (pid $pid) was ended by signal 9 (Killed)" "$job_output"
}
job_check "a spawned rank that is killed is named" killed
ended()
{
    job_background "$builddir/train_mnist" --dummy --multiprocessing-distributed --world-size 2 \
        --epochs 1000 --log-interval 1
    job_until grep -q "Train Epoch" "$job_output"
    kill -TERM $!
    wait $!
    [ $? = 143 ] && grep -q "ended by signal 15 (Terminated); all ranks were ended, too" "$job_output"
}
job_check "a spawning process that is killed reports it" ended
train one self 1
[ -z "$OPENMPI_RUN" ] || agree 1e-4 mpi gloo
[ -z "$OPENMPI_RUN" ] || agree 1e-4 gloo spawn
agree 1e-3 spawn one

steps=$few
for algorithm in $algorithms; do
    DIST_ALGO=all_reduce:$algorithm train $algorithm self 4 \
        --multiprocessing-distributed --world-size 4 --dist-backend gloo
    agree 1e-3 one $algorithm
done
train shell shell 4 --dist-backend gloo
agree 1e-3 one shell
DIST_MPI_COLL=native train native openmpi 4 --dist-backend mpi
[ -z "$OPENMPI_RUN" ] || agree 1e-3 one native
