/* SPDX-License-Identifier: BSD-3-Clause */
/* Works: posted calls, and the waiting for them. */
#include "base/clock.h"
#include "core/group.h"

#include <poll.h>
#include <stdlib.h>

/* Polls between two looks at the clock and at the news. */
#define WORK_WATCH_POLLS 1024

/* Where there is nothing to sleep on, between two polls. */
#define WORK_NAP_NS (50 * 1000)

/* Descriptors to sleep on, at most. */
#define WORK_DESCRIPTORS 16

/* Call with the lock held. */
static void work_link(struct dist_group *group, struct dist_work *work)
{
    work->next = group->works;
    group->works = work;
}

static void work_unlink(struct dist_group *group, struct dist_work *work)
{
    struct dist_work **at = &group->works;

    while (*at && *at != work)
        at = &(*at)->next;
    if (*at)
        *at = work->next;
}

/* The work whose failure made the backend's progress fail, for the message. */
static const struct dist_work *work_failed(const struct dist_group *group)
{
    const struct dist_work *work = group->works;

    while (work && work->ticket.status >= 0)
        work = work->next;
    return work;
}

/* One look at the backend, with the lock held. Returns how much happened. */
static int work_poll(struct dist_group *group)
{
    int moved = group->failed ? 0 : group->backend->progress(group->state);

    if (moved >= 0)
        return moved;
    disti_group_fail(group, work_failed(group), (dist_status)moved);
    return 0;
}

dist_status disti_work_start(struct dist_group *group, const struct dist_call *call,
                             struct dist_work *work)
{
    const char *what = dist_collective_string(call->collective);
    dist_status status;

    *work = (struct dist_work){.group = group, .call = *call};
    pthread_mutex_lock(&group->lock);
    if (group->failed) {
        status = disti_group_refuse(group, what);
    } else {
        work->call.sequence = group->sequence++;
        work->deadline_ns = disti_deadline_ms(group->timeout_ms);
        work->ticket.status = DIST_IN_PROGRESS;
        work_link(group, work);
        status = group->backend->post(group->state, &work->call, &work->ticket);
        if (status != DIST_OK) {
            work_unlink(group, work); /* the other ranks have gone on: this one cannot */
            disti_group_break(group, status, dist_last_error());
        }
    }
    pthread_mutex_unlock(&group->lock);
    return status;
}

static void work_poll_armed(struct dist_group *group, int store, int ms)
{
    int fds[WORK_DESCRIPTORS];
    struct pollfd polls[WORK_DESCRIPTORS + 1];
    int count = group->backend->arm(group->state, fds, WORK_DESCRIPTORS);

    for (int i = 0; i < count; i++)
        polls[i] = (struct pollfd){.fd = fds[i], .events = POLLIN};
    if (count == DIST_ARM_BLIND)
        disti_sleep_ns(WORK_NAP_NS);
    if (count >= 0) {
        polls[count] = (struct pollfd){.fd = store, .events = POLLIN};
        poll(polls, (nfds_t)count + 1, ms);
    }
    group->backend->disarm(group->state);
}

/* Sleeps until something may have happened, or the deadline is near. */
static void work_sleep(struct dist_work *work)
{
    struct dist_group *group = work->group;
    int left = disti_left_ms(work->deadline_ns), most = group->policy.sleep_ms;
    int store = disti_group_news_fd(group);
    int ms = left < most ? left : most;

    if (group->lost_rank >= 0) {
        store = -1; /* the news has been read: its end of file would keep us awake */
        ms = 1;
    }
    if (group->backend->arm)
        work_poll_armed(group, store, ms);
    else
        disti_sleep_ns(WORK_NAP_NS);
}

/* One round of waiting, with the lock held on entry and on return. */
static void work_round(struct dist_work *work, struct disti_wait *wait, uint32_t *rounds)
{
    struct dist_group *group = work->group;
    int moved = work_poll(group);

    if (work->ticket.status != DIST_IN_PROGRESS)
        return;
    if (++*rounds % WORK_WATCH_POLLS == 0)
        disti_group_watch(group, work);
    if (moved > 0) {
        *wait = (struct disti_wait){0};
        return;
    }
    if (disti_wait_step(&group->policy, wait)) {
        disti_group_watch(group, work);
        if (work->ticket.status == DIST_IN_PROGRESS)
            work_sleep(work);
    }
}

/* The backend's own failures name only their cause; the group keeps the first. */
static dist_status work_status(struct dist_group *group, struct dist_work *work)
{
    dist_status status = work->ticket.status;

    if (status >= 0)
        return status;
    disti_group_fail(group, work, status);
    return disti_fail(status, "%s", group->cause);
}

dist_status disti_work_finish(struct dist_work *work)
{
    struct dist_group *group = work->group;
    struct disti_wait wait = {0};
    uint32_t rounds = 0;
    dist_status status;

    disti_log_use(group->log);
    pthread_mutex_lock(&group->lock);
    while (work->ticket.status == DIST_IN_PROGRESS) {
        work_round(work, &wait, &rounds);
        if (group->policy.spins == 0 || wait.polls >= group->policy.spins) {
            pthread_mutex_unlock(&group->lock); /* let other threads of this process in */
            pthread_mutex_lock(&group->lock);
        }
    }
    status = work_status(group, work);
    work_unlink(group, work);
    pthread_mutex_unlock(&group->lock);
    disti_log_use(NULL);
    return status;
}

dist_status disti_work_post(struct dist_group *group, const struct dist_call *call,
                            struct dist_work **work_p)
{
    struct dist_work *work = malloc(sizeof(*work));
    dist_status status;

    if (!work)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory to start %s",
                          dist_collective_string(call->collective));
    disti_log_use(group->log);
    status = disti_work_start(group, call, work);
    disti_log_use(NULL);
    if (status == DIST_OK)
        *work_p = work;
    else
        free(work);
    return status;
}

dist_status dist_wait(dist_work *work)
{
    dist_status status;

    if (!work)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "work is NULL");
    if (work->group)
        status = disti_work_finish(work);
    else if (work->ticket.status == DIST_OK)
        status = DIST_OK;
    else
        status =
            disti_fail(DIST_ERR_ABORTED, "the group of this work was destroyed before it ended");
    free(work);
    return status;
}

dist_status dist_test(dist_work *work, bool *done_p)
{
    struct dist_group *group;

    if (!work || !done_p)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "%s is NULL", work ? "done_p" : "work");
    group = work->group;
    if (group) {
        disti_log_use(group->log);
        pthread_mutex_lock(&group->lock);
        if (work->ticket.status == DIST_IN_PROGRESS) {
            work_poll(group);
            disti_group_watch(group, work);
        }
        pthread_mutex_unlock(&group->lock);
        disti_log_use(NULL);
    }
    *done_p = !group || work->ticket.status != DIST_IN_PROGRESS;
    return DIST_OK;
}
