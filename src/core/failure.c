/* SPDX-License-Identifier: BSD-3-Clause */
/* Failures: notices of lost ranks, ending a group, and the texts of its errors. */
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
 * Notices of lost ranks and failed groups are delivered to the groups that they concern. They come
 * from the store. If the store is lost, the ranks detect failures themselves:
 *
 *     rank 0 (store) dies             every rank loses its connection to the store
 *     a rank of this machine dies     the kernel reports its exit (disti_store_watch_process)
 *     a rank of another machine dies  its connection breaks, or a rank that has noticed reports it
 *                                     over the endpoint
 */

static bool news_is_member(const struct dist_group *group, int world_rank)
{
    return dist_get_group_rank(group, world_rank) >= 0;
}

/* True if the notice is about a failure of this group, or about an exited rank of it. Rank -1 is
 * the launcher, whose loss ends every group. */
static bool news_concerns(const struct dist_group *group, const struct disti_notice *notice)
{
    if (notice->group != DISTI_NO_GROUP)
        return notice->group == (int32_t)group->number;
    return notice->rank < 0 || news_is_member(group, notice->rank);
}

/* A group keeps its first notice. Without a store, the notice of the cause may arrive later: it
 * replaces a notice of the exit of rank `cause_of`, or of any rank (NEWS_OF_ANY). */
enum { NEWS_OF_NONE = -1, NEWS_OF_ANY = -2 };
static void news_deliver(struct dist_group *group, const struct disti_notice *notice, int cause_of)
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

/* Records that a rank is leaving the group. The group does not fail yet: a call that the rank
 * has made may still complete. */
static void news_note_leaver(struct disti_world *world, const struct disti_notice *notice)
{
    struct dist_group *group = news_find(world, notice->group);

    if (!group)
        return;
    if (!group->leaver)
        group->leaver = malloc(sizeof(*group->leaver));
    if (!group->leaver) /* calls that wait for that rank end at their deadline */
        return;
    *group->leaver = *notice;
    atomic_store(&group->has_leaver, true);
}

/* Records an exited rank. must_forward: this rank detected the exit without the store and must
 * notify other ranks. */
static void news_remember(struct disti_world *world, const struct disti_notice *notice,
                          bool must_forward)
{
    struct world_exit *exited = malloc(sizeof(*exited));

    if (!exited)
        return;
    exited->notice = *notice;
    exited->must_forward = must_forward;
    exited->next = world->exits;
    world->exits = exited;
}

static bool news_has_exited(const struct disti_world *world, int world_rank)
{
    const struct world_exit *exited = world->exits;

    while (exited && exited->notice.rank != world_rank)
        exited = exited->next;
    return exited != NULL;
}

/* Reads all pending notices of the store and delivers them. Call with the world's lock held. */
static void news_distribute(struct disti_world *world)
{
    struct disti_notice notice;

    while (world->bootstrap.store && disti_store_notice(world->bootstrap.store, &notice)) {
        if (notice.rank == world->rank) {
            /* The store returned this rank's own report. It was the first, unless an earlier
             * notice has arrived. */
            struct dist_group *reported = news_find(world, notice.group);

            if (reported && !reported->has_news)
                atomic_store(&reported->reported_first, true);
        }
        if (notice.rank == world->rank ||
            (notice.group == DISTI_NO_GROUP && news_has_exited(world, notice.rank)))
            continue;
        if (notice.leaving) {
            disti_info("%s", notice.text);
            news_note_leaver(world, &notice);
            continue;
        }
        disti_warn("%s", notice.text);
        for (struct dist_group *group = world->groups; group; group = group->next)
            news_deliver(group, &notice, NEWS_OF_NONE);
        /* Every rank detects the exit of the store's holder itself. */
        if (notice.group == DISTI_NO_GROUP)
            news_remember(world, &notice,
                          world->store_lost && notice.rank >= 0 &&
                              notice.rank != disti_store_holder(world->bootstrap.store));
    }
}

