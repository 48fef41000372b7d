/* SPDX-License-Identifier: BSD-3-Clause */
/* Matrix multiplication in float32, through CBLAS where there is one. */
#ifndef TRAIN_GEMM_H
#define TRAIN_GEMM_H

#include <stdbool.h>

/*
 * c (m x n) = op(a) (m x k) * op(b) (k x n), or c += that if `add`. Row-major and
 * dense: a is stored m x k, or k x m if transpose_a; b is stored k x n, or n x k if
 * transpose_b. c must not overlap a or b.
 */
void gemm(bool transpose_a, bool transpose_b, int m, int n, int k, const float *a, const float *b,
          bool add, float *c);

/* ---- which kernels the library uses ---- */

/* What kernels need of the CPU, in rising order. */
enum blas_level { BLAS_SSE, BLAS_AVX, BLAS_AVX2, BLAS_AVX512 };

/*
 * What the kernels need that OpenBLAS wrote for CPUs named `core`. A name that is not known is of a
 * CPU newer than this list: BLAS_AVX512.
 */
enum blas_level blas_level_of(const char *core);

/*
 * To be called first in main. An OpenBLAS older than the CPU does not know it, and may take kernels
 * of twenty years ago. If so, this executes the program anew with OPENBLAS_CORETYPE set, once; if
 * OPENBLAS_CORETYPE is set already it changes nothing.
 */
void blas_choose(char *argv[]);

/*
 * To be called before the first multiplication. threads: of one rank's multiplications. 0: one,
 * unless OPENBLAS_NUM_THREADS or OMP_NUM_THREADS says otherwise. Without OpenBLAS there is always
 * one. Returns "OpenBLAS, kernels for SkylakeX", or what else multiplies.
 */
const char *gemm_start(int threads);

#endif
