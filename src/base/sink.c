/* SPDX-License-Identifier: BSD-3-Clause */
/* Feeding a sink: received bytes are copied or reduced where they belong. */
#include "base/sink.h"

#include "base/dtype.h"

#include <string.h>

void disti_sink_apply(const struct dist_sink *sink, size_t offset, const void *data, size_t bytes)
{
    size_t count;
    char *dst;

    if (bytes == 0)
        return;
    dst = (char *)sink->dst + offset;
    if (!sink->src) {
        memcpy(dst, data, bytes);
        return;
    }
    count = bytes / dist_dtype_size(sink->dtype);
    if (sink->reduction && sink->op == DIST_USER)
        sink->reduction->fn(sink->reduction->arg, dst, (const char *)sink->src + offset, data,
                            count, sink->dtype);
    else
        disti_reduce_kernel(sink->dtype, sink->op)(dst, (const char *)sink->src + offset, data,
                                                   count);
    if (sink->finish_ranks > 0)
        disti_finish(dst, count, sink->dtype, sink->op, sink->finish_ranks);
}