/* ---- without the store ---- */

/* Returns true if the process has exited. Otherwise *fd_p is its pidfd, or -1 if none can be
 * opened. */
static bool news_process_ended(int pid, int *fd_p)
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

/* Starts to watch the processes of this machine. Returns how many have exited already and sets
 * their entries in ended[]. */
static int news_watch(struct disti_world *world, bool *ended)
{
    char text[160];
    int fd, count = 0;

    for (int r = 0; r < world->size; r++) {
        const int pid = world->peers[r].locality.pid;

        /* Every rank detects the exit of the store's holder itself. */
        if (r == world->rank || r == disti_store_holder(world->bootstrap.store) ||
            news_has_exited(world, r) || !disti_world_sees_process(world, world->rank, r))
            continue;
        ended[r] = news_process_ended(pid, &fd);
        count += ended[r];
        if (fd < 0)
            continue;
        disti_world_name(world, r, text, sizeof(text));
        world->watched[r] = disti_store_watch_process(world->bootstrap.store, fd, r, pid, text);
    }
    return count;
}

/* Writes a notice about rank `rank` that names all ranks that have exited, since the order of
 * their exits is unknown. */
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
                       end == why ? why : "exited without leaving the job",
                       count > 1 ? "; other ranks have exited too, in unknown order:" : "");
    for (int r = 0; count > 1 && r < world->size; r++) {
        if (ended[r] && r != rank)
            used += disti_text(text + used, DISTI_NEWS_MAX - used, " world rank %d,", r);
    }
    if (count > 1)
        text[used - 1] = '\0';
}

/* The store was lost: starts to watch processes, and delivers notices about those that have
 * exited. Without memory, only broken connections are detected. Call with the world's lock held. */
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
            news_deliver(group, &notice, NEWS_OF_NONE);
        news_remember(world, &notice, true);
    }
    free(ended);
}

/* The sender reports that `rank` was lost; if the sender is this rank, its own connection broke.
 * If the sender has exited since, the loss of `rank` is the cause. */
static void news_receive_lost(struct disti_world *world, int sender, int rank)
{
    const bool own = sender == world->rank;
    struct disti_notice notice = {.rank = rank, .group = DISTI_NO_GROUP};
    size_t used;

    if (rank == world->rank || rank == disti_store_holder(world->bootstrap.store) ||
        news_has_exited(world, rank) || (own && world->watched[rank]))
        return; /* the store's client reports the exit of its holder and of watched processes */
    used = disti_world_name(world, rank, notice.text, sizeof(notice.text));
    if (own)
        disti_text(notice.text + used, sizeof(notice.text) - used,
                   " closed its connection without leaving the job");
    else
        disti_text(notice.text + used, sizeof(notice.text) - used,
                   " has exited, as reported by rank %d", sender);
    disti_warn("%s", notice.text);
    for (struct dist_group *group = world->groups; group; group = group->next)
        news_deliver(group, &notice, own ? NEWS_OF_NONE : sender);
    news_remember(world, &notice, own);
}

static void news_receive_group(struct disti_world *world, int sender, dist_status status,
                               int number, const char *why)
{
    struct disti_notice notice = {.rank = sender, .group = number, .status = status};
    struct dist_group *group = news_find(world, number);
    const size_t used = disti_world_name(world, sender, notice.text, sizeof(notice.text));

    if (!group || !news_is_member(group, sender))
        return;
    if (status == DIST_ERR_ABORTED && why[0]) /* another rank's abort, forwarded by the sender */
        disti_text(notice.text, sizeof(notice.text), "%s", why);
    else if (status == DIST_ERR_ABORTED)
        disti_text(notice.text + used, sizeof(notice.text) - used, " aborted the group");
    else if (why[0])
        disti_text(notice.text + used, sizeof(notice.text) - used, " failed: %s", why);
    else
        disti_text(notice.text + used, sizeof(notice.text) - used,
                   " failed in this group (%s): see the error that it logged or returned",
                   dist_status_string(status));
    disti_warn("%s", notice.text);
    news_deliver(group, &notice, NEWS_OF_ANY);
}

