/* SPDX-License-Identifier: BSD-3-Clause */
/* Backend nccl: executes calls, from post to completion, including those with data in host
 * memory. */
#include "backends/nccl/nccl.h"
#include "base/backoff.h"
#include "base/clock.h"
#include "base/collective.h"
#include "base/dtype.h"
#include "base/kernels/half.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Finds the pieces of a call's IN or OUT at this rank, if they are in host memory. */
static dist_status survey_side(const struct disti_nccl_state *nccl, const struct dist_call *call,
                               bool out, struct disti_nccl_side *side)
{
    const struct disti_collective *traits = &disti_collectives[call->collective];
    const int holds = out ? traits->out : traits->in, at = out ? traits->out_at : traits->in_at;
    const bool listed = holds == DISTI_BLOCKS_EACH && traits->counts != DISTI_COUNTS_SAME;
    const size_t *counts = out ? call->out_counts : call->in_counts;
    const size_t *offsets = out ? call->out_offsets : call->in_offsets;
    const size_t size = nccl->host->dtype_size(call->dtype);
    char *base = out ? call->out : (char *)call->in;
    size_t count = call->count;

    /*
     * Skips a buffer that the call does not use at this rank: at the root, OUT of a broadcast; at
     * other ranks, a buffer that only the root needs. The pointer to it may be invalid.
     */
    if (call->root == nccl->rank ? out && disti_collective_one_buffer(traits) : at == DISTI_AT_ROOT)
        return DIST_OK;
    if (holds == DISTI_BLOCKS_NONE || !base || disti_driver_owns(nccl->driver, base))
        return DIST_OK;
    side->pieces = calloc(listed ? (size_t)nccl->ranks : 1, sizeof(*side->pieces));
    if (!side->pieces)
        return disti_nccl_no_memory(nccl);
    if (listed) {
        size_t offset = 0;

        side->offsets = calloc((size_t)nccl->ranks, sizeof(*side->offsets));
        if (!side->offsets)
            return disti_nccl_no_memory(nccl);
        for (int r = 0, used = 0; r < nccl->ranks; r++) {
            side->offsets[r] = offset;
            offset += counts[r];
            if (counts[r])
                side->pieces[used++] =
                    (struct disti_nccl_piece){base + offsets[r] * size, counts[r] * size};
        }
        side->bytes = offset * size;
        return DIST_OK;
    }
    if (holds == DISTI_BLOCKS_EACH)
        count *= (size_t)nccl->ranks;
    else if (holds == DISTI_BLOCKS_OWN && traits->counts == DISTI_COUNTS_LISTED)
        count = (out ? call->in_counts : call->out_counts)[nccl->rank];
    side->bytes = count * size;
    side->pieces[0] = (struct disti_nccl_piece){base, side->bytes};
    return DIST_OK;
}

/* Sets an error with the text of the driver's error. `what` is the attempted action. */
static dist_status nccl_driver_fail(const struct disti_nccl_state *nccl, int error,
                                    const char *what)
{
    return nccl->host->fail(DIST_ERR_SYSTEM,
                            "rank %d cannot %s on device %d: %s. Check its state (nvidia-smi)",
                            nccl->rank, what, nccl->device, disti_driver_text(nccl->driver, error));
}

/* Takes an event from the cache, or creates one. disti_nccl_call_free() returns it to the cache. */
static dist_status nccl_event_get(struct disti_nccl_state *nccl, void **event_p)
{
    int error;

    if (nccl->gpu->spares) {
        *event_p = nccl->gpu->spare[--nccl->gpu->spares];
        return DIST_OK;
    }
    error = nccl->driver->event_create(event_p, DISTI_DRIVER_EVENT_NO_TIMING);
    return error ? nccl_driver_fail(nccl, error, "create an event") : DIST_OK;
}

/* Orders two streams: work submitted to `later` from now on waits for the work that is on
 * `earlier`. */
static dist_status nccl_follow(struct disti_nccl_state *nccl, void *later, void *earlier)
{
    int error = nccl->driver->event_record(nccl->gpu->order_event, earlier);

    if (!error)
        error = nccl->driver->stream_wait(later, nccl->gpu->order_event, 0);
    return error ? nccl_driver_fail(nccl, error, "order two streams") : DIST_OK;
}

/* Replaces the call's host memory by the device memory of its regions. */
static void nccl_stage_redirect(const struct disti_nccl_stage *stage, struct dist_call *call)
{
    if (stage->in.region)
        call->in = disti_nccl_pointer(stage->in.region->memory);
    if (stage->out.region)
        call->out = disti_nccl_pointer(stage->out.region->memory);
    if (stage->in.offsets)
        call->in_offsets = stage->in.offsets;
    if (stage->out.offsets)
        call->out_offsets = stage->out.offsets;
    if (call->collective == DIST_COLL_BROADCAST) { /* uses only one buffer */
        if (stage->in.region)
            call->out = (void *)call->in;
        else if (stage->out.region)
            call->in = call->out;
    }
}

/* Allocates uninitialized device memory. Returns 0 if there is none. */
uintptr_t disti_nccl_device_memory(struct disti_nccl_state *nccl, size_t bytes)
{
    struct disti_nccl_region **entry = &nccl->gpu->regions, *region;
    uintptr_t memory = 0;
    bool freed = false;

    if (nccl->driver->memory_alloc(&memory, bytes) == 0)
        return memory;
    /* Frees cached regions and tries again. */
    while ((region = *entry)) {
        if (region->used) {
            entry = &region->next;
            continue;
        }
        *entry = region->next;
        nccl->driver->memory_free(region->memory);
        free(region);
        freed = true;
    }
    return freed && nccl->driver->memory_alloc(&memory, bytes) == 0 ? memory : 0;
}

