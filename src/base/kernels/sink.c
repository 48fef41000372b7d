/* SPDX-License-Identifier: BSD-3-Clause */
/* Feeding a sink: received bytes are copied or reduced where they belong. */
#include "base/kernels/sink.h"

#include "base/dtype.h"

#include <string.h>

/* Of bytes that lie at an odd address, a program's function gets this many at a time. */
#define SINK_PIECE 4096

/* Received bytes may lie anywhere, but the program's function may count on whole addresses. */
static void sink_call(const struct dist_sink *sink, char *dst, const char *src, const char *data,
                      size_t bytes)
{
    const struct dist_reduction *own = sink->reduction;
    size_t element = dist_dtype_size(sink->dtype);
    uint64_t piece[SINK_PIECE / sizeof(uint64_t)];

    if ((uintptr_t)data % element == 0) {
        own->fn(own->arg, dst, src, data, bytes / element, sink->dtype);
        return;
    }
    for (size_t at = 0; at < bytes; at += sizeof(piece)) {
        size_t take = bytes - at < sizeof(piece) ? bytes - at : sizeof(piece);

        memcpy(piece, data + at, take);
        own->fn(own->arg, dst + at, src + at, piece, take / element, sink->dtype);
    }
}

void disti_sink_apply(const struct dist_sink *sink, size_t offset, const void *data, size_t bytes)
{
    const char *src = sink->src;
    size_t count;
    char *dst;

    if (bytes == 0 || !sink->dst)
        return;
    dst = (char *)sink->dst + offset;
    if (!src) {
        memcpy(dst, data, bytes);
        return;
    }
    src += offset;
    count = bytes / dist_dtype_size(sink->dtype);
    if (sink->op == DIST_USER)
        sink_call(sink, dst, src, data, bytes);
    else
        disti_reduce(sink->dtype, sink->op, dst, src, data, count);
    if (sink->finish_ranks > 0)
        disti_finish(dst, count, sink->dtype, sink->op, sink->finish_ranks);
}
