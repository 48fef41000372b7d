/* SPDX-License-Identifier: BSD-3-Clause */
/* The groups that the program has, and has had; and what becomes of them in a child that it forks.
 */
#include "base/process_lock.h"
#include "core/work/others.h"

#include <stdlib.h>
#include <string.h>

/* So many of those that are gone keep their structure, so that their handles are refused. */
#define KNOWN_GONE 1024

/* Newest first. The handles stay reachable, and so does what is to be refused in a child. */
static struct dist_group *_Atomic known_newest;
DISTI_PROCESS_LOCK(known_lock);

/* Those that are gone, by `next`, oldest first: of more than KNOWN_GONE the oldest is used again.
 */
static struct dist_group *known_gone, **known_gone_end = &known_gone;
static int known_gone_count;

/*
 * The parent's groups, with their connections, memory and threads, are the parent's: whatever the
 * child did with them would be done in the parent's name. Their memory is left as it is.
 */
static void known_forked(void)
{
    for (struct dist_group *group = atomic_load(&known_newest); group; group = group->older) {
        group->forked = true;
        if (!atomic_exchange(&group->destroyed, true))
            group->inherited = true;
        atomic_store(&group->over, true);
        atomic_store(&group->abort_possible, false);
    }
    for (struct dist_group *group = known_gone; group; group = group->next)
        group->forked = true;
    disti_flight_forked();
    disti_memory_forked();
    disti_shared_forked();
    disti_complete_forked();
    disti_others_forked();
}

static void known_watch_forks(void)
{
    pthread_atfork(NULL, NULL, known_forked);
}

void disti_group_know(struct dist_group *group)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, known_watch_forks);
    disti_store_wait_by(disti_others_poll);
    pthread_mutex_lock(&known_lock);
    group->older = atomic_load(&known_newest);
    if (group->older)
        group->older->newer = group;
    group->known = true;
    atomic_store(&known_newest, group);
    pthread_mutex_unlock(&known_lock);
    disti_abort_ready(group);
    disti_flight_show(group);
}

/* A child that is forked meanwhile finds a list that leads to its end. */
static void known_unlink(struct dist_group *group)
{
    if (group->newer)
        group->newer->older = group->older;
    else
        atomic_store(&known_newest, group->older);
    if (group->older)
        group->older->newer = group->newer;
}

bool disti_group_try(int number, struct dist_group **group_p)
{
    struct dist_group *group;

    pthread_mutex_lock(&known_lock);
    group = atomic_load(&known_newest);
    while (group && number-- > 0)
        group = group->older;
    *group_p = group && disti_lock_try(&group->lock) ? group : NULL;
    pthread_mutex_unlock(&known_lock);
    return group;
}

void disti_group_gone(struct dist_group *group)
{
    /* One that was never seen may be in the place of one that was, and is to be refused as that. */
    atomic_store(&group->destroyed, true);
    pthread_mutex_lock(&known_lock);
    if (group->known)
        known_unlink(group);
    group->next = NULL;
    *known_gone_end = group;
    known_gone_end = &group->next;
    known_gone_count++;
    pthread_mutex_unlock(&known_lock);
}

struct dist_group *disti_group_blank(void)
{
    struct dist_group *group = NULL;

    pthread_mutex_lock(&known_lock);
    if (known_gone_count > KNOWN_GONE) {
        group = known_gone;
        known_gone = group->next;
        known_gone_count--;
    }
    pthread_mutex_unlock(&known_lock);
    if (!group)
        return calloc(1, sizeof(*group));
    memset(group, 0, sizeof(*group));
    return group;
}

dist_status disti_group_check(const struct dist_group *group, const char *what)
{
    if (!group)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "%s: group is NULL", what);
    if (!atomic_load(&group->destroyed))
        return DIST_OK;
    if (!group->inherited)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "%s: the group was destroyed", what);
    return disti_fail(
        DIST_ERR_INVALID_ARGUMENT,
        "%s: the group belongs to rank %d's process, from which this one was forked: a child "
        "cannot use it, but may join a job of its own (dist_init_process_group)",
        what, group->rank);
}