/* ---- staging: host memory is copied through pinned memory to the device and back ---- */

/* ---- pinned memory ---- */

static dist_status stage_pin(struct disti_nccl_state *nccl)
{
    struct disti_nccl_pinned *pinned = &nccl->gpu->pinned;
    dist_status status = DIST_OK;
    void *memory = NULL;
    int error = 0;

    if (pinned->memory)
        return DIST_OK;
    if (!nccl->gpu->copies)
        error = nccl->driver->stream_create(&nccl->gpu->copies, DISTI_DRIVER_STREAM_NON_BLOCKING);
    for (int i = 0; i < DISTI_NCCL_SLOTS && !error && status == DIST_OK; i++) {
        if (!pinned->events[i])
            status = nccl_event_get(nccl, &pinned->events[i]);
    }
    if (status != DIST_OK)
        return status;
    if (!error)
        error = nccl->driver->host_alloc(&memory, DISTI_NCCL_SLOTS * DISTI_NCCL_SLOT_BYTES,
                                         DISTI_DRIVER_HOST_PORTABLE);
    if (error)
        return nccl_driver_fail(nccl, error, "allocate pinned host memory");
    pinned->memory = memory;
    return DIST_OK;
}

/* Waits until the slot's copy has completed. Copies do not depend on other ranks. */
static dist_status stage_wait(struct disti_nccl_state *nccl, unsigned slot)
{
    int64_t deadline = disti_deadline_ms(nccl->timeout_ms);
    struct disti_backoff backoff = {0};
    int error;

    while ((error = nccl->driver->event_query(nccl->gpu->pinned.events[slot])) ==
           DISTI_DRIVER_NOT_READY) {
        if (disti_expired(deadline))
            return nccl->host->fail(DIST_ERR_TIMEOUT,
                                    "rank %d: device %d did not copy 1 MiB within %d ms: check "
                                    "what it is doing (nvidia-smi)",
                                    nccl->rank, nccl->device, nccl->timeout_ms);
        disti_backoff(&backoff);
    }
    return error ? nccl_driver_fail(nccl, error, "copy from or to the host") : DIST_OK;
}

/* ---- copies between pieces of host memory and a slot ---- */

/*
 * Copies `bytes` bytes from the side's current position to the slot or, if `in` is false, from the
 * slot to that position.
 */
static void stage_move(struct disti_nccl_side *side, char *slot, size_t bytes, bool in)
{
    while (bytes) {
        const struct disti_nccl_piece *piece = &side->pieces[side->piece];
        size_t left = piece->bytes - side->within;
        size_t n = left < bytes ? left : bytes;

        if (in)
            memcpy(slot, piece->data + side->within, n);
        else
            memcpy(piece->data + side->within, slot, n);
        slot += n;
        bytes -= n;
        side->within += n;
        if (side->within == piece->bytes) {
            side->piece++;
            side->within = 0;
        }
    }
}

static size_t stage_chunk(const struct disti_nccl_side *side, size_t done)
{
    size_t left = side->bytes - done;

    return left < DISTI_NCCL_SLOT_BYTES ? left : DISTI_NCCL_SLOT_BYTES;
}

static char *stage_slot(const struct disti_nccl_state *nccl, unsigned slot)
{
    return nccl->gpu->pinned.memory + slot * DISTI_NCCL_SLOT_BYTES;
}

static dist_status stage_copy_in(struct disti_nccl_state *nccl, struct disti_nccl_side *side,
                                 void *stream)
{
    for (size_t done = 0, n; done < side->bytes; done += n) {
        unsigned slot = nccl->gpu->pinned.turn++ % DISTI_NCCL_SLOTS;
        dist_status status = stage_wait(nccl, slot);
        int error;

        if (status != DIST_OK)
            return status;
        n = stage_chunk(side, done);
        stage_move(side, stage_slot(nccl, slot), n, true);
        error = nccl->driver->copy_in(side->region->memory + done, stage_slot(nccl, slot), n,
                                      nccl->gpu->copies);
        if (!error)
            error = nccl->driver->event_record(nccl->gpu->pinned.events[slot], nccl->gpu->copies);
        if (error)
            return nccl_driver_fail(nccl, error, "copy from the host");
    }
    return nccl_follow(nccl, stream, nccl->gpu->copies);
}

/*
 * Copies the next bytes of the side, as many as fit into all slots, to host memory, and waits for
 * the copies. All slots are free again afterwards.
 */
static dist_status stage_copy_out(struct disti_nccl_state *nccl, struct disti_nccl_side *side)
{
    size_t sizes[DISTI_NCCL_SLOTS] = {0}, done = side->done;
    dist_status status = DIST_OK;

    for (unsigned i = 0; i < DISTI_NCCL_SLOTS && done < side->bytes && status == DIST_OK; i++) {
        int error;

        /* The slot may be in use by a copy to the device for another call. */
        status = stage_wait(nccl, i);
        if (status != DIST_OK)
            break;
        sizes[i] = stage_chunk(side, done);
        error = nccl->driver->copy_out(stage_slot(nccl, i), side->region->memory + done, sizes[i],
                                       nccl->gpu->copies);
        if (!error)
            error = nccl->driver->event_record(nccl->gpu->pinned.events[i], nccl->gpu->copies);
        if (error)
            return nccl_driver_fail(nccl, error, "copy to the host");
        done += sizes[i];
    }
    for (unsigned i = 0; i < DISTI_NCCL_SLOTS && sizes[i] && status == DIST_OK; i++) {
        status = stage_wait(nccl, i);
        if (status == DIST_OK)
            stage_move(side, stage_slot(nccl, i), sizes[i], false);
    }
    side->done = done;
    return status;
}

