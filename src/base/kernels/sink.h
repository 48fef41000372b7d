/* SPDX-License-Identifier: BSD-3-Clause */
/* Feeding a sink: received bytes are copied or reduced where they belong. */
#ifndef DISTI_BASE_KERNELS_SINK_H
#define DISTI_BASE_KERNELS_SINK_H

#include <dist/transport.h>

/*
 * Takes `bytes` bytes of the message that begin at byte `offset` of it. Copies them
 * to dst, or reduces them with src into dst (and finishes, if the sink asks). offset and bytes must
 * be whole elements if the sink reduces; data may lie at any address. Op USER calls
 * sink->reduction->fn. dst NULL: they are thrown away. The caller has checked offset + bytes <=
 * sink->bytes.
 */
void disti_sink_apply(const struct dist_sink *sink, size_t offset, const void *data, size_t bytes);

/* The place where the bytes may be put directly (a copying sink), or NULL. */
static inline void *disti_sink_direct(const struct dist_sink *sink, size_t offset)
{
    return sink->src || !sink->dst ? NULL : (char *)sink->dst + offset;
}

#endif
