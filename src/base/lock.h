/* SPDX-License-Identifier: BSD-3-Clause */
/* A lock for what is locked in every short call: inline, where a mutex is two calls of libc. */
#ifndef DISTI_BASE_LOCK_H
#define DISTI_BASE_LOCK_H

#include <pthread.h>
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

/* ---- locks of the whole process, which a forked child finds free ---- */

/*
 * A static mutex. The one thread that a forked child has would wait for ever for a lock that
 * another thread of the parent held: so in the child it is made anew. What it guards must bear
 * that: a pointer that is set last, or a number.
 */
#define DISTI_PROCESS_LOCK(name)                                                                   \
    static pthread_mutex_t name = PTHREAD_MUTEX_INITIALIZER;                                       \
    static void name##_forked(void)                                                                \
    {                                                                                              \
        pthread_mutex_init(&name, NULL);                                                           \
    }                                                                                              \
    __attribute__((constructor)) static void name##_watch_forks(void)                              \
    {                                                                                              \
        pthread_atfork(NULL, NULL, name##_forked);                                                 \
    }                                                                                              \
    static pthread_mutex_t name

#endif