/* ---- device memory ---- */

/* Finds or allocates a region. Freeing device memory may synchronize the whole device, so unused
 * regions are kept. */
static dist_status stage_region(struct disti_nccl_state *nccl, size_t bytes,
                                struct disti_nccl_region **region_p)
{
    struct disti_nccl_region *region = NULL; /* the smallest one that is free and large enough */

    for (struct disti_nccl_region *r = nccl->gpu->regions; r; r = r->next) {
        if (!r->used && r->bytes >= bytes && (!region || r->bytes < region->bytes))
            region = r;
    }
    if (!region) {
        region = calloc(1, sizeof(*region));
        if (region) {
            region->bytes = 64 * 1024;
            while (region->bytes < bytes && region->bytes < DISTI_NCCL_SLOT_BYTES)
                region->bytes *= 2;
            if (region->bytes < bytes)
                region->bytes = (bytes + DISTI_NCCL_SLOT_BYTES - 1) / DISTI_NCCL_SLOT_BYTES *
                                DISTI_NCCL_SLOT_BYTES;
            region->memory = disti_nccl_device_memory(nccl, region->bytes);
        }
        if (!region || !region->memory) {
            free(region);
            return nccl->host->fail(DIST_ERR_NO_MEMORY,
                                    "rank %d: device %d does not have %zu bytes left for copies of "
                                    "host memory: pass device memory, or use a group of backend "
                                    "gloo",
                                    nccl->rank, nccl->device, bytes);
        }
        region->next = nccl->gpu->regions;
        nccl->gpu->regions = region;
    }
    region->used = true;
    *region_p = region;
    return DIST_OK;
}

static void stage_side_free(struct disti_nccl_side *side)
{
    if (side->region)
        side->region->used = false;
    free(side->pieces);
    free(side->offsets);
}

/* ---- staged calls ---- */

/*
 * Replaces the call's host memory by device memory and starts copying its input there; c->stream
 * waits for these copies. Blocks only while no slot of pinned memory is free.
 */
static dist_status nccl_stage_in(struct disti_nccl_state *nccl, struct disti_nccl_call *c)
{
    static atomic_flag warned = ATOMIC_FLAG_INIT;
    struct disti_nccl_stage *stage = calloc(1, sizeof(*stage));
    dist_status status;

    if (!atomic_flag_test_and_set(&warned))
        nccl->host->log(
            DIST_LOG_WARN,
            "rank %d: %s of host memory with backend nccl copies to the device and back: pass "
            "device memory (dist_alloc), or use a group of backend gloo for data in host memory",
            nccl->rank, nccl->host->collective_string(c->call.collective));
    c->stage = stage;
    if (!stage)
        return disti_nccl_no_memory(nccl);
    status = survey_side(nccl, &c->call, false, &stage->in);
    if (status == DIST_OK)
        status = survey_side(nccl, &c->call, true, &stage->out);
    if (status == DIST_OK && (stage->in.bytes || stage->out.bytes))
        status = stage_pin(nccl);
    if (status == DIST_OK && stage->in.bytes)
        status = stage_region(nccl, stage->in.bytes, &stage->in.region);
    if (status == DIST_OK && stage->out.bytes)
        status = stage_region(nccl, stage->out.bytes, &stage->out.region);
    if (status == DIST_OK && stage->in.bytes)
        status = stage_copy_in(nccl, &stage->in, c->stream);
    if (status == DIST_OK)
        nccl_stage_redirect(stage, &c->call);
    return status;
}

/* Copies the data that the call sends to a new region, on the call's stream. */
static dist_status nccl_stage_copy(struct disti_nccl_state *nccl, size_t bytes,
                                   struct disti_nccl_call *c)
{
    dist_status status;
    int error;

    c->stage = calloc(1, sizeof(*c->stage));
    if (!c->stage)
        return disti_nccl_no_memory(nccl);
    status = stage_region(nccl, bytes, &c->stage->in.region);
    if (status != DIST_OK)
        return status;
    error = nccl->driver->copy_within(c->stage->in.region->memory, (uintptr_t)c->call.in, bytes,
                                      c->stream);
    c->call.in = disti_nccl_pointer(c->stage->in.region->memory);
    return error ? nccl_driver_fail(nccl, error, "copy a message to itself") : DIST_OK;
}

/* ---- messages of a rank to itself: NCCL requires the send and receive in one NCCL group ---- */

static size_t self_bytes(const struct disti_nccl_state *nccl, const struct disti_nccl_call *c)
{
    return c->call.count * nccl->host->dtype_size(c->call.dtype);
}

/*
 * Handles a send to this rank itself whose receive has not been posted: copies the data, so that
 * the send can complete. Queues the copy in place of the send, without a ticket.
 */
static dist_status self_keep_copy(struct disti_nccl_state *nccl, struct disti_nccl_call *c)
{
    struct disti_nccl_call *sent_copy = calloc(1, sizeof(*sent_copy));
    dist_status status = DIST_OK;

    if (!sent_copy)
        return disti_nccl_no_memory(nccl);
    sent_copy->call = c->call;
    sent_copy->stream = c->stream;
    if (c->stage) { /* the data have been copied already */
        sent_copy->stage = c->stage;
        c->stage = NULL;
    } else {
        status = nccl_stage_copy(nccl, self_bytes(nccl, c), sent_copy);
    }
    if (status == DIST_OK)
        status = nccl_event_get(nccl, &sent_copy->end);
    if (status == DIST_OK && nccl->driver->event_record(sent_copy->end, c->stream) != 0)
        status = nccl->host->fail(
            DIST_ERR_SYSTEM,
            "rank %d cannot record an event for a message to itself: check its device (nvidia-smi)",
            nccl->rank);
    if (status != DIST_OK)
        disti_nccl_call_free(nccl, sent_copy);
    else
        TAILQ_INSERT_TAIL(&nccl->unmatched, sent_copy, next);
    return status;
}

