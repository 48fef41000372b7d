/* SPDX-License-Identifier: BSD-3-Clause */
/* How small functions are declared that kernels for GPUs call as well. */
#ifndef TRAIN_ANYWHERE_H
#define TRAIN_ANYWHERE_H

#ifdef __CUDACC__
#define ANYWHERE static __host__ __device__ inline
#else
#define ANYWHERE static inline
#endif

#endif
