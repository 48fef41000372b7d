/* SPDX-License-Identifier: BSD-3-Clause */
/* Barriers, where what counts is when they end. */
#include "battery.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double barrier_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void barrier_nap(int ms)
{
    const struct timespec nap = {ms / 1000, ms % 1000 * 1000000L};

    nanosleep(&nap, NULL);
}

static dist_status barrier_monitored(dist_group *group)
{
    return dist_monitored_barrier(group, 0);
}

static dist_status barrier_async(dist_group *group)
{
    dist_work *work;
    dist_status status = dist_barrier_async(group, &work);

    return status == DIST_OK ? dist_wait(work) : status;
}

/*
 * Nobody leaves a barrier before everybody has come: each rank in turn comes last; the times of
 * coming, gathered, tell. One machine, one clock.
 */
static void barrier_holds(struct battery *b, dist_status (*barrier)(dist_group *), const char *name)
{
    double *came = battery_alloc((size_t)b->ranks, sizeof(*came)), mine, left;

    for (int late = 0; late < b->ranks; late++) {
        if (b->rank == late)
            barrier_nap(2);
        mine = barrier_now();
        battery_ok(b, barrier(b->group), name);
        left = barrier_now();
        battery_ok(b, dist_all_gather(b->group, &mine, came, 1, DIST_FLOAT64), "barrier's times");
        for (int r = 0; r < b->ranks; r++) {
            if (came[r] > left)
                battery_fault(b, "left a %s before rank %d had come", name, r);
        }
    }
    free(came);
}

/*
 * The last rank comes too late for a short timeout: rank 0 must name it, and the group must go on.
 * It comes when the others have given up: a barrier says so.
 */
static void barrier_names_the_missing(struct battery *b)
{
    int last = b->ranks - 1;
    dist_status status = DIST_OK;
    char name[32];

    if (b->ranks == 1)
        return;
    snprintf(name, sizeof(name), "rank %d", last);
    if (b->rank == last)
        battery_ok(b, dist_barrier(b->group), "barrier before a monitored one");
    status = dist_monitored_barrier(b->group, b->rank == last ? 0 : 150);
    b->checks++;
    if (b->rank == last)
        battery_ok(b, status, "a monitored barrier that this rank comes to late");
    else if (status != DIST_ERR_TIMEOUT)
        battery_fault(b, "a monitored barrier that %s misses: %s", name,
                      dist_status_string(status));
    else if (!strstr(dist_last_error(), name))
        battery_fault(b, "a monitored barrier does not name %s: %s", name, dist_last_error());
    if (b->rank != last)
        battery_ok(b, dist_barrier(b->group), "barrier after a monitored one that failed");
    battery_ok(b, dist_monitored_barrier(b->group, 0), "the next monitored barrier");
}

void cases_barrier(struct battery *b)
{
    barrier_holds(b, dist_barrier, "barrier");
    barrier_holds(b, barrier_async, "barrier_async");
    barrier_holds(b, barrier_monitored, "monitored barrier");
    barrier_names_the_missing(b);
}
