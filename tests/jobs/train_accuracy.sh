#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The accuracy of training on the real digits: 98.0 % after two epochs, on eight ranks, with every
# launcher. The short form is one epoch of the small network.
. "$srcdir/tests/support/job.sh"
. "$srcdir/tests/support/training.sh"

[ -z "${CHECK_SHORT-}" ] || { job_skip "accuracy on MNIST" "the other suite trains"; exit; }

JOB_LIMIT=600
if ! [ -r "$DIST_TEST_MNIST/train-images-idx3-ubyte.gz" ]; then
    job_skip "accuracy on MNIST" "no data in $DIST_TEST_MNIST"
    exit
fi

if [ -z "${CHECK_LONG-}" ]; then
    job self 4 train_mnist --multiprocessing-distributed --world-size 4 --dist-backend gloo \
        --data "$DIST_TEST_MNIST" --arch mlp --epochs 1
    reaches 95.0
    exit
fi
job openmpi 8 train_mnist --dist-backend mpi --data "$DIST_TEST_MNIST" --epochs 2
reaches 98.0
job openmpi 8 train_mnist --dist-backend gloo --data "$DIST_TEST_MNIST" --epochs 2
reaches 98.0
job self 8 train_mnist --multiprocessing-distributed --world-size 8 --dist-backend gloo \
    --data "$DIST_TEST_MNIST" --epochs 2
reaches 98.0
