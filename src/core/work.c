/* SPDX-License-Identifier: BSD-3-Clause */
/* Handles of works, and the slots behind them. */
#include "core/work.h"
#include "base/clock.h"
#include "base/collective.h"
#include "base/lock.h"
#include "base/log.h"
#include "core/group.h"
#include "endpoint/endpoint.h"
#include "store/store.h"

#include <stdlib.h>

/*
 * A handle, and the life of a slot that it is compared with:
 *
 *     handle  | generation | slot + 1          |    the low HANDLE_SLOT_BITS are the slot's
 *     life    | generation | claimed | pins    |    64 bits
 *
 * The generation counts up each time that the handle of the slot becomes stale. With 64 bits it
 * comes round after 2^40 works in one slot.
 */
#define HANDLE_SLOT_BITS (UINTPTR_MAX > UINT32_MAX ? 24 : 16)
#define HANDLE_SLOT_MASK (((uintptr_t)1 << HANDLE_SLOT_BITS) - 1)
#define HANDLE_GENERATIONS (UINTPTR_MAX >> HANDLE_SLOT_BITS)
#define LIFE_PIN UINT64_C(1)
#define LIFE_PINS UINT64_C(0x7fff)
#define LIFE_CLAIMED UINT64_C(0x8000)
#define LIFE_GENERATION_SHIFT 16
#define LIFE_GENERATION (UINT64_C(1) << LIFE_GENERATION_SHIFT)

/* Slots come in blocks: the first has so many, each further one twice as many as the one before. */
#define HANDLE_BLOCK 64
#define HANDLE_BLOCKS 18

struct handle_slot {
    struct disti_work work; /* first: its address is the slot's */
    _Atomic uint64_t life;
    _Atomic uint32_t next; /* while it is free: the next free slot + 1, 0: none */
    uint32_t number;
};

static struct handle_slot *_Atomic handle_blocks[HANDLE_BLOCKS];
DISTI_PROCESS_LOCK(handle_growing);

/* The free slots, a stack: the first slot + 1, and above it a count of changes, so that a thread
 * that was interrupted sees that the stack is not what it was. */
static _Atomic uint64_t handle_free;

static uint32_t handle_block_first(int block)
{
    return HANDLE_BLOCK * ((UINT32_C(1) << block) - 1);
}

/* NULL: there is no such slot. */
static struct handle_slot *handle_slot(uint32_t number)
{
    int block = 31 - __builtin_clz(number / HANDLE_BLOCK + 1);
    struct handle_slot *slots =
        block < HANDLE_BLOCKS ? atomic_load_explicit(&handle_blocks[block], memory_order_acquire)
                              : NULL;

    return slots ? slots + (number - handle_block_first(block)) : NULL;
}

static void handle_push(struct handle_slot *slot)
{
    uint64_t top = atomic_load_explicit(&handle_free, memory_order_relaxed), mine;

    do {
        atomic_store_explicit(&slot->next, (uint32_t)top, memory_order_relaxed);
        mine = ((top >> 32) + 1) << 32 | (slot->number + 1);
    } while (!atomic_compare_exchange_weak_explicit(&handle_free, &top, mine, memory_order_release,
                                                    memory_order_relaxed));
}

/* NULL: none is free. */
static struct handle_slot *handle_pop(void)
{
    uint64_t top = atomic_load_explicit(&handle_free, memory_order_acquire), rest;
    struct handle_slot *slot;

    do {
        if (!(uint32_t)top)
            return NULL;
        slot = handle_slot((uint32_t)top - 1);
        rest = ((top >> 32) + 1) << 32 | atomic_load_explicit(&slot->next, memory_order_relaxed);
    } while (!atomic_compare_exchange_weak_explicit(&handle_free, &top, rest, memory_order_acquire,
                                                    memory_order_acquire));
    return slot;
}

/* One more block; the first of its slots is the caller's. With the lock held. */
static struct handle_slot *handle_add_block(void)
{
    int block = 0;
    uint32_t count, first;
    struct handle_slot *slots;

    while (block < HANDLE_BLOCKS && atomic_load(&handle_blocks[block]))
        block++;
    count = (uint32_t)HANDLE_BLOCK << block;
    first = handle_block_first(block);
    if (block == HANDLE_BLOCKS || first + count > HANDLE_SLOT_MASK)
        return NULL;
    slots = calloc(count, sizeof(*slots));
    if (!slots)
        return NULL;
    for (uint32_t i = 0; i < count; i++) {
        slots[i].number = first + i;
        atomic_init(&slots[i].life, LIFE_GENERATION);
    }
    atomic_store_explicit(&handle_blocks[block], slots, memory_order_release);
    for (uint32_t i = count - 1; i > 0; i--)
        handle_push(&slots[i]);
    return slots;
}

