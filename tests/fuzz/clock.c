/* SPDX-License-Identifier: BSD-3-Clause */
/* A clock that inputs can advance, so that long timeouts end at once. */
#include "tests/fuzz/fuzz.h"

#include <sys/timerfd.h>
#include <time.h>

/* The linker redirects these functions here (--wrap), and names the real ones __real_. */
int __real_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now);
int __real_timerfd_settime(int fd, int flags, const struct itimerspec *wanted,
                           struct itimerspec *before);
int __wrap_timerfd_settime(int fd, int flags, const struct itimerspec *wanted,
                           struct itimerspec *before);

static time_t clock_ahead_s;

void fuzz_advance_clock(int seconds)
{
    clock_ahead_s += seconds;
}

int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
    int result = __real_clock_gettime(clock, now);

    if (clock == CLOCK_MONOTONIC)
        now->tv_sec += clock_ahead_s;
    return result;
}

/* Makes every running timer expire at once, so that its user reads the clock again. */
int __wrap_timerfd_settime(int fd, int flags, const struct itimerspec *wanted,
                           struct itimerspec *before)
{
    struct itimerspec soon = {{0, 1000}, {0, 1}};
    const struct timespec *first = &wanted->it_value;

    return __real_timerfd_settime(fd, flags, first->tv_sec || first->tv_nsec ? &soon : wanted,
                                  before);
}