/* Copies the message from send to recv on `stream`. */
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
    return error ? nccl_driver_fail(nccl, error, "copy a message to itself") : DIST_OK;
}

/*
 * Called when a call is on its stream: records an event, after which the call's ticket completes.
 * The ticket of a captured call completes at once.
 */
static dist_status nccl_mark(struct disti_nccl_state *nccl, struct disti_nccl_call *c)
{
    dist_status status;
    int error;

    if (c->captured) {
        c->ticket->own = NULL;
        c->ticket->status = DIST_OK;
        disti_nccl_call_free(nccl, c);
        return DIST_OK;
    }
    TAILQ_INSERT_TAIL(&nccl->issued, c, next);
    status = nccl_event_get(nccl, &c->end);
    if (status != DIST_OK)
        return status;
    error = nccl->driver->event_record(c->end, c->stream);
    return error ? nccl_driver_fail(nccl, error, "record the end of a call") : DIST_OK;
}

/* Handles a receive from this rank itself whose message has already been sent. */
static dist_status self_receive(struct disti_nccl_state *nccl, struct disti_nccl_call *recv,
                                struct disti_nccl_call *sent_copy)
{
    dist_status status = self_copy(nccl, sent_copy, recv, recv->stream);

    if (status != DIST_OK) {
        disti_nccl_call_free(nccl, sent_copy);
        disti_nccl_call_free(nccl, recv);
        return status;
    }
    /* The copy is freed when the receive has ended, but kept if a captured graph reads it. */
    if (!recv->captured)
        recv->sent_copy = sent_copy;
    else
        TAILQ_INSERT_TAIL(&nccl->kept, sent_copy, next);
    return nccl_mark(nccl, recv);
}

/* Handles a send to this rank itself whose receive has already been posted. */
static dist_status self_send(struct disti_nccl_state *nccl, struct disti_nccl_call *send,
                             struct disti_nccl_call *recv)
{
    dist_status status = DIST_OK;

    if (send->stream != recv->stream)
        status = nccl_follow(nccl, send->stream, recv->stream);
    if (status == DIST_OK)
        status = self_copy(nccl, send, recv, send->stream);
    if (status == DIST_OK && send->stream != recv->stream)
        status = nccl_follow(nccl, recv->stream, send->stream);
    if (status == DIST_OK)
        status = nccl_mark(nccl, recv);
    else
        disti_nccl_call_free(nccl, recv);
    if (status == DIST_OK)
        return nccl_mark(nccl, send);
    disti_nccl_call_free(nccl, send);
    return status;
}

/* Handles a send or receive whose peer is this rank itself. Takes ownership of c. */
static dist_status nccl_self(struct disti_nccl_state *nccl, struct disti_nccl_call *c)
{
    const bool sends = c->call.collective == DIST_COLL_SEND;
    const dist_collective end = sends ? DIST_COLL_RECV : DIST_COLL_SEND;
    struct disti_nccl_call *other;
    dist_status status;

    other = TAILQ_FIRST(&nccl->unmatched);
    while (other && other->call.collective != end)
        other = TAILQ_NEXT(other, next);
    if (other)
        TAILQ_REMOVE(&nccl->unmatched, other, next);
    if (other)
        return sends ? self_send(nccl, c, other) : self_receive(nccl, c, other);
    if (sends) {
        status = self_keep_copy(nccl, c);
        if (status == DIST_OK)
            return nccl_mark(nccl, c);
        disti_nccl_call_free(nccl, c);
        return status;
    }
    if ((c->call.waits && c->stream == c->call.stream && !nccl->batch) || c->captured) {
        disti_nccl_call_free(nccl, c);
        return nccl->host->fail(DIST_ERR_INVALID_ARGUMENT,
                                "rank %d receives from itself on a stream before it has sent: send "
                                "first, or use dist_irecv",
                                nccl->rank);
    }
    TAILQ_INSERT_TAIL(&nccl->unmatched, c, next);
    return DIST_OK;
}

/* ---- passing calls to NCCL, several in one NCCL group ---- */

static const int issue_dtypes[DIST_DTYPE_COUNT] = {
#define DTYPE(name, kernels, exponent, special, mpi, nccl) [DIST_##name] = DISTI_NCCL_##nccl,
#include "base/dtypes.def"
#undef DTYPE
};

static const int issue_ops[DIST_OP_COUNT] = {
#define OP(name, mpi, nccl) [DIST_##name] = DISTI_NCCL_##nccl,
#include "base/dtypes.def"
#undef OP
};

/* Returns NCCL's type. Booleans are transferred as bytes. */
static int nccl_dtype(dist_dtype dtype)
{
    return issue_dtypes[dtype];
}

bool disti_nccl_has_op(dist_op op, dist_dtype dtype)
{
    return op == DIST_PREMUL_SUM ? disti_dtype_is_float(dtype)
                                 : (unsigned)op < DIST_OP_COUNT && issue_ops[op] != DISTI_NCCL_NONE;
}