static struct handle_slot *handle_slot_of(const struct disti_work *work)
{
    return (struct handle_slot *)(uintptr_t)work;
}

/* A slot, not filled, with a pin that is the caller's. NULL: no memory. */
static struct disti_work *handle_take(void)
{
    struct handle_slot *slot = handle_pop();

    if (!slot) {
        pthread_mutex_lock(&handle_growing);
        slot = handle_pop();
        if (!slot)
            slot = handle_add_block();
        pthread_mutex_unlock(&handle_growing);
    }
    if (!slot)
        return NULL;
    atomic_fetch_add_explicit(&slot->life, LIFE_PIN, memory_order_relaxed);
    return &slot->work;
}

static uintptr_t handle_generation(uint64_t life)
{
    return (uintptr_t)(life >> LIFE_GENERATION_SHIFT) & HANDLE_GENERATIONS;
}

/* What the program is to get. */
static dist_work *handle_of(const struct disti_work *work)
{
    const struct handle_slot *slot = handle_slot_of(work);
    uint64_t life = atomic_load_explicit(&slot->life, memory_order_relaxed);

    return (dist_work *)(handle_generation(life) << HANDLE_SLOT_BITS | (slot->number + 1));
}

static dist_status handle_add(dist_work *handle, const char *name, uint64_t amount,
                              struct disti_work **work_p)
{
    uintptr_t number = (uintptr_t)handle & HANDLE_SLOT_MASK;
    struct handle_slot *slot = number ? handle_slot((uint32_t)number - 1) : NULL;
    uint64_t life = slot ? atomic_load_explicit(&slot->life, memory_order_relaxed) : 0;

    do {
        if (!(life & LIFE_PINS) || (life & LIFE_PINS) == LIFE_PINS ||
            handle_generation(life) != (uintptr_t)handle >> HANDLE_SLOT_BITS) {
            if (!handle)
                return disti_fail(DIST_ERR_INVALID_ARGUMENT, "%s: work is NULL", name);
            return disti_fail(
                DIST_ERR_INVALID_ARGUMENT,
                "%s: the work no longer exists: dist_wait or dist_work_free has freed it", name);
        }
        if (life & amount & LIFE_CLAIMED)
            return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                              "%s: another thread is waiting for this work or starting it: wait in "
                              "one thread only",
                              name);
    } while (!atomic_compare_exchange_weak_explicit(&slot->life, &life, life + amount,
                                                    memory_order_acquire, memory_order_relaxed));
    if (slot->work.group->forked) {
        atomic_fetch_sub_explicit(&slot->life, amount, memory_order_relaxed);
        return disti_group_check(slot->work.group, name);
    }
    *work_p = &slot->work;
    return DIST_OK;
}

dist_status disti_handle_pin(dist_work *handle, const char *name, struct disti_work **work_p)
{
    return handle_add(handle, name, LIFE_PIN, work_p);
}

dist_status disti_handle_claim(dist_work *handle, const char *name, struct disti_work **work_p)
{
    return handle_add(handle, name, LIFE_CLAIMED + LIFE_PIN, work_p);
}

void disti_handle_unclaim(struct disti_work *work)
{
    atomic_fetch_sub_explicit(&handle_slot_of(work)->life, LIFE_CLAIMED + LIFE_PIN,
                              memory_order_release);
}

/* Gives a pin back. True: it was the last, and the caller is to call handle_give. */
static bool handle_unpin(struct disti_work *work)
{
    uint64_t life =
        atomic_fetch_sub_explicit(&handle_slot_of(work)->life, LIFE_PIN, memory_order_acq_rel);

    return (life & LIFE_PINS) == LIFE_PIN;
}

/* The slot is free for another work. */
/* A work that nobody had a handle of has not been retired. */
static void handle_give(struct disti_work *work)
{
    struct handle_slot *slot = handle_slot_of(work);

    atomic_fetch_add_explicit(&slot->life, LIFE_GENERATION, memory_order_relaxed);
    handle_push(slot);
}

/* Works: started operations, from the call to the end. */

/* Field by field: clearing the whole first would take longer than all else here. */
void disti_work_fill_call(struct dist_group *group, const struct dist_call *call,
                          enum disti_work_kind kind, struct disti_work *work)
{
    work->group = group;
    work->ticket = (struct dist_ticket){.status = DIST_IN_PROGRESS};
    work->call = *call;
    work->name = NULL;
    work->kind = kind;
    work->extended = work->warned = false;
    work->owned = NULL;
    work->release = NULL;
    work->finish = NULL;
    work->next = NULL;
    work->status = DIST_IN_PROGRESS;
    work->deadline_ns = 0;
    atomic_init(&work->ended, false);
}

