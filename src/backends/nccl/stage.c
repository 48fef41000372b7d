/* SPDX-License-Identifier: BSD-3-Clause */
/* Backend nccl: memory of the device. */
#include "backends/nccl/nccl.h"
#include "base/backoff.h"
#include "base/clock.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* What dist_alloc promises of the address. */
#define MEMORY_PAGE ((size_t)4096)
#define MEMORY_LARGE ((size_t)2 << 20)

/* What was allocated for the program. */
struct disti_nccl_memory {
    struct disti_nccl_memory *next;
    void *memory;   /* what the program has */
    void *nccl;     /* NCCL's, or NULL */
    uintptr_t base; /* the driver's, or 0 */
    void *handle;   /* of its registration, or NULL */
};

/* What was kept for data of the host makes room. */
static bool memory_give_way(struct disti_nccl_state *nccl)
{
    struct disti_nccl_region **entry = &nccl->gpu->regions, *region;
    bool freed = false;

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
    return freed;
}

/* Device memory that is not zeroed; 0: there is none. */
static uintptr_t nccl_device_memory(struct disti_nccl_state *nccl, size_t bytes)
{
    uintptr_t memory = 0;

    if (nccl->driver->memory_alloc(&memory, bytes) == 0)
        return memory;
    if (memory_give_way(nccl) && nccl->driver->memory_alloc(&memory, bytes) == 0)
        return memory;
    return 0;
}

static void memory_drop(struct disti_nccl_state *nccl, struct disti_nccl_memory *m)
{
    if (m->handle && nccl->comm)
        nccl->api->comm_deregister(nccl->comm, m->handle);
    if (m->nccl)
        nccl->api->mem_free(m->nccl);
    if (m->base)
        nccl->driver->memory_free(m->base);
    free(m);
}

static size_t memory_page(size_t bytes)
{
    return bytes < MEMORY_LARGE ? MEMORY_PAGE : MEMORY_LARGE;
}

/* NCCL's memory can be registered with it, so that it is moved without copies on the way. */
static bool memory_of_nccl(struct disti_nccl_state *nccl, size_t bytes, struct disti_nccl_memory *m)
{
    const struct disti_nccl_api *api = nccl->api;

    if (!api->mem_alloc || !api->mem_free ||
        api->mem_alloc(&m->nccl, bytes) != DISTI_NCCL_SUCCESS || !m->nccl)
        return false;
    if ((uintptr_t)m->nccl % memory_page(bytes)) { /* where it cannot map, it takes what it gets */
        api->mem_free(m->nccl);
        m->nccl = NULL;
        return false;
    }
    m->memory = m->nccl;
    if (!api->comm_register || !api->comm_deregister ||
        api->comm_register(nccl->comm, m->nccl, bytes, &m->handle) != DISTI_NCCL_SUCCESS)
        m->handle = NULL;
    return true;
}

static bool memory_of_driver(struct disti_nccl_state *nccl, size_t bytes,
                             struct disti_nccl_memory *m)
{
    const size_t page = memory_page(bytes);

    if (bytes > SIZE_MAX - page)
        return false;
    m->nccl = NULL;
    m->base = nccl_device_memory(nccl, bytes + page);
    m->memory = disti_nccl_pointer((m->base + page - 1) / page * page);
    return m->base != 0;
}

/* On a stream that is behind no call. */
static bool memory_zero(struct disti_nccl_state *nccl, void *memory, size_t bytes)
{
    const struct disti_driver *driver = nccl->driver;
    void *stream = NULL;
    bool good = driver->stream_create(&stream, DISTI_DRIVER_STREAM_NON_BLOCKING) == 0 &&
                driver->fill((uintptr_t)memory, 0, bytes, stream) == 0 &&
                driver->stream_synchronize(stream) == 0;

    if (stream)
        driver->stream_destroy(stream);
    return good;
}

static void *memory_make(struct disti_nccl_state *nccl, size_t bytes)
{
    struct disti_nccl_memory *m = calloc(1, sizeof(*m));

    if (!m)
        return NULL;
    if ((!memory_of_nccl(nccl, bytes, m) && !memory_of_driver(nccl, bytes, m)) ||
        !memory_zero(nccl, m->memory, bytes)) {
        memory_drop(nccl, m);
        return NULL;
    }
    m->next = nccl->memory;
    nccl->memory = m;
    return m->memory;
}

void *disti_nccl_alloc(void *state, size_t bytes)
{
    struct disti_nccl_state *nccl = state;
    struct disti_nccl_visit visit;
    void *memory;

    if (!nccl->comm || !disti_nccl_enter(nccl->gpu, &visit))
        return NULL;
    memory = memory_make(nccl, bytes);
    disti_nccl_exit(nccl->gpu, &visit);
    return memory;
}

