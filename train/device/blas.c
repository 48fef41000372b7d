/* SPDX-License-Identifier: BSD-3-Clause */
/* OpenBLAS looks for its kernels by the CPU's model; this looks at what the CPU can do. */
#ifdef HAVE_CONFIG_H
#include <config.h>
#endif

#include "blas.h"

#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <unistd.h>

#ifdef HAVE_OPENBLAS_SET_NUM_THREADS
char *openblas_get_corename(void);
#endif

/* Kernels below AVX-512, as of OpenBLAS 0.3.28 (driver/others/dynamic.c). */
static const struct {
    const char *core;
    enum blas_level level;
} blas_cores[] = {
    {"Katmai", BLAS_SSE},       {"Coppermine", BLAS_SSE}, {"Northwood", BLAS_SSE},
    {"Prescott", BLAS_SSE},     {"Banias", BLAS_SSE},     {"Atom", BLAS_SSE},
    {"Core2", BLAS_SSE},        {"Penryn", BLAS_SSE},     {"Dunnington", BLAS_SSE},
    {"Nehalem", BLAS_SSE},      {"Athlon", BLAS_SSE},     {"Opteron", BLAS_SSE},
    {"Opteron_SSE3", BLAS_SSE}, {"Barcelona", BLAS_SSE},  {"Nano", BLAS_SSE},
    {"Bobcat", BLAS_SSE},       {"Generic", BLAS_SSE},    {"Sandybridge", BLAS_AVX},
    {"Bulldozer", BLAS_AVX},    {"Piledriver", BLAS_AVX}, {"Steamroller", BLAS_AVX},
    {"Excavator", BLAS_AVX2},   {"Haswell", BLAS_AVX2},   {"Zen", BLAS_AVX2},
};

enum blas_level blas_level_of(const char *core)
{
    for (size_t i = 0; i < sizeof(blas_cores) / sizeof(blas_cores[0]); i++) {
        if (strcasecmp(blas_cores[i].core, core) == 0)
            return blas_cores[i].level;
    }
    return BLAS_AVX512;
}

enum blas_level blas_level_of_cpu(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return BLAS_AVX512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return BLAS_AVX2;
    if (__builtin_cpu_supports("avx"))
        return BLAS_AVX;
#endif
    return BLAS_SSE;
}

void blas_choose(char *argv[])
{
#if defined(HAVE_OPENBLAS_SET_NUM_THREADS) && defined(__x86_64__)
    /* The oldest CPU with each level, whose kernels every OpenBLAS with run-time choice has. */
    static const char *const oldest[] = {"Prescott", "Sandybridge", "Haswell", "SkylakeX"};
    const enum blas_level level = blas_level_of_cpu();

    if (getenv("OPENBLAS_CORETYPE") || blas_level_of(openblas_get_corename()) >= level)
        return;
    if (setenv("OPENBLAS_CORETYPE", oldest[level], 1) == 0)
        execv("/proc/self/exe", argv);
        /* It could not be executed: what there is computes, only slower. */
#else
    (void)argv;
#endif
}

const char *blas_name(void)
{
#if defined(HAVE_OPENBLAS_SET_NUM_THREADS)
    static char name[64];

    snprintf(name, sizeof(name), "OpenBLAS, kernels for %s", openblas_get_corename());
    return name;
#elif defined(HAVE_CBLAS)
    return "CBLAS";
#else
    return "the program's own";
#endif
}
