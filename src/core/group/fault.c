/* SPDX-License-Identifier: BSD-3-Clause */
/* What ends a group: a lost rank, a deadline, a broken backend. */
#include "base/clock.h"
#include "base/collective.h"
#include "core/group/group.h"
#include "store/last_call.h"

#include <poll.h>
#include <string.h>

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
        !disti_news_tell_failure(group, status, group->aborted ? NULL : text))
        disti_store_report(store, &party, status, text);
}

/* Of a process that is gone the message says all; in other cases it matters who called what. */
static void fault_record(struct dist_group *group, dist_status status)
{
    const bool gone = disti_group_has_lost(group, status);
    const char *reason = status == DIST_ERR_TIMEOUT ? "timeout"
                         : group->aborted           ? "abort"
                                                    : "failure";
    const size_t used = strlen(group->cause);
    char file[DISTI_FLIGHT_PATH];

    if (!gone && disti_flight_failed(group, reason, file))
        disti_text(group->cause + used, GROUP_TEXT - used,
                   "; the last calls are in %s (dist_info flight)", file);
}

/* Ends the group here. `victim`: because of another rank. */
static void fault_end(struct dist_group *group, dist_status status, const char *text, bool victim)
{
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
    fault_record(group, status);
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
    dist_status status = disti_fail(group->lost_status, "%s",
                                    disti_failure_lost(group, work, group->lost_text, text));

    /* Without a store no other rank may have heard of it. A death is told as such. */
    if (!group->lost_process)
        disti_news_tell_failure(group, status, group->lost_text);
    fault_end(group, status, text, true);
}

/* Half of the time has passed. One rank says so to its user, and whoever waits for that one. */
static void fault_stall(struct dist_group *group, struct disti_work *work)
{
    char text[GROUP_TEXT];

    work->warned = true;
    disti_failure_stall(group, work, text);
    if (group->rank == 0 || disti_failure_waits_for(group, 0))
        disti_notice("%s", text);
    else
        disti_warn("%s", text);
}

static bool fault_is_stalled(const struct dist_group *group, const struct disti_work *work)
{
    return !work->warned &&
           disti_expired(work->deadline_ns - group->timeout_ms * INT64_C(1000000) / 2);
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
    disti_news_listen(group->world);
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

    while (asks && !fault_look_for_news(group) && !atomic_load(&group->is_told) &&
           !disti_store_is_lost(group->world->bootstrap.store) && !disti_expired(until))
        fault_wait_for_news(group);
    if (group->lost_process && disti_store_is_lost(group->world->bootstrap.store))
        return true; /* a rank that ended after this failure looks the same */
    return atomic_load(&group->is_told) || group->lost_rank < 0 || group->lost_status == status;
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

    disti_failure_timeout(group, work, text);
    fault_tell(group, DIST_ERR_TIMEOUT, text);
    if (!fault_is_first(group, DIST_ERR_TIMEOUT)) {
        fault_append_own(group, text);
        fault_lost(group, work);
        return;
    }
    fault_follow(group, text);
    fault_end(group, disti_fail(DIST_ERR_TIMEOUT, "%s", text), text, false);
}

/*
 * Without a store the other ranks look for the cause themselves. They must not see this rank's exit
 * before, and may need its help to connect.
 */
static void fault_linger(struct dist_group *group)
{
    while (group->lost_rank >= 0 && !disti_expired(group->lost_until_ns)) {
        fault_wait_for_news(group);
        fault_look_for_news(group);
    }
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
    if (status == DIST_ERR_PEER_LOST && disti_news_listen(group->world))
        fault_linger(group);
    if (status == DIST_ERR_PEER_LOST && group->lost_rank >= 0) {
        if (!group->lost_process && /* that rank may have waited for this one */
            (group->lost_status == DIST_ERR_TIMEOUT || group->lost_status == DIST_ERR_PEER_LOST))
            fault_append_own(group, own);
        fault_lost(group, work);
    } else if (status == DIST_ERR_PEER_LOST)
        disti_group_break(group, status, disti_failure_lost(group, work, own, text));
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

    if (!disti_news_leaver(group, &leaver))
        return;
    if (!group->lost_until_ns) /* the backend is looked at once more, at least */
        group->lost_until_ns = disti_now_ns() + FAULT_GRACE_NS;
    if (!disti_expired(group->lost_until_ns))
        return;
    while (work && !fault_is_forsaken(group, work, &leaver))
        work = work->next;
    if (!work)
        return;
    disti_fail(DIST_ERR_PEER_LOST, "%s", disti_failure_lost(group, work, leaver.text, text));
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
    else if (fault_is_stalled(group, work))
        fault_stall(group, work);
    else
        fault_left(group);
}
