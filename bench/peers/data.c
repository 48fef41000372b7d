/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The data of the workers, and the comparison of results.
 *
 * Element i of block d of rank r is one of 16 small values, number
 *
 *     (i + i / TILE + 3 r + 5 d + seed) mod 16
 *
 * so a tile of TILE elements is a piece of a table that repeats 16 values, which begins at the
 * tile's number mod 16. So is a tile of a result: filling is memcpy, comparing is memcmp.
 */
#include "peer.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define TILE 4096
#define PERIOD 16

struct table {
    _Alignas(8) char data[(TILE + PERIOD) * 8];
};

static int has_blocks_in(enum peer_collective c)
{
    return c == PEER_SCATTER || c == PEER_REDUCE_SCATTER || c == PEER_ALL_TO_ALL;
}

static int has_blocks_out(enum peer_collective c)
{
    return c == PEER_ALL_GATHER || c == PEER_GATHER || c == PEER_ALL_TO_ALL;
}

static int reduces(enum peer_collective c)
{
    return c == PEER_ALL_REDUCE || c == PEER_REDUCE || c == PEER_REDUCE_SCATTER;
}

size_t peer_in_bytes(const struct peer_run *run, int ranks)
{
    return run->count * run->element * (has_blocks_in(run->collective) ? (size_t)ranks : 1);
}

size_t peer_out_bytes(const struct peer_run *run, int ranks)
{
    return run->count * run->element * (has_blocks_out(run->collective) ? (size_t)ranks : 1);
}

/* Value number k: exact in every type; powers of two where they are multiplied. */
static uint64_t value(const struct peer_run *run, unsigned k)
{
    k %= PERIOD;
    return run->operation == PEER_PROD ? 1 + k / 8 : 1 + k;
}

static uint64_t reduce(enum peer_operation operation, uint64_t a, uint64_t b)
{
    switch (operation) {
    case PEER_PROD:
        return a * b;
    case PEER_MIN:
        return a < b ? a : b;
    case PEER_MAX:
        return a > b ? a : b;
    default:
        return a + b;
    }
}

static void store(enum peer_dtype dtype, size_t element, uint64_t x, char *to)
{
    if (dtype == PEER_FLOAT32)
        memcpy(to, &(float){(float)x}, sizeof(float));
    else if (dtype == PEER_FLOAT64)
        memcpy(to, &(double){(double)x}, sizeof(double));
    else
        memcpy(to, &x, element); /* little-endian: the low bytes */
}

static void table_make(const struct peer_run *run, const uint64_t values[PERIOD],
                       struct table *table)
{
    for (unsigned k = 0; k < TILE + PERIOD; k++)
        store(run->dtype, run->element, values[k % PERIOD], table->data + k * run->element);
}

/* The table of rank r's block d. */
static void table_of(const struct peer_run *run, int r, int d, unsigned seed, struct table *table)
{
    uint64_t values[PERIOD];

    for (unsigned k = 0; k < PERIOD; k++)
        values[k] = value(run, k + 3u * (unsigned)r + 5u * (unsigned)d + seed);
    table_make(run, values, table);
}

/* The table of block d of all ranks together. */
static void table_reduced(const struct peer_run *run, int ranks, int d, unsigned seed,
                          struct table *table)
{
    uint64_t values[PERIOD];

    for (unsigned k = 0; k < PERIOD; k++) {
        values[k] = value(run, k + 5u * (unsigned)d + seed);
        for (int r = 1; r < ranks; r++)
            values[k] = reduce(run->operation, values[k],
                               value(run, k + 3u * (unsigned)r + 5u * (unsigned)d + seed));
    }
    table_make(run, values, table);
}

static const char *tile_of(const struct peer_run *run, const struct table *table, size_t i)
{
    return table->data + i / TILE % PERIOD * run->element;
}

static size_t tile_bytes(const struct peer_run *run, size_t i)
{
    return (run->count - i < TILE ? run->count - i : TILE) * run->element;
}

void peer_fill(const struct peer_run *run, int rank, int ranks, unsigned seed,
               const struct peer_set *set)
{
    int blocks = has_blocks_in(run->collective) ? ranks : 1;
    struct table table;

    if (set->in != set->out)
        memset(set->out, 0x5a, peer_out_bytes(run, ranks));
    for (int d = 0; d < blocks; d++) {
        char *to = (char *)set->in + (size_t)d * run->count * run->element;

        table_of(run, rank, d, seed, &table);
        for (size_t i = 0; i < run->count; i += TILE)
            memcpy(to + i * run->element, tile_of(run, &table, i), tile_bytes(run, i));
    }
}

/* What block b of the result must be. */
static void expected(const struct peer_run *run, int rank, int ranks, int b, unsigned seed,
                     struct table *table)
{
    switch (run->collective) {
    case PEER_REDUCE_SCATTER:
        table_reduced(run, ranks, rank, seed, table);
        break;
    case PEER_ALL_TO_ALL:
        table_of(run, b, rank, seed, table);
        break;
    case PEER_SCATTER:
        table_of(run, run->root, rank, seed, table);
        break;
    case PEER_BROADCAST:
        table_of(run, run->root, 0, seed, table);
        break;
    default:
        if (reduces(run->collective))
            table_reduced(run, ranks, 0, seed, table);
        else
            table_of(run, b, 0, seed, table);
    }
}

static int block_right(const struct peer_run *run, const struct table *table, const char *got,
                       size_t *element_p)
{
    size_t element = run->element;

    for (size_t i = 0; i < run->count; i += TILE) {
        if (memcmp(got + i * element, tile_of(run, table, i), tile_bytes(run, i)) == 0)
            continue;
        while (memcmp(got + i * element, tile_of(run, table, i) + i % TILE * element, element) == 0)
            i++;
        *element_p = i;
        return 0;
    }
    return 1;
}

int peer_right(const struct peer_run *run, int rank, int ranks, unsigned seed,
               const struct peer_set *set, size_t *block_p, size_t *element_p)
{
    int blocks = has_blocks_out(run->collective) ? ranks : 1;
    struct table table;

    if ((run->collective == PEER_REDUCE || run->collective == PEER_GATHER) && rank != run->root)
        return 1;
    for (int b = 0; b < blocks; b++) {
        const char *got = (const char *)set->out + (size_t)b * run->count * run->element;

        expected(run, rank, ranks, b, seed, &table);
        if (!block_right(run, &table, got, element_p)) {
            *block_p = (size_t)b;
            return 0;
        }
    }
    return 1;
}
