/* SPDX-License-Identifier: BSD-3-Clause */
/* Waiting like a good neighbour: spin, then yield, then sleep. */
#ifndef DISTI_ENGINE_WAIT_H
#define DISTI_ENGINE_WAIT_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Decided once a group from the CPUs that this process may use and the ranks that share
 * them. With a CPU for every rank it spins first: the peer is running, the news comes within a
 * microsecond. With more ranks than CPUs spinning keeps the very peer from running that is
 * waited for, so it yields at once; and sleeps late, since a yield costs less than a
 * sleep and a wake-up while everybody is busy.
 */
struct disti_wait_policy {
    uint32_t spins;   /* polls before the first yield */
    int64_t yield_ns; /* then yields for so long */
    int sleep_ms;     /* then sleeps, so long at a time at most */
};

/* crowded: there are more ranks than CPUs for them. */
void disti_wait_policy_init(struct disti_wait_policy *policy, bool crowded);

/* One wait. Zeroed at the beginning, and whenever something has happened. */
struct disti_wait {
    uint32_t polls;
    int64_t since_ns;
};

/* A poll found nothing: spins or yields, and returns false; true: sleep now. */
bool disti_wait_step(const struct disti_wait_policy *policy, struct disti_wait *wait);

#endif
