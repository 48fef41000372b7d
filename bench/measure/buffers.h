/* SPDX-License-Identifier: BSD-3-Clause */
/* The buffers of a run: sets of in and out, used in turn. */
#ifndef BENCH_BUFFERS_H
#define BENCH_BUFFERS_H

#include "driver.h"

struct buffers {
    void **pieces; /* NULL: none */
    int piece_count;
    size_t bytes; /* of a piece */
    size_t stride, in_offset, out_offset;
    size_t in_bytes, out_bytes;
    int sets; /* all in the one piece, or each in its own */
};

/* Makes them fit the order, touched. Those that fit already are kept. All ranks call it. */
dist_status buffers_fit(struct buffers *buffers, struct driver *driver, const struct order *order);
void buffers_free(struct buffers *buffers, struct driver *driver);

static inline char *buffers_set(const struct buffers *buffers, int set)
{
    return buffers->piece_count > 1 ? (char *)buffers->pieces[set]
                                    : (char *)buffers->pieces[0] + (size_t)set * buffers->stride;
}

static inline void *buffers_in(const struct buffers *buffers, int set)
{
    return buffers_set(buffers, set) + buffers->in_offset;
}

static inline void *buffers_out(const struct buffers *buffers, int set)
{
    return buffers_set(buffers, set) + buffers->out_offset;
}

/* Are in and out of an order the same memory? */
bool buffers_in_place(const struct order *order);

/* How many sets an order has. */
int buffers_sets(const struct order *order, int ranks);

/* What all sets of an order take on one rank at most, in bytes. SIZE_MAX: too much to count. */
size_t buffers_need(const struct order *order, int ranks);

#endif
