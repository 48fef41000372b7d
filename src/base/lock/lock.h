/* SPDX-License-Identifier: BSD-3-Clause */
/* A lock for what is locked in every short call: inline, where a mutex is two calls of libc. */
#ifndef DISTI_BASE_LOCK_LOCK_H
#define DISTI_BASE_LOCK_LOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/*
 *            try, take              take by another, which sleeps
 *     FREE ------------> HELD ------------------------------------> AWAITED
 *      ^                  |                                            |
 *      '------------------'--------------------------------------------'
 *           release                   release, which wakes one
 *
 * Who has slept leaves the lock AWAITED, as it cannot know whether others still sleep. All zero is
 * a free lock. It needs no end.
 */
enum disti_lock_state { DISTI_LOCK_FREE, DISTI_LOCK_HELD, DISTI_LOCK_AWAITED };

struct disti_lock {
    _Atomic uint32_t state;
};

/* Takes the lock if nobody has it. */
static inline bool disti_lock_try(struct disti_lock *lock)
{
    uint32_t found = DISTI_LOCK_FREE;

    return atomic_compare_exchange_strong_explicit(&lock->state, &found, DISTI_LOCK_HELD,
                                                   memory_order_acquire, memory_order_relaxed);
}

/* Takes it when it is free: sleeps until then. Not for the thread that has it. */
void disti_lock_take(struct disti_lock *lock);

void disti_lock_wake(struct disti_lock *lock);

static inline void disti_lock_release(struct disti_lock *lock)
{
    if (atomic_exchange_explicit(&lock->state, DISTI_LOCK_FREE, memory_order_release) ==
        DISTI_LOCK_AWAITED)
        disti_lock_wake(lock);
}

/* What threads wait for that have the lock: a change of something that it guards. All zero: none
 * has been told yet. */
struct disti_change {
    _Atomic uint32_t told;
};

/* Gives the lock back, waits for a change or the point in time, and takes it again. It may return
 * early. */
void disti_change_wait(struct disti_change *change, struct disti_lock *lock, int64_t until_ns);

/* Wakes all that wait. With the lock held. */
void disti_change_tell(struct disti_change *change);

#endif
