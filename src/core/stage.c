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
#include "base/lock.h"
#include "core/call.h"
#include "core/group.h"
#include "device/driver.h"

#include <pthread.h>
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

/* ---- bytes between a device and the host, through memory that the driver has pinned ---- */

/* What is kept of memory that was given back: to pin a page takes longer than to copy it. */
#define PINNED_KEPT ((size_t)64 << 20)
/* Pieces have powers of two of bytes, this many at least. */
#define PINNED_LEAST ((size_t)64 << 10)

/* A piece that nobody uses; it stands at its own beginning. */
struct pinned_piece {
    struct pinned_piece *next;
    size_t bytes;
};

DISTI_PROCESS_LOCK(pinned_lock);
static struct pinned_piece *pinned_free;
static size_t pinned_kept;

/* 0: there is no such size. */
static size_t pinned_size(size_t bytes)
{
    size_t size = PINNED_LEAST;

    while (size && size < bytes)
        size *= 2;
    return size;
}

/*
 * Pinned host memory, beside a piece of device memory that it is for; from a pool of the process,
 * which keeps up to 64 MiB of what is given back. NULL: the driver has none left.
 */
static void *pinned_take(const struct disti_driver *driver, const void *device, size_t bytes)
{
    struct pinned_piece **entry = &pinned_free, *piece;
    size_t size = pinned_size(bytes);
    void *memory = NULL;

    if (!size)
        return NULL;
    pthread_mutex_lock(&pinned_lock);
    while (*entry && (*entry)->bytes != size)
        entry = &(*entry)->next;
    piece = *entry;
    if (piece) {
        *entry = piece->next;
        pinned_kept -= size;
    }
    pthread_mutex_unlock(&pinned_lock);
    memory = piece;
    if (memory || !disti_driver_enter(driver, device))
        return memory;
    if (driver->host_alloc(&memory, size, DISTI_DRIVER_HOST_PORTABLE))
        memory = NULL;
    disti_driver_exit(driver);
    return memory;
}

/* device: as above; it may be gone. NULL is accepted. bytes: as they were taken. */
static void pinned_give(const struct disti_driver *driver, const void *device, void *memory,
                        size_t bytes)
{
    struct pinned_piece *piece = memory;
    size_t size = pinned_size(bytes);
    bool keep;

    if (!memory)
        return;
    pthread_mutex_lock(&pinned_lock);
    keep = pinned_kept + size <= PINNED_KEPT;
    if (keep) {
        piece->next = pinned_free;
        piece->bytes = size;
        pinned_free = piece;
        pinned_kept += size;
    }
    pthread_mutex_unlock(&pinned_lock);
    if (keep)
        return;
    if (!disti_driver_enter(driver, device))
        return; /* the context is gone, and its memory with it */
    driver->host_free(memory);
    disti_driver_exit(driver);
}

/*
 * Copies device memory to the host, after what is on the stream; blocks until that is done. 0, or
 * the driver's error number.
 */
static int device_fetch(const struct disti_driver *driver, void *to, const void *device,
                        size_t bytes, void *stream)
{
    int error;

    if (!disti_driver_enter(driver, device))
        return DISTI_DRIVER_NO_CONTEXT;
    error = bytes ? driver->copy_out(to, (uintptr_t)device, bytes, stream) : 0;
    if (!error)
        error = driver->stream_synchronize(stream);
    disti_driver_exit(driver);
    return error;
}

/*
 * Copies host memory to the device at once, on a stream of its own, as the program's may have work
 * for a long time; blocks until that is done. 0, or the driver's error number.
 */
static int device_store(const struct disti_driver *driver, void *device, const void *from,
                        size_t bytes)
{
    void *stream = NULL;
    int error;

    if (!disti_driver_enter(driver, device))
        return DISTI_DRIVER_NO_CONTEXT;
    error = driver->stream_create(&stream, DISTI_DRIVER_STREAM_NON_BLOCKING);
    if (!error)
        error = driver->copy_in((uintptr_t)device, from, bytes, stream);
    if (!error)
        error = driver->stream_synchronize(stream);
    if (stream)
        driver->stream_destroy(stream);
    disti_driver_exit(driver);
    return error;
}

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
                      "rank %d, %s: %s of %zu bytes failed: %s (backend %s does not support device "
                      "memory, so libdist copies it; backend nccl supports it)",
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
        error = device_fetch(stage->driver, stage->pinned,
                             stage->out.copy ? stage->out.user : in->user, 0, stage->group->stream);
    else
        error = device_fetch(stage->driver, in->copy, in->user, in->bytes, stage->group->stream);
    return error ? stage_failed(stage, "the copy to the host", in->bytes, error) : DIST_OK;
}

