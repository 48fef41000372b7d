/* SPDX-License-Identifier: BSD-3-Clause */
/* What ends a group: a lost rank, a deadline, a broken backend. */
#include "base/clock.h"
#include "core/group.h"

#include <stdio.h>
#include <string.h>

/*
 * A rank that ended normally may have left its last messages on their way, and one
 * that died may have: what can still end, ends within the grace.
 */
#define FAULT_GRACE_NS (200LL * 1000 * 1000)

void disti_group_break(struct dist_group *group, dist_status status, const char *text)
{
    if (group->failed)
        return;
    group->failed = status;
    snprintf(group->cause, sizeof(group->cause), "%s", text);
    if (group->state)
        group->backend->abort(group->state);
    for (struct dist_work *work = group->works; work; work = work->next) {
        if (work->ticket.status == DIST_IN_PROGRESS)
            work->ticket.status = status;
    }
    if (group->bootstrap.store)
        disti_store_report(group->bootstrap.store, text);
}

dist_status disti_group_refuse(const struct dist_group *group, const char *what)
{
    return disti_fail(DIST_ERR_ABORTED,
                      "rank %d cannot start %s: the group ended with an earlier error: %s",
                      group->rank, what, group->cause);
}

static const char *fault_describe(const struct dist_work *work, char *text, size_t size)
{
    snprintf(text, size, "%s (operation %llu, %zu x %s)",
             dist_collective_string(work->call.collective), (unsigned long long)work->call.sequence,
             work->call.count, dist_dtype_string(work->call.dtype));
    return text;
}

static void fault_timeout(struct dist_group *group, const struct dist_work *work)
{
    char what[128];
    dist_status status;

    fault_describe(work, what, sizeof(what));
    status =
        disti_fail(DIST_ERR_TIMEOUT,
                   "rank %d waited %d ms in %s and some rank did not come: see where the other "
                   "ranks are, or raise the timeout (DIST_TIMEOUT, seconds)",
                   group->rank, group->timeout_ms, what);
    disti_group_break(group, status, dist_last_error());
}

static void fault_lost(struct dist_group *group, const struct dist_work *work)
{
    char what[128];
    dist_status status;

    fault_describe(work, what, sizeof(what));
    status = disti_fail(DIST_ERR_PEER_LOST, "rank %d cannot finish %s: %s", group->rank, what,
                        group->lost_text);
    disti_group_break(group, status, dist_last_error());
}

void disti_group_watch(struct dist_group *group, const struct dist_work *work)
{
    struct disti_notice notice;

    if (group->failed)
        return;
    while (group->lost_rank < 0 && group->bootstrap.store &&
           disti_store_notice(group->bootstrap.store, &notice)) {
        if (notice.rank == group->rank)
            continue;
        group->lost_rank = notice.rank < 0 ? 0 : notice.rank;
        group->lost_until_ns = disti_now_ns() + FAULT_GRACE_NS;
        snprintf(group->lost_text, sizeof(group->lost_text), "%s", notice.text);
        disti_warn("%s", notice.text);
    }
    if (group->lost_rank >= 0 && disti_expired(group->lost_until_ns))
        fault_lost(group, work);
    else if (disti_expired(work->deadline_ns))
        fault_timeout(group, work);
}
