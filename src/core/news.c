/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Notices of lost ranks and failed groups: each group gets those that concern it. They come from
 * the store. Once that is lost, ranks find out for themselves:
 *
 *     rank 0 (store) dies       every rank loses its connection to the store
 *     a rank of this machine    the kernel tells of its end (disti_store_watch_process)
 *     a rank of another one     its connection breaks; or a rank that knows tells (endpoint)
 */
#include "base/descriptor.h"
#include "base/process.h"
#include "core/group.h"
#include "endpoint/endpoint.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool news_is_member(const struct dist_group *group, int world_rank)
{
    return dist_get_group_rank(group, world_rank) >= 0;
}

/* A failure of this group, or a rank of it that is gone. Without its launcher no job goes on. */
static bool news_concerns(const struct dist_group *group, const struct disti_notice *notice)
{
    if (notice->group != DISTI_NO_GROUP)
        return notice->group == (int32_t)group->number;
    return notice->rank < 0 || news_is_member(group, notice->rank);
}

/*
 * A group keeps its first notice. Without a store its cause may arrive later, and replaces it if it
 * is the end of rank cause_of, or of any rank (NEWS_OF_ANY).
 */
enum { NEWS_OF_NONE = -1, NEWS_OF_ANY = -2 };
static void news_give(struct dist_group *group, const struct disti_notice *notice, int cause_of)
{
    const struct disti_notice *known = group->has_news ? group->news : NULL;

    if (!news_concerns(group, notice) ||
        (known &&
         (known->group != DISTI_NO_GROUP || (known->rank != cause_of && cause_of != NEWS_OF_ANY))))
        return;
    *group->news = *notice;
    group->has_news = true;
}

static struct dist_group *news_find(struct disti_world *world, int32_t number)
{
    struct dist_group *group = world->groups;

    while (group && (int32_t)group->number != number)
        group = group->next;
    return group;
}

/* That makes it no failure: a call that the rank has made may still end. */
static void news_note_leaver(struct disti_world *world, const struct disti_notice *notice)
{
    struct dist_group *group = news_find(world, notice->group);

    if (!group)
        return;
    if (!group->leaver)
        group->leaver = malloc(sizeof(*group->leaver));
    if (!group->leaver) /* its deadline ends what waits for that rank */
        return;
    *group->leaver = *notice;
    atomic_store(&group->is_left, true);
}

/* untold: this rank found it out without the store, and is to tell other ranks. */
static void news_remember(struct disti_world *world, const struct disti_notice *notice, bool untold)
{
    struct world_gone *gone = malloc(sizeof(*gone));

    if (!gone)
        return;
    gone->notice = *notice;
    gone->untold = untold;
    gone->next = world->gone;
    world->gone = gone;
}

static bool news_knows(const struct disti_world *world, int world_rank)
{
    const struct world_gone *gone = world->gone;

    while (gone && gone->notice.rank != world_rank)
        gone = gone->next;
    return gone != NULL;
}

/* Reads all that there is, with the world's lock held. */
static void news_distribute(struct disti_world *world)
{
    struct disti_notice notice;

    while (world->bootstrap.store && disti_store_notice(world->bootstrap.store, &notice)) {
        if (notice.rank == world->rank) {
            /* This rank's report is back. Earlier news tell of an earlier failure. */
            struct dist_group *told = news_find(world, notice.group);

            if (told && !told->has_news)
                atomic_store(&told->is_told, true);
        }
        if (notice.rank == world->rank ||
            (notice.group == DISTI_NO_GROUP && news_knows(world, notice.rank)))
            continue;
        if (notice.leaving) {
            disti_info("%s", notice.text);
            news_note_leaver(world, &notice);
            continue;
        }
        disti_warn("%s", notice.text);
        for (struct dist_group *group = world->groups; group; group = group->next)
            news_give(group, &notice, NEWS_OF_NONE);
        if (notice.group == DISTI_NO_GROUP) /* every rank sees the end of the holder itself */
            news_remember(world, &notice,
                          world->orphaned && notice.rank >= 0 &&
                              notice.rank != disti_store_holder(world->bootstrap.store));
    }
}