static void news_receive(void *arg, int sender, dist_status status, int of, const char *text)
{
    struct disti_world *world = arg;

    pthread_mutex_lock(&world->lock);
    if (status == DISTI_ENDPOINT_LOST)
        news_receive_lost(world, sender, of);
    else
        news_receive_group(world, sender, status, of, text);
    pthread_mutex_unlock(&world->lock);
}

/* Returns the next rank whose exit this rank must report, and sets to[] for the ranks to notify.
 * Returns -1 if there is none. */
static int news_next_forward(struct disti_world *world, bool *to)
{
    struct world_exit *exited;
    int rank = -1;

    pthread_mutex_lock(&world->lock);
    exited = world->exits;
    while (exited && !exited->must_forward)
        exited = exited->next;
    if (exited) {
        exited->must_forward = false;
        rank = exited->notice.rank;
        for (int r = 0; r < world->size; r++)
            to[r] = r != world->rank && r != rank && !news_has_exited(world, r) &&
                    !disti_world_sees_process(world, r, rank);
    }
    pthread_mutex_unlock(&world->lock);
    return rank;
}

/*
 * If the store is lost, detects exits without it (processes of this machine, connections of the
 * endpoints, reports from other ranks) and forwards them. Returns false if the store is available.
 * Call with a group's lock held; blocks for at most half a second for each exited rank.
 */
static bool news_poll_endpoints(struct disti_world *world)
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
    /* The store's client has just collected exited processes. First handle messages that they
     * sent before, since these name the cause. */
    disti_endpoints_hear(world->bootstrap.job, world->rank, news_receive, world);
    pthread_mutex_lock(&world->lock);
    news_distribute(world);
    pthread_mutex_unlock(&world->lock);
    to = calloc((size_t)world->size, sizeof(*to));
    while (to && (lost = news_next_forward(world, to)) >= 0)
        disti_endpoints_tell(world->bootstrap.job, world->rank, DISTI_ENDPOINT_LOST, lost, NULL,
                             to);
    free(to);
    return true;
}

/* If the store is lost, notifies the group's other ranks that it failed on this rank. Returns
 * false if the store is available and must do so. Call with the group's lock held. */
static bool news_send_failure(struct dist_group *group, dist_status status, const char *text)
{
    struct disti_world *world = group->world;
    bool *to;

    if (!world->bootstrap.store || !disti_store_is_lost(world->bootstrap.store))
        return false;
    to = calloc((size_t)world->size, sizeof(*to));
    pthread_mutex_lock(&world->lock);
    for (int r = 0; to && r < group->world_size; r++)
        to[group->members[r]] = r != group->rank && !news_has_exited(world, group->members[r]);
    pthread_mutex_unlock(&world->lock);
    if (to)
        disti_endpoints_tell(world->bootstrap.job, world->rank, status, (int)group->number, text,
                             to);
    free(to);
    return true;
}

/* True if this rank would be notified of the exit of that rank's process. */
static bool news_is_monitored(const struct dist_group *group, int rank)
{
    struct disti_world *world = group->world;
    bool seen;

    pthread_mutex_lock(&world->lock);
    seen = !world->store_lost || world->watched[group->members[rank]];
    pthread_mutex_unlock(&world->lock);
    return seen;
}

/* ---- reading notices ---- */

/* Delivers the oldest notice that concerns the group: later exits may be consequences of the
 * first one. */
static void news_deliver_first(struct dist_group *group)
{
    const struct world_exit *exited = group->world->exits, *first = NULL;

    for (; exited; exited = exited->next) { /* newest first */
        if (news_concerns(group, &exited->notice))
            first = exited;
    }
    if (first)
        news_deliver(group, &first->notice, NEWS_OF_NONE);
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
    news_deliver_first(group);
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
    bool exited;

    if (world_rank == world->rank)
        return false;
    pthread_mutex_lock(&world->lock);
    news_distribute(world);
    exited = news_has_exited(world, world_rank);
    pthread_mutex_unlock(&world->lock);
    return exited;
}

