/* SPDX-License-Identifier: BSD-3-Clause */
/* Matrix multiplication in float32, through CBLAS if available. */
#ifndef TRAIN_GEMM_H
#define TRAIN_GEMM_H

#include <stdbool.h>

/*
 * Computes c (m x n) = op(a) (m x k) * op(b) (k x n), or adds to c if `add`. Row-major and dense: a
 * is stored m x k, or k x m if transpose_a; b is stored k x n, or n x k if transpose_b. c must not
 * overlap a or b.
 */
void gemm(bool transpose_a, bool transpose_b, int m, int n, int k, const float *a, const float *b,
          bool add, float *c);

/* ---- selection of BLAS kernels ---- */

/* Instruction sets that kernels require, in ascending order. */
enum blas_level { BLAS_SSE, BLAS_AVX, BLAS_AVX2, BLAS_AVX512 };

/*
 * Returns the level that OpenBLAS's kernels for CPUs named `core` require. An unknown name is
 * assumed to be a newer CPU: BLAS_AVX512.
 */
enum blas_level blas_level_of(const char *core);

/*
 * Must be called first in main. An OpenBLAS older than the CPU does not recognise it and may select
 * kernels that are 20 years old. In that case this function executes the program again with
 * OPENBLAS_CORETYPE set. It does nothing if OPENBLAS_CORETYPE is already set.
 */
void blas_choose(char *argv[]);

/*
 * Must be called before the first multiplication. threads: threads per multiplication; 0: one,
 * unless OPENBLAS_NUM_THREADS or OMP_NUM_THREADS is set. Without OpenBLAS there is always one.
 * Returns a description of the implementation, such as "OpenBLAS, kernels for SkylakeX".
 */
const char *gemm_start(int threads);

#endif
