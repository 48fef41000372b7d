/* SPDX-License-Identifier: BSD-3-Clause */
/* The lock and its condition variable, on futexes. */
#include "base/lock.h"
#include "base/clock.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/*
 * Sleeps while *word is `value`, at most until `until` (clock of disti_now_ns) if it is not NULL.
 */
static void lock_sleep(_Atomic uint32_t *word, uint32_t value, const struct timespec *until)
{
    syscall(SYS_futex, word, FUTEX_WAIT_BITSET_PRIVATE, value, until, NULL, FUTEX_BITSET_MATCH_ANY);
}

static void lock_wake(_Atomic uint32_t *word, int threads)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, threads, NULL, NULL, 0);
}

void disti_lock_acquire(struct disti_lock *lock)
{
    if (disti_lock_try(lock))
        return;
    while (atomic_exchange_explicit(&lock->state, DISTI_LOCK_AWAITED, memory_order_acquire) !=
           DISTI_LOCK_FREE)
        lock_sleep(&lock->state, DISTI_LOCK_AWAITED, NULL);
}

void disti_lock_wake(struct disti_lock *lock)
{
    lock_wake(&lock->state, 1);
}

void disti_change_wait(struct disti_change *change, struct disti_lock *lock, int64_t until_ns)
{
    const struct timespec until = disti_clock_timespec(until_ns);
    uint32_t signals = atomic_load_explicit(&change->signals, memory_order_relaxed);

    disti_lock_release(lock);
    lock_sleep(&change->signals, signals, &until);
    disti_lock_acquire(lock);
}

void disti_change_signal(struct disti_change *change)
{
    atomic_fetch_add_explicit(&change->signals, 1, memory_order_relaxed);
    lock_wake(&change->signals, INT_MAX);
}