/* Copies a notice and converts its text from world ranks to ranks of the group: "rank 5 (host"
 * becomes "rank 1 (world rank 5, host". */
static void news_copy(const struct dist_group *group, const struct disti_notice *news,
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

/* Copies the notice of the rank that is leaving the group. Returns false, without taking a lock,
 * if there is none. */
static bool news_leaver(struct dist_group *group, struct disti_notice *notice_p)
{
    if (!atomic_load_explicit(&group->has_leaver, memory_order_relaxed))
        return false;
    pthread_mutex_lock(&group->world->lock);
    news_copy(group, group->leaver, notice_p);
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
        news_copy(group, group->news, notice_p);
    pthread_mutex_unlock(&world->lock);
    return has_news;
}

/* Texts of failures: the call, the cause, and the surviving ranks */

#define FAILURE_RANKS 256
/* A message includes host and process of at most this many ranks. */
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

/* Returns for how many seconds the call has waited. Its deadline may have been extended
 * meanwhile. */
static double failure_waited(const struct dist_group *group, const struct disti_work *work)
{
    const int64_t begun = work->deadline_ns - group->timeout_ms * INT64_C(1000000);

    return (double)(disti_now_ns() - begun) * 1e-9;
}

/* ---- ranks ---- */

/* Writes "rank 5 (host b, pid 812)". */
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

/* Writes the ranks for which `holds` is true as "0-4, 6, 7", truncated with "...". Returns their
 * number. */
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
            last = r; /* write two consecutive ranks as "6, 7" */
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

/* True if the rank is known to be alive. If the lost rank ran on another machine, the other
 * ranks of that machine may be lost too. */
static bool failure_is_alive(const struct dist_group *group, int rank)
{
    const struct disti_world *world = group->world;
    const int node = world->places[group->members[rank]].node;

    return !disti_news_has_exited(group->world, group->members[rank]) &&
           (node != world->places[group->lost_rank].node ||
            node == world->places[world->rank].node);
}

/* Finds the rank in the backend's list of awaited ranks, such as "rank 1, rank 12 (unreachable);
 * hint". Returns the text after its name, or NULL if the rank is not in the list. */
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

/* True if the last failure_update_waits found that the call waits for the rank. */
static bool failure_waits_for(const struct dist_group *group, int rank)
{
    return failure_find(group, rank);
}

static bool failure_is_unreachable(const struct dist_group *group, int rank)
{
    static const char word[] = " (unreachable)";
    const char *after = failure_find(group, rank);

    return after && strncmp(after, word, sizeof(word) - 1) == 0;
}

/* True if the call waits for the rank, whose exit this rank would not notice without the store. */
static bool failure_is_unknown(const struct dist_group *group, int rank)
{
    return failure_waits_for(group, rank) && !news_is_monitored(group, rank);
}

/* Asks the backend which ranks its oldest call waits for. The text is also kept for the flight
 * recorder. */
static const char *failure_update_waits(struct dist_group *group)
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

/* Returns the likely reason that the last failure_update_waits found, or "". */
static const char *failure_hint(const struct dist_group *group)
{
    const char *waits_for = atomic_load(&group->flight.waits_for);
    const char *hint = waits_for ? strchr(waits_for, ';') : NULL;

    return hint && hint[1] == ' ' ? hint + 2 : "";
}

/* Writes the ranks that the call waits for: "rank 5 (host b, pid 812)" or "ranks 1-7". */
static void failure_missing(struct dist_group *group, char *text, size_t size)
{
    static const char other[] = "another rank";
    const char *waits_for = failure_update_waits(group);
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

/* Writes what is known about the ranks that the call waits for. When the deadline passes, a rank
 * that still computes cannot be distinguished from one whose machine has just crashed. */
static void failure_condition(const struct dist_group *group, char *text, size_t size)
{
    char list[FAILURE_RANKS], all[FAILURE_RANKS];
    const int away = failure_list(group, failure_is_unreachable, list, sizeof(list));

    if (!away && failure_list(group, failure_is_unknown, all, sizeof(all)))
        disti_text(text, size,
                   "silent, possibly dead: the process with the job's store was lost, so exits of "
                   "ranks on other machines are not reported");
    else if (!away)
        disti_text(text, size, "alive but silent");
    else if (away == failure_list(group, failure_waits_for, all, sizeof(all)))
        disti_text(text, size, "unreachable: no acknowledgements from %s",
                   away == 1 ? "its machine" : "their machines");
    else
        disti_text(text, size, "silent; unreachable: %s %s (no acknowledgements from %s)",
                   away == 1 ? "rank" : "ranks", list,
                   away == 1 ? "its machine" : "their machines");
}

/* ---- texts; `work` is the call, or NULL for all of the group; `text` has GROUP_TEXT bytes ---- */

static const char *failure_lost(struct dist_group *group, const struct disti_work *work,
                                const char *what, char *text)
{
    char name[GROUP_NAME], call[GROUP_CALL], alive[FAILURE_RANKS], missing[FAILURE_RANKS + 128];
    size_t used = disti_text(text, GROUP_TEXT, "%s: %s", disti_failure_call(work, call), what);

    if (work)
        used += disti_text(text + used, GROUP_TEXT - used, "; %s waited %.1f s",
                           disti_group_name(group, name), failure_waited(group, work));
    /* The failed rank may have reached its deadline while waiting for a rank that waits itself. */
    if (work && group->lost_rank >= 0 && !group->lost_process && !group->aborted &&
        failure_update_waits(group)[0]) {
        failure_missing(group, missing, sizeof(missing));
        used += disti_text(text + used, GROUP_TEXT - used, " for %s", missing);
    }
    if (work && !group->lost_process) {
        failure_update_waits(group);
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
    char condition[FAILURE_RANKS + 160];
    const char *hint;

    failure_missing(group, missing, sizeof(missing));
    if (work && disti_collective_pair(work->call.collective) && work->call.root == group->rank)
        disti_text(condition, sizeof(condition), "which is this rank");
    else
        failure_condition(group, condition, sizeof(condition));
    hint = failure_hint(group);
    disti_text(text, GROUP_TEXT,
               "%s: %s waited %.1f s for %s, %s%s%s. Check what the other ranks do, or raise the "
               "timeout passed to init_process_group or new_group, or DIST_TIMEOUT (seconds)",
               disti_failure_call(work, call), disti_group_name(group, name),
               failure_waited(group, work), missing, condition, hint[0] ? "; " : "", hint);
    return text;
}

/* Writes the warning after half of the timeout. */
static const char *failure_stall(struct dist_group *group, const struct disti_work *work,
                                 char *text)
{
    char name[GROUP_NAME], call[GROUP_CALL], missing[FAILURE_RANKS + 128];
    const char *hint;

    failure_missing(group, missing, sizeof(missing));
    hint = failure_hint(group);
    disti_text(text, GROUP_TEXT,
               "%s: %s has waited %.1f s for %s, and gives up in %.1f s%s%s. Check what the other "
               "ranks do: SIGUSR1 makes a process write its last calls to a file "
               "(DIST_FLIGHT_FILE)",
               disti_failure_call(work, call), disti_group_name(group, name),
               failure_waited(group, work), missing,
               (double)(work->deadline_ns - disti_now_ns()) * 1e-9, hint[0] ? "; " : "", hint);
    return text;
}

/* Ending a group: a lost rank, a deadline, a failed backend */

/* The last messages of a rank that left or died may still be in transit. Pending requests can
 * complete with them for this long. */
#define FAULT_GRACE_NS (200LL * 1000 * 1000)

/* When a connection breaks, its peer may have exited because of a third rank. The first failure is
 * also the first that reaches the store, which notifies all ranks: wait this long for its notice.
 */
#define FAULT_NEWS_MS 500
#define FAULT_POLL_MS 20

/*
 * Several ranks may find different failures at the same time. All of them return the status of the
 * failure that reached the store first. A rank that reports a failure waits this long to learn
 * which one that is.
 */
#define FAULT_FIRST_MS 1000

/* The awaited rank may itself wait for another rank, with the same deadline: wait this long for
 * its report. */
#define FAULT_CHAIN_MS 100

/* Reports to the other ranks that this group failed. The process's other groups continue. */
static void fault_report(struct dist_group *group, dist_status status, const char *text)
{
    const struct disti_party party = disti_group_party(group);
    struct disti_store *store = group->world->bootstrap.store;

    if (status == DIST_ERR_ABORTED &&
        !group->aborted) /* not from dist_abort, so the group may still be a parent */
        status = DIST_ERR_PEER_LOST;
    if (group->world_size > 1 && store &&
        !news_send_failure(group, status, group->aborted ? NULL : text))
        disti_store_report(store, &party, status, text);
}

/* Ends the group on this rank. `victim`: because of another rank. */
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
    disti_drive_wake(group); /* the progress owner may sleep with the backend armed */
    group->drive.completion_due = true;
    if (group->state)
        group->backend->abort(group->state);
    for (struct disti_work *work = group->works; work; work = work->next) {
        /* Replace errors too: a connection that broke because another rank failed is not the
         * cause. */
        if (work->ticket.status == DIST_IN_PROGRESS || work->ticket.status < 0)
            work->ticket.status = status;
    }
    reason = status == DIST_ERR_TIMEOUT ? "timeout" : group->aborted ? "abort" : "failure";
    used = strlen(group->cause);
    /* If a process was lost, the message is complete. Otherwise the calls of all ranks are
     * needed. */
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

/* Ends the group with the failure of another rank, known from a notice. */
static void fault_lost(struct dist_group *group, const struct disti_work *work)
{
    char text[GROUP_TEXT];
    dist_status status =
        disti_fail(group->lost_status, "%s", failure_lost(group, work, group->lost_text, text));

    /* Without a store, the other ranks may not know of the failure. A lost process is reported
     * separately. */
    if (!group->lost_process)
        news_send_failure(group, status, group->lost_text);
    fault_end(group, status, text, true);
}

/*
 * True if a send is pending in a group that failed on another rank. That rank discards the group's
 * messages, so the send could succeed although no rank receives it: the group gets no grace period.
 * Without a store the result is false, since the other ranks need this rank during the grace period
 * to find the cause.
 */
static bool fault_has_pending_send(const struct dist_group *group)
{
    const struct disti_work *work = group->works;

    if (group->lost_process || disti_store_is_lost(group->world->bootstrap.store))
        return false;
    while (work && work->call.collective != DIST_COLL_SEND)
        work = work->next;
    return work != NULL;
}

/* Returns true if there is a notice. Without a store, a notice of the cause may arrive later and
 * replace the first one. */
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

/* Like fault_read_news, but also detects failures without the store. */
static bool fault_poll_news(struct dist_group *group)
{
    news_poll_endpoints(group->world);
    return fault_read_news(group);
}

/* Sleeps until there may be a notice. Wakes up regularly, since a thread of another group may
 * read it. */
static void fault_wait_for_news(struct dist_group *group)
{
    struct pollfd news = {.fd = disti_group_news_fd(group), .events = POLLIN};

    poll(&news, 1, FAULT_POLL_MS);
}

/*
 * Call after fault_report. Returns true if this rank's failure was the group's first, or if the
 * first one had the same status. Otherwise lost_status and lost_text are those of the first
 * failure.
 */
static bool fault_is_first(struct dist_group *group, dist_status status)
{
    const int64_t until = disti_deadline_ms(FAULT_FIRST_MS);
    const bool asks = group->world_size > 1 && group->world->bootstrap.store;

    while (asks && !fault_poll_news(group) && !atomic_load(&group->reported_first) &&
           !disti_store_is_lost(group->world->bootstrap.store) && !disti_expired(until))
        fault_wait_for_news(group);
    if (group->lost_process && disti_store_is_lost(group->world->bootstrap.store))
        return true; /* indistinguishable from a rank that exited after this failure */
    return atomic_load(&group->reported_first) || group->lost_rank < 0 ||
           group->lost_status == status;
}

/* Appends this rank's own error to the error of the rank that failed first. */
static void fault_append_own(struct dist_group *group, const char *own)
{
    const size_t used = strlen(group->lost_text);

    disti_text(group->lost_text + used, GROUP_TEXT - used, "; %s", own);
}

void disti_group_break(struct dist_group *group, dist_status status, const char *text)
{
    char own[GROUP_TEXT]; /* copy: `text` may be dist_last_error, which fault_report may change */

    if (group->failed)
        return;
    disti_text(own, sizeof(own), "%s", text);
    fault_report(group, status, own);
    if (group->aborted || fault_is_first(group, status)) {
        disti_fail_unlogged(own);
        fault_end(group, status, own, status == DIST_ERR_PEER_LOST);
        return;
    }
    fault_append_own(group, own);
    fault_lost(group, NULL);
}

/* Appends the report of the awaited rank, which may itself wait for the rank that caused the
 * failure. */
static void fault_append_report(struct dist_group *group, char *text)
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
    if (!notice.graceful) /* a rank that left because of this failure is not the cause */
        disti_text(text + used, GROUP_TEXT - used, "; %s", notice.text);
}

static void fault_timeout(struct dist_group *group, const struct disti_work *work)
{
    char text[GROUP_TEXT];

    failure_timeout(group, work, text);
    fault_report(group, DIST_ERR_TIMEOUT, text);
    if (!fault_is_first(group, DIST_ERR_TIMEOUT)) {
        fault_append_own(group, text);
        fault_lost(group, work);
        return;
    }
    fault_append_report(group, text);
    fault_end(group, disti_fail(DIST_ERR_TIMEOUT, "%s", text), text, false);
}

void disti_group_fail(struct dist_group *group, const struct disti_work *work, dist_status status)
{
    int64_t until = disti_deadline_ms(FAULT_NEWS_MS);
    char own[GROUP_TEXT], text[GROUP_TEXT];

    if (group->failed)
        return;
    if (atomic_load(
            &group->abort_requested)) { /* other ranks may have exited because of the abort */
        disti_group_abort(group);
        return;
    }
    disti_text(own, sizeof(own), "%s", dist_last_error());
    while (status == DIST_ERR_PEER_LOST && group->world->bootstrap.store &&
           !fault_poll_news(group) && !disti_expired(until))
        fault_wait_for_news(group);
    /* Without a store, the other ranks search for the cause themselves. They must not see this
     * rank exit first, and may need it to connect. */
    if (status == DIST_ERR_PEER_LOST && news_poll_endpoints(group->world)) {
        while (group->lost_rank >= 0 && !disti_expired(group->lost_until_ns)) {
            fault_wait_for_news(group);
            fault_poll_news(group);
        }
    }
    if (status == DIST_ERR_PEER_LOST && group->lost_rank >= 0) {
        if (!group->lost_process && /* that rank may have waited for this rank */
            (group->lost_status == DIST_ERR_TIMEOUT || group->lost_status == DIST_ERR_PEER_LOST))
            fault_append_own(group, own);
        fault_lost(group, work);
    } else if (status == DIST_ERR_PEER_LOST)
        disti_group_break(group, status, failure_lost(group, work, own, text));
    else
        disti_group_break(group, status, own);
}

/*
 * True if the request waits for a call that the leaving rank has not made and will never make. A
 * message to that rank is never received. A message from it may still be in transit for long
 * between machines, but not within a machine.
 */
static bool fault_never_completes(const struct dist_group *group, const struct disti_work *work,
                                  const struct disti_notice *leaver)
{
    const int rank = dist_get_group_rank(group, leaver->rank);
    const int64_t begun_ns = work->deadline_ns - group->timeout_ms * INT64_C(1000000);

    /* First complete requests whose data have arrived already. */
    if (work->ticket.status != DIST_IN_PROGRESS || !disti_expired(begun_ns + FAULT_GRACE_NS))
        return false;
    if (!disti_collective_pair(work->call.collective))
        return work->call.sequence >= leaver->calls;
    return work->call.root == rank && (work->call.collective == DIST_COLL_SEND ||
                                       group->places[rank].node == group->places[group->rank].node);
}

/* Ends the group if a pending request waits for a rank that is leaving it. The other ranks are
 * notified too. */
static void fault_left(struct dist_group *group)
{
    const struct disti_work *work = group->works;
    struct disti_notice leaver;
    char text[GROUP_TEXT];

    if (!news_leaver(group, &leaver))
        return;
    if (!group->lost_until_ns) /* poll the backend at least one more time */
        group->lost_until_ns = disti_now_ns() + FAULT_GRACE_NS;
    if (!disti_expired(group->lost_until_ns))
        return;
    while (work && !fault_never_completes(group, work, &leaver))
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
    if (atomic_load(&group->abort_requested))
        disti_group_abort(group);
    else if (group->world->bootstrap.store && fault_read_news(group) && group->aborted)
        fault_lost(group, NULL);
}

void disti_group_watch(struct dist_group *group, struct disti_work *work)
{
    if (group->failed)
        return;
    if (atomic_load_explicit(&group->abort_requested, memory_order_relaxed))
        disti_group_abort(group);
    else if (fault_poll_news(group) &&
             (disti_expired(group->lost_until_ns) || fault_has_pending_send(group)))
        fault_lost(group, work);
    else if (disti_expired(work->deadline_ns))
        fault_timeout(group, work);
    else if (!work->warned &&
             disti_expired(work->deadline_ns - group->timeout_ms * INT64_C(1000000) / 2)) {
        char text[GROUP_TEXT];

        /* Half of the timeout has passed: rank 0 and the ranks that wait for it print the
         * warning even without a log. */
        work->warned = true;
        failure_stall(group, work, text);
        if (group->rank == 0 || failure_waits_for(group, 0))
            disti_notice("%s", text);
        else
            disti_warn("%s", text);
    } else
        fault_left(group);
}

/* dist_abort: ends a group immediately, from any thread or signal handler. */

/*
 * A signal handler can do little: dist_abort sets a flag and rings the store's alarm, and the store
 * notifies all ranks including this one. A thread that waits for the group wakes up, sees the flag,
 * and ends the group as after any other failure. If no thread waits, the next call ends it.
 */
dist_status dist_abort(dist_group *group)
{
    if (!group || !atomic_load(&group->abort_possible))
        return DIST_ERR_INVALID_ARGUMENT;
    if (atomic_exchange(&group->abort_requested, true))
        return DIST_OK;
    atomic_store(&group->over, true);
    if (group->alarm)
        disti_store_alarm_ring(group->alarm);
    return DIST_OK;
}

void disti_abort_enable(struct dist_group *group)
{
    const struct disti_party party = disti_group_party(group);

    /* Without memory for the alarm, the other ranks are notified when the group ends on this
     * rank. */
    if (group->world->bootstrap.store)
        group->alarm = disti_store_alarm_new(group->world->bootstrap.store, &party);
    atomic_store(&group->abort_possible, true);
}

void disti_abort_disable(struct dist_group *group)
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
    /* If the alarm was not sent yet, sends it before the failure is reported to the other ranks. */
    if (group->alarm)
        disti_store_alarm_send(group->alarm);
    disti_fail(DIST_ERR_ABORTED, "%s aborted the group (dist_abort)",
               disti_group_name(group, name));
    disti_group_break(group, DIST_ERR_ABORTED, dist_last_error());
}
