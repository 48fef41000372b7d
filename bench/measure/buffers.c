/* SPDX-License-Identifier: BSD-3-Clause */
/* The buffers of a run. */
#include "buffers.h"

#include "bench/protocol.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Long buffers begin on pages, as malloc gives them nearly; short ones on cache lines. */
static size_t buffers_round(size_t bytes)
{
    size_t step = bytes >= 4096 ? 4096 : 64;

    return (bytes + step - 1) / step * step;
}

static size_t buffers_part(enum operation_part part, const struct order *order, int ranks)
{
    return part == PART_WHOLE ? order->bytes : part == PART_BLOCK ? order_block(order, ranks) : 0;
}

bool buffers_in_place(const struct order *order)
{
    return order->operation->in_place == IN_PLACE_ALWAYS ||
           (order->in_place && order->operation->in_place == IN_PLACE_ASKED);
}

static int buffers_count(const struct order *order, size_t stride)
{
    size_t sets = BENCH_SETS_BYTES / stride;

    if (order->buffers)
        return order->buffers;
    return sets > BENCH_SETS_MAX   ? BENCH_SETS_MAX
           : sets < BENCH_SETS_MIN ? BENCH_SETS_MIN
                                   : (int)sets;
}

/*
 *   apart    | in      | out             |     each rounded up
 *   in place | out, the whole, in its block of it |, or the other way round
 */
static void buffers_lay(struct buffers *b, const struct order *order, int rank, int ranks)
{
    const struct operation *operation = order->operation;
    size_t block = (size_t)rank * order_block(order, ranks);

    b->in_bytes = buffers_part(operation->in, order, ranks);
    b->out_bytes = buffers_part(operation->out, order, ranks);
    b->in_offset = b->out_offset = 0;
    if (!buffers_in_place(order)) {
        b->out_offset = buffers_round(b->in_bytes);
        b->stride = b->out_offset + buffers_round(b->out_bytes);
    } else {
        b->stride = buffers_round(order->bytes);
        if (operation->in == PART_BLOCK)
            b->in_offset = block;
        if (operation->out == PART_BLOCK)
            b->out_offset = block;
    }
    if (b->stride == 0)
        b->stride = 64;
    b->sets = buffers_count(order, b->stride);
}

int buffers_sets(const struct order *order, int ranks)
{
    struct buffers b;

    buffers_lay(&b, order, 0, ranks);
    return b.sets;
}

size_t buffers_need(const struct order *order, int ranks)
{
    struct buffers b;

    if (order->bytes > SIZE_MAX / (4 * ((size_t)order->buffers + BENCH_SETS_MIN)))
        return SIZE_MAX;
    buffers_lay(&b, order, 0, ranks);
    return b.stride * (size_t)b.sets;
}

/* Zeroes all of it. What only a device can touch is written set by set. */
static dist_status buffers_touch(const struct buffers *b, struct driver *driver)
{
    dist_status status = DIST_OK;
    char *zeroes = driver->put ? calloc(1, b->stride) : NULL;

    if (driver->put && !zeroes)
        return DIST_ERR_NO_MEMORY;
    for (int set = 0; set < b->sets && status == DIST_OK; set++) {
        if (driver->put)
            status = driver->put(driver, buffers_set(b, set), zeroes, b->stride);
        else
            memset(buffers_set(b, set), 0, b->stride);
    }
    free(zeroes);
    return status;
}

static dist_status buffers_alloc_piece(struct driver *driver, size_t bytes, void **memory_p)
{
    if (driver->alloc)
        return driver->alloc(driver, bytes, memory_p);
    return posix_memalign(memory_p, 4096, bytes) == 0 ? DIST_OK : DIST_ERR_NO_MEMORY;
}

static dist_status buffers_alloc(struct buffers *b, struct driver *driver)
{
    dist_status status = DIST_OK;

    for (int i = 0; i < b->piece_count && status == DIST_OK; i++)
        status = buffers_alloc_piece(driver, b->bytes, &b->pieces[i]);
    return status == DIST_OK ? buffers_touch(b, driver) : status;
}

dist_status buffers_fit(struct buffers *buffers, struct driver *driver, const struct order *order)
{
    struct buffers fresh = {0};

    buffers_lay(&fresh, order, driver->rank, driver->ranks);
    if (driver->block_in_front && order->operation->reduces && buffers_in_place(order))
        fresh.out_offset = 0;
    fresh.piece_count = order->buffers && !driver->one_piece ? fresh.sets : 1;
    fresh.bytes = fresh.stride * (size_t)(fresh.sets / fresh.piece_count);
    if (buffers->pieces && buffers->bytes == fresh.bytes &&
        buffers->piece_count == fresh.piece_count) {
        fresh.pieces = buffers->pieces;
        *buffers = fresh;
        return DIST_OK;
    }
    buffers_free(buffers, driver);
    fresh.pieces = calloc((size_t)fresh.piece_count, sizeof(*fresh.pieces));
    if (!fresh.pieces)
        return DIST_ERR_NO_MEMORY;
    *buffers = fresh;
    return buffers_alloc(buffers, driver);
}

void buffers_free(struct buffers *buffers, struct driver *driver)
{
    if (buffers->pieces && driver->forget)
        driver->forget(driver);
    for (int i = 0; i < buffers->piece_count; i++) {
        if (buffers->pieces[i] && driver->free)
            driver->free(driver, buffers->pieces[i], buffers->bytes);
        else
            free(buffers->pieces[i]);
    }
    free(buffers->pieces);
    *buffers = (struct buffers){0};
}
