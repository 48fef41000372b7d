/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Compiler settings for files with loops over elements, which are vectorized and compiled once for
 * each CPU level.
 */
#ifndef DISTI_BASE_KERNELS_KERNELS_H
#define DISTI_BASE_KERNELS_KERNELS_H

#include "base/kernels/environment.h"

/*
 * Files that include this header are vectorized at every optimization level of the build. gcc
 * compiles each kernel once for every x86-64 level, and the loader selects the best version that
 * this CPU can run. clang 14 cannot clone static functions and compiles each kernel once, for the
 * compiler's target. The kernels have no multiply-add that could be fused, so all versions give the
 * same bits.
 */
#if defined(__clang__)
/* Clang warns if a build without optimization or with sanitizers cannot vectorize. */
#pragma clang diagnostic ignored "-Wpass-failed"
#else
#pragma GCC optimize("O3")
#endif

/* ThreadSanitizer is not initialized yet when the loader runs the resolvers of clones. */
#if defined(__x86_64__) && defined(__GLIBC__) && __GNUC__ >= 12 && !defined(__clang__) &&          \
    !defined(__SANITIZE_THREAD__)
#define DISTI_CLONES __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define DISTI_CLONES
#endif

/*
 * Lets the compiler assume that no iteration depends on an earlier one. Otherwise it could not,
 * since dst may be a or b.
 */
#if defined(__clang__)
#define DISTI_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define DISTI_INDEPENDENT _Pragma("GCC ivdep")
#endif

#endif
