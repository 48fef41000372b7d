/* SPDX-License-Identifier: BSD-3-Clause */
/* The buffers of a run: sets of in and out, used in turn. */
#ifndef BENCH_BUFFERS_H
#define BENCH_BUFFERS_H

#include "subject.h"

struct buffers {
    void *memory; /* NULL: none */
    size_t bytes, stride, in_at, out_at;
    size_t in_bytes, out_bytes;
    int sets;
};

/* Makes them fit the order, touched. Those that fit already are kept. All ranks call it. */
dist_status buffers_fit(struct buffers *buffers, struct subject *subject,
                        const struct order *order);
void buffers_free(struct buffers *buffers, struct subject *subject);

static inline void *buffers_in(const struct buffers *buffers, int set)
{
    return (char *)buffers->memory + (size_t)set * buffers->stride + buffers->in_at;
}

static inline void *buffers_out(const struct buffers *buffers, int set)
{
    return (char *)buffers->memory + (size_t)set * buffers->stride + buffers->out_at;
}

/* Are in and out of an order the same memory? */
bool buffers_in_place(const struct order *order);

/* What all sets of an order take on one rank at most, in bytes. SIZE_MAX: too much to count. */
size_t buffers_need(const struct order *order, int ranks);

#endif