static int stage_store(const struct stage *stage, size_t offset, size_t bytes)
{
    const struct stage_part *out = &stage->out;

    return bytes ? device_store(stage->driver, out->user + offset, out->copy + offset, bytes) : 0;
}

static dist_status stage_finish(void *owned)
{
    const struct stage *stage = owned;
    int error = 0;

    if (stage->out.copy && stage->call.out_counts) {
        size_t element = dist_dtype_size(stage->call.dtype);

        for (int r = 0; r < stage->group->world_size && !error; r++)
            error = stage_store(stage, stage->call.out_offsets[r] * element,
                                stage->call.out_counts[r] * element);
    } else if (stage->out.copy &&
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
        error = device_fetch(driver, to, from, bytes, group->stream);
    else if (stage_is_device(driver, to, bytes))
        error = device_store(driver, to, from, bytes);
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

    pinned_give(stage->driver, stage->out.copy ? stage->out.user : stage->in.user, stage->pinned,
                stage->pinned_bytes);
    free(stage->owned);
    free(stage);
}

/* Lays the copies out from `base` on, as the buffers lie to each other; returns the bytes. */
static size_t stage_lay(struct stage *stage, char *base, bool in_copied, bool out_copied)
{
    struct stage_part *in = &stage->in, *out = &stage->out;
    size_t in_offset = 0, out_offset = 0;

    if (in_copied && out_copied && in->bytes && out->bytes && in->user < out->user + out->bytes &&
        out->user < in->user + in->bytes) {
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
        disti_warn("backend %s does not support device memory: libdist copies it to the host and "
                   "back, which is slow; use backend nccl to avoid the copies",
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
    stage->pinned =
        pinned_take(stage->driver, in ? start->call.in : start->call.out, stage->pinned_bytes);
    if (!stage->pinned)
        return disti_fail(
            DIST_ERR_NO_MEMORY,
            "rank %d, %s: the GPU driver cannot allocate %zu bytes of pinned host memory for a "
            "copy: use backend nccl, which needs none, or split the call",
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
        return disti_fail(DIST_ERR_NO_MEMORY,
                          "rank %d: no memory to copy data between host and device", group->rank);
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

/*
 * dist_group_start and dist_group_end: between the two, a thread's blocking calls are noted, then
 * started together and waited for. What NCCL calls a group call.
 */

/* A call that was noted, or a work that runs already. */
struct batch_item {
    dist_group *group;
    bool runs;
    struct disti_start start;
    dist_work *work;
};

static _Thread_local struct batch {
    int depth;
    struct batch_item *items;
    size_t count, room;
    size_t started;    /* items[0 .. started) are */
    dist_status first; /* the first failure, and its text */
    char *first_text;
} batch;

static struct batch_item *batch_add(dist_status *status_p)
{
    if (batch.count == batch.room) {
        size_t room = batch.room ? 2 * batch.room : 16;
        struct batch_item *items = realloc(batch.items, room * sizeof(*items));

        if (!items) {
            *status_p = disti_fail(DIST_ERR_NO_MEMORY,
                                   "no memory for %zu calls between "
                                   "dist_group_start and dist_group_end",
                                   room);
            return NULL;
        }
        batch.items = items;
        batch.room = room;
    }
    *status_p = DIST_OK;
    return &batch.items[batch.count++];
}

/* A function given to dist_on_complete runs in any thread: what it calls is not that thread's. */
bool disti_batch_is_open(void)
{
    return batch.depth > 0 && !disti_work_is_calling();
}

bool disti_batch_note(dist_group *group, const struct disti_start *start, dist_status *status_p)
{
    struct disti_start dropped = *start;
    struct batch_item *item;

    if (!disti_batch_is_open())
        return false;
    item = batch_add(status_p);
    if (item)
        *item = (struct batch_item){.group = group, .start = *start};
    else
        disti_start_release(&dropped);
    return true;
}

bool disti_batch_note_work(dist_group *group, dist_work *work, dist_status *status_p)
{
    struct batch_item *item;

    if (!disti_batch_is_open())
        return false;
    item = batch_add(status_p);
    if (item)
        *item = (struct batch_item){.group = group, .runs = true, .work = work};
    else
        *status_p = dist_wait(work);
    return true;
}

dist_status dist_group_start(void)
{
    dist_status status = disti_work_may_wait("dist_group_start");

    if (status != DIST_OK)
        return status;
    batch.depth++;
    disti_call_hold(1);
    return DIST_OK;
}

static void batch_keep(dist_status status)
{
    if (batch.first != DIST_OK || status == DIST_OK)
        return;
    batch.first = status;
    batch.first_text = strdup(dist_last_error());
}

static dist_status batch_post(struct batch_item *item)
{
    dist_status status;

    if (item->runs)
        return DIST_OK;
    status = disti_group_check(item->group, dist_collective_string(item->start.call.collective));
    if (status == DIST_OK)
        status = disti_stage(item->group, &item->start);
    item->start.detached = item->start.call.waits = item->start.manner == DIST_MANNER_STREAM;
    if (status == DIST_OK)
        status = disti_work_post(item->group, &item->start, &item->work);
    if (status == DIST_OK)
        return status;
    disti_start_release(&item->start);
    return disti_group_unstarted(item->group, status);
}

/*
 * Tells the backends of the groups from items[started] on that their posts belong together, or that
 * this was all: each once.
 */
static void batch_frame(size_t from, bool begin)
{
    for (size_t i = from; i < batch.count; i++) {
        dist_group *group = batch.items[i].group;
        bool seen = batch.items[i].runs || atomic_load(&group->destroyed) || !group->backend->batch;

        for (size_t j = from; j < i && !seen; j++)
            seen = batch.items[j].group == group && !batch.items[j].runs;
        if (!seen)
            batch_keep(disti_group_batch(group, begin));
    }
}

void disti_batch_start(void)
{
    size_t from = batch.started;

    batch_frame(from, true);
    for (; batch.started < batch.count; batch.started++)
        batch_keep(batch_post(&batch.items[batch.started]));
    batch_frame(from, false);
}

dist_status dist_group_end(void)
{
    dist_status first, status = disti_work_may_wait("dist_group_end");

    if (status != DIST_OK)
        return status;
    if (batch.depth == 0)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_group_end without dist_group_start in this thread");
    disti_call_hold(-1);
    if (--batch.depth > 0)
        return DIST_OK;
    disti_batch_start();
    for (size_t i = 0; i < batch.count; i++) {
        if (batch.items[i].work)
            batch_keep(dist_wait(batch.items[i].work));
    }
    first = batch.first;
    if (batch.first_text) /* failures that came later have left theirs */
        disti_fail(first, "%s", batch.first_text);
    free(batch.first_text);
    free(batch.items);
    batch = (struct batch){0};
    return first;
}

/* Calls on memory of devices: the stream that orders them. */

/* cudaStreamPerThread and hipStreamPerThread, which NCCL's and our threads take for their own. */
#define STREAM_PER_THREAD ((uintptr_t)2)

dist_status disti_stream_check(const void *stream)
{
    if ((uintptr_t)stream != STREAM_PER_THREAD)
        return DIST_OK;
    return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                      "the stream is cudaStreamPerThread, which is a different stream in each "
                      "thread: pass a stream that was created, or NULL for the default stream");
}

dist_status dist_set_stream(dist_group *group, void *stream)
{
    dist_status status = disti_group_check(group, "dist_set_stream");

    if (status == DIST_OK)
        status = disti_stream_check(stream);
    if (status != DIST_OK)
        return status;
    disti_group_lock(group);
    group->stream = stream;
    disti_group_unlock(group);
    return DIST_OK;
}

bool disti_stream_join(struct disti_work *work)
{
    struct dist_group *group = work->group;
    dist_status status;
    bool joined = false;

    disti_group_enter(group);
    if (work->ticket.status == DIST_IN_PROGRESS && !group->failed) {
        disti_drive_wake(group);
        status = work->call.waits
                     ? DIST_OK /* it is on the program's stream */
                     : group->backend->join(group->state, &work->ticket, group->stream);
        if (status == DIST_OK)
            work->kind = DISTI_WORK_DETACHED;
        else
            disti_group_break(group, status, dist_last_error());
        joined = status == DIST_OK;
        disti_drive_kick(group);
    }
    disti_group_exit(group);
    if (joined)
        disti_group_release(group);
    return joined;
}

dist_status disti_group_batch(struct dist_group *group, bool begin)
{
    dist_status status = DIST_OK;

    disti_group_enter(group);
    if (!group->failed) {
        disti_drive_wake(group);
        status = group->backend->batch(group->state, begin);
        if (status != DIST_OK) {
            disti_group_break(group, status, dist_last_error());
            status = group->failed;
        }
        disti_drive_kick(group);
    }
    disti_group_exit(group);
    return status;
}
