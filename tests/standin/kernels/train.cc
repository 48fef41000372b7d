// SPDX-License-Identifier: BSD-3-Clause
// train_mnist's kernels for GPUs, compiled for the CPU.
#define TRAIN_CUDA_ON_HOST
#include "cuda_on_host.h"

#include "train/cuda.cu"
