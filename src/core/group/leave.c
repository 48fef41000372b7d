/* SPDX-License-Identifier: BSD-3-Clause */
/* Leaving: the end of a group, together with its other ranks. */
#include "base/clock.h"
#include "base/faults/faults.h"
#include "base/lock/lock.h"
#include "core/group/group.h"

#include <stdio.h>
#include <stdlib.h>

/* How long the others may take to go away once all have come to the end. */
#define LEAVE_LINGER_MS 2000

void disti_group_abandon(void *arg, const char *what)
{
    struct dist_group *group = arg;
    const struct disti_party party = disti_group_party(group);
    char name[GROUP_NAME], text[GROUP_TEXT];

    if (group->world_size == 1 || atomic_exchange(&group->abandoned, true))
        return;
    snprintf(text, sizeof(text), "%s %s", disti_group_name(group, name), what);
    disti_store_report(group->world->bootstrap.store, &party, DIST_ERR_PEER_LOST, text);
}

/* What this rank leaves: a group, or the world with all its groups. */
static void leave_tell(struct dist_group *group)
{
    const struct disti_party party = disti_group_party(group);

    if (group->world_size > 1 && !atomic_load(&group->abandoned) && !group->failed &&
        !group->told_leaving)
        disti_store_tell_leaving(group->world->bootstrap.store, &party, group->sequence);
    group->told_leaving = true;
}

/*
 * Another rank may wait in a call of the group that this rank called with other arguments, and ask
 * this rank: its question is in a message that is read here. Returns true if no work is pending.
 */
static bool leave_look(struct dist_group *group)
{
    enum disti_drive_state state;
    int moved = 0;
    bool idle;

    if (!disti_lock_try(&group->lock))
        return false;
    state = disti_drive_state(&group->drive);
    idle = !group->works;
    if (idle && !group->failed && group->state &&
        (state == DISTI_DRIVE_IDLE || state == DISTI_DRIVE_CLOSED))
        moved = group->backend->progress(group->state);
    if (moved < 0)
        disti_group_fail(group, NULL, (dist_status)moved);
    disti_lock_release(&group->lock);
    return idle;
}

/* Other ranks let this rank wait. They may wait for it, in this group or another that it leaves. */
static void leave_late(void *arg)
{
    struct dist_group *group = arg, *other = group->world->groups;

    if (!group->world->leaving) {
        leave_look(group);
        leave_tell(group);
    }
    for (; group->world->leaving && other; other = other->next) {
        if (leave_look(other) || other == group)
            leave_tell(other);
    }
}

/* All ranks have come: nobody's last messages are cut off, no goodbye looks like a death. */
static dist_status leave_together(struct dist_group *group, int64_t until)
{
    struct disti_party party = disti_group_party(group);
    struct disti_store *store = group->world->bootstrap.store;
    struct disti_summary own, *all;
    struct disti_notice notice;
    char key[64];
    dist_status status;

    if (group->failed || group->world_size == 1 || atomic_load(&group->abandoned))
        return DIST_OK;
    party.what = "for the others to leave the group";
    snprintf(key, sizeof(key), "dist/leave/%u", group->number);
    disti_compare_summarize(group, &own);
    all = calloc((size_t)group->world_size, sizeof(*all)); /* NULL: this rank compares nothing */
    status = disti_store_leave(store, &party, key, &own, all, sizeof(own), disti_left_ms(until),
                               leave_late, group);
    /* It is over here: a rank that comes later need not wait. */
    if (status == DIST_ERR_TIMEOUT && !disti_news_read(group, &notice))
        disti_store_report(store, &party, status, dist_last_error());
    if (group->failed) /* by what leave_look found */
        status = disti_fail(group->failed, "%s", group->cause);
    else if (status == DIST_OK && all && !disti_compare_same(all, group->world_size))
        status = disti_compare_explain(group, all, disti_left_ms(until));
    free(all);
    return status;
}

/* Is a rank gone, or silent? */
static bool leave_has_lost(const struct dist_group *group, dist_status left)
{
    const dist_status status = group->failed ? group->failed : left;

    return status == DIST_ERR_TIMEOUT || disti_group_has_lost(group, status);
}

static dist_status leave_group(struct dist_group *group, int64_t until)
{
    dist_status status = disti_group_drain(group), left;

    atomic_store(&group->over, true);
    atomic_store(&group->destroyed, true);
    left = leave_together(group, until);
    disti_abort_end(group);
    group->config.left = left == DIST_OK && !group->failed;
    if (leave_has_lost(group, left))
        disti_world_lost(group->world);
    disti_group_free(group);
    return status == DIST_OK ? left : status;
}

/* The world's groups, in order of their numbers: so all ranks wait for each other in one order. */
static dist_status leave_others(struct disti_world *world, int64_t until)
{
    dist_status first = DIST_OK;
    struct dist_group *group = world->groups;

    while (group) {
        struct dist_group *next = group->next;
        dist_status status = group->number ? leave_group(group, until) : DIST_OK;

        if (first == DIST_OK)
            first = status;
        group = next;
    }
    return first;
}

dist_status dist_destroy_process_group(dist_group *group)
{
    struct disti_world *world;
    dist_status status = group ? disti_group_check(group, "dist_destroy_process_group") : DIST_OK;
    dist_status others = DIST_OK;
    int64_t until;

    if (!group || status != DIST_OK)
        return status;
    status = disti_work_may_wait("dist_destroy_process_group");
    if (status != DIST_OK)
        return status;
    world = group->world;
    until = disti_deadline_ms(group->timeout_ms);
    disti_log_use(group->log);
    if (group->number) {
        status = leave_group(group, until);
        disti_log_use(NULL);
        return status;
    }
    disti_faults_at(DISTI_FAULT_CLOSE);
    world->leaving = true;
    others = leave_others(world, until);
    status = leave_group(group, until);
    disti_log_use(NULL);
    disti_world_close(world, LEAVE_LINGER_MS);
    return others == DIST_OK ? status : others;
}
