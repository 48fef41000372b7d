/* SPDX-License-Identifier: BSD-3-Clause */
/* Polling with backoff, for events that no descriptor reports. */
#ifndef DISTI_BASE_BACKOFF_H
#define DISTI_BASE_BACKOFF_H

#include <sched.h>
#include <time.h>

/*
 * Number of polls before the first yield, number of yields before the first sleep, and duration of
 * a sleep. The polls take microseconds in total, the yields milliseconds.
 */
#define DISTI_BACKOFF_SPINS 64
#define DISTI_BACKOFF_YIELDS 4096
#define DISTI_BACKOFF_NAP_NS (50 * 1000)

/* State of one wait. Zero it at the start, and after an event. */
struct disti_backoff {
    unsigned looks;
};

/*
 * Call after a poll that found nothing: first returns at once, later yields the CPU, finally
 * sleeps for DISTI_BACKOFF_NAP_NS. The caller checks its deadline.
 */
static inline void disti_backoff(struct disti_backoff *backoff)
{
    static const struct timespec nap = {0, DISTI_BACKOFF_NAP_NS};

    if (backoff->looks < DISTI_BACKOFF_SPINS + DISTI_BACKOFF_YIELDS)
        backoff->looks++;
    if (backoff->looks < DISTI_BACKOFF_SPINS)
        return;
    if (backoff->looks < DISTI_BACKOFF_SPINS + DISTI_BACKOFF_YIELDS)
        sched_yield();
    else
        nanosleep(&nap, NULL);
}

#endif