/* ---- without the store ---- */

/* Returns true if the process has ended. Otherwise *fd_p is its pidfd, or -1 if there is none. */
static bool news_has_ended(int pid, int *fd_p)
{
    struct pollfd process = {.events = POLLIN};
    bool ended;

    process.fd = disti_descriptor_own((int)syscall(SYS_pidfd_open, pid, 0));
    ended = process.fd < 0 ? errno == ESRCH : poll(&process, 1, 0) == 1;
    if (ended)
        disti_descriptor_close(process.fd);
    *fd_p = ended ? -1 : process.fd;
    return ended;
}

/* Watches the processes of this machine. Returns how many have ended already, and sets ended[]. */
static int news_watch(struct disti_world *world, bool *ended)
{
    char text[160];
    int fd, count = 0;

    for (int r = 0; r < world->size; r++) {
        const int pid = world->peers[r].locality.pid;

        /* Every rank sees the end of the store's holder itself. */
        if (r == world->rank || r == disti_store_holder(world->bootstrap.store) ||
            news_knows(world, r) || !disti_world_sees_process(world, world->rank, r))
            continue;
        ended[r] = news_has_ended(pid, &fd);
        count += ended[r];
        if (fd < 0)
            continue;
        disti_world_name(world, r, text, sizeof(text));
        world->watched[r] = disti_store_watch_process(world->bootstrap.store, fd, r, pid, text);
    }
    return count;
}

/* The notice names all ranks that have ended, since the order of their ends is not known. */
static void news_name_ended(const struct disti_world *world, int rank, const bool *ended, int count,
                            struct disti_notice *notice_p)
{
    const struct disti_locality *peer = &world->peers[rank].locality;
    char why[96], *text = notice_p->text;
    const char *end =
        disti_process_end(peer->host, disti_process_space(), peer->pid, why, sizeof(why));
    size_t used = disti_world_name(world, rank, text, DISTI_NEWS_MAX);

    notice_p->rank = rank;
    used += disti_text(text + used, DISTI_NEWS_MAX - used, " %s%s",
                       end == why ? why : "ended without leaving the job",
                       count > 1 ? "; also ended, before or after it:" : "");
    for (int r = 0; count > 1 && r < world->size; r++) {
        if (ended[r] && r != rank)
            used += disti_text(text + used, DISTI_NEWS_MAX - used, " world rank %d,", r);
    }
    if (count > 1)
        text[used - 1] = '\0';
}

/* With the world's lock held. Without memory only connections tell. */
static void news_lose_store(struct disti_world *world)
{
    bool *ended = calloc((size_t)world->size, sizeof(*ended));
    struct disti_notice notice = {.group = DISTI_NO_GROUP};
    int count;

    world->orphaned = true;
    count = ended ? news_watch(world, ended) : 0;
    for (int r = 0; count && r < world->size; r++) {
        if (!ended[r])
            continue;
        news_name_ended(world, r, ended, count, &notice);
        world->watched[r] = true;
        disti_warn("%s", notice.text);
        for (struct dist_group *group = world->groups; group; group = group->next)
            news_give(group, &notice, NEWS_OF_NONE);
        news_remember(world, &notice, true);
    }
    free(ended);
}