/* Writes "all_reduce number 12 of 1024 x float32 on device 0". */
static const char *nccl_describe_call(const struct disti_nccl_state *nccl,
                                      const struct dist_call *call, char *text, size_t size)
{
    static const char *const dtypes[] = {
#define ISSUE_DTYPE(name, words, bytes) words,
        DIST_DTYPE_MAP(ISSUE_DTYPE)
#undef ISSUE_DTYPE
    };

    snprintf(text, size, "%s number %llu of %zu x %s on device %d",
             nccl->host->collective_string(call->collective), (unsigned long long)call->sequence,
             call->count, dtypes[call->dtype], nccl->device);
    return text;
}

dist_status disti_nccl_fail(const struct disti_nccl_state *nccl, int result, const char *what)
{
    const char *more = nccl->comm ? nccl->api->last_error(nccl->comm) : NULL;
    int length = more ? (int)strcspn(more, "\n") : 0;

    return nccl->host->fail(
        result == DISTI_NCCL_REMOTE_ERROR ? DIST_ERR_PEER_LOST : DIST_ERR_SYSTEM,
        "rank %d: %s: NCCL reports: %s%s%.*s. Run with NCCL_DEBUG=INFO to see more", nccl->rank,
        what, nccl->api->error_text(result), length ? ": " : "", length, length ? more : "");
}

dist_status disti_nccl_wait(struct disti_nccl_state *nccl, const char *what)
{
    const struct dist_backend_config *opening = nccl->opening;
    int64_t deadline = disti_deadline_ms(nccl->timeout_ms);
    struct disti_backoff backoff = {0};
    int error = DISTI_NCCL_IN_PROGRESS, result;
    dist_status status;

    for (;;) {
        result = nccl->api->comm_error(nccl->comm, &error);
        if (result != DISTI_NCCL_SUCCESS || error != DISTI_NCCL_IN_PROGRESS)
            break;
        /* NCCL may be waiting for a rank that will not join. */
        if (opening && opening->lost) {
            status = opening->lost(opening->all_gather_arg);
            if (status != DIST_OK)
                return status;
        }
        if (disti_expired(deadline))
            return nccl->host->fail(
                DIST_ERR_TIMEOUT,
                "rank %d: %s: NCCL did not reach the other ranks within %d ms: check where they "
                "are running, run with NCCL_DEBUG=INFO, or raise the timeout given to "
                "init_process_group "
                "or new_group, or DIST_TIMEOUT (seconds)",
                nccl->rank, what, nccl->timeout_ms);
        disti_backoff(&backoff);
    }
    if (result == DISTI_NCCL_SUCCESS)
        result = error;
    return result == DISTI_NCCL_SUCCESS ? DIST_OK : disti_nccl_fail(nccl, result, what);
}

/* ---- operations ---- */

union issue_scalar {
    double f64;
    float f32;
    uint16_t f16;
};

static union issue_scalar issue_scalar(double factor, dist_dtype dtype)
{
    union issue_scalar scalar = {.f64 = factor};

    if (dtype == DIST_FLOAT32)
        scalar.f32 = (float)factor;
    else if (dtype == DIST_FLOAT16)
        scalar.f16 = disti_float16_from_float((float)factor);
    else if (dtype == DIST_BFLOAT16)
        scalar.f16 = disti_bfloat16_from_float((float)factor);
    return scalar;
}

/* ---- collectives that NCCL lacks, composed of its other calls in one group ---- */

/* A block of a call. */
struct compose_block {
    char *data;
    size_t count;
};

struct compose {
    const struct disti_nccl_state *nccl;
    const struct dist_call *call;
    void *stream;
    size_t size; /* bytes of an element */
    int dtype;
    int op;
};

static struct compose_block compose_block(const struct compose *a, const void *base,
                                          const size_t *counts, const size_t *offsets, int rank)
{
    size_t count = counts ? counts[rank] : a->call->count;
    size_t offset = counts ? offsets[rank] : (size_t)rank * count;

    return (struct compose_block){(char *)base + offset * a->size, count};
}

static struct compose_block compose_in(const struct compose *a, int rank)
{
    return compose_block(a, a->call->in, a->call->in_counts, a->call->in_offsets, rank);
}

static struct compose_block compose_out(const struct compose *a, int rank)
{
    return compose_block(a, a->call->out, a->call->out_counts, a->call->out_offsets, rank);
}

/* Sends to and receives from every rank, where the block is not empty. */
static int compose_exchange(const struct compose *a)
{
    const struct disti_nccl_api *api = a->nccl->api;
    const struct dist_call *call = a->call;
    const bool gather =
        call->collective == DIST_COLL_GATHER || call->collective == DIST_COLL_GATHER_V;
    const bool scatter =
        call->collective == DIST_COLL_SCATTER || call->collective == DIST_COLL_SCATTER_V;
    const bool root = a->nccl->rank == call->root;
    int result = DISTI_NCCL_SUCCESS;

    for (int r = 0; r < a->nccl->ranks && disti_nccl_accepted(result); r++) {
        /* In gathers and scatters, a rank exchanges its block only with the root. */
        const size_t count = r == call->root ? call->count : 0;
        struct compose_block outgoing = {NULL, 0}, incoming = {NULL, 0};

        if (gather)
            outgoing = (struct compose_block){(char *)call->in, count};
        else if (!scatter || root)
            outgoing = compose_in(a, r);
        if (scatter)
            incoming = (struct compose_block){call->out, count};
        else if (!gather || root)
            incoming = compose_out(a, r);
        if (r == a->nccl->rank && outgoing.data == incoming.data)
            continue; /* in place */
        if (outgoing.count)
            result =
                api->send(outgoing.data, outgoing.count, a->dtype, r, a->nccl->comm, a->stream);
        if (incoming.count && disti_nccl_accepted(result))
            result =
                api->recv(incoming.data, incoming.count, a->dtype, r, a->nccl->comm, a->stream);
    }
    return result;
}

