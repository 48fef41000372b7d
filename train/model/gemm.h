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

/*
 * Threads of one rank's multiplications. 0: one, unless OPENBLAS_NUM_THREADS or
 * OMP_NUM_THREADS says otherwise. Without OpenBLAS there is always one.
 */
void gemm_set_threads(int threads);

#endif