/* The sender lost that rank. If the sender has ended since, this is the cause. */
static void news_hear_lost(struct disti_world *world, int sender, int rank)
{
    const bool own = sender == world->rank;
    struct disti_notice notice = {.rank = rank, .group = DISTI_NO_GROUP};
    size_t used;

    if (rank == world->rank || rank == disti_store_holder(world->bootstrap.store) ||
        news_knows(world, rank) || (own && world->watched[rank]))
        return; /* the store's client reports the end of its holder, and of what is watched */
    used = disti_world_name(world, rank, notice.text, sizeof(notice.text));
    if (own)
        disti_text(notice.text + used, sizeof(notice.text) - used,
                   " closed its connection without leaving the job");
    else
        disti_text(notice.text + used, sizeof(notice.text) - used, " has ended, as rank %d reports",
                   sender);
    disti_warn("%s", notice.text);
    for (struct dist_group *group = world->groups; group; group = group->next)
        news_give(group, &notice, own ? NEWS_OF_NONE : sender);
    news_remember(world, &notice, own);
}

static void news_hear_group(struct disti_world *world, int sender, dist_status status, int number,
                            const char *why)
{
    struct disti_notice notice = {.rank = sender, .group = number, .status = status};
    struct dist_group *group = news_find(world, number);
    const size_t used = disti_world_name(world, sender, notice.text, sizeof(notice.text));

    if (!group || !news_is_member(group, sender))
        return;
    if (status == DIST_ERR_ABORTED && why[0]) /* another rank's abort, which the sender passes on */
        disti_text(notice.text, sizeof(notice.text), "%s", why);
    else if (status == DIST_ERR_ABORTED)
        disti_text(notice.text + used, sizeof(notice.text) - used, " aborted the group");
    else if (why[0])
        disti_text(notice.text + used, sizeof(notice.text) - used, " failed: %s", why);
    else
        disti_text(notice.text + used, sizeof(notice.text) - used,
                   " failed in this group (%s): see the error that it printed or returned",
                   dist_status_string(status));
    disti_warn("%s", notice.text);
    news_give(group, &notice, NEWS_OF_ANY);
}

static void news_hear(void *arg, int sender, dist_status status, int of, const char *text)
{
    struct disti_world *world = arg;

    pthread_mutex_lock(&world->lock);
    if (status == DISTI_ENDPOINT_LOST)
        news_hear_lost(world, sender, of);
    else
        news_hear_group(world, sender, status, of, text);
    pthread_mutex_unlock(&world->lock);
}

/* Returns the next rank whose end is to be told, and sets to[]. -1: none. */
static int news_next_untold(struct disti_world *world, bool *to)
{
    struct world_gone *gone;
    int rank = -1;

    pthread_mutex_lock(&world->lock);
    gone = world->gone;
    while (gone && !gone->untold)
        gone = gone->next;
    if (gone) {
        gone->untold = false;
        rank = gone->notice.rank;
        for (int r = 0; r < world->size; r++)
            to[r] = r != world->rank && r != rank && !news_knows(world, r) &&
                    !disti_world_sees_process(world, r, rank);
    }
    pthread_mutex_unlock(&world->lock);
    return rank;
}

bool disti_news_listen(struct disti_world *world)
{
    struct disti_store *store = world->bootstrap.store;
    bool *to;
    int lost;

    if (!store || !disti_store_is_lost(store))
        return false;
    pthread_mutex_lock(&world->lock);
    if (!world->orphaned)
        news_lose_store(world);
    pthread_mutex_unlock(&world->lock);
    /* The store's client has just collected the processes that have ended. Messages that those sent
     * before are handled first, since they name the cause. */
    disti_endpoints_hear(world->bootstrap.job, world->rank, news_hear, world);
    pthread_mutex_lock(&world->lock);
    news_distribute(world);
    pthread_mutex_unlock(&world->lock);
    to = calloc((size_t)world->size, sizeof(*to));
    while (to && (lost = news_next_untold(world, to)) >= 0)
        disti_endpoints_tell(world->bootstrap.job, world->rank, DISTI_ENDPOINT_LOST, lost, NULL,
                             to);
    free(to);
    return true;
}