static int nccl_compose(const struct disti_nccl_state *nccl, const struct dist_call *call, int op,
                        void *stream)
{
    const struct compose a = {.nccl = nccl,
                              .call = call,
                              .stream = stream,
                              .size = nccl->host->dtype_size(call->dtype),
                              .dtype = nccl_dtype(call->dtype),
                              .op = op};

    if (call->collective == DIST_COLL_ALL_GATHER_V) {
        int result = DISTI_NCCL_SUCCESS;

        for (int r = 0; r < a.nccl->ranks && disti_nccl_accepted(result); r++) {
            struct compose_block block = compose_out(&a, r);

            if (block.count)
                result =
                    a.nccl->api->broadcast(r == a.nccl->rank ? a.call->in : block.data, block.data,
                                           block.count, a.dtype, r, a.nccl->comm, a.stream);
        }
        return result;
    }
    if (call->collective == DIST_COLL_REDUCE_SCATTER_V) { /* each rank is the root of its block */
        int result = DISTI_NCCL_SUCCESS;

        for (int r = 0; r < nccl->ranks && disti_nccl_accepted(result); r++) {
            struct compose_block block = compose_in(&a, r);

            if (block.count)
                result = nccl->api->reduce(block.data, r == nccl->rank ? call->out : NULL,
                                           block.count, a.dtype, op, r, nccl->comm, stream);
        }
        return result;
    }
    if (call->collective == DIST_COLL_ALL_TO_ALL && nccl->api->all_to_all)
        return nccl->api->all_to_all(call->in, call->out, call->count, a.dtype, nccl->comm, stream);
    return compose_exchange(&a);
}

/* ---- calls ---- */

static int issue_native(const struct disti_nccl_state *nccl, const struct dist_call *call, int op,
                        void *stream)
{
    const struct disti_nccl_api *api = nccl->api;
    const int dtype = nccl_dtype(call->dtype);

    switch (call->collective) {
    case DIST_COLL_ALL_REDUCE:
        return api->all_reduce(call->in, call->out, call->count, dtype, op, nccl->comm, stream);
    case DIST_COLL_BROADCAST:
        return api->broadcast(call->in, call->out, call->count, dtype, call->root, nccl->comm,
                              stream);
    case DIST_COLL_BARRIER:
        return api->all_reduce(nccl->gpu->one, nccl->gpu->one, 1, DISTI_NCCL_UINT8, DISTI_NCCL_SUM,
                               nccl->comm, stream);
    case DIST_COLL_ALL_GATHER:
        return api->all_gather(call->in, call->out, call->count, dtype, nccl->comm, stream);
    case DIST_COLL_REDUCE:
        return api->reduce(call->in, call->out, call->count, dtype, op, call->root, nccl->comm,
                           stream);
    case DIST_COLL_REDUCE_SCATTER:
        return api->reduce_scatter(call->in, call->out, call->count, dtype, op, nccl->comm, stream);
    case DIST_COLL_SEND:
        return api->send(call->in, call->count, dtype, call->root, nccl->comm, stream);
    case DIST_COLL_RECV:
        return api->recv(call->out, call->count, dtype, call->root, nccl->comm, stream);
    default:
        return nccl_compose(nccl, call, op, stream);
    }
}

static int issue_call(const struct disti_nccl_state *nccl, const struct disti_nccl_call *c)
{
    const struct dist_call *call = &c->call;
    int op = (unsigned)call->op < DIST_OP_COUNT ? issue_ops[call->op] : DISTI_NCCL_SUM;
    int result = DISTI_NCCL_SUCCESS;
    union issue_scalar scalar;

    if (call->reduction) {
        scalar = issue_scalar(call->reduction->factor, call->dtype);
        result = nccl->api->premul_create(&op, &scalar, nccl_dtype(call->dtype),
                                          DISTI_NCCL_HOST_IMMEDIATE, nccl->comm);
    }
    if (!disti_nccl_accepted(result))
        return result;
    result = issue_native(nccl, call, op, c->stream);
    /* A created operation can be destroyed as soon as the call has been passed to NCCL. */
    if (call->reduction)
        nccl->api->op_destroy(op, nccl->comm);
    return result;
}

/* Passes the calls to NCCL in one NCCL group, which puts them on their streams. */
static dist_status nccl_issue(struct disti_nccl_state *nccl, const struct disti_nccl_queue *calls)
{
    const struct disti_nccl_call *current = TAILQ_FIRST(calls), *c;
    int result = nccl->api->group_start(), end;
    char what[128];

    for (c = current; c && disti_nccl_accepted(result); c = TAILQ_NEXT(c, next)) {
        current = c;
        result = issue_call(nccl, c);
    }
    end = nccl->api->group_end();
    if (disti_nccl_accepted(result))
        result = end;
    nccl_describe_call(nccl, &current->call, what, sizeof(what));
    if (!disti_nccl_accepted(result))
        return disti_nccl_fail(nccl, result, what);
    return disti_nccl_wait(nccl, what);
}

/* ---- posting a call ---- */

/*
 * Sends and receives that are posted one by one are held for this time, unless the program waits
 * for one. In one NCCL group they run concurrently; otherwise each would begin only after the
 * previous one has ended.
 */
#define POST_QUIET_NS (2000 * 1000)
/* The status of a stream that is being captured. */
#define POST_CAPTURE_ACTIVE 1

void disti_nccl_call_free(struct disti_nccl_state *nccl, struct disti_nccl_call *c)
{
    if (c->sent_copy)
        disti_nccl_call_free(nccl, c->sent_copy);
    if (c->end && nccl->gpu->spares < DISTI_NCCL_EVENTS)
        nccl->gpu->spare[nccl->gpu->spares++] = c->end;
    else if (c->end)
        nccl->driver->event_destroy(c->end);
    if (c->stage) {
        stage_side_free(&c->stage->in);
        stage_side_free(&c->stage->out);
        free(c->stage);
    }
    free(c);
}

