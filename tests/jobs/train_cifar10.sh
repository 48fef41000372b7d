#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# ResNet-20 learns on any number of ranks; its files are restored completely; unsupported options
# are refused. The long form: the accuracy on generated pictures, and on CIFAR-10 if that is
# available.
. "$srcdir/tests/support/job.sh"
. "$srcdir/tests/support/training.sh"

says() { grep -qF -- "$1" "$job_output"; }
train=(train_cifar10 --test-samples 24)
spawn=(--multiprocessing-distributed --dist-backend gloo --world-size)

# falls PART: the last epoch's loss is at most PART of the first one's, from "epoch 1 | loss 2.5 |".
falls()
{
    job_check "the loss falls to $1 of its first value" awk -v part="$1" '
        $1 == "epoch" && $4 == "loss" { last = $5; first = first ? first : last }
        END { exit !(first > 0 && last > 0 && last <= part * first) }' "$job_output"
}

# ---- learning ----

all="1 3"
[ -z "${CHECK_LONG-}" ] || all="1 2 3"
epochs=3
[ -z "${CHECK_SHORT-}" ] || all=2 epochs=1
JOB_LIMIT=300 # a step takes 0.3 s on an idle CPU, and several seconds beside other tests
learn=(--train-samples 120 --batch-size 24 --epochs $epochs --augment=0 --schedule constant --lr 0.02)
for ranks in $all; do
    job self 1 "${train[@]}" "${learn[@]}" "${spawn[@]}" $ranks --save-model
    [ $epochs = 1 ] || falls 0.95
    job_check "all $ranks ranks agree" says "Parameter hash:"
done
final=$(grep -o 'Average loss: [0-9.]*' "$job_output" | tail -n 1)

# ---- files ----

# The ranks divide the test differently, and with the running means of the file get the same result.
saved=cifar10_resnet20.safetensors
job self 1 "${train[@]}" --evaluate --resume "$saved" "${spawn[@]}" 2
job_check "parameters and running means are restored" says "$final"
rm -f "$saved"

# ---- refused ----

head -c 3073 /dev/zero >"$job_folder/test_batch.bin"
for i in 1 2 3 4 5; do head -c 3073 /dev/zero >"$job_folder/data_batch_$i.bin"; done
printf '\012' | dd of="$job_folder/data_batch_3.bin" conv=notrunc status=none
job_fails "data_batch_3.bin: byte 0: label 10, expected 0 to 9" self 2 "${train[@]}" \
    --data "$job_folder" "${spawn[@]}" 2
job_fails "running means" self 1 "${train[@]}" --reproducible
[ -e "$builddir/.libs/train_mnist_cuda.so" ] &&
    job_fails "no kernels for a layer of kind batchnorm" self 1 "${train[@]}" --device cuda

# ---- accuracy ----

[ -n "${CHECK_LONG-}" ] || exit 0
JOB_LIMIT=3000
job self 1 train_cifar10 --train-samples 10000 --test-samples 1000 --epochs 5 "${spawn[@]}" 2
reaches 90
cifar=${DIST_TEST_CIFAR10-$srcdir/../shared/cifar-10-batches-bin}
[ -r "$cifar/test_batch.bin" ] ||
    { job_skip "accuracy on CIFAR-10" "no data in $cifar (DIST_TEST_CIFAR10 names a folder)"; exit; }
job self 1 train_cifar10 --data "$cifar" --epochs 5 "${spawn[@]}" 2
reaches 75
