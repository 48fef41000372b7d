/* SPDX-License-Identifier: BSD-3-Clause */
/* How hot loops are compiled, and functions that kernels for GPUs call as well. */
#ifndef TRAIN_KERNEL_H
#define TRAIN_KERNEL_H

#ifdef HAVE_CONFIG_H
#include <config.h>
#endif

/*
 * The loops inside are marked `#pragma omp simd` (compiled with -fopenmp-simd: no
 * threads, only vectors). Contraction to fused multiply-add is off, so every clone
 * gives the same bits and ranks on unlike processors stay equal. clang 14 loses static
 * functions that are cloned, and gets one version.
 */
#if defined(HAVE_CONFIG_H) && HAVE_TARGET_CLONES && !defined(__clang__)
#define KERNEL __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define KERNEL
#endif

#ifdef __CUDACC__
#define ANYWHERE static __host__ __device__ inline
#else
#define ANYWHERE static inline
#endif

#endif
