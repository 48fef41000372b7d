/* SPDX-License-Identifier: BSD-3-Clause */
/* A scheduler: a process that serves its job's ranks until they have gone, and is none itself. */
#include "store/server/server.h"

#include "base/clock.h"
#include "base/log.h"

#include <stdio.h>
#include <string.h>

/* After the last rank: for the same processes to come as the next group. */
#define SCHEDULE_NEXT_MS 1000

/* The same after a loss, where ranks are still to come: they shall hear of it. */
#define SCHEDULE_LATE_MS 3000

static void schedule_fail(struct store_schedule *schedule, dist_status status, const char *text)
{
    if (schedule->status == DIST_OK) /* what came first is the cause of the rest */
        disti_text(schedule->text, sizeof(schedule->text), "%s", text);
    if (schedule->status == DIST_OK)
        schedule->status = status;
}

/* "rank 3, 5 and 12 more": those who have not come. */
static void schedule_list_absent(const struct disti_store_server *server, char *text, size_t size)
{
    size_t at = 0;
    int more = 0;

    for (int r = 0; r < server->world_size; r++) {
        if (server->ranks[r].state != STORE_ABSENT)
            continue;
        if (at + 40 > size)
            more++;
        else
            at += (size_t)snprintf(text + at, size - at, "%s%d", at ? ", " : "rank ", r);
    }
    if (more)
        snprintf(text + at, size - at, " and %d more", more);
}

static void schedule_expire(struct disti_store_server *server)
{
    char absent[256] = "", text[512];

    schedule_list_absent(server, absent, sizeof(absent));
    snprintf(text, sizeof(text),
             "the scheduler waited %d ms for all %d workers, and %d have come; missing: %s. Check "
             "whether they run and have the same MS_SCHED_HOST and MS_SCHED_PORT, or raise "
             "MS_CLUSTER_TIMEOUT (seconds)",
             server->schedule->timeout_ms, server->world_size, server->here, absent);
    schedule_fail(server->schedule, DIST_ERR_TIMEOUT, text);
    snprintf(text, sizeof(text), "the scheduler waits no longer; missing: %s", absent);
    disti_store_coll_fail(server, -1, DISTI_NO_GROUP, DIST_ERR_TIMEOUT, text);
}

static void schedule_find_lost(const struct disti_store_server *server)
{
    for (int r = 0; r < server->world_size && server->schedule->status == DIST_OK; r++) {
        if (disti_store_ranks_is_gone(server, r, false))
            schedule_fail(server->schedule, DIST_ERR_PEER_LOST, server->ranks[r].news);
    }
}

/* Nobody is here: how long may that be so? */
static int64_t schedule_idle_until(const struct disti_store_server *server)
{
    const struct store_schedule *schedule = server->schedule;

    if (schedule->formed)
        return disti_deadline_ms(SCHEDULE_NEXT_MS);
    return schedule->status == DIST_OK ? schedule->come_by : disti_deadline_ms(SCHEDULE_LATE_MS);
}

static void schedule_stop(struct disti_store_server *server)
{
    atomic_store(&server->stop_by, 0);
    atomic_store(&server->stop, true);
}

int64_t disti_store_schedule_tick(struct disti_store_server *server)
{
    struct store_schedule *schedule = server->schedule;
    const bool formed = schedule->formed;
    const dist_status status = schedule->status;

    schedule->formed = schedule->formed || server->formed;
    schedule_find_lost(server);
    /* Ranks may have come and gone since the last look. */
    if (server->here > 0 || schedule->formed != formed || schedule->status != status)
        schedule->end_at = 0;
    if (server->here == 0 && !schedule->end_at)
        schedule->end_at = schedule_idle_until(server);
    if (!schedule->formed && disti_expired(schedule->come_by)) {
        schedule_expire(server);
        schedule_stop(server);
    }
    if (schedule->end_at && disti_expired(schedule->end_at))
        schedule_stop(server);
    if (schedule->formed)
        return schedule->end_at ? schedule->end_at : INT64_MAX;
    return schedule->end_at && schedule->end_at < schedule->come_by ? schedule->end_at
                                                                    : schedule->come_by;
}

dist_status disti_store_server_schedule(struct disti_store_server *server, int timeout_ms)
{
    struct store_schedule schedule = {.timeout_ms = timeout_ms,
                                      .come_by = disti_deadline_ms(timeout_ms)};

    server->schedule = &schedule;
    server->log = disti_log_current();
    disti_store_server_main(server);
    disti_store_server_stop(server, 0);
    return schedule.status == DIST_OK ? DIST_OK : disti_fail(schedule.status, "%s", schedule.text);
}
