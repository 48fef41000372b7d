/* SPDX-License-Identifier: BSD-3-Clause */
/* The sentences in which failures are told: what was called, what has happened, who is left. */
#include "base/clock.h"
#include "base/collective.h"
#include "core/group/group.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FAILURE_RANKS 256
/* Of so many ranks at most a message says host and process. */
#define FAILURE_KNOWN 2

/* ---- the call ---- */

/* ", to rank 2, tag 7", ", root 0", or nothing. */
static void failure_peer(const struct dist_call *call, char *text, size_t size)
{
    text[0] = '\0';
    if (call->collective == DIST_COLL_RECV && call->root == DIST_ANY_SOURCE)
        snprintf(text, size, ", from any rank, tag %d", call->tag);
    else if (disti_collective_pair(call->collective))
        snprintf(text, size, ", %s rank %d, tag %d",
                 call->collective == DIST_COLL_SEND ? "to" : "from", call->root, call->tag);
    else if (disti_collective_rooted(call->collective))
        snprintf(text, size, ", root %d", call->root);
}

const char *disti_failure_call(const struct disti_work *work, char text[GROUP_CALL])
{
    const struct dist_call *call = work ? &work->call : NULL;
    const bool reduces = work && disti_algorithm_reduces(call->collective);
    char peer[48];

    if (!work)
        return "its operations";
    failure_peer(call, peer, sizeof(peer));
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

    return !disti_news_is_gone(group->world, group->members[rank]) &&
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

bool disti_failure_waits_for(const struct dist_group *group, int rank)
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
    return disti_failure_waits_for(group, rank) && !disti_news_is_seen(group, rank);
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

static bool failure_is_own(const struct dist_group *group, const struct disti_work *work)
{
    return work && disti_collective_pair(work->call.collective) && work->call.root == group->rank;
}

/* "rank 5 (host b, pid 812)", or "ranks 1-7". */
static void failure_missing(struct dist_group *group, char *text, size_t size)
{
    static const char other[] = "another rank";
    const char *waits_for = failure_ask(group);
    const int named = (int)strcspn(waits_for, ";");
    char list[FAILURE_RANKS];
    const int count = failure_list(group, disti_failure_waits_for, list, sizeof(list));
    size_t used = 0;

    text[0] = '\0';
    for (int r = 0; r < group->world_size && count && count <= FAILURE_KNOWN; r++) {
        if (!disti_failure_waits_for(group, r))
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
    else if (away == failure_list(group, disti_failure_waits_for, all, sizeof(all)))
        disti_text(text, size, "unreachable: its machine acknowledges nothing");
    else
        disti_text(text, size,
                   "silent; of these %s %s unreachable: its machine acknowledges nothing", list,
                   away == 1 ? "is" : "are");
}

/* ---- sentences ---- */

const char *disti_failure_lost(struct dist_group *group, const struct disti_work *work,
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

const char *disti_failure_timeout(struct dist_group *group, const struct disti_work *work,
                                  char *text)
{
    char name[GROUP_NAME], call[GROUP_CALL], missing[FAILURE_RANKS + 128];
    char manner[FAILURE_RANKS + 160];
    const char *hint;

    failure_missing(group, missing, sizeof(missing));
    if (failure_is_own(group, work))
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

const char *disti_failure_stall(struct dist_group *group, const struct disti_work *work, char *text)
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