/* Fills a work; nothing is started. */
static void work_fill(struct dist_group *group, const struct disti_start *start,
                      enum disti_work_kind kind, struct disti_work *work)
{
    disti_work_fill_call(group, &start->call, kind, work);
    work->name = start->name;
    work->owned = start->owned;
    work->release = start->release;
    work->finish = start->finish;
}

static void work_release(void *owned, void (*release)(void *owned))
{
    if (release)
        release(owned);
    else
        free(owned);
}

void disti_start_release(struct disti_start *start)
{
    work_release(start->owned, start->release);
    start->owned = NULL;
}

static void work_free(struct disti_work *work)
{
    if (work->kind != DISTI_WORK_DETACHED)
        disti_group_release(work->group);
    work_release(work->owned, work->release);
    handle_give(work);
}

void disti_work_unpin(struct disti_work *work)
{
    if (handle_unpin(work))
        work_free(work);
}

void disti_work_retire(struct disti_work *work, int pins)
{
    uint64_t change = LIFE_GENERATION - LIFE_CLAIMED - (uint64_t)pins * LIFE_PIN;
    uint64_t life =
        atomic_fetch_add_explicit(&handle_slot_of(work)->life, change, memory_order_acq_rel);

    if (((life + change) & LIFE_PINS) == 0) /* those were the last pins */
        work_free(work);
}

/* With the lock held. */
static dist_status work_admit(struct dist_group *group, const struct disti_work *work)
{
    const char *what = disti_work_name(work);

    if (disti_drive_state(&group->drive) == DISTI_DRIVE_CLOSED)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "rank %d cannot start %s: the group was destroyed", group->rank, what);
    if (atomic_load_explicit(&group->abort_requested, memory_order_relaxed))
        disti_group_abort(group);
    return group->failed ? disti_group_refuse(group, what) : DIST_OK;
}

/*
 * The backend does not take the call. Where it refuses what it cannot do, it is as if the call had
 * not been made; otherwise the other ranks have gone on, and this one cannot. Returns why.
 */
static dist_status work_refused(struct dist_group *group, struct disti_work *work,
                                dist_status status)
{
    const bool harmless = status == DIST_ERR_UNSUPPORTED || status == DIST_ERR_INVALID_ARGUMENT;

    disti_flight_set_state(&group->flight, &work->call,
                           harmless ? DISTI_FLIGHT_NONE : DISTI_FLIGHT_REFUSED, 0);
    group->drive.completion_due = true;
    if (!harmless) {
        work->deadline_ns = disti_now_ns() + group->timeout_ms * INT64_C(1000000);
        disti_group_fail(group, work, status);
        return group->failed;
    }
    if (disti_collective_pair(work->call.collective))
        group->message_sequence--;
    else
        group->sequence--;
    return status;
}

/*
 * Short calls mostly end as they are posted. If nobody's turn is before it and nothing is to be
 * told to anybody, it is over without having been in the queue.
 */
static bool work_ends_at_once(struct disti_work *work)
{
    if (work->kind != DISTI_WORK_BLOCKING || work->ticket.status != DIST_OK || work->group->works ||
        disti_drive_calls(disti_drive_state(&work->group->drive)) || work->finish ||
        work->group->numerics)
        return false;
    work->status = DIST_OK;
    atomic_store_explicit(&work->ended, true, memory_order_relaxed);
    return true;
}

/* Not all ranks are there yet. */
static void work_wait(struct disti_work *work)
{
    int64_t now = disti_now_ns();

    work->deadline_ns = now + work->group->timeout_ms * INT64_C(1000000);
    work->extended = work->warned = false;
    if (!work->group->works)
        work->group->drive.released_ns = now;
    disti_flight_set_state(&work->group->flight, &work->call, DISTI_FLIGHT_WAITING, now);
    if (work->group->works)
        work->group->last_work->next = work;
    else
        work->group->works = work;
    work->group->last_work = work;
    work->group->drive.messages += disti_collective_pair(work->call.collective);
    work->group->drive.completion_due = true; /* it may have ended already, and others with it */
    disti_drive_check(work->group, work);
}