bool disti_news_tell_failure(struct dist_group *group, dist_status status, const char *text)
{
    struct disti_world *world = group->world;
    bool *to;

    if (!world->bootstrap.store || !disti_store_is_lost(world->bootstrap.store))
        return false;
    to = calloc((size_t)world->size, sizeof(*to));
    pthread_mutex_lock(&world->lock);
    for (int r = 0; to && r < group->world_size; r++)
        to[group->members[r]] = r != group->rank && !news_knows(world, group->members[r]);
    pthread_mutex_unlock(&world->lock);
    if (to)
        disti_endpoints_tell(world->bootstrap.job, world->rank, status, (int)group->number, text,
                             to);
    free(to);
    return true;
}

bool disti_news_is_seen(const struct dist_group *group, int rank)
{
    struct disti_world *world = group->world;
    bool seen;

    pthread_mutex_lock(&world->lock);
    seen = !world->orphaned || world->watched[group->members[rank]];
    pthread_mutex_unlock(&world->lock);
    return seen;
}

/* ---- what a group reads ---- */

/* The oldest that concerns it: who has gone since may have left because of that one. */
static void news_give_first(struct dist_group *group)
{
    const struct world_gone *gone = group->world->gone, *first = NULL;

    for (; gone; gone = gone->next) { /* newest first */
        if (news_concerns(group, &gone->notice))
            first = gone;
    }
    if (first)
        news_give(group, &first->notice, NEWS_OF_NONE);
}

void disti_news_subscribe(struct dist_group *group)
{
    struct disti_world *world = group->world;
    struct dist_group **entry = &world->groups;

    pthread_mutex_lock(&world->lock);
    while (*entry && (*entry)->number < group->number)
        entry = &(*entry)->next;
    group->next = *entry;
    *entry = group;
    news_give_first(group);
    pthread_mutex_unlock(&world->lock);
}

void disti_news_unsubscribe(struct dist_group *group)
{
    struct disti_world *world = group->world;
    struct dist_group **entry = &world->groups;

    pthread_mutex_lock(&world->lock);
    while (*entry && *entry != group)
        entry = &(*entry)->next;
    if (*entry)
        *entry = group->next;
    pthread_mutex_unlock(&world->lock);
}

bool disti_news_is_gone(struct disti_world *world, int world_rank)
{
    bool gone;

    if (world_rank == world->rank)
        return false;
    pthread_mutex_lock(&world->lock);
    news_distribute(world);
    gone = news_knows(world, world_rank);
    pthread_mutex_unlock(&world->lock);
    return gone;
}

/* The store knows ranks of the world: "rank 5 (host" is "rank 1 (world rank 5, host" in a group. */
static void news_hand_out(const struct dist_group *group, const struct disti_notice *news,
                          struct disti_notice *notice_p)
{
    char begins[32];
    const size_t length = (size_t)snprintf(begins, sizeof(begins), "rank %d (", news->rank);

    *notice_p = *news;
    if (group->number == 0 || news->rank < 0 || !news_is_member(group, news->rank) ||
        strncmp(news->text, begins, length) != 0)
        return;
    disti_text(notice_p->text, sizeof(notice_p->text), "rank %d (world rank %d, %s",
               dist_get_group_rank(group, news->rank), news->rank, news->text + length);
}

bool disti_news_leaver(struct dist_group *group, struct disti_notice *notice_p)
{
    if (!atomic_load_explicit(&group->is_left, memory_order_relaxed))
        return false;
    pthread_mutex_lock(&group->world->lock);
    news_hand_out(group, group->leaver, notice_p);
    pthread_mutex_unlock(&group->world->lock);
    return true;
}

bool disti_news_read(struct dist_group *group, struct disti_notice *notice_p)
{
    struct disti_world *world = group->world;
    bool has_news;

    pthread_mutex_lock(&world->lock);
    if (!group->has_news)
        news_distribute(world);
    has_news = group->has_news;
    if (has_news)
        news_hand_out(group, group->news, notice_p);
    pthread_mutex_unlock(&world->lock);
    return has_news;
}
