/* SPDX-License-Identifier: BSD-3-Clause */
/* Compiler attributes of hot loops, and of functions that GPU kernels call as well. */
#ifndef TRAIN_KERNEL_H
#define TRAIN_KERNEL_H

#ifdef HAVE_CONFIG_H
#include <config.h>
#endif

/*
 * Loops in KERNEL functions are marked `#pragma omp simd` (compiled with -fopenmp-simd: vectors but
 * no threads). Contraction to fused multiply-add is off, so every clone gives the same bits, and
 * ranks on different processors stay equal. clang 14 discards static functions with target clones,
 * so it compiles one version only.
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
