/* SPDX-License-Identifier: BSD-3-Clause */
/* One direction between two ranks: frames in a ring of shared memory. */
#ifndef DISTI_TRANSPORTS_SHM_FIFO_H
#define DISTI_TRANSPORTS_SHM_FIFO_H

#include "transports/shm/memory.h"

#include <stddef.h>

/*
 * A frame starts on a line and does not wrap (a PAD fills the end of the ring):
 *
 *      | stamp | bytes kind | tag fingerprint bytes | up to 24 bytes of payload |
 *      | or, if it is more, the payload from the next line on ...               |
 *
 * The stamp says that the frame is complete: it is the pair's random key plus the frame's
 * place in the stream. The consumer polls the very line that brings a small message, so a
 * message costs one line's travel from core to core. What lies in the ring from earlier
 * laps has another stamp; payload cannot pass for one, as it would have to guess 64 bits.
 *
 * `consumed` comes back the other way, not for each frame but for each quarter of the ring.
 * So of an idle ring at least three quarters are free to the producer. A frame takes at
 * most one quarter, and a pad is shorter than the frame behind it: a frame always fits in
 * the end.
 *
 * Memory order. The producer stores the stamp last, the consumer loads it first: whoever
 * sees the stamp sees the frame (release, acquire). The same holds for `consumed` and the
 * reuse of the bytes. Stores after which the other side may have to be woken are seq_cst,
 * as is the load of its `asleep`; who falls asleep stores `asleep` and then looks for work
 * with seq_cst loads. So at least one of the two sees the other's store: no wake-up is lost.
 */
enum shm_kind {
    SHM_WHOLE = 1,
    SHM_FIRST,
    SHM_MORE,
    SHM_LENT,
    SHM_ANNOUNCED, /* payload: a name, 4 bytes, by which the message is asked for */
    SHM_WANTED,    /* send it; payload: the name */
    SHM_UNWANTED,  /* forget it; payload: the name */
    SHM_ASKED,     /* the first frame of a message that was asked for; envelope.tag: the name */
    SHM_PAD
};

#define SHM_FRAME_INLINE 24

struct shm_frame {
    _Atomic uint64_t stamp;
    uint32_t bytes; /* payload in this frame; PAD: bytes to skip, from the stamp on */
    uint32_t kind;
    struct dist_envelope envelope;
    unsigned char payload[SHM_FRAME_INLINE];
};

/*
 * SHM_WANTED with a loan's id in place of the name: the receiver cannot read the loan, so the
 * sender copies the message through the ring, in SHM_ASKED frames with this name. An empty
 * SHM_ASKED frame says that the message is not available any more.
 */
#define SHM_NAME_LOAN UINT32_C(0x80000000)

/* SHM_LENT's payload: where the sender keeps the message, and the name of the loan. */
struct shm_loan {
    uint64_t address;
    uint64_t id;
};

/* The producer's end. */
struct shm_out {
    unsigned char *ring;
    size_t size;
    uint64_t key;
    uint64_t produced;
    uint64_t consumed; /* as last seen */
    const _Atomic uint64_t *consumed_now;
    bool corrupt;
};

/* The consumer's end. */
struct shm_in {
    unsigned char *ring;
    size_t size;
    uint64_t key;
    uint64_t taken;
    uint64_t told;
    _Atomic uint64_t *consumed;
};

static inline size_t disti_shm_frame_bytes(size_t payload)
{
    size_t beyond = (payload + SHM_LINE - 1) & ~(size_t)(SHM_LINE - 1);

    return payload <= SHM_FRAME_INLINE ? SHM_LINE : SHM_LINE + beyond;
}

static inline unsigned char *disti_shm_frame_payload(struct shm_frame *frame, size_t payload)
{
    return payload <= SHM_FRAME_INLINE ? frame->payload : (unsigned char *)frame + SHM_LINE;
}

/* The most payload that a frame of this ring may have: whole lines. */
static inline size_t disti_shm_frame_max(size_t ring_size)
{
    return ring_size / 4 - SHM_LINE;
}

/* Looks again how far the consumer is. A value that cannot be is the peer's fault. */
static inline void disti_shm_fifo_refresh(struct shm_out *out)
{
    uint64_t consumed = atomic_load_explicit(out->consumed_now, memory_order_acquire);

    if (consumed < out->consumed || consumed > out->produced)
        out->corrupt = true;
    else
        out->consumed = consumed;
}

static inline bool disti_shm_fifo_has_room(struct shm_out *out, size_t bytes)
{
    if (out->produced + bytes - out->consumed <= out->size)
        return true;
    disti_shm_fifo_refresh(out);
    return !out->corrupt && out->produced + bytes - out->consumed <= out->size;
}

/* A place for a frame with `payload` bytes; NULL: the ring is full for now (or corrupt). */
static inline struct shm_frame *disti_shm_fifo_reserve(struct shm_out *out, size_t payload)
{
    size_t bytes = disti_shm_frame_bytes(payload);
    size_t offset = (size_t)(out->produced & (out->size - 1));
    size_t to_end = out->size - offset;
    struct shm_frame *frame = (void *)(out->ring + offset);

    if (bytes <= to_end)
        return disti_shm_fifo_has_room(out, bytes) ? frame : NULL;
    if (!disti_shm_fifo_has_room(out, to_end + bytes))
        return NULL;
    frame->kind = SHM_PAD;
    frame->bytes = (uint32_t)to_end;
    atomic_store_explicit(&frame->stamp, out->key + out->produced, memory_order_release);
    out->produced += to_end;
    return (void *)out->ring;
}

/* The frame that reserve gave is complete. The caller rings the doorbell if need be. */
static inline void disti_shm_fifo_publish(struct shm_out *out, struct shm_frame *frame,
                                          size_t payload)
{
    atomic_store_explicit(&frame->stamp, out->key + out->produced, memory_order_seq_cst);
    out->produced += disti_shm_frame_bytes(payload);
}

/* The next frame, or NULL. Its fields are the peer's: copy them, then check them. */
static inline struct shm_frame *disti_shm_fifo_peek(const struct shm_in *in)
{
    struct shm_frame *frame = (void *)(in->ring + (in->taken & (in->size - 1)));

    if (atomic_load_explicit(&frame->stamp, memory_order_seq_cst) != in->key + in->taken)
        return NULL;
    return frame;
}

/* Bytes from the next frame's stamp to the end of the ring. */
static inline size_t disti_shm_fifo_to_end(const struct shm_in *in)
{
    return in->size - (size_t)(in->taken & (in->size - 1));
}

/* Gives `bytes` bytes back. True: the producer was told, so ring its doorbell if it sleeps. */
static inline bool disti_shm_fifo_take(struct shm_in *in, size_t bytes)
{
    in->taken += bytes;
    if (in->taken - in->told < in->size / 4)
        return false;
    in->told = in->taken;
    atomic_store_explicit(in->consumed, in->told, memory_order_seq_cst);
    return true;
}

#endif
