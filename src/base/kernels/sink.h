/* SPDX-License-Identifier: BSD-3-Clause */
/* Sinks: received bytes are copied or reduced into the destination. */
#ifndef DISTI_BASE_KERNELS_SINK_H
#define DISTI_BASE_KERNELS_SINK_H

#include <dist/transport.h>

/*
 * Stores `bytes` bytes of a message, beginning at byte `offset` of it: copies them to dst, or
 * reduces them with src into dst (and finishes the result if the sink requests it). If the sink
 * reduces, offset and bytes must be whole elements. data may have any alignment. Op USER calls
 * sink->reduction->fn. If dst is NULL, discards the data. The caller has checked offset + bytes <=
 * sink->bytes.
 */
void disti_sink_apply(const struct dist_sink *sink, size_t offset, const void *data, size_t bytes);

/* Returns the address to receive into directly if the sink only copies, or NULL. */
static inline void *disti_sink_direct(const struct dist_sink *sink, size_t offset)
{
    return sink->src || !sink->dst ? NULL : (char *)sink->dst + offset;
}

#endif
