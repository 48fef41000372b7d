/* SPDX-License-Identifier: BSD-3-Clause */
/* dist_abort: ends a group at once, from any thread or signal handler. */
#include "core/group/group.h"

/*
 * A handler can do little: it notes what is wanted, and rings the store, which tells all ranks,
 * this one too. So whoever waits for the group here is woken, finds the note, and ends the group as
 * any other failure does. Where nobody waits the next call does that.
 */
dist_status dist_abort(dist_group *group)
{
    if (!group || !atomic_load(&group->abort_possible))
        return DIST_ERR_INVALID_ARGUMENT;
    if (atomic_exchange(&group->abort_asked, true))
        return DIST_OK;
    atomic_store(&group->over, true);
    if (group->alarm)
        disti_store_alarm_ring(group->alarm);
    return DIST_OK;
}

void disti_abort_ready(struct dist_group *group)
{
    const struct disti_party party = disti_group_party(group);

    /* Without memory for it the others are told when the group ends here. */
    if (group->world->bootstrap.store)
        group->alarm = disti_store_alarm_new(group->world->bootstrap.store, &party);
    atomic_store(&group->abort_possible, true);
}

void disti_abort_end(struct dist_group *group)
{
    atomic_store(&group->abort_possible, false);
    disti_store_alarm_free(group->alarm);
    group->alarm = NULL;
}

void disti_group_abort(struct dist_group *group)
{
    char name[GROUP_NAME];

    if (group->failed)
        return;
    group->aborted = true;
    if (group->alarm) /* it has told the others, or does so now: before they hear of a failure */
        disti_store_alarm_send(group->alarm);
    disti_fail(DIST_ERR_ABORTED, "%s aborted the group (dist_abort)",
               disti_group_name(group, name));
    disti_group_break(group, DIST_ERR_ABORTED, dist_last_error());
}
