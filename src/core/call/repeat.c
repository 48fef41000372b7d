/* SPDX-License-Identifier: BSD-3-Clause */
/* A blocking call like one before. That one has been checked; and a short one ends as it is made:
 * no work, no queue, no clock. */
#include "core/call/lists.h"

#include "base/collective.h"
#include "store/last_call.h"

#include <stdlib.h>
#include <string.h>

#define REPEAT_NONE DIST_COLL_COUNT

/* A good call, but for its buffers; the last of its collective in the group. */
struct disti_repeat {
    struct calls_kind kind; /* REPEAT_NONE: there is none yet */
    size_t count;
    uint64_t flight; /* what the flight recorder keeps of it */
    bool same;       /* in and out may be the same */
    size_t in_bytes, out_bytes;
    struct dist_call call;
    struct lists_kept lists; /* call's counts and offsets */
};

static struct calls_kind repeat_kind(const struct dist_call *call)
{
    return (struct calls_kind){call->collective, call->dtype, call->op, call->root};
}

/* Is it of that kind and length? Without lists that is all that matters, but for the buffers. */
static inline bool repeat_is_alike(const struct disti_repeat *repeat, struct calls_kind kind,
                                   size_t count)
{
    uint64_t these[2], those[2]; /* as a call passes them: in two registers */

    memcpy(these, &kind, sizeof(these));
    memcpy(those, &repeat->kind, sizeof(those));
    return repeat->count == count && these[0] == those[0] && these[1] == those[1];
}

static struct disti_repeat *repeat_new(void)
{
    struct disti_repeat *repeats = calloc(DIST_COLL_COUNT, sizeof(*repeats));

    for (int i = 0; repeats && i < DIST_COLL_COUNT; i++)
        repeats[i].kind.collective = REPEAT_NONE;
    return repeats;
}

/* With the lock held. Lists are not written over while a work may refer to them. */
static bool repeat_may(const dist_group *group, const struct dist_call *call)
{
    return !disti_collective_uneven(call->collective) ||
           (group->world_size <= LISTS_RANKS && !group->works);
}

static void repeat_set(const dist_group *group, const struct dist_call *call, size_t in_bytes,
                       size_t out_bytes, struct disti_repeat *repeat)
{
    repeat->kind = repeat_kind(call);
    repeat->count = call->count;
    repeat->flight = disti_flight_what(call, DISTI_FLIGHT_ENDED);
    repeat->same = call->in == call->out;
    repeat->in_bytes = in_bytes;
    repeat->out_bytes = out_bytes;
    repeat->call = *call;
    repeat->call.waits = true;
    lists_keep(&repeat->call, &repeat->lists, group->world_size);
}

/* The number of the last one alike, or a new one. */
static uint32_t repeat_number(dist_group *group, const struct disti_repeat *repeat,
                              const struct dist_call *call)
{
    if (!disti_collective_uneven(call->collective) &&
        repeat_is_alike(repeat, repeat_kind(call), call->count))
        return repeat->call.repeats;
    return ++group->remembered ?: ++group->remembered;
}

void disti_call_remember(dist_group *group, struct dist_call *call, size_t in_bytes,
                         size_t out_bytes)
{
    struct disti_repeat *repeat;

    if (disti_collective_pair(call->collective) || call->reduction || call->list ||
        group->numerics || !group->host_only || !group->backend->at_once ||
        !disti_lock_try(&group->lock))
        return;
    if (!group->repeats)
        group->repeats = repeat_new();
    if (group->repeats && repeat_may(group, call)) {
        repeat = &group->repeats[call->collective];
        call->repeats = repeat_number(group, repeat, call);
        repeat_set(group, call, in_bytes, out_bytes, repeat);
    }
    disti_lock_release(&group->lock);
}

/* ---- who may not run a call here and now ---- */

/* In this thread, and in all: without one of them nobody asks for the thread's own. */
static _Thread_local int repeat_holds;
static atomic_int repeat_all_holds;

void disti_call_hold(int by)
{
    repeat_holds += by;
    atomic_fetch_add_explicit(&repeat_all_holds, by, memory_order_relaxed);
}

/* ---- once more ---- */

/*
 *              the last of its collective; no works, and nobody drives
 *    called ----------------------------------------------------------> at_once ----> OK
 *       |     |                                                           |
 *       |     | works are pending            not all ranks are there yet, |
 *       |     |                              or something is wrong        |
 *       v     v                                                           |
 *   checked  a work, which waits for its turn  <--------------------------'
 */

/* Is it that call, and are the buffers as good as those that were checked? */
static inline bool repeat_is(const struct disti_repeat *repeat, struct calls_kind kind,
                             const void *in, const void *out, size_t count)
{
    uintptr_t from = (uintptr_t)in, to = (uintptr_t)out;

    if (!repeat_is_alike(repeat, kind, count))
        return false;
    if ((!in && repeat->in_bytes) || (!out && repeat->out_bytes))
        return false;
    return from == to ? repeat->same
                      : to - from >= repeat->in_bytes && from - to >= repeat->out_bytes;
}

