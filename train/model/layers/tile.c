/* SPDX-License-Identifier: BSD-3-Clause */
/* Convolution without copies of windows. */
#include "tile.h"

#include <stddef.h>

#include "train/model/kernel.h"

/*
 * Products here are fused with sums, as in a CBLAS: gradients may differ in the last bit between
 * unlike processors, which is no harm because their mean is made once for all ranks.
 *
 * A tile has to fit the registers of the CPU, so the loops are compiled for each kind by hand.
 * Where vectors are shorter, the matrix products of a CBLAS are no slower.
 */
#if defined(__x86_64__) && defined(HAVE_CONFIG_H) && HAVE_TARGET_CLONES && !defined(__clang__)
enum { TILE_LANES = 16 };
typedef float tile_vector __attribute__((vector_size(4 * TILE_LANES), aligned(4), may_alias));

#pragma GCC push_options
#pragma GCC optimize("fp-contract=fast")
#pragma GCC target("avx512f")
#define TILE(name) tile_avx512_##name
#define TILE_ROWS 8
#include "tile_body.h"
#undef TILE
#undef TILE_ROWS
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC optimize("fp-contract=fast")
#pragma GCC target("avx2,fma")
#define TILE(name) tile_avx2_##name
#define TILE_ROWS 4
#include "tile_body.h"
#undef TILE
#undef TILE_ROWS
#pragma GCC pop_options

/* The best first. rows: of a tile, 0 for none. */
struct tile_kernels {
    const char *name;
    int rows;
    void (*forward)(const struct tile_job *job, const float *frame, const float *weight,
                    float *out);
    void (*weight)(const struct tile_job *job, const float *frame, const float *dout,
                   float *dweight);
};

static const struct tile_kernels tile_table[] = {
    {"avx512f", 8, tile_avx512_forward, tile_avx512_weight},
    {"avx2", 4, tile_avx2_forward, tile_avx2_weight},
    {"none", 0, NULL, NULL},
};
enum { TILE_KINDS = sizeof(tile_table) / sizeof(tile_table[0]) };

static int tile_passed; /* over by tile_use, of those that this CPU can run */

static bool tile_runs(int kind)
{
    if (tile_table[kind].rows == 8)
        return __builtin_cpu_supports("avx512f");
    return tile_table[kind].rows == 0 ||
           (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"));
}

/* NULL: there are not so many. */
static const struct tile_kernels *tile_find(int number)
{
    for (int kind = 0; kind < TILE_KINDS; kind++)
        if (tile_runs(kind) && number-- == 0)
            return &tile_table[kind];
    return NULL;
}

const char *tile_use(int number)
{
    const struct tile_kernels *kernels = tile_find(number);

    tile_passed = kernels ? number : 0;
    return kernels ? kernels->name : NULL;
}

bool tile_fits(const struct tile_job *job)
{
    const int rows = tile_find(tile_passed)->rows;

    return rows > 0 && job->channels % TILE_LANES == 0 && job->width >= rows &&
           job->kernel * job->inputs % rows == 0;
}

void tile_forward(const struct tile_job *job, const float *frame, const float *weight, float *out)
{
    tile_find(tile_passed)->forward(job, frame, weight, out);
}

void tile_weight(const struct tile_job *job, const float *frame, const float *dout, float *dweight)
{
    tile_find(tile_passed)->weight(job, frame, dout, dweight);
}
#else
const char *tile_use(int number)
{
    return number == 0 ? "none" : NULL;
}

bool tile_fits(const struct tile_job *job)
{
    (void)job;
    return false;
}

void tile_forward(const struct tile_job *job, const float *frame, const float *weight, float *out)
{
    (void)job, (void)frame, (void)weight, (void)out;
}

void tile_weight(const struct tile_job *job, const float *frame, const float *dout, float *dweight)
{
    (void)job, (void)frame, (void)dout, (void)dweight;
}
#endif