/*
 * Passes the calls to NCCL in one NCCL group. On failure, frees the calls; the core then marks the
 * libdist group as failed.
 */
static dist_status post_start(struct disti_nccl_state *nccl, struct disti_nccl_queue *calls)
{
    dist_status status = nccl_issue(nccl, calls);
    struct disti_nccl_call *c;

    while ((c = TAILQ_FIRST(calls))) {
        TAILQ_REMOVE(calls, c, next);
        if (status == DIST_OK)
            status = nccl_mark(nccl, c);
        else
            disti_nccl_call_free(nccl, c);
    }
    return status;
}

/* ---- held calls ---- */

/* Starts all held calls. The caller must have called disti_nccl_enter. */
static dist_status nccl_flush(struct disti_nccl_state *nccl)
{
    struct disti_nccl_queue queues[2]; /* captured calls and other calls, since an NCCL group is
                                          captured as a whole or not at all */
    dist_status status = DIST_OK;
    struct disti_nccl_call *c;

    TAILQ_INIT(&queues[0]);
    TAILQ_INIT(&queues[1]);
    while ((c = TAILQ_FIRST(&nccl->held))) {
        TAILQ_REMOVE(&nccl->held, c, next);
        TAILQ_INSERT_TAIL(&queues[c->captured], c, next);
    }
    for (int i = 0; i < 2 && status == DIST_OK; i++) {
        if (!TAILQ_EMPTY(&queues[i]))
            status = post_start(nccl, &queues[i]);
    }
    return status;
}

/* ---- posts ---- */

/*
 * True if the call must wait for the work on the program's stream. Calls for which the host waits
 * run on another stream, but may use results of the program's stream.
 */
static bool post_follows(const struct disti_nccl_state *nccl, const struct dist_call *call)
{
    int status = 0;

    if (call->memory == DIST_MEMORY_DEVICE)
        return true;
    return (call->memory == DIST_MEMORY_MIXED || call->collective == DIST_COLL_BARRIER) &&
           nccl->driver->stream_capturing(call->stream, &status) == 0 && status == 0;
}

static bool nccl_capturing(const struct disti_nccl_state *nccl, void *stream)
{
    int status = 0;

    return nccl->driver->stream_capturing(stream, &status) == 0 && status == POST_CAPTURE_ACTIVE;
}

static dist_status post_call(struct disti_nccl_state *nccl, struct disti_nccl_call *c)
{
    const struct dist_call *call = &c->call;
    dist_status status = DIST_OK;

    /* Selects the stream, and orders it after the program's work. */
    c->stream = nccl->gpu->stream;
    if (call->memory == DIST_MEMORY_DEVICE && call->collective != DIST_COLL_BARRIER) {
        c->captured = nccl_capturing(nccl, call->stream);
        if (c->captured || call->waits)
            c->stream = call->stream;
    }
    if (c->stream != call->stream && post_follows(nccl, call))
        status = nccl_follow(nccl, c->stream, call->stream);
    if (status == DIST_OK && c->call.memory != DIST_MEMORY_DEVICE &&
        c->call.collective != DIST_COLL_BARRIER)
        status = nccl_stage_in(nccl, c);
    if (status != DIST_OK) {
        disti_nccl_call_free(nccl, c);
        return status;
    }
    if (disti_collective_pair(c->call.collective) && c->call.root == nccl->rank)
        return nccl_self(nccl, c);
    /* Outside a batch, a collective first starts the held sends and receives. */
    if (!nccl->batch && !disti_collective_pair(c->call.collective))
        status = nccl_flush(nccl);
    if (status != DIST_OK) {
        disti_nccl_call_free(nccl, c);
        return status;
    }
    TAILQ_INSERT_TAIL(&nccl->held, c, next);
    nccl->quiet_ns = disti_now_ns() + POST_QUIET_NS;
    return nccl->batch ||
                   (disti_collective_pair(c->call.collective) && !c->call.waits && !c->captured)
               ? DIST_OK
               : nccl_flush(nccl);
}

dist_status disti_nccl_post(void *state, const struct dist_call *call, struct dist_ticket *ticket)
{
    struct disti_nccl_state *nccl = state;
    struct disti_nccl_visit visit;
    struct disti_nccl_call *c;
    dist_status status;

    /*
     * Set the source of the message now, since it is known: if the program waits on a stream, there
     * is no later point at which to set it.
     */
    if (call->collective == DIST_COLL_RECV)
        *call->source = call->root;
    if (call->count == 0 && call->collective != DIST_COLL_BARRIER &&
        !disti_collective_uneven(call->collective)) {
        ticket->status = DIST_OK;
        return DIST_OK;
    }
    c = calloc(1, sizeof(*c));
    if (!c)
        return disti_nccl_no_memory(nccl);
    c->call = *call;
    c->ticket = ticket;
    ticket->own = c;
    if (!disti_nccl_enter(nccl->gpu, &visit)) {
        free(c);
        return disti_nccl_no_device(nccl);
    }
    status = post_call(nccl, c);
    disti_nccl_exit(nccl->gpu, &visit);
    return status;
}

