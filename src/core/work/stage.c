/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls on memory of a device: where it is, and for backends that do not take it, copies of it on
 * the host.
 *
 *      device:  [ in ]  [ out ]        |  [ out          in          ]   in place
 *                 |        ^           |    ^             |
 *           begin |        | finish    |    | finish      | begin
 *                 v        |           |    |             v
 *      pinned:  [ in ]  [ out ]        |  [ out          in          ]
 *                   the call is about these
 */
#include "core/call/calls.h"

#include "device/memory.h"

#include <stdlib.h>
#include <string.h>

/* Copies of in and out begin at a multiple of this. */
#define STAGE_ALIGN ((size_t)64)

/* A buffer of the call. copy NULL: it is not a device's, and used as it is. */
struct stage_part {
    char *user, *copy;
    size_t bytes;
};

/* What belongs to a staged call. */
struct stage {
    const struct disti_driver *driver;
    const struct dist_group *group;
    struct dist_call call; /* as the program made it */
    struct stage_part in, out;
    void *pinned;
    size_t pinned_bytes;
    void *owned; /* what belonged to the call */
};

/* ---- where it is ---- */

static bool stage_is_device(const struct disti_driver *driver, const void *address, size_t bytes)
{
    return driver && bytes && disti_driver_owns(driver, address);
}

static dist_memory stage_memory(const struct disti_start *start, const struct disti_driver *driver)
{
    bool in = stage_is_device(driver, start->call.in, start->in_bytes);
    bool out = stage_is_device(driver, start->call.out, start->out_bytes);

    if (!in && !out)
        return DIST_MEMORY_HOST;
    return (in || !start->in_bytes) && (out || !start->out_bytes) ? DIST_MEMORY_DEVICE
                                                                  : DIST_MEMORY_MIXED;
}

void disti_call_locate(struct dist_group *group, struct disti_start *start)
{
    start->call.stream = group->stream;
    if (group->host_only)
        return;
    start->call.memory = stage_memory(start, disti_driver_loaded());
    if (group->backend->manner && (start->call.memory != DIST_MEMORY_HOST || group->backend->join))
        start->manner = group->backend->manner(group->state, &start->call);
    else
        start->manner = DIST_MANNER_STAGED;
    if (start->call.memory == DIST_MEMORY_HOST && start->manner == DIST_MANNER_STAGED)
        start->manner = DIST_MANNER_HOST; /* it is there already */
}

/* ---- copying ---- */

static dist_status stage_failed(const struct stage *stage, const char *what, size_t bytes,
                                int error)
{
    return disti_fail(DIST_ERR_SYSTEM,
                      "rank %d, %s: %s of %zu bytes failed: %s (backend %s does not take device "
                      "memory, so libdist copies it; backend nccl takes it)",
                      stage->group->rank, dist_collective_string(stage->call.collective), what,
                      bytes, disti_driver_text(stage->driver, error), stage->group->backend->name);
}

/* Does this rank give what is in that buffer? */
static bool stage_gives(const struct stage *stage)
{
    return stage->call.collective != DIST_COLL_BROADCAST || stage->call.root == stage->group->rank;
}

static dist_status stage_begin(void *owned)
{
    const struct stage *stage = owned;
    const struct stage_part *in = &stage->in;
    int error;

    /* Even if nothing is copied, what is on the stream may still work with `out`. */
    if (!in->copy || !stage_gives(stage))
        error = disti_device_fetch(stage->driver, stage->pinned,
                                   stage->out.copy ? stage->out.user : in->user, 0,
                                   stage->group->stream);
    else
        error =
            disti_device_fetch(stage->driver, in->copy, in->user, in->bytes, stage->group->stream);
    return error ? stage_failed(stage, "the copy to the host", in->bytes, error) : DIST_OK;
}

static int stage_store(const struct stage *stage, size_t offset, size_t bytes)
{
    const struct stage_part *out = &stage->out;

    return bytes ? disti_device_store(stage->driver, out->user + offset, out->copy + offset, bytes)
                 : 0;
}

/* Blocks with gaps: only they are written. */
static int stage_store_blocks(const struct stage *stage)
{
    size_t element = dist_dtype_size(stage->call.dtype);
    int error = 0;

    for (int r = 0; r < stage->group->world_size && !error; r++)
        error = stage_store(stage, stage->call.out_offsets[r] * element,
                            stage->call.out_counts[r] * element);
    return error;
}

static dist_status stage_finish(void *owned)
{
    const struct stage *stage = owned;
    int error = 0;

    if (stage->out.copy && stage->call.out_counts)
        error = stage_store_blocks(stage);
    else if (stage->out.copy &&
             (stage->call.collective != DIST_COLL_BROADCAST || !stage_gives(stage)))
        error = stage_store(stage, 0, stage->out.bytes);
    return error ? stage_failed(stage, "the copy to the device", stage->out.bytes, error) : DIST_OK;
}