/* Apart: a call is large, and one that is repeated is not to make room for it. */
__attribute__((cold, noinline)) static dist_status
repeat_not(dist_group *group, struct calls_kind kind, const void *in, void *out, size_t count)
{
    const struct dist_call call = disti_call_of(kind, in, out, count);

    return disti_call(group, &call, calls_blocking);
}

/* Is no call before it? */
static inline bool repeat_may_end_at_once(const struct dist_group *group)
{
    return !group->works && disti_drive_state(&group->drive) == DISTI_DRIVE_IDLE;
}

/* With the lock held, which is given back. Apart: a work is large too. */
__attribute__((cold, noinline)) static dist_status repeat_wait(struct dist_group *group,
                                                               const struct dist_call *call)
{
    struct disti_work work;

    disti_work_fill_call(group, call, DISTI_WORK_BLOCKING, &work);
    disti_log_use(disti_drive_state(&group->drive) == DISTI_DRIVE_CLOSED ? NULL : group->log);
    return disti_work_wait_here(&work);
}

/* The last of its collective, with the lock; NULL, without it: there is none, or the group is busy
 * or over. */
static inline struct disti_repeat *repeat_take(dist_group *group, dist_collective collective)
{
    if (!group || !disti_lock_try(&group->lock))
        return NULL;
    if (group->repeats && !atomic_load_explicit(&group->over, memory_order_relaxed))
        return &group->repeats[collective];
    disti_lock_release(&group->lock);
    return NULL;
}

/* With the lock held, which is given back. */
static inline dist_status repeat_run(dist_group *group, struct disti_repeat *repeat, const void *in,
                                     void *out)
{
    repeat->call.in = in;
    repeat->call.out = out;
    repeat->call.sequence = group->sequence;
    disti_last_call_note(group->number, &repeat->call);
    disti_flight_ended(&group->flight, repeat->flight, repeat->count, group->sequence);
    if (!repeat_may_end_at_once(group) ||
        group->backend->at_once(group->state, &repeat->call) != DIST_OK)
        return repeat_wait(group, &repeat->call);
    group->sequence++;
    disti_lock_release(&group->lock);
    return DIST_OK;
}

static inline dist_status repeat_try(dist_group *group, struct calls_kind kind, const void *in,
                                     void *out, size_t count)
{
    struct disti_repeat *repeat = repeat_take(group, kind.collective);

    if (!repeat)
        return repeat_not(group, kind, in, out, count);
    if (repeat_is(repeat, kind, in, out, count))
        return repeat_run(group, repeat, in, out);
    disti_lock_release(&group->lock);
    return repeat_not(group, kind, in, out, count);
}

/* One thread's calls are held; this one's too? */
__attribute__((cold, noinline)) static bool repeat_is_held(void)
{
    return repeat_holds;
}

dist_status disti_call_even(dist_group *group, struct calls_kind kind, const void *in, void *out,
                            size_t count)
{
    if (atomic_load_explicit(&repeat_all_holds, memory_order_relaxed) && repeat_is_held())
        return repeat_not(group, kind, in, out, count);
    return repeat_try(group, kind, in, out, count);
}

/* ---- the same with lists ---- */

__attribute__((cold, noinline)) static dist_status
repeat_uneven_not(dist_group *group, struct calls_kind kind, const void *in, void *out,
                  size_t count, const struct calls_lists *lists)
{
    const struct dist_call call = disti_call_with(kind, in, out, count, lists);

    return disti_call(group, &call, calls_blocking);
}

static inline dist_status repeat_try_uneven(dist_group *group, struct calls_kind kind,
                                            const void *in, void *out, size_t count,
                                            const struct calls_lists *lists)
{
    struct disti_repeat *repeat = repeat_take(group, kind.collective);

    if (!repeat)
        return repeat_uneven_not(group, kind, in, out, count, lists);
    if (repeat_is(repeat, kind, in, out, count) &&
        lists_are_kept(lists, &repeat->call, &repeat->lists, group->world_size))
        return repeat_run(group, repeat, in, out);
    disti_lock_release(&group->lock);
    return repeat_uneven_not(group, kind, in, out, count, lists);
}

dist_status disti_call_uneven(dist_group *group, struct calls_kind kind, const void *in, void *out,
                              size_t count, const struct calls_lists *lists)
{
    if (atomic_load_explicit(&repeat_all_holds, memory_order_relaxed) && repeat_is_held())
        return repeat_uneven_not(group, kind, in, out, count, lists);
    return repeat_try_uneven(group, kind, in, out, count, lists);
}