dist_status disti_nccl_join(void *state, struct dist_ticket *ticket, void *stream)
{
    struct disti_nccl_state *nccl = state;
    struct disti_nccl_visit visit;
    struct disti_nccl_call *c;
    dist_status status;
    int error;

    if (!disti_nccl_enter(nccl->gpu, &visit))
        return disti_nccl_no_device(nccl);
    status = nccl_flush(nccl);
    c = ticket->own; /* NULL: it has just ended */
    if (status == DIST_OK && c && !c->end)
        status = nccl->host->fail(
            DIST_ERR_INVALID_ARGUMENT,
            "rank %d waits to receive from itself before it has sent: send first", nccl->rank);
    if (status == DIST_OK && c) {
        error = nccl->driver->stream_wait(stream, c->end, 0);
        status = error ? nccl_driver_fail(nccl, error, "wait for a call on a stream") : DIST_OK;
    }
    disti_nccl_exit(nccl->gpu, &visit);
    return status;
}

dist_status disti_nccl_batch(void *state, bool begin)
{
    struct disti_nccl_state *nccl = state;
    struct disti_nccl_visit visit;
    dist_status status;

    nccl->batch = begin;
    if (begin || TAILQ_EMPTY(&nccl->held))
        return DIST_OK;
    if (!disti_nccl_enter(nccl->gpu, &visit))
        return disti_nccl_no_device(nccl);
    status = nccl_flush(nccl);
    disti_nccl_exit(nccl->gpu, &visit);
    return status;
}

/* ---- progress: detecting completion and errors ---- */

/* Interval of the checks for asynchronous errors, which take longer than querying an event. */
#define PROGRESS_CHECK_NS (10 * 1000 * 1000)

/* Returns 1 if the call has ended, 0 if not, a negative status on failure. */
static int progress_move(struct disti_nccl_state *nccl, struct disti_nccl_call *c)
{
    struct disti_nccl_side *side = c->stage ? &c->stage->out : NULL;
    int error = c->done ? 0 : nccl->driver->event_query(c->end);
    dist_status status;
    char what[128];

    if (error == DISTI_DRIVER_NOT_READY)
        return 0;
    if (error) {
        nccl_describe_call(nccl, &c->call, what, sizeof(what));
        return nccl->host->fail(
            DIST_ERR_SYSTEM,
            "rank %d: %s failed: %s. The device may be lost: check it with nvidia-smi", nccl->rank,
            what, disti_driver_text(nccl->driver, error));
    }
    c->done = true;
    if (!side || !side->region || side->done == side->bytes)
        return 1;
    status = stage_copy_out(nccl, side);
    return status != DIST_OK ? (int)status : side->done == side->bytes;
}

/* Collectives end in order. After the first one that has not ended, only sends and receives are
 * checked. */
static int progress_issued(struct disti_nccl_state *nccl)
{
    struct disti_nccl_call *c, *next;
    struct dist_ticket *ticket;
    bool blocked = false;
    int moved = 0;

    for (c = TAILQ_FIRST(&nccl->issued); c; c = next) {
        const bool pair = disti_collective_pair(c->call.collective);
        int done = blocked && !pair ? 0 : progress_move(nccl, c);

        next = TAILQ_NEXT(c, next);
        if (done < 0)
            return done;
        if (done) {
            TAILQ_REMOVE(&nccl->issued, c, next);
            ticket = c->ticket;
            disti_nccl_call_free(nccl, c);
            if (ticket) {
                ticket->own = NULL;
                ticket->status = DIST_OK;
            }
            moved++;
        } else {
            blocked = blocked || !pair;
        }
    }
    return moved;
}

static dist_status progress_check(struct disti_nccl_state *nccl)
{
    int64_t now = disti_now_ns();
    int error = DISTI_NCCL_SUCCESS, result;
    char what[128] = "a call";

    if (now < nccl->check_ns)
        return DIST_OK;
    nccl->check_ns = now + PROGRESS_CHECK_NS;
    result = nccl->api->comm_error(nccl->comm, &error);
    if (result == DISTI_NCCL_SUCCESS)
        result = error;
    if (result == DISTI_NCCL_SUCCESS || result == DISTI_NCCL_IN_PROGRESS)
        return DIST_OK;
    if (!TAILQ_EMPTY(&nccl->issued))
        nccl_describe_call(nccl, &TAILQ_FIRST(&nccl->issued)->call, what, sizeof(what));
    return disti_nccl_fail(nccl, result, what);
}

int disti_nccl_progress(void *state)
{
    struct disti_nccl_state *nccl = state;
    struct disti_nccl_visit visit;
    int moved = DIST_OK;

    if (!nccl->comm || (TAILQ_EMPTY(&nccl->issued) && TAILQ_EMPTY(&nccl->held)))
        return 0;
    if (!disti_nccl_enter(nccl->gpu, &visit))
        return disti_nccl_no_device(nccl);
    if (!TAILQ_EMPTY(&nccl->held) && !nccl->batch && disti_now_ns() >= nccl->quiet_ns)
        moved = nccl_flush(nccl);
    if (moved == DIST_OK)
        moved = progress_issued(nccl);
    if (moved == 0)
        moved = progress_check(nccl);
    disti_nccl_exit(nccl->gpu, &visit);
    return moved;
}

void disti_nccl_describe(const void *state, char *text, size_t size)
{
    const struct disti_nccl_state *nccl = state;
    const struct disti_nccl_call *c = TAILQ_FIRST(&nccl->issued);

    c = c ? c : TAILQ_FIRST(&nccl->held);
    c = c ? c : TAILQ_FIRST(&nccl->unmatched);
    if (size)
        text[0] = '\0';
    if (c && c->call.root >= 0 && disti_collective_pair(c->call.collective))
        snprintf(text, size, "rank %d (on device %d)", c->call.root, nccl->device);
    else if (c)
        snprintf(text, size, "ranks that NCCL does not report, on device %d", nccl->device);
}
