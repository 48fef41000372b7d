/* SPDX-License-Identifier: BSD-3-Clause */
/* Handles of works, and the slots behind them. */
#include "core/work/handle.h"

#include "base/log.h"
#include "base/process_lock.h"
#include "core/group/group.h"

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

static int handle_block_of(uint32_t number)
{
    return 31 - __builtin_clz(number / HANDLE_BLOCK + 1);
}

static uint32_t handle_block_first(int block)
{
    return HANDLE_BLOCK * ((UINT32_C(1) << block) - 1);
}

/* NULL: there is no such slot. */
static struct handle_slot *handle_slot(uint32_t number)
{
    int block = handle_block_of(number);
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

static struct handle_slot *handle_grow(void)
{
    struct handle_slot *slot;

    pthread_mutex_lock(&handle_growing);
    slot = handle_pop();
    if (!slot)
        slot = handle_add_block();
    pthread_mutex_unlock(&handle_growing);
    return slot;
}

static struct handle_slot *handle_slot_of(const struct disti_work *work)
{
    return (struct handle_slot *)(uintptr_t)work;
}

struct disti_work *disti_handle_take(void)
{
    struct handle_slot *slot = handle_pop();

    if (!slot)
        slot = handle_grow();
    if (!slot)
        return NULL;
    atomic_fetch_add_explicit(&slot->life, LIFE_PIN, memory_order_relaxed);
    return &slot->work;
}

static uintptr_t handle_generation(uint64_t life)
{
    return (uintptr_t)(life >> LIFE_GENERATION_SHIFT) & HANDLE_GENERATIONS;
}

dist_work *disti_handle_of(const struct disti_work *work)
{
    const struct handle_slot *slot = handle_slot_of(work);
    uint64_t life = atomic_load_explicit(&slot->life, memory_order_relaxed);

    return (dist_work *)(handle_generation(life) << HANDLE_SLOT_BITS | (slot->number + 1));
}

static dist_status handle_stale(const dist_work *handle, const char *name)
{
    if (!handle)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "%s: work is NULL", name);
    return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                      "%s: the work no longer exists: dist_wait or dist_work_free has freed it",
                      name);
}

static dist_status handle_add(dist_work *handle, const char *name, uint64_t amount,
                              struct disti_work **work_p)
{
    uintptr_t number = (uintptr_t)handle & HANDLE_SLOT_MASK;
    struct handle_slot *slot = number ? handle_slot((uint32_t)number - 1) : NULL;
    uint64_t life = slot ? atomic_load_explicit(&slot->life, memory_order_relaxed) : 0;

    do {
        if (!(life & LIFE_PINS) || (life & LIFE_PINS) == LIFE_PINS ||
            handle_generation(life) != (uintptr_t)handle >> HANDLE_SLOT_BITS)
            return handle_stale(handle, name);
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

bool disti_handle_retire(struct disti_work *work, int pins)
{
    uint64_t change = LIFE_GENERATION - LIFE_CLAIMED - (uint64_t)pins * LIFE_PIN;
    uint64_t life =
        atomic_fetch_add_explicit(&handle_slot_of(work)->life, change, memory_order_acq_rel);

    return ((life + change) & LIFE_PINS) == 0;
}

bool disti_handle_unpin(struct disti_work *work)
{
    uint64_t life =
        atomic_fetch_sub_explicit(&handle_slot_of(work)->life, LIFE_PIN, memory_order_acq_rel);

    return (life & LIFE_PINS) == LIFE_PIN;
}

/* A work that nobody had a handle of has not been retired. */
void disti_handle_give(struct disti_work *work)
{
    struct handle_slot *slot = handle_slot_of(work);

    atomic_fetch_add_explicit(&slot->life, LIFE_GENERATION, memory_order_relaxed);
    handle_push(slot);
}
