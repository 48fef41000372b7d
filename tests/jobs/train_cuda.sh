#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# train_mnist --device cuda: its kernels compiled for the CPU, with the stand-in for GPUs.
. "$srcdir/tests/support/job.sh"
. "$srcdir/tests/support/training.sh"
job_needs_modules

kernels=$builddir/tests/standin/kernels/.libs
[ -e "$kernels/train_mnist_cuda.so" ] || { job_skip "train_cuda" "no C++ compiler"; exit 0; }
steps=100 few=30
[ -z "${CHECK_SHORT-}" ] || steps=10 few=5
cd "$job_folder" || exit 99

# train NAME RANKS ARGS...: a short run on generated digits; its losses go to $job_folder/NAME.
train()
{
    job self "$2" train_mnist --train-samples 4000 --test-samples 40 --seed 3 --loss-log \
        "$job_folder/$1" --multiprocessing-distributed --world-size "$2" "${@:3}"
}

# Without the module or the driver there is an error on every rank.
DIST_PLUGIN_PATH=$job_folder
job_fails "unknown device" self 1 train_mnist --device gpu
job_fails "--clip requires --device cpu" self 1 train_mnist --device cuda --clip 1
job_fails "--wire requires --device cpu" self 1 train_mnist --device cuda --wire bf16
if [ ! -e "$builddir/.libs/train_mnist_cuda.so" ]; then
    job_fails "no train_mnist_cuda.so in" shell 2 train_mnist --device cuda
    job_check "each rank reports it" test "$(grep -c 'no train_mnist_cuda' "$job_output")" = 2
fi
DIST_PLUGIN_PATH=$kernels:$builddir/.libs
export DIST_PLUGIN_PATH
job_fails "no GPU is available" shell 2 train_mnist --device cuda --dist-backend gloo
job_check "each rank reports it" test "$(grep -c 'no GPU is available' "$job_output")" = 2
job_check "the exit code is 1" test "$job_status" = 1

export DIST_GPU_DRIVER=$builddir/.libs/standin_cuda.so
export DIST_NCCL_LIBRARY=$builddir/.libs/standin_cuda.so
job_fails "no GPU 77" self 1 train_mnist --device cuda:77 --dist-backend gloo

# One rank's GPU has no memory left: all ranks exit with the reason.
STANDIN_FAULT=memory@1:3 job_fails "rank 1 could not get ready" shell 2 train_mnist \
    --device cuda --dist-backend gloo
job_check "the rank itself reports the reason" grep -q 'rank 1: GPU 1: out of memory' "$job_output"

# Equal curves. At these rates a difference in the last bit does not grow by itself; the man page of
# train_mnist has measurements.
mlp=(--arch mlp --optimizer adadelta --lr 0.1 --batch-size 64 --max-steps $steps)
cnn=(--arch cnn --optimizer sgd --lr 0.001 --batch-size 7 --max-steps $steps)
train mlp_cpu 1 "${mlp[@]}" --dist-backend gloo
train mlp_cuda 1 "${mlp[@]}" --dist-backend gloo --device cuda
agree 1e-3 mlp_cpu mlp_cuda
train cnn_cpu 1 "${cnn[@]}" --dist-backend gloo
train cnn_cuda 1 "${cnn[@]}" --dist-backend gloo --device cuda
agree 1e-3 cnn_cpu cnn_cuda

# Any number of ranks gives equal bits, whether the library copies or NCCL reads the memory.
short=(--arch mlp --batch-size 16 --max-steps $few --device cuda --reproducible)
train alone 1 "${short[@]}" --dist-backend gloo --save-model
alone=$(hash_of)
job_check "a hash is printed" test -n "$alone"
jansson=
grep -q '^#define HAVE_JANSSON' "$builddir/config.h" && jansson=yes
if [ -n "$jansson" ]; then
    job self 1 train_mnist --arch mlp --test-samples 40 --evaluate --resume mnist_mlp.safetensors
    job_check "the CPU reads the saved model" test "$(hash_of)" = "$alone"
    # The GPU's optimizer state is saved and restored.
    kept=("${short[@]}" --dist-backend gloo --checkpoint kept)
    train first 1 "${kept[@]}" --max-steps $((few - 2))
    train rest 1 "${kept[@]}" --max-steps 2
    job_check "the training continues from a checkpoint" grep -q '^=> resuming from' "$job_output"
    job_check "the continued training ends with equal bits" test "$(hash_of)" = "$alone"
else
    job_skip "reading a saved model" "no jansson here"
fi
# Two ranks with gradients in the order in which they become ready, and several batches per step.
plain=(--arch mlp --lr 0.1 --max-steps $steps --accumulate 2 --batch-size 16)
train plain_cpu 2 "${plain[@]}" --dist-backend gloo
backends=(gloo)
if "$builddir/dist_info" 2>/dev/null | grep -qE '^  nccl +yes'; then
    backends+=(nccl)
else
    job_skip "nccl" "there is no backend nccl"
fi
for backend in "${backends[@]}"; do
    for ranks in 2 4; do
        train "$backend$ranks" $ranks "${short[@]}" --dist-backend "$backend"
        job_check "$ranks ranks compute the bits of one" test "$(hash_of)" = "$alone"
    done
    train "plain_$backend" 2 "${plain[@]}" --dist-backend "$backend" --device cuda
    agree 1e-3 plain_cpu "plain_$backend"
done
if [ "${#backends[@]}" = 2 ]; then
    train cpu_gloo 2 "${short[@]}" --dist-backend gloo --device cpu
    on_cpu=$(hash_of)
    train cpu_nccl 2 "${short[@]}" --dist-backend nccl --device cpu
    job_check "nccl accepts the CPU's gradients too" test "$(hash_of)" = "$on_cpu"
    STANDIN_FAULT=hang@1:15 job_fails "alive but silent" shell 2 train_mnist \
        "${short[@]}" --max-steps 20 --timeout 5 --dist-backend nccl
fi
if [ -n "$jansson" ]; then
    job self 1 train_mnist "${short[@]}" --train-samples 400 --test-samples 40 --evaluate \
        --resume mnist_mlp.safetensors --dist-backend gloo
    job_check "the GPU reads the saved model" test "$(hash_of)" = "$alone"
fi
