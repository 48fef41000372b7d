/* SPDX-License-Identifier: BSD-3-Clause */
/* Which kernels the library that multiplies matrices uses. */
#ifndef TRAIN_BLAS_H
#define TRAIN_BLAS_H

/* What kernels need of the CPU, in rising order. */
enum blas_level { BLAS_SSE, BLAS_AVX, BLAS_AVX2, BLAS_AVX512 };

/*
 * What the kernels need that OpenBLAS wrote for CPUs named `core`. A name that is not known is of a
 * CPU newer than this list: BLAS_AVX512.
 */
enum blas_level blas_level_of(const char *core);

/* What this CPU and its operating system can run. */
enum blas_level blas_level_of_cpu(void);

/*
 * To be called first in main. An OpenBLAS older than the CPU does not know it, and may take kernels
 * of twenty years ago. If so, this executes the program anew with OPENBLAS_CORETYPE set, once; if
 * OPENBLAS_CORETYPE is set already it changes nothing.
 */
void blas_choose(char *argv[]);

/* "OpenBLAS, kernels for SkylakeX", or what else multiplies. */
const char *blas_name(void);

#endif
