/* SPDX-License-Identifier: BSD-3-Clause */
/* Failures: news of lost ranks, aborting a group, the words of its error. */
#include "base/clock.h"
#include "base/collective.h"
#include "base/descriptor.h"
#include "base/process.h"
#include "core/group.h"
#include "endpoint/endpoint.h"
#include "store/store.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/*
 * Notices of lost ranks and failed groups: each group gets those that concern it. They come from
 * the store. Once that is lost, ranks find out for themselves:
 *
 *     rank 0 (store) dies       every rank loses its connection to the store
 *     a rank of this machine    the kernel tells of its end (disti_store_watch_process)
 *     a rank of another one     its connection breaks; or a rank that knows tells (endpoint)
 */

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
    atomic_store(&group->has_leaver, true);
}

/* must_forward: this rank found it out without the store, and is to tell other ranks. */
static void news_remember(struct disti_world *world, const struct disti_notice *notice, bool must_forward)
{
    struct world_exit *gone = malloc(sizeof(*gone));

    if (!gone)
        return;
    gone->notice = *notice;
    gone->must_forward = must_forward;
    gone->next = world->exits;
    world->exits = gone;
}

static bool news_knows(const struct disti_world *world, int world_rank)
{
    const struct world_exit *gone = world->exits;

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
                atomic_store(&told->reported_first, true);
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
                          world->store_lost && notice.rank >= 0 &&
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

    world->store_lost = true;
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
    struct world_exit *gone;
    int rank = -1;

    pthread_mutex_lock(&world->lock);
    gone = world->exits;
    while (gone && !gone->must_forward)
        gone = gone->next;
    if (gone) {
        gone->must_forward = false;
        rank = gone->notice.rank;
        for (int r = 0; r < world->size; r++)
            to[r] = r != world->rank && r != rank && !news_knows(world, r) &&
                    !disti_world_sees_process(world, r, rank);
    }
    pthread_mutex_unlock(&world->lock);
    return rank;
}

/*
 * If the store is lost, looks for deaths without it: the processes of this machine, the connections
 * of the endpoints, and what other ranks tell. Tells them in turn. Returns false if there is a
 * store. Call with a group's lock held; blocks for at most half a second, once for each dead rank.
 */