void disti_nccl_free(void *state, void *memory)
{
    struct disti_nccl_state *nccl = state;
    struct disti_nccl_memory **entry = &nccl->memory, *m;
    struct disti_nccl_visit visit;

    while (*entry && (*entry)->memory != memory)
        entry = &(*entry)->next;
    m = *entry;
    if (!m || !disti_nccl_enter(nccl->gpu, &visit))
        return;
    *entry = m->next;
    memory_drop(nccl, m);
    disti_nccl_exit(nccl->gpu, &visit);
}

/* Backend nccl: host memory, which goes through pinned memory to the device and back. */

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

/* To free memory may mean to wait for the whole device, so what is not used is kept. */
static dist_status stage_region(struct disti_nccl_state *nccl, size_t bytes,
                                struct disti_nccl_region **region_p)
{
    struct disti_nccl_region *region = NULL; /* the smallest that is free and large enough */

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
            region->memory = nccl_device_memory(nccl, region->bytes);
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

/* Backend nccl: collectives that NCCL has not, of those that it has, in one of its groups. */

/* A block of a call, of `count` elements. */
struct compose_block {
    char *data;
    size_t count;
};

struct compose {
    const struct disti_nccl_state *nccl;
    const struct dist_call *call;
    void *stream;
    size_t size; /* bytes an element */
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

/* What this rank sends to that one, of gather, scatter and all_to_all. */
static struct compose_block compose_gives(const struct compose *a, int to)
{
    const struct dist_call *call = a->call;

    switch (call->collective) {
    case DIST_COLL_GATHER:
    case DIST_COLL_GATHER_V:
        return (struct compose_block){(char *)call->in, to == call->root ? call->count : 0};
    case DIST_COLL_SCATTER:
    case DIST_COLL_SCATTER_V:
        return a->nccl->rank == call->root ? compose_in(a, to) : (struct compose_block){NULL, 0};
    default:
        return compose_in(a, to);
    }
}

static struct compose_block compose_takes(const struct compose *a, int from)
{
    const struct dist_call *call = a->call;

    switch (call->collective) {
    case DIST_COLL_GATHER:
    case DIST_COLL_GATHER_V:
        return a->nccl->rank == call->root ? compose_out(a, from) : (struct compose_block){NULL, 0};
    case DIST_COLL_SCATTER:
    case DIST_COLL_SCATTER_V:
        return (struct compose_block){call->out, from == call->root ? call->count : 0};
    default:
        return compose_out(a, from);
    }
}

/* A send to and a receive from every rank, where there is something to send. */
static int compose_exchange(const struct compose *a)
{
    const struct disti_nccl_api *api = a->nccl->api;
    int result = DISTI_NCCL_SUCCESS;

    for (int r = 0; r < a->nccl->ranks && disti_nccl_accepted(result); r++) {
        struct compose_block give = compose_gives(a, r), take = compose_takes(a, r);

        if (r == a->nccl->rank && give.data == take.data)
            continue; /* in place */
        if (give.count)
            result = api->send(give.data, give.count, a->dtype, r, a->nccl->comm, a->stream);
        if (take.count && disti_nccl_accepted(result))
            result = api->recv(take.data, take.count, a->dtype, r, a->nccl->comm, a->stream);
    }
    return result;
}

/* Every rank is the root of a reduction of its block. */
static int compose_reduce_scatter_v(const struct compose *a)
{
    int result = DISTI_NCCL_SUCCESS;

    for (int r = 0; r < a->nccl->ranks && disti_nccl_accepted(result); r++) {
        struct compose_block block = compose_in(a, r);

        if (block.count)
            result =
                a->nccl->api->reduce(block.data, r == a->nccl->rank ? a->call->out : NULL,
                                     block.count, a->dtype, a->op, r, a->nccl->comm, a->stream);
    }
    return result;
}

int disti_nccl_compose(const struct disti_nccl_state *nccl, const struct dist_call *call, int op,
                       void *stream)
{
    const struct compose a = {.nccl = nccl,
                              .call = call,
                              .stream = stream,
                              .size = nccl->host->dtype_size(call->dtype),
                              .dtype = disti_nccl_dtype(call->dtype),
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
    if (call->collective == DIST_COLL_REDUCE_SCATTER_V)
        return compose_reduce_scatter_v(&a);
    if (call->collective == DIST_COLL_ALL_TO_ALL && nccl->api->all_to_all)
        return nccl->api->all_to_all(call->in, call->out, call->count, a.dtype, nccl->comm, stream);
    return compose_exchange(&a);
}
