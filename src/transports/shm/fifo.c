/* SPDX-License-Identifier: BSD-3-Clause */
/* The producer's search for room in a ring. */
#include "transports/shm/fifo.h"

/* Looks again how far the consumer is. A value that cannot be is the peer's fault. */
static void fifo_refresh(struct shm_out *out)
{
    uint64_t consumed = atomic_load_explicit(out->consumed_now, memory_order_acquire);

    if (consumed < out->consumed || consumed > out->produced)
        out->corrupt = true;
    else
        out->consumed = consumed;
}

static bool fifo_has_room(struct shm_out *out, size_t bytes)
{
    if (out->produced + bytes - out->consumed <= out->size)
        return true;
    fifo_refresh(out);
    return !out->corrupt && out->produced + bytes - out->consumed <= out->size;
}

struct shm_frame *disti_shm_fifo_reserve(struct shm_out *out, size_t payload)
{
    size_t bytes = disti_shm_frame_bytes(payload);
    size_t offset = (size_t)(out->produced & (out->size - 1));
    size_t to_end = out->size - offset;
    struct shm_frame *frame = (void *)(out->ring + offset);

    if (bytes <= to_end)
        return fifo_has_room(out, bytes) ? frame : NULL;
    if (!fifo_has_room(out, to_end + bytes))
        return NULL;
    frame->kind = SHM_PAD;
    frame->bytes = (uint32_t)to_end;
    atomic_store_explicit(&frame->stamp, out->key + out->produced, memory_order_release);
    out->produced += to_end;
    return (void *)out->ring;
}
