/* SPDX-License-Identifier: BSD-3-Clause */
/* Backend nccl: host memory, which goes through pinned memory to the device and back. */
#include "backends/nccl/stage.h"
#include "base/backoff.h"
#include "base/clock.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

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
            status = disti_nccl_event_take(nccl, &pinned->events[i]);
    }
    if (status != DIST_OK)
        return status;
    if (!error)
        error = nccl->driver->host_alloc(&memory, DISTI_NCCL_SLOTS * DISTI_NCCL_SLOT_BYTES,
                                         DISTI_DRIVER_HOST_PORTABLE);
    if (error)
        return disti_nccl_driver_fail(nccl, error, "have pinned memory for data of the host");
    pinned->memory = memory;
    return DIST_OK;
}

/* Until the copy from or to this slot is done: that waits for no other rank. */
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
    return error ? disti_nccl_driver_fail(nccl, error, "copy from or to the host") : DIST_OK;
}

/* ---- between the pieces of host memory and a slot ---- */

/* Moves `bytes` bytes from where the side's cursor is to the slot, or the other way. */
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
            return disti_nccl_driver_fail(nccl, error, "copy from the host");
    }
    return disti_nccl_follow(nccl, stream, nccl->gpu->copies);
}

/* As much as there are slots, which are free again afterwards. */
static dist_status stage_copy_out(struct disti_nccl_state *nccl, struct disti_nccl_side *side)
{
    size_t sizes[DISTI_NCCL_SLOTS] = {0}, done = side->done;
    dist_status status = DIST_OK;

    for (unsigned i = 0; i < DISTI_NCCL_SLOTS && done < side->bytes && status == DIST_OK; i++) {
        int error;

        status = stage_wait(nccl, i); /* it may be on its way in for another call */
        if (status != DIST_OK)
            break;
        sizes[i] = stage_chunk(side, done);
        error = nccl->driver->copy_out(stage_slot(nccl, i), side->region->memory + done, sizes[i],
                                       nccl->gpu->copies);
        if (!error)
            error = nccl->driver->event_record(nccl->gpu->pinned.events[i], nccl->gpu->copies);
        if (error)
            return disti_nccl_driver_fail(nccl, error, "copy to the host");
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

int disti_nccl_stage_out(struct disti_nccl_state *nccl, struct disti_nccl_call *c)
{
    struct disti_nccl_side *side = &c->stage->out;
    dist_status status;

    if (!side->region || side->done == side->bytes)
        return 1;
    status = stage_copy_out(nccl, side);
    return status != DIST_OK ? (int)status : side->done == side->bytes;
}

/* ---- memory of the device ---- */

/* The smallest that is free and large enough. */
static struct disti_nccl_region *stage_fitting(struct disti_nccl_state *nccl, size_t bytes)
{
    struct disti_nccl_region *best = NULL;

    for (struct disti_nccl_region *r = nccl->gpu->regions; r; r = r->next) {
        if (!r->used && r->bytes >= bytes && (!best || r->bytes < best->bytes))
            best = r;
    }
    return best;
}

static size_t stage_round(size_t bytes)
{
    size_t rounded = 64 * 1024;

    while (rounded < bytes && rounded < DISTI_NCCL_SLOT_BYTES)
        rounded *= 2;
    if (rounded < bytes)
        rounded =
            (bytes + DISTI_NCCL_SLOT_BYTES - 1) / DISTI_NCCL_SLOT_BYTES * DISTI_NCCL_SLOT_BYTES;
    return rounded;
}

/* To free memory may mean to wait for the whole device, so what is not used is kept. */
static dist_status stage_region(struct disti_nccl_state *nccl, size_t bytes,
                                struct disti_nccl_region **region_p)
{
    struct disti_nccl_region *region = stage_fitting(nccl, bytes);

    if (!region) {
        region = calloc(1, sizeof(*region));
        if (region) {
            region->bytes = stage_round(bytes);
            region->memory = disti_nccl_device_memory(nccl, region->bytes);
        }
        if (!region || !region->memory) {
            free(region);
            return nccl->host->fail(DIST_ERR_NO_MEMORY,
                                    "rank %d: device %d has no %zu bytes left for data of the "
                                    "host: pass device memory, or use a group of backend gloo",
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

void disti_nccl_stage_free(struct disti_nccl_stage *stage)
{
    if (!stage)
        return;
    stage_side_free(&stage->in);
    stage_side_free(&stage->out);
    free(stage);
}

void disti_nccl_stage_close(struct disti_nccl_gpu *gpu)
{
    struct disti_nccl_region *region;

    while ((region = gpu->regions)) {
        gpu->regions = region->next;
        gpu->driver->memory_free(region->memory);
        free(region);
    }
    for (int i = 0; i < DISTI_NCCL_SLOTS; i++) {
        if (gpu->pinned.events[i])
            gpu->driver->event_destroy(gpu->pinned.events[i]);
    }
    if (gpu->pinned.memory)
        gpu->driver->host_free(gpu->pinned.memory);
}

/* ---- calls ---- */

static void stage_warn(const struct disti_nccl_state *nccl, const struct dist_call *call)
{
    static atomic_flag warned = ATOMIC_FLAG_INIT;

    if (!atomic_flag_test_and_set(&warned))
        nccl->host->log(
            DIST_LOG_WARN,
            "rank %d: %s of host memory with backend nccl copies to the device and back: pass "
            "device memory (dist_alloc), or use a group of backend gloo for data of the host",
            nccl->rank, nccl->host->collective_string(call->collective));
}

bool disti_nccl_stage_needed(const struct dist_call *call)
{
    return call->memory != DIST_MEMORY_DEVICE && call->collective != DIST_COLL_BARRIER;
}

static dist_status stage_fill(struct disti_nccl_state *nccl, struct disti_nccl_call *c)
{
    struct disti_nccl_stage *stage = c->stage;
    dist_status status = DIST_OK;

    if (stage->in.bytes || stage->out.bytes)
        status = stage_pin(nccl);
    if (status == DIST_OK && stage->in.bytes)
        status = stage_region(nccl, stage->in.bytes, &stage->in.region);
    if (status == DIST_OK && stage->out.bytes)
        status = stage_region(nccl, stage->out.bytes, &stage->out.region);
    if (status == DIST_OK && stage->in.bytes)
        status = stage_copy_in(nccl, &stage->in, c->stream);
    if (status == DIST_OK)
        disti_nccl_stage_redirect(stage, &c->call);
    return status;
}

dist_status disti_nccl_stage_in(struct disti_nccl_state *nccl, struct disti_nccl_call *c)
{
    dist_status status;

    stage_warn(nccl, &c->call);
    c->stage = calloc(1, sizeof(*c->stage));
    if (!c->stage)
        return disti_nccl_no_memory(nccl);
    status = disti_nccl_stage_survey(nccl, &c->call, c->stage);
    return status == DIST_OK ? stage_fill(nccl, c) : status;
}

dist_status disti_nccl_stage_copy(struct disti_nccl_state *nccl, size_t bytes,
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
    return error ? disti_nccl_driver_fail(nccl, error, "copy a message to itself") : DIST_OK;
}