static bool news_listen(struct disti_world *world)
{
    struct disti_store *store = world->bootstrap.store;
    bool *to;
    int lost;

    if (!store || !disti_store_is_lost(store))
        return false;
    pthread_mutex_lock(&world->lock);
    if (!world->store_lost)
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

/* If the store is lost, tells the group's other ranks that it failed here. False: there is a store,
 * which is to tell them. With the group's lock held. */
static bool news_tell_failure(struct dist_group *group, dist_status status, const char *text)
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

/* True if this rank would learn of the end of that rank's process. */
static bool news_is_seen(const struct dist_group *group, int rank)
{
    struct disti_world *world = group->world;
    bool seen;

    pthread_mutex_lock(&world->lock);
    seen = !world->store_lost || world->watched[group->members[rank]];
    pthread_mutex_unlock(&world->lock);
    return seen;
}

/* ---- what a group reads ---- */

/* The oldest that concerns it: who has gone since may have left because of that one. */
static void news_give_first(struct dist_group *group)
{
    const struct world_exit *gone = group->world->exits, *first = NULL;

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

bool disti_news_has_exited(struct disti_world *world, int world_rank)
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

/* Has one of its ranks begun to leave the group? Without a lock while none has. */
static bool news_leaver(struct dist_group *group, struct disti_notice *notice_p)
{
    if (!atomic_load_explicit(&group->has_leaver, memory_order_relaxed))
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

/* The sentences in which failures are told: what was called, what has happened, who is left. */

#define FAILURE_RANKS 256
/* Of so many ranks at most a message says host and process. */
#define FAILURE_KNOWN 2

/* ---- the call ---- */

const char *disti_failure_call(const struct disti_work *work, char text[GROUP_CALL])
{
    const struct dist_call *call = work ? &work->call : NULL;
    const bool reduces = work && disti_algorithm_reduces(call->collective);
    char peer[48];

    if (!work)
        return "its operations";
    peer[0] = '\0';
    if (call->collective == DIST_COLL_RECV && call->root == DIST_ANY_SOURCE)
        snprintf(peer, sizeof(peer), ", from any rank, tag %d", call->tag);
    else if (disti_collective_pair(call->collective))
        snprintf(peer, sizeof(peer), ", %s rank %d, tag %d",
                 call->collective == DIST_COLL_SEND ? "to" : "from", call->root, call->tag);
    else if (disti_collective_rooted(call->collective))
        snprintf(peer, sizeof(peer), ", root %d", call->root);
    if (call->collective == DIST_COLL_BARRIER)
        snprintf(text, GROUP_CALL, "barrier #%llu", (unsigned long long)call->sequence);
    else
        snprintf(text, GROUP_CALL, "%s #%llu (%s x %zu%s%s%s)", disti_work_name(work),
                 (unsigned long long)call->sequence, dist_dtype_string(call->dtype), call->count,
                 reduces ? ", " : "", reduces ? dist_op_string(call->op) : "", peer);
    return text;
}

/* How long it has waited so far. Its deadline may have been put off meanwhile. */
static double failure_waited(const struct dist_group *group, const struct disti_work *work)
{
    const int64_t begun = work->deadline_ns - group->timeout_ms * INT64_C(1000000);

    return (double)(disti_now_ns() - begun) * 1e-9;
}

/* ---- ranks ---- */

/* "rank 5 (host b, pid 812)" */
static size_t failure_rank(const struct dist_group *group, int rank, char *text, size_t size)
{
    const struct world_peer *peers = group->world->peers;
    const int world_rank = peers ? group->members[rank] : rank;

    if (!peers)
        return disti_text(text, size, "rank %d", rank);
    if (group->number)
        return disti_text(text, size, "rank %d (world rank %d, host %s, pid %d%s)", rank,
                          world_rank, peers[world_rank].locality.host,
                          (int)peers[world_rank].locality.pid,
                          disti_world_elsewhere(group->world, world_rank));
    return disti_text(text, size, "rank %d (host %s, pid %d%s)", rank,
                      peers[world_rank].locality.host, (int)peers[world_rank].locality.pid,
                      disti_world_elsewhere(group->world, world_rank));
}

typedef bool (*failure_test)(const struct dist_group *group, int rank);

/* "0-4, 6, 7": the ranks for which it holds; "..." at its end: and more. Returns how many these
 * are.
 */
static int failure_list(const struct dist_group *group, failure_test holds, char *text, size_t size)
{
    bool cut = false;
    size_t used = 0;
    int count = 0;

    text[0] = '\0';
    for (int r = 0; r < group->world_size; r++) {
        int last = r;

        if (!holds(group, r))
            continue;
        while (last + 1 < group->world_size && holds(group, last + 1))
            last++;
        if (last == r + 1)
            last = r; /* of two each is named */
        if (!cut && used + 40 < size) {
            used += disti_text(text + used, size - used, "%s%d", used ? ", " : "", r);
            if (last > r)
                used += disti_text(text + used, size - used, "-%d", last);
        } else if (!cut) {
            disti_text(text + used, size - used, ", ...");
            cut = true;
        }
        count += last - r + 1;
        r = last;
    }
    return count;
}

/* On the machine of the lost rank, if that is another one, nobody is known to be. */
static bool failure_is_alive(const struct dist_group *group, int rank)
{
    const struct disti_world *world = group->world;
    const int node = world->places[group->members[rank]].node;

    return !disti_news_has_exited(group->world, group->members[rank]) &&
           (node != world->places[group->lost_rank].node ||
            node == world->places[world->rank].node);
}

/* Behind a rank's name in "rank 1, rank 12 (unreachable)", as backends describe whom they wait for;
 * NULL: they do not wait for it. */
static const char *failure_find(const struct dist_group *group, int rank)
{
    const char *at = atomic_load(&group->flight.waits_for);
    char name[24];
    const size_t length = (size_t)snprintf(name, sizeof(name), "rank %d", rank);

    const char *hint = at ? strchr(at, ';') : NULL;

    while (at && (at = strstr(at, name)) && at[length] >= '0' && at[length] <= '9')
        at += length;
    return at && (!hint || at < hint) ? at + length : NULL;
}

/* Did the last of these two name that rank? */
static bool failure_waits_for(const struct dist_group *group, int rank)
{
    return failure_find(group, rank);
}

static bool failure_is_unreachable(const struct dist_group *group, int rank)
{
    static const char word[] = " (unreachable)";
    const char *behind = failure_find(group, rank);

    return behind && strncmp(behind, word, sizeof(word) - 1) == 0;
}

/* Without a store the death of a process that this rank cannot see may stay unknown. */
static bool failure_is_unknown(const struct dist_group *group, int rank)
{
    return failure_waits_for(group, rank) && !news_is_seen(group, rank);
}

/* Whom it waits for, as the backend says: kept for the flight recorder too. */
static const char *failure_ask(struct dist_group *group)
{
    char *text = atomic_load(&group->flight.waits_for);

    if (!text && group->backend->describe) {
        text = calloc(1, DISTI_FLIGHT_WAITS);
        atomic_store(&group->flight.waits_for, text);
    }
    if (!text)
        return "";
    group->backend->describe(group->state, text, DISTI_FLIGHT_WAITS);
    return text;
}

/* Returns the likely reason that the last failure_ask found, or "". */
static const char *failure_hint(const struct dist_group *group)
{
    const char *waits_for = atomic_load(&group->flight.waits_for);
    const char *hint = waits_for ? strchr(waits_for, ';') : NULL;

    return hint && hint[1] == ' ' ? hint + 2 : "";
}

/* "rank 5 (host b, pid 812)", or "ranks 1-7". */
static void failure_missing(struct dist_group *group, char *text, size_t size)
{
    static const char other[] = "another rank";
    const char *waits_for = failure_ask(group);
    const int named = (int)strcspn(waits_for, ";");
    char list[FAILURE_RANKS];
    const int count = failure_list(group, failure_waits_for, list, sizeof(list));
    size_t used = 0;

    text[0] = '\0';
    for (int r = 0; r < group->world_size && count && count <= FAILURE_KNOWN; r++) {
        if (!failure_waits_for(group, r))
            continue;
        used += disti_text(text + used, size - used, "%s", used ? " and " : "");
        used += failure_rank(group, r, text + used, size - used);
    }
    if (count > FAILURE_KNOWN)
        disti_text(text, size, "ranks %s", list);
    else if (!count)
        disti_text(text, size, "%.*s", named ? named : (int)strlen(other),
                   named ? waits_for : other);
}

/* What is known of those that are waited for. At the deadline nobody can tell who computes from who
 * has just gone. */
static void failure_manner(const struct dist_group *group, char *text, size_t size)
{
    char list[FAILURE_RANKS], all[FAILURE_RANKS];
    const int away = failure_list(group, failure_is_unreachable, list, sizeof(list));

    if (!away && failure_list(group, failure_is_unknown, all, sizeof(all)))
        disti_text(
            text, size,
            "silent, and perhaps dead: the process that held the job's store is gone, so the "
            "ends of ranks on other machines are not reported");
    else if (!away)
        disti_text(text, size, "alive but silent");
    else if (away == failure_list(group, failure_waits_for, all, sizeof(all)))
        disti_text(text, size, "unreachable: its machine acknowledges nothing");
    else
        disti_text(text, size,
                   "silent; of these %s %s unreachable: its machine acknowledges nothing", list,
                   away == 1 ? "is" : "are");
}

/* What ended a call, or all of the group (NULL). Each returns text, of GROUP_TEXT bytes. */
/* ---- sentences ---- */

static const char *failure_lost(struct dist_group *group, const struct disti_work *work,
                                const char *what, char *text)
{
    char name[GROUP_NAME], call[GROUP_CALL], alive[FAILURE_RANKS], missing[FAILURE_RANKS + 128];
    size_t used = disti_text(text, GROUP_TEXT, "%s: %s", disti_failure_call(work, call), what);

    if (work)
        used += disti_text(text + used, GROUP_TEXT - used, "; %s waited %.1f s",
                           disti_group_name(group, name), failure_waited(group, work));
    /* The rank that failed may have met its deadline, and wait for one that waits itself. */
    if (work && group->lost_rank >= 0 && !group->lost_process && !group->aborted &&
        failure_ask(group)[0]) {
        failure_missing(group, missing, sizeof(missing));
        used += disti_text(text + used, GROUP_TEXT - used, " for %s", missing);
    }
    if (work && !group->lost_process) {
        failure_ask(group);
        used += disti_text(text + used, GROUP_TEXT - used, "%s%s",
                           failure_hint(group)[0] ? "; " : "", failure_hint(group));
    }
    if (group->lost_rank >= 0 && group->lost_process) {
        const int count = failure_list(group, failure_is_alive, alive, sizeof(alive));

        disti_text(text + used, GROUP_TEXT - used,
                   count == 1 ? "; rank %s is alive" : "; ranks %s are alive", alive);
    }
    return text;
}

static const char *failure_timeout(struct dist_group *group, const struct disti_work *work,
                                   char *text)
{
    char name[GROUP_NAME], call[GROUP_CALL], missing[FAILURE_RANKS + 128];
    char manner[FAILURE_RANKS + 160];
    const char *hint;

    failure_missing(group, missing, sizeof(missing));
    if (work && disti_collective_pair(work->call.collective) && work->call.root == group->rank)
        disti_text(manner, sizeof(manner), "which is this rank");
    else
        failure_manner(group, manner, sizeof(manner));
    hint = failure_hint(group);
    disti_text(text, GROUP_TEXT,
               "%s: %s waited %.1f s for %s, %s%s%s%s check where the other ranks are, or raise "
               "the timeout given to init_process_group or new_group, else DIST_TIMEOUT (seconds)",
               disti_failure_call(work, call), disti_group_name(group, name),
               failure_waited(group, work), missing, manner, hint[0] ? "; " : "", hint,
               hint[0] ? ". Otherwise" : ":");
    return text;
}

/* It has waited for half of its time, and for whom. */
static const char *failure_stall(struct dist_group *group, const struct disti_work *work,
                                 char *text)
{
    char name[GROUP_NAME], call[GROUP_CALL], missing[FAILURE_RANKS + 128];
    const char *hint;

    failure_missing(group, missing, sizeof(missing));
    hint = failure_hint(group);
    disti_text(text, GROUP_TEXT,
               "%s: %s has waited %.1f s for %s, and gives up in %.1f s%s%s; a process that gets "
               "SIGUSR1 writes its last calls to a file (DIST_FLIGHT_FILE)",
               disti_failure_call(work, call), disti_group_name(group, name),
               failure_waited(group, work), missing,
               (double)(work->deadline_ns - disti_now_ns()) * 1e-9, hint[0] ? "; " : ": ",
               hint[0] ? hint : "see what that does");
    return text;
}

/* What ends a group: a lost rank, a deadline, a broken backend. */

/*
 * A rank that ended normally may have left its last messages on their way, and one
 * that died may have: what can still end, ends within the grace.
 */
#define FAULT_GRACE_NS (200LL * 1000 * 1000)

/*
 * When a connection breaks the peer at its other end may be a victim itself, which left because of
 * a third rank. The store hears of the first failure first and tells all: wait so long for its
 * news.
 */
#define FAULT_NEWS_MS 500
#define FAULT_LOOK_MS 20

/*
 * Several ranks may find different failures at once. All of them return the status of the one that
 * the store had first, so a rank that reports a failure waits this long to hear which that is.
 */
#define FAULT_FIRST_MS 1000

/* Whom a rank waits for at its deadline may itself wait for another, and has the same deadline. */
#define FAULT_CHAIN_MS 100

/* It is this group that failed: this process's others go on. */
static void fault_tell(struct dist_group *group, dist_status status, const char *text)
{
    const struct disti_party party = disti_group_party(group);
    struct disti_store *store = group->world->bootstrap.store;

    if (status == DIST_ERR_ABORTED &&
        !group->aborted) /* no dist_abort: the group may be a parent */
        status = DIST_ERR_PEER_LOST;
    if (group->world_size > 1 && store &&
        !news_tell_failure(group, status, group->aborted ? NULL : text))
        disti_store_report(store, &party, status, text);
}

/* Ends the group here. `victim`: because of another rank. */
static void fault_end(struct dist_group *group, dist_status status, const char *text, bool victim)
{
    const char *reason;
    size_t used;
    char file[DISTI_FLIGHT_PATH];

    group->failed = status;
    atomic_store(&group->over, true);
    disti_text(group->cause, GROUP_TEXT, "%s", text);
    if (victim)
        disti_last_call_note_loss();
    disti_drive_wake(group); /* the driver may sleep with the backend armed */
    group->drive.completion_due = true;
    if (group->state)
        group->backend->abort(group->state);
    for (struct disti_work *work = group->works; work; work = work->next) {
        /* A connection that broke because another rank failed is not the cause. */
        if (work->ticket.status == DIST_IN_PROGRESS || work->ticket.status < 0)
            work->ticket.status = status;
    }
    reason = status == DIST_ERR_TIMEOUT ? "timeout" : group->aborted ? "abort" : "failure";
    used = strlen(group->cause);
    /* If a process has gone, the message says everything; else it matters who called what. */
    if (!disti_group_has_lost(group, status) && disti_flight_failed(group, reason, file))
        disti_text(group->cause + used, GROUP_TEXT - used,
                   "; the last calls are in %s (dist_info flight)", file);
}

dist_status disti_group_unstarted(struct dist_group *group, dist_status status)
{
    if (status != DIST_ERR_NO_MEMORY && status != DIST_ERR_SYSTEM)
        return status;
    disti_group_enter(group);
    if (disti_drive_state(&group->drive) != DISTI_DRIVE_CLOSED && !group->failed) {
        disti_group_break(group, status, dist_last_error());
        status = group->failed;
    }
    disti_drive_kick(group);
    disti_group_exit(group);
    return status;
}

dist_status disti_group_refuse(const struct dist_group *group, const char *what)
{
    char name[GROUP_NAME];

    return disti_fail(DIST_ERR_ABORTED,
                      "%s cannot start %s: the group ended with an earlier error: %s",
                      disti_group_name(group, name), what, group->cause);
}

/* Another rank's failure, which the news told, ends the group with its status. */
static void fault_lost(struct dist_group *group, const struct disti_work *work)
{
    char text[GROUP_TEXT];
    dist_status status =
        disti_fail(group->lost_status, "%s", failure_lost(group, work, group->lost_text, text));

    /* Without a store no other rank may have heard of it. A death is told as such. */
    if (!group->lost_process)
        news_tell_failure(group, status, group->lost_text);
    fault_end(group, status, text, true);
}

/*
 * True if a send is pending in a group that failed on another rank. That rank drops the group's
 * messages, so the send could end well although no rank receives it: the group gets no grace.
 * Without a store the grace is for the other ranks.
 */
static bool fault_sends_in_vain(const struct dist_group *group)
{
    const struct disti_work *work = group->works;

    if (group->lost_process || disti_store_is_lost(group->world->bootstrap.store))
        return false;
    while (work && work->call.collective != DIST_COLL_SEND)
        work = work->next;
    return work != NULL;
}

/* Looks for a notice. Without a store its cause may arrive later, and replaces it. */
static bool fault_read_news(struct dist_group *group)
{
    const bool known = group->lost_rank >= 0;
    struct disti_notice notice;

    if ((known && !group->lost_process) || !disti_news_read(group, &notice))
        return known;
    if (known && notice.group == DISTI_NO_GROUP && notice.rank == group->lost_rank)
        return true;
    group->lost_rank = notice.rank < 0 ? 0 : notice.rank;
    group->lost_process = notice.group == DISTI_NO_GROUP;
    group->lost_status = notice.status ? notice.status : DIST_ERR_PEER_LOST;
    group->aborted = notice.status == DIST_ERR_ABORTED;
    if (!known)
        group->lost_until_ns = disti_now_ns() + (group->aborted ? 0 : FAULT_GRACE_NS);
    disti_text(group->lost_text, GROUP_TEXT, "%s", notice.text);
    return true;
}

/* The same, also if the store is lost. */
static bool fault_look_for_news(struct dist_group *group)
{
    news_listen(group->world);
    return fault_read_news(group);
}

/* Sleeps until there may be news; another group's thread may read them for us. */
static void fault_wait_for_news(struct dist_group *group)
{
    struct pollfd news = {.fd = disti_group_news_fd(group), .events = POLLIN};

    poll(&news, 1, FAULT_LOOK_MS);
}

/*
 * True if this rank's failure, which it has told, was the group's first, or the first had the same
 * status. Otherwise lost_status and lost_text are those of the first.
 */
static bool fault_is_first(struct dist_group *group, dist_status status)
{
    const int64_t until = disti_deadline_ms(FAULT_FIRST_MS);
    const bool asks = group->world_size > 1 && group->world->bootstrap.store;

    while (asks && !fault_look_for_news(group) && !atomic_load(&group->reported_first) &&
           !disti_store_is_lost(group->world->bootstrap.store) && !disti_expired(until))
        fault_wait_for_news(group);
    if (group->lost_process && disti_store_is_lost(group->world->bootstrap.store))
        return true; /* a rank that ended after this failure looks the same */
    return atomic_load(&group->reported_first) || group->lost_rank < 0 || group->lost_status == status;
}

/* Appends this rank's own finding to that of the rank that failed first. */
static void fault_append_own(struct dist_group *group, const char *own)
{
    const size_t used = strlen(group->lost_text);

    disti_text(group->lost_text + used, GROUP_TEXT - used, "; %s", own);
}

void disti_group_break(struct dist_group *group, dist_status status, const char *text)
{
    char own[GROUP_TEXT]; /* text may be dist_last_error, which telling may change */

    if (group->failed)
        return;
    disti_text(own, sizeof(own), "%s", text);
    fault_tell(group, status, own);
    if (group->aborted || fault_is_first(group, status)) {
        disti_fail_unlogged(own);
        fault_end(group, status, own, status == DIST_ERR_PEER_LOST);
        return;
    }
    fault_append_own(group, own);
    fault_lost(group, NULL);
}

/* Appends what another rank says, which may wait for the one to blame. */
static void fault_follow(struct dist_group *group, char *text)
{
    const int64_t until = disti_deadline_ms(FAULT_CHAIN_MS);
    const size_t used = strlen(text);
    struct disti_notice notice;

    if (group->world_size < 3 || !group->world->bootstrap.store)
        return;
    while (!disti_news_read(group, &notice)) {
        if (disti_expired(until))
            return;
        fault_wait_for_news(group);
    }
    if (!notice.graceful) /* a rank that left because of this failure explains nothing */
        disti_text(text + used, GROUP_TEXT - used, "; %s", notice.text);
}

static void fault_timeout(struct dist_group *group, const struct disti_work *work)
{
    char text[GROUP_TEXT];

    failure_timeout(group, work, text);
    fault_tell(group, DIST_ERR_TIMEOUT, text);
    if (!fault_is_first(group, DIST_ERR_TIMEOUT)) {
        fault_append_own(group, text);
        fault_lost(group, work);
        return;
    }
    fault_follow(group, text);
    fault_end(group, disti_fail(DIST_ERR_TIMEOUT, "%s", text), text, false);
}

void disti_group_fail(struct dist_group *group, const struct disti_work *work, dist_status status)
{
    int64_t until = disti_deadline_ms(FAULT_NEWS_MS);
    char own[GROUP_TEXT], text[GROUP_TEXT];

    if (group->failed)
        return;
    if (atomic_load(&group->abort_asked)) { /* which may be why others are gone */
        disti_group_abort(group);
        return;
    }
    disti_text(own, sizeof(own), "%s", dist_last_error());
    while (status == DIST_ERR_PEER_LOST && group->world->bootstrap.store &&
           !fault_look_for_news(group) && !disti_expired(until))
        fault_wait_for_news(group);
    /*
     * Without a store the other ranks look for the cause themselves. They must not see this rank
     * exit before, and may need its help to connect.
     */
    if (status == DIST_ERR_PEER_LOST && news_listen(group->world)) {
        while (group->lost_rank >= 0 && !disti_expired(group->lost_until_ns)) {
            fault_wait_for_news(group);
            fault_look_for_news(group);
        }
    }
    if (status == DIST_ERR_PEER_LOST && group->lost_rank >= 0) {
        if (!group->lost_process && /* that rank may have waited for this one */
            (group->lost_status == DIST_ERR_TIMEOUT || group->lost_status == DIST_ERR_PEER_LOST))
            fault_append_own(group, own);
        fault_lost(group, work);
    } else if (status == DIST_ERR_PEER_LOST)
        disti_group_break(group, status, failure_lost(group, work, own, text));
    else
        disti_group_break(group, status, own);
}

/*
 * Does it wait for a call that the rank has not made, and never will? Of messages: one to it is
 * never received; one from it may be on its way for long, but not inside a machine.
 */
static bool fault_is_forsaken(const struct dist_group *group, const struct disti_work *work,
                              const struct disti_notice *leaver)
{
    const int rank = dist_get_group_rank(group, leaver->rank);
    const int64_t begun_ns = work->deadline_ns - group->timeout_ms * INT64_C(1000000);

    /* What has come already is to be found first. */
    if (work->ticket.status != DIST_IN_PROGRESS || !disti_expired(begun_ns + FAULT_GRACE_NS))
        return false;
    if (!disti_collective_pair(work->call.collective))
        return work->call.sequence >= leaver->calls;
    return work->call.root == rank && (work->call.collective == DIST_COLL_SEND ||
                                       group->places[rank].node == group->places[group->rank].node);
}

/* A rank that this one waits for leaves the group: the others hear of it too, and so does that one.
 */
static void fault_left(struct dist_group *group)
{
    const struct disti_work *work = group->works;
    struct disti_notice leaver;
    char text[GROUP_TEXT];

    if (!news_leaver(group, &leaver))
        return;
    if (!group->lost_until_ns) /* the backend is looked at once more, at least */
        group->lost_until_ns = disti_now_ns() + FAULT_GRACE_NS;
    if (!disti_expired(group->lost_until_ns))
        return;
    while (work && !fault_is_forsaken(group, work, &leaver))
        work = work->next;
    if (!work)
        return;
    disti_fail(DIST_ERR_PEER_LOST, "%s", failure_lost(group, work, leaver.text, text));
    disti_group_break(group, DIST_ERR_PEER_LOST, text);
}

void disti_group_check_abort(struct dist_group *group)
{
    if (group->failed)
        return;
    if (atomic_load(&group->abort_asked))
        disti_group_abort(group);
    else if (group->world->bootstrap.store && fault_read_news(group) && group->aborted)
        fault_lost(group, NULL);
}

void disti_group_watch(struct dist_group *group, struct disti_work *work)
{
    if (group->failed)
        return;
    if (atomic_load_explicit(&group->abort_asked, memory_order_relaxed))
        disti_group_abort(group);
    else if (fault_look_for_news(group) &&
             (disti_expired(group->lost_until_ns) || fault_sends_in_vain(group)))
        fault_lost(group, work);
    else if (disti_expired(work->deadline_ns))
        fault_timeout(group, work);
    else if (!work->warned &&
             disti_expired(work->deadline_ns - group->timeout_ms * INT64_C(1000000) / 2)) {
        char text[GROUP_TEXT];

        /* Half of the time has passed: one rank, and the ranks that wait for it, say so. */
        work->warned = true;
        failure_stall(group, work, text);
        if (group->rank == 0 || failure_waits_for(group, 0))
            disti_notice("%s", text);
        else
            disti_warn("%s", text);
    } else
        fault_left(group);
}

/* dist_abort: ends a group at once, from any thread or signal handler. */

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
