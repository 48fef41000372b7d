/* SPDX-License-Identifier: BSD-3-Clause */
/* The pattern of a reduction kernel, and the tables that the families of kernels fill. */
#ifndef DISTI_BASE_KERNELS_KERNELS_H
#define DISTI_BASE_KERNELS_KERNELS_H

#include "base/dtype.h"
#include "base/kernels/environment.h"

#include <string.h>

/*
 * One dtype's kernels, by op; what divides a sum by the number of ranks for AVG; what multiplies
 * the input for PREMUL_SUM. NULL: the op does not fit the dtype.
 */
struct disti_kernels {
    disti_reduce_fn reduce[DIST_OP_COUNT];
    void (*divide)(void *data, size_t count, int ranks);
    void (*scale)(void *dst, const void *src, size_t count, const double *factor);
};

#define DISTI_KERNELS_DECLARE(name, text, bytes) extern const struct disti_kernels disti_##name;
DIST_DTYPE_MAP(DISTI_KERNELS_DECLARE)
#undef DISTI_KERNELS_DECLARE

/*
 * float16 by the CPU's own conversions: as a kernel, but only a multiple of eight elements,
 * as many as there are; returns how many. 0 if this CPU has none.
 */
size_t disti_f16c_sum(void *dst, const void *a, const void *b, size_t count);
size_t disti_f16c_prod(void *dst, const void *a, const void *b, size_t count);

/*
 * The files that include this are vectorised whatever the level of the build. gcc makes
 * each kernel once for every x86-64 level and the loader picks the best that this CPU
 * runs; clang 14 cannot clone static functions and stays with the compiler's target. The arithmetic
 * has no multiply-add to fuse, so all of them give the same bits.
 */
#if defined(__clang__)
/* It says so when a build without optimisation or with sanitizers cannot vectorise. */
#pragma clang diagnostic ignored "-Wpass-failed"
#else
#pragma GCC optimize("O3")
#endif

/* ThreadSanitizer is not up yet when the loader runs the resolvers of clones. */
#if defined(__x86_64__) && defined(__GLIBC__) && __GNUC__ >= 12 && !defined(__clang__) &&          \
    !defined(__SANITIZE_THREAD__)
#define DISTI_CLONES __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define DISTI_CLONES
#endif

/* dst may be a or b, so the compiler must be told that no element needs an earlier one. */
#if defined(__clang__)
#define DISTI_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define DISTI_INDEPENDENT _Pragma("GCC ivdep")
#endif

/* An element at any address, in memory of any declared type. */
#define DISTI_ANYWHERE __attribute__((aligned(1), may_alias))

/* Defines name(dst, a, b, count): dst[i] = combine(a[i], b[i]). */
#define DISTI_KERNEL(name, type, combine)                                                          \
    DISTI_CLONES static void name(void *dst, const void *a, const void *b, size_t count)           \
    {                                                                                              \
        typedef type element DISTI_ANYWHERE;                                                       \
        element *out = dst;                                                                        \
        const element *x = a, *y = b;                                                              \
                                                                                                   \
        DISTI_INDEPENDENT                                                                          \
        for (size_t i = 0; i < count; i++)                                                         \
            out[i] = combine(x[i], y[i]);                                                          \
    }

/* Defines name(data, count, ranks): data[i] = quotient(data[i], ranks). */
#define DISTI_DIVIDE_KERNEL(name, type, quotient)                                                  \
    DISTI_CLONES static void name(void *data, size_t count, int ranks)                             \
    {                                                                                              \
        typedef type element DISTI_ANYWHERE;                                                       \
        element *x = data;                                                                         \
        const disti_environment saved = disti_environment_enter();                                 \
                                                                                                   \
        DISTI_INDEPENDENT                                                                          \
        for (size_t i = 0; i < count; i++)                                                         \
            x[i] = quotient(x[i], ranks);                                                          \
        disti_environment_leave(saved);                                                            \
    }

/* Defines name(dst, src, count, factor): dst[i] = product(src[i], *factor as a number). */
#define DISTI_SCALE_KERNEL(name, type, number, product)                                            \
    DISTI_CLONES static void name(void *dst, const void *src, size_t count, const double *factor)  \
    {                                                                                              \
        typedef type element DISTI_ANYWHERE;                                                       \
        const disti_environment saved = disti_environment_enter();                                 \
        const number by = (number)*factor;                                                         \
        const element *x = src;                                                                    \
        element *out = dst;                                                                        \
                                                                                                   \
        DISTI_INDEPENDENT                                                                          \
        for (size_t i = 0; i < count; i++)                                                         \
            out[i] = product(x[i], by);                                                            \
        disti_environment_leave(saved);                                                            \
    }

/* Inlined into each clone, so that it is compiled for the clone's CPU. */
#define DISTI_INLINE static inline __attribute__((always_inline))

#endif
