/* SPDX-License-Identifier: BSD-3-Clause */
/* Looking again and again for what comes soon or late, where no descriptor tells of it. */
#ifndef DISTI_BASE_BACKOFF_H
#define DISTI_BASE_BACKOFF_H

#include <sched.h>
#include <time.h>

/* Looks before the first yield, and yields before the first nap: microseconds, milliseconds. */
#define DISTI_BACKOFF_SPINS 64
#define DISTI_BACKOFF_YIELDS 4096
#define DISTI_BACKOFF_NAP_NS (50 * 1000)

/* One waiting; zeroed at the beginning, and where something has come. */
struct disti_backoff {
    unsigned looks;
};

/*
 * A look found nothing: goes on at once, later yields the CPU, in the end naps. Blocks for no more
 * than a nap, or as long as others want the CPU. It keeps no deadline: the caller does.
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
