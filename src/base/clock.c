/* SPDX-License-Identifier: BSD-3-Clause */
/* Time and deadlines, on the monotonic clock. */
#include "base/clock.h"

#include <errno.h>
#include <limits.h>
#include <stdatomic.h>

#define CLOCK_NS_PER_MS INT64_C(1000000)
#define CLOCK_NS_PER_S INT64_C(1000000000)

static int64_t clock_ns(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * CLOCK_NS_PER_S + now.tv_nsec;
}

/* The launcher's number (clock.h); NULL: no launcher suspends this process's job. */
static _Atomic(_Atomic int64_t *) clock_suspended;
/* How long the job had been suspended when this process began to follow the number. It is added, so
 * that the clock does not go back. */
static int64_t clock_base;

static int64_t clock_job_ns(int64_t monotonic_ns, int64_t number)
{
    return number < 0 ? -number : monotonic_ns - number;
}

int64_t disti_now_ns(void)
{
    _Atomic int64_t *suspended = atomic_load_explicit(&clock_suspended, memory_order_relaxed);

    int64_t number, now;

    if (!suspended)
        return clock_ns(CLOCK_MONOTONIC);
    /* Retry if the number has changed: the process may have been stopped between the two reads. */
    do {
        number = atomic_load_explicit(suspended, memory_order_acquire);
        now = clock_ns(CLOCK_MONOTONIC);
        atomic_thread_fence(memory_order_acquire);
    } while (number != atomic_load_explicit(suspended, memory_order_relaxed));
    return clock_job_ns(now, number) + clock_base;
}

struct timespec disti_clock_timespec(int64_t time_ns)
{
    if (atomic_load_explicit(&clock_suspended, memory_order_relaxed) &&
        __builtin_add_overflow(time_ns, clock_ns(CLOCK_MONOTONIC) - disti_now_ns(), &time_ns))
        time_ns = INT64_MAX;
    if (time_ns > CLOCK_NS_PER_S * INT32_MAX) /* the maximum of a 32-bit time_t */
        time_ns = CLOCK_NS_PER_S * INT32_MAX;
    return (struct timespec){.tv_sec = (time_t)(time_ns / CLOCK_NS_PER_S),
                             .tv_nsec = (long)(time_ns % CLOCK_NS_PER_S)};
}

int64_t disti_clock_suspend(int64_t number)
{
    return number < 0 ? number : -clock_job_ns(clock_ns(CLOCK_MONOTONIC), number);
}

int64_t disti_clock_resume(int64_t number)
{
    return number < 0 ? clock_ns(CLOCK_MONOTONIC) + number : number;
}

void disti_clock_follow(_Atomic int64_t *number)
{
    const int64_t now = clock_ns(CLOCK_MONOTONIC);

    clock_base = number ? now - clock_job_ns(now, atomic_load(number)) : 0;
    atomic_store_explicit(&clock_suspended, number, memory_order_release);
}

int64_t disti_deadline_ms(int64_t ms)
{
    int64_t ns, deadline;

    if (ms <= 0)
        return disti_now_ns();
    if (__builtin_mul_overflow(ms, CLOCK_NS_PER_MS, &ns) ||
        __builtin_add_overflow(disti_now_ns(), ns, &deadline))
        return INT64_MAX;
    return deadline;
}

bool disti_expired(int64_t deadline_ns)
{
    return disti_now_ns() >= deadline_ns;
}

int disti_left_ms(int64_t deadline_ns)
{
    int64_t now = disti_now_ns();
    int64_t ms;

    if (deadline_ns <= now)
        return 0;
    /* Rounded up, so that a poll does not wake just before the deadline and spin until it. */
    ms = (deadline_ns - now - 1) / CLOCK_NS_PER_MS + 1;
    return ms > INT_MAX ? INT_MAX : (int)ms;
}

void disti_sleep_ns(int64_t ns)
{
    struct timespec until;
    int64_t end;

    if (ns <= 0)
        return;
    if (__builtin_add_overflow(clock_ns(CLOCK_MONOTONIC), ns, &end))
        end = INT64_MAX;
    until.tv_sec = (time_t)(end / CLOCK_NS_PER_S);
    until.tv_nsec = (long)(end % CLOCK_NS_PER_S);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
        continue;
}