/* work.c: posts a filled work and puts it into the queue. Call with the lock held. */
static dist_status work_launch(struct disti_work *work)
{
    struct dist_group *group = work->group;
    dist_status status = work_admit(group, work);

    if (status != DIST_OK)
        return status;
    work->call.sequence = disti_collective_pair(work->call.collective) ? group->message_sequence++
                                                                       : group->sequence++;
    disti_last_call_note(group->number, &work->call);
    disti_flight_begin(&group->flight, &work->call, work->name);
    work->ticket = (struct dist_ticket){.status = DIST_IN_PROGRESS}; /* it may have run before */
    disti_drive_wake(group);
    if (group->numerics)
        disti_numerics_given(work);
    status = group->backend->post(group->state, &work->call, &work->ticket);
    if (status != DIST_OK)
        return work_refused(group, work, status);
    if (work_ends_at_once(work))
        disti_flight_set_state(&group->flight, &work->call, DISTI_FLIGHT_DONE, 0);
    else
        work_wait(work);
    return DIST_OK;
}

dist_status disti_work_result(const struct disti_work *work)
{
    if (work->status < 0)
        disti_fail(work->status, "%s", work->group->cause);
    return work->status;
}

dist_status disti_work_wait_here(struct disti_work *work)
{
    struct dist_group *group = work->group;
    dist_status status = work_launch(work);

    if (status == DIST_OK)
        disti_drive_until(group, work, INT64_MAX);
    else
        disti_drive_kick(group);
    disti_log_use(NULL); /* a failure has been logged where it was found */
    if (status == DIST_OK)
        status = disti_work_result(work);
    disti_group_unlock(group);
    disti_endpoints_release(); /* it may have ended as it was posted */
    return status;
}

/* Starts a filled work and waits until it has ended. */
static dist_status work_run(struct disti_work *work)
{
    dist_status status = disti_work_may_wait(dist_collective_string(work->call.collective));

    if (status != DIST_OK)
        return status;
    work->call.waits = true;
    disti_group_enter(work->group);
    return disti_work_wait_here(work);
}

dist_status disti_work_run(struct dist_group *group, struct disti_start *start)
{
    struct disti_work work;
    dist_status status;

    work_fill(group, start, DISTI_WORK_BLOCKING, &work);
    status = work_run(&work);
    if (status == DIST_OK)
        disti_start_release(start);
    return status;
}

/* So long that to wake a thread costs little beside it. */
#define WORK_LONG ((size_t)256 << 10)

/* Gives back the only pin of a work that has not been started: what it owns is the caller's. */
static void work_undo(struct disti_work *work)
{
    if (handle_unpin(work))
        handle_give(work);
}

/* Of a work that is posted. */
static enum disti_work_kind work_kind(const struct dist_group *group,
                                      const struct disti_start *start)
{
    if (start->detached)
        return DISTI_WORK_DETACHED;
    return start->manner == DIST_MANNER_STREAM && (group->backend->join || start->call.waits)
               ? DISTI_WORK_STREAM
               : DISTI_WORK_ASYNC;
}

dist_status disti_work_post(struct dist_group *group, const struct disti_start *start,
                            dist_work **work_p)
{
    struct disti_work *work = handle_take();
    bool hurry;
    dist_status status;

    if (!work) {
        disti_group_enter(group);
        status = disti_fail(DIST_ERR_NO_MEMORY, "rank %d: no memory to start %s", group->rank,
                            dist_collective_string(start->call.collective));
        if (!group->failed) {
            disti_group_break(group, status, dist_last_error());
            status = group->failed;
        }
        disti_drive_kick(group);
        disti_group_exit(group);
        return status;
    }
    work_fill(group, start, work_kind(group, start), work);
    work->on_complete.fn = NULL;
    disti_group_enter(group);
    status = work_launch(work);
    if (status == DIST_OK && !start->detached) {
        disti_group_retain(group);
        *work_p = handle_of(work);
    }
    hurry = status == DIST_OK && work->ticket.status == DIST_IN_PROGRESS &&
            start->call.collective != DIST_COLL_BARRIER &&
            start->call.count >= WORK_LONG / dist_dtype_size(start->call.dtype) &&
            group->drive.service == DISTI_SERVICE_YES;
    if (status == DIST_OK && start->detached && group->drive.service != DISTI_SERVICE_YES)
        disti_drive_once(group); /* lest works pile up that nobody waits for */
    disti_drive_kick(group);     /* frees a detached work that has ended */
    disti_group_exit(group);
    disti_endpoints_release();
    if (hurry)
        disti_progress_hurry();
    if (status != DIST_OK)
        work_undo(work);
    return status;
}

/* Persistent works: made once, started again and again. */

