/* SPDX-License-Identifier: BSD-3-Clause */
/* Matrix multiplication in float32. */
#ifdef HAVE_CONFIG_H
#include <config.h>
#endif

#include "gemm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "kernel.h"

#ifdef HAVE_CBLAS
#include <cblas.h>

void gemm(bool transpose_a, bool transpose_b, int m, int n, int k, const float *a, const float *b,
          bool add, float *c)
{
    cblas_sgemm(CblasRowMajor, transpose_a ? CblasTrans : CblasNoTrans,
                transpose_b ? CblasTrans : CblasNoTrans, m, n, k, 1.0F, a, transpose_a ? m : k, b,
                transpose_b ? k : n, add ? 1.0F : 0.0F, c, n);
}
#else
enum {
    GEMM_DEPTH = 128, /* rows of b per block */
    GEMM_WIDTH = 256  /* columns of b per block; 128 KiB in total fit the L2 cache */
};

/* c[0..width) += sum over p of a[p * a_step] * block[p][0..width) */
KERNEL static void gemm_row(int depth, int width, const float *a, int a_step, const float *block,
                            float *restrict c)
{
    int p = 0;

    for (; p + 4 <= depth; p += 4) {
        const float a0 = a[(p + 0) * a_step], a1 = a[(p + 1) * a_step];
        const float a2 = a[(p + 2) * a_step], a3 = a[(p + 3) * a_step];
        const float *b = block + p * GEMM_WIDTH;

#pragma omp simd
        for (int j = 0; j < width; j++)
            c[j] += (a0 * b[j] + a1 * b[GEMM_WIDTH + j]) +
                    (a2 * b[2 * GEMM_WIDTH + j] + a3 * b[3 * GEMM_WIDTH + j]);
    }
    for (; p < depth; p++) {
        const float a0 = a[p * a_step];
        const float *b = block + p * GEMM_WIDTH;

#pragma omp simd
        for (int j = 0; j < width; j++)
            c[j] += a0 * b[j];
    }
}

/* Copies op(b)[row.., column..] to block, with GEMM_WIDTH floats per row. */
static void gemm_pack(bool transpose, int n, int k, const float *b, int row, int column, int depth,
                      int width, float *block)
{
    for (int p = 0; p < depth; p++) {
        float *to = block + p * GEMM_WIDTH;

        if (!transpose) {
            memcpy(to, b + (size_t)(row + p) * n + column, (size_t)width * sizeof(*to));
            continue;
        }
        for (int j = 0; j < width; j++)
            to[j] = b[(size_t)(column + j) * k + row + p];
    }
}

void gemm(bool transpose_a, bool transpose_b, int m, int n, int k, const float *a, const float *b,
          bool add, float *c)
{
    float block[GEMM_DEPTH * GEMM_WIDTH];
    const size_t row_step = transpose_a ? 1 : (size_t)k;
    const size_t depth_step = transpose_a ? (size_t)m : 1;

    if (!add)
        memset(c, 0, (size_t)m * n * sizeof(*c));
    for (int j = 0; j < n; j += GEMM_WIDTH) {
        const int width = n - j < GEMM_WIDTH ? n - j : GEMM_WIDTH;

        for (int p = 0; p < k; p += GEMM_DEPTH) {
            const int depth = k - p < GEMM_DEPTH ? k - p : GEMM_DEPTH;

            gemm_pack(transpose_b, n, k, b, p, j, depth, width, block);
            for (int i = 0; i < m; i++)
                gemm_row(depth, width, a + (size_t)i * row_step + (size_t)p * depth_step,
                         (int)depth_step, block, c + (size_t)i * n + j);
        }
    }
}
#endif

/* OpenBLAS selects kernels by the CPU's model; this code compares them with the CPU's features. */

#ifdef HAVE_OPENBLAS_SET_NUM_THREADS
void openblas_set_num_threads(int threads);
char *openblas_get_corename(void);
#endif

/* Kernels that use less than AVX-512, as of OpenBLAS 0.3.28 (driver/others/dynamic.c). */
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

void blas_choose(char *argv[])
{
#if defined(HAVE_OPENBLAS_SET_NUM_THREADS) && defined(__x86_64__)
    /* The oldest CPU of each level; every OpenBLAS with run-time selection has kernels for it. */
    static const char *const oldest[] = {"Prescott", "Sandybridge", "Haswell", "SkylakeX"};
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    /* The highest level that this CPU and its operating system support. */
    const enum blas_level level = avx512                          ? BLAS_AVX512
                                  : avx2                          ? BLAS_AVX2
                                  : __builtin_cpu_supports("avx") ? BLAS_AVX
                                                                  : BLAS_SSE;

    if (getenv("OPENBLAS_CORETYPE") || blas_level_of(openblas_get_corename()) >= level)
        return;
    if (setenv("OPENBLAS_CORETYPE", oldest[level], 1) == 0)
        execv("/proc/self/exe", argv);
        /* exec failed: continue with the slower kernels. */
#else
    (void)argv;
#endif
}

const char *gemm_start(int threads)
{
#if defined(HAVE_OPENBLAS_SET_NUM_THREADS)
    static char name[64];

    if (threads > 0)
        openblas_set_num_threads(threads);
    else if (!getenv("OPENBLAS_NUM_THREADS") && !getenv("OMP_NUM_THREADS"))
        openblas_set_num_threads(1);
    snprintf(name, sizeof(name), "OpenBLAS, kernels for %s", openblas_get_corename());
    return name;
#elif defined(HAVE_CBLAS)
    (void)threads;
    return "CBLAS";
#else
    (void)threads;
    return "the program's own";
#endif
}
