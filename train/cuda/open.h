/* SPDX-License-Identifier: BSD-3-Clause */
/* Making a GPU ready, and leaving it. */
#ifndef TRAIN_CUDA_OPEN_H
#define TRAIN_CUDA_OPEN_H

#include "cuda.h"

/* cuda is zeroed but for device and services; cuda_free is called either way. */
int cuda_open(struct cuda *cuda, const struct device_setup *setup);
void cuda_free(struct cuda *cuda);

/* What has failed since the last call: launches of kernels, and matrix products. */
int cuda_check_all(struct cuda *cuda);

#endif
