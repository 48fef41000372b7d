/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A lock for short critical sections. Its functions are inline; a mutex would need two calls of
 * libc.
 */
#ifndef DISTI_BASE_LOCK_H
#define DISTI_BASE_LOCK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/*
 *            try, take              another thread waits in take
 *     FREE ------------> HELD ------------------------------------> AWAITED
 *      ^                  |                                            |
 *      '------------------'--------------------------------------------'
 *           release                   release, wakes one thread
 *
 * A thread that has slept sets AWAITED when it takes the lock, since other threads may still sleep.
 * A zeroed lock is free. Locks need no destructor.
 */
enum disti_lock_state { DISTI_LOCK_FREE, DISTI_LOCK_HELD, DISTI_LOCK_AWAITED };

struct disti_lock {
    _Atomic uint32_t state;
};

/* Takes the lock if it is free. Returns false if it is held. */
static inline bool disti_lock_try(struct disti_lock *lock)
{
    uint32_t found = DISTI_LOCK_FREE;

    return atomic_compare_exchange_strong_explicit(&lock->state, &found, DISTI_LOCK_HELD,
                                                   memory_order_acquire, memory_order_relaxed);
}

/* Takes the lock; sleeps until it is free. The calling thread must not hold it. */
void disti_lock_acquire(struct disti_lock *lock);

void disti_lock_wake(struct disti_lock *lock);

static inline void disti_lock_release(struct disti_lock *lock)
{
    if (atomic_exchange_explicit(&lock->state, DISTI_LOCK_FREE, memory_order_release) ==
        DISTI_LOCK_AWAITED)
        disti_lock_wake(lock);
}

/* A condition variable for a disti_lock. All zero: initial state. */
struct disti_change {
    _Atomic uint32_t signals;
};

/*
 * Releases the lock, waits for a change or until the deadline, and takes the lock again. May
 * return early.
 */
void disti_change_wait(struct disti_change *change, struct disti_lock *lock, int64_t until_ns);

/* Wakes all waiting threads. The caller must hold the lock. */
void disti_change_signal(struct disti_change *change);

/* ---- process-wide locks, which are free in a forked child ---- */

/*
 * A static mutex that is reinitialized in a forked child. Otherwise the child's only thread could
 * wait forever for a lock that another thread of the parent held. A fork may happen while the lock
 * is held, so the protected data must be consistent at any time: for example a number, or a pointer
 * that is set last.
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
