/* SPDX-License-Identifier: BSD-3-Clause */
/* Backend nccl: what a rank sends to itself. NCCL would want both ends at the same moment. */
#include "backends/nccl/nccl.h"

#include <stdlib.h>

/* The first of that kind that has not found its other end. */
static struct disti_nccl_call *self_take(struct disti_nccl_queue *queue, dist_collective collective)
{
    struct disti_nccl_call **entry = &queue->first, *last = NULL, *c;

    while (*entry && (*entry)->call.collective != collective) {
        last = *entry;
        entry = &last->next;
    }
    c = *entry;
    if (c) {
        *entry = c->next;
        if (queue->last == c)
            queue->last = last;
    }
    return c;
}

static size_t self_bytes(const struct disti_nccl_state *nccl, const struct disti_nccl_call *c)
{
    return c->call.count * nccl->host->dtype_size(c->call.dtype);
}

/*
 * Nobody receives it yet: it is copied aside, and its sender goes on. *parcel_p, which is what is
 * received later, has no ticket.
 */
static dist_status self_keep_copy(struct disti_nccl_state *nccl, struct disti_nccl_call *c)
{
    struct disti_nccl_call *parcel = calloc(1, sizeof(*parcel));
    dist_status status = DIST_OK;

    if (!parcel)
        return disti_nccl_no_memory(nccl);
    parcel->call = c->call;
    parcel->stream = c->stream;
    if (c->stage) { /* it has been copied already */
        parcel->stage = c->stage;
        c->stage = NULL;
    } else {
        status = disti_nccl_stage_copy(nccl, self_bytes(nccl, c), parcel);
    }
    if (status == DIST_OK)
        status = disti_nccl_event_take(nccl, &parcel->end);
    if (status == DIST_OK && nccl->driver->event_record(parcel->end, c->stream) != 0)
        status = nccl->host->fail(
            DIST_ERR_SYSTEM,
            "rank %d cannot mark a message to itself: see its device's state (nvidia-smi)",
            nccl->rank);
    if (status != DIST_OK)
        disti_nccl_call_free(nccl, parcel);
    else
        disti_nccl_queue_add(&nccl->parcels, parcel);
    return status;
}

/* Both ends are there; `stream` becomes that of the copy. */
static dist_status self_copy(struct disti_nccl_state *nccl, const struct disti_nccl_call *send,
                             const struct disti_nccl_call *recv, void *stream)
{
    size_t bytes = self_bytes(nccl, send);
    int error = 0;

    if (bytes != self_bytes(nccl, recv))
        return nccl->host->fail(DIST_ERR_MISMATCH,
                                "rank %d sends %zu bytes to itself but receives %zu: give both the "
                                "same count and dtype",
                                nccl->rank, bytes, self_bytes(nccl, recv));
    if (send->end)
        error = nccl->driver->stream_wait(stream, send->end, 0);
    if (!error)
        error = nccl->driver->copy_within((uintptr_t)recv->call.out, (uintptr_t)send->call.in,
                                          bytes, stream);
    return error ? disti_nccl_driver_fail(nccl, error, "copy a message to itself") : DIST_OK;
}

/* The message is there. */
static dist_status self_receive(struct disti_nccl_state *nccl, struct disti_nccl_call *recv,
                                struct disti_nccl_call *parcel)
{
    dist_status status = self_copy(nccl, parcel, recv, recv->stream);

    if (status != DIST_OK) {
        disti_nccl_call_free(nccl, parcel);
        disti_nccl_call_free(nccl, recv);
        return status;
    }
    /* Its memory is free when the receive has ended. */
    if (!recv->captured)
        recv->parcel = parcel;
    else
        disti_nccl_queue_add(&nccl->kept, parcel);
    return disti_nccl_mark(nccl, recv);
}

/* The receive waits for it. */
static dist_status self_send(struct disti_nccl_state *nccl, struct disti_nccl_call *send,
                             struct disti_nccl_call *recv)
{
    dist_status status = DIST_OK;

    if (send->stream != recv->stream)
        status = disti_nccl_follow(nccl, send->stream, recv->stream);
    if (status == DIST_OK)
        status = self_copy(nccl, send, recv, send->stream);
    if (status == DIST_OK && send->stream != recv->stream)
        status = disti_nccl_follow(nccl, recv->stream, send->stream);
    if (status == DIST_OK)
        status = disti_nccl_mark(nccl, recv);
    else
        disti_nccl_call_free(nccl, recv);
    if (status == DIST_OK)
        return disti_nccl_mark(nccl, send);
    disti_nccl_call_free(nccl, send);
    return status;
}

/* With a receive that waits on a stream there is no going back to it. */
static dist_status self_refuse(struct disti_nccl_state *nccl, struct disti_nccl_call *c)
{
    disti_nccl_call_free(nccl, c);
    return nccl->host->fail(DIST_ERR_INVALID_ARGUMENT,
                            "rank %d receives from itself on a stream before it has sent: send "
                            "first, or use dist_irecv",
                            nccl->rank);
}

dist_status disti_nccl_self(struct disti_nccl_state *nccl, struct disti_nccl_call *c)
{
    const bool sends = c->call.collective == DIST_COLL_SEND;
    struct disti_nccl_call *other =
        self_take(&nccl->parcels, sends ? DIST_COLL_RECV : DIST_COLL_SEND);
    dist_status status;

    if (other)
        return sends ? self_send(nccl, c, other) : self_receive(nccl, c, other);
    if (sends) {
        status = self_keep_copy(nccl, c);
        if (status == DIST_OK)
            return disti_nccl_mark(nccl, c);
        disti_nccl_call_free(nccl, c);
        return status;
    }
    if ((c->call.waits && c->stream == c->call.stream && !nccl->batch) || c->captured)
        return self_refuse(nccl, c);
    disti_nccl_queue_add(&nccl->parcels, c);
    return DIST_OK;
}