/* With the lock held. */
static dist_status persistent_admit(struct dist_group *group, struct disti_work *work)
{
    const char *what = dist_collective_string(work->call.collective);

    if (disti_drive_state(&group->drive) == DISTI_DRIVE_CLOSED)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "rank %d cannot prepare %s: the group was destroyed", group->rank, what);
    if (group->failed)
        return disti_group_refuse(group, what);
    if (!group->backend->prepare || work->kind == DISTI_WORK_PERSISTENT_STREAM)
        return DIST_OK;
    disti_drive_wake(group);
    return group->backend->prepare(group->state, &work->call, &work->call.prepared);
}

dist_status disti_work_prepare(struct dist_group *group, const struct disti_start *start,
                               dist_work **work_p)
{
    struct disti_work *work = handle_take();
    dist_status status;

    if (!work)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory to prepare %s",
                          dist_collective_string(start->call.collective));
    if (start->manner == DIST_MANNER_STREAM) {
        work_fill(group, start, DISTI_WORK_PERSISTENT_STREAM, work);
        work->posted = NULL;
    } else {
        work_fill(group, start, DISTI_WORK_PERSISTENT, work);
        work->persistent.begin = start->begin;
        work->persistent.started = false;
    }
    atomic_store(&work->ended, true);
    disti_group_enter(group);
    status = persistent_admit(group, work);
    if (status == DIST_OK)
        disti_group_retain(group);
    disti_group_exit(group);
    if (status == DIST_OK)
        *work_p = handle_of(work);
    else
        work_undo(work);
    return status;
}

/* A persistent work that is at rest? */
static dist_status persistent_check(const struct disti_work *work, const char *name)
{
    if (!disti_work_is_persistent(work))
        return disti_fail(
            DIST_ERR_INVALID_ARGUMENT,
            "%s: the work is not persistent: create a persistent one with a dist_*_init call",
            name);
    if (work->kind == DISTI_WORK_PERSISTENT ? work->persistent.started : work->posted != NULL)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "%s: the work was started and not waited for: call dist_wait first",
                          name);
    return DIST_OK;
}

/* Each time it is another work, which may go on when it has been waited for. */
static dist_status persistent_post(struct disti_work *work)
{
    struct disti_start start = {.call = work->call, .manner = DIST_MANNER_STREAM};

    start.call.stream = work->group->stream;
    start.call.waits = true;
    return disti_work_post(work->group, &start, &work->posted);
}

/* What the call reads may have to be copied first. */
static dist_status persistent_begin(struct disti_work *work)
{
    dist_status status;

    if (!work->persistent.begin)
        return DIST_OK;
    status = disti_group_check(work->group, "dist_start"); /* whose stream it uses */
    return status == DIST_OK ? work->persistent.begin(work->owned) : status;
}

static dist_status persistent_launch(struct disti_work *work)
{
    struct dist_group *group = work->group;
    dist_status status = persistent_begin(work);

    if (status != DIST_OK)
        return disti_group_unstarted(group, status);
    disti_group_enter(group);
    atomic_store_explicit(&work->ended, false, memory_order_relaxed);
    status = work_launch(work);
    if (status != DIST_OK)
        atomic_store_explicit(&work->ended, true, memory_order_relaxed);
    work->persistent.started = status == DIST_OK;
    disti_drive_kick(group);
    disti_group_exit(group);
    disti_endpoints_release();
    return status;
}

dist_status dist_start(dist_work *handle)
{
    struct disti_work *work;
    dist_status status = disti_handle_claim(handle, "dist_start", &work);

    if (status != DIST_OK)
        return status;
    status = persistent_check(work, "dist_start");
    if (status == DIST_OK)
        status =
            work->kind == DISTI_WORK_PERSISTENT ? persistent_launch(work) : persistent_post(work);
    disti_handle_unclaim(work);
    return status;
}

dist_status dist_work_free(dist_work *handle)
{
    struct disti_work *work;
    struct dist_group *group;
    dist_status status;

    if (!handle)
        return DIST_OK;
    status = disti_handle_claim(handle, "dist_work_free", &work);
    if (status != DIST_OK)
        return status;
    status = persistent_check(work, "dist_work_free");
    if (status != DIST_OK) {
        disti_handle_unclaim(work);
        return status;
    }
    group = work->group;
    disti_group_enter(group);
    /* The backend has freed all that was prepared if it was closed or aborted. */
    if (disti_drive_state(&group->drive) != DISTI_DRIVE_CLOSED && !group->failed &&
        group->backend->release && work->kind != DISTI_WORK_PERSISTENT_STREAM) {
        disti_drive_wake(group);
        group->backend->release(group->state, work->call.prepared);
    }
    disti_group_exit(group);
    disti_work_retire(work, 2);
    return DIST_OK;
}