dist_status disti_stage_copy(const struct dist_group *group, void *to, const void *from,
                             size_t bytes)
{
    const struct disti_driver *driver = group->host_only ? NULL : disti_driver_loaded();
    int error = 0;

    if (stage_is_device(driver, from, bytes))
        error = disti_device_fetch(driver, to, from, bytes, group->stream);
    else if (stage_is_device(driver, to, bytes))
        error = disti_device_store(driver, to, from, bytes);
    else
        memcpy(to, from, bytes);
    if (!error)
        return DIST_OK;
    return disti_fail(DIST_ERR_SYSTEM, "rank %d: copying %zu bytes from or to a device failed: %s",
                      group->rank, bytes, disti_driver_text(driver, error));
}

/* ---- making it ---- */

static void stage_release(void *owned)
{
    struct stage *stage = owned;

    disti_pinned_give(stage->driver, stage->out.copy ? stage->out.user : stage->in.user,
                      stage->pinned, stage->pinned_bytes);
    free(stage->owned);
    free(stage);
}

static bool stage_overlap(const struct stage_part *a, const struct stage_part *b)
{
    return a->bytes && b->bytes && a->user < b->user + b->bytes && b->user < a->user + a->bytes;
}

/* Lays the copies out from `base` on, as the buffers lie to each other; returns the bytes. */
static size_t stage_lay(struct stage *stage, char *base, bool in_copied, bool out_copied)
{
    struct stage_part *in = &stage->in, *out = &stage->out;
    size_t in_offset = 0, out_offset = 0;

    if (in_copied && out_copied && stage_overlap(in, out)) {
        in_offset = in->user > out->user ? (size_t)(in->user - out->user) : 0;
        out_offset = out->user > in->user ? (size_t)(out->user - in->user) : 0;
    } else if (in_copied) {
        out_offset = (in->bytes + STAGE_ALIGN - 1) / STAGE_ALIGN * STAGE_ALIGN;
    }
    if (base && in_copied)
        in->copy = base + in_offset;
    if (base && out_copied)
        out->copy = base + out_offset;
    in_offset += in_copied ? in->bytes : 0;
    out_offset += out_copied ? out->bytes : 0;
    return in_offset > out_offset ? in_offset : out_offset;
}

static void stage_warn(const struct dist_group *group)
{
    static atomic_flag warned = ATOMIC_FLAG_INIT;

    if (!atomic_flag_test_and_set(&warned))
        disti_warn("backend %s takes no memory of a device: it is copied to the host and back, "
                   "which takes time; backend nccl takes it as it is",
                   group->backend->name);
}

static dist_status stage_allocate(struct stage *stage, const struct disti_start *start)
{
    bool in = stage_is_device(stage->driver, start->call.in, start->in_bytes);
    bool out = stage_is_device(stage->driver, start->call.out, start->out_bytes);

    stage->in.user = (char *)(uintptr_t)start->call.in;
    stage->in.bytes = start->in_bytes;
    stage->out.user = start->call.out;
    stage->out.bytes = start->out_bytes;
    stage->pinned_bytes = stage_lay(stage, NULL, in, out);
    stage->pinned = disti_pinned_take(stage->driver, in ? start->call.in : start->call.out,
                                      stage->pinned_bytes);
    if (!stage->pinned)
        return disti_fail(
            DIST_ERR_NO_MEMORY,
            "rank %d, %s: the GPU driver has no %zu bytes of pinned memory for a copy on the host: "
            "use backend nccl, which needs none, or make smaller calls",
            stage->group->rank, dist_collective_string(start->call.collective),
            stage->pinned_bytes);
    stage_lay(stage, stage->pinned, in, out);
    return DIST_OK;
}

dist_status disti_stage_empty(const struct dist_group *group, struct disti_start *start)
{
    struct stage *stage;
    dist_status status;

    if (start->manner != DIST_MANNER_STAGED)
        return DIST_OK;
    stage = calloc(1, sizeof(*stage));
    if (!stage)
        return disti_fail(DIST_ERR_NO_MEMORY, "rank %d: no memory for a copy", group->rank);
    *stage = (struct stage){.driver = disti_driver_loaded(),
                            .group = group,
                            .call = start->call,
                            .owned = start->owned};
    status = stage_allocate(stage, start);
    if (status != DIST_OK) {
        free(stage);
        return status;
    }
    stage_warn(group);
    if (stage->in.copy)
        start->call.in = stage->in.copy;
    if (stage->out.copy)
        start->call.out = stage->out.copy;
    start->call.memory = DIST_MEMORY_HOST;
    start->owned = stage;
    start->release = stage_release;
    start->begin = stage_begin;
    start->finish = stage_finish;
    return DIST_OK;
}

dist_status disti_stage(const struct dist_group *group, struct disti_start *start)
{
    dist_status status = disti_stage_empty(group, start);

    return status == DIST_OK && start->begin ? start->begin(start->owned) : status;
}
