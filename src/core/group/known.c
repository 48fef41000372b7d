/* SPDX-License-Identifier: BSD-3-Clause */
/* Every group that the program has seen, and what becomes of them in a child that it forks. */
#include "base/process_lock.h"
#include "core/work/others.h"

/* Newest first. The handles stay reachable, and so does what is to be refused in a child. */
static struct dist_group *_Atomic known_newest;
DISTI_PROCESS_LOCK(known_lock);

/*
 * The parent's groups, with their connections, memory and threads, are the parent's: whatever the
 * child did with them would be done in the parent's name. Their memory is left as it is.
 */
static void known_forked(void)
{
    for (struct dist_group *group = atomic_load(&known_newest); group; group = group->older) {
        if (!atomic_exchange(&group->destroyed, true))
            group->inherited = true;
        atomic_store(&group->over, true);
        atomic_store(&group->abort_possible, false);
    }
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
    group->known = true;
    atomic_store(&known_newest, group);
    pthread_mutex_unlock(&known_lock);
    disti_abort_ready(group);
    disti_flight_show(group);
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
