/* SPDX-License-Identifier: BSD-3-Clause */
/* Sleeping until there is news for a group, without its lock. */
#include "base/clock.h"
#include "base/doorbell.h"
#include "core/work/others.h"
#include "endpoint/endpoint.h"

/* A sleep that nothing could end early, since there is no eventfd left for it. */
#define SLEEP_DEAF_NS (1000 * 1000)

/* Descriptors of one backend to sleep on, at most; and of all that a caller moves. */
#define SLEEP_DESCRIPTORS 16
#define SLEEP_CALLER_DESCRIPTORS 128

void disti_drive_disarm(struct dist_group *group)
{
    if (!disti_drive_sleeps(disti_drive_state(&group->drive)))
        return;
    disti_drive_go_either(&group->drive, DISTI_DRIVE_CALLER, DISTI_DRIVE_THREAD);
    if (group->backend->disarm)
        group->backend->disarm(group->state);
}

void disti_drive_wake(struct dist_group *group)
{
    if (!disti_drive_sleeps(disti_drive_state(&group->drive)))
        return;
    disti_drive_disarm(group);
    disti_endpoints_release(); /* the driver may have watched for others */
    disti_doorbell_ring(group->drive.wake_fd);
}

void disti_drive_poll_fds(struct pollfd *polls, int count, int64_t ns)
{
    const struct timespec time = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};

    ppoll(polls, (nfds_t)count, ns == INT64_MAX ? NULL : &time, NULL);
}

/* Groups share descriptors: each is slept on once. */
static void sleep_add(struct pollfd *polls, int *count_p, int fd)
{
    for (int i = 0; i < *count_p; i++) {
        if (polls[i].fd == fd)
            return;
    }
    polls[(*count_p)++] = (struct pollfd){.fd = fd, .events = POLLIN};
}

/* The descriptors of the backend; false: do not sleep. */
static bool sleep_arm_backend(struct dist_group *group, struct pollfd *polls, int *count_p,
                              int64_t nap_ns, int64_t *ns_p)
{
    int fds[SLEEP_DESCRIPTORS];
    int count = group->backend->arm ? group->backend->arm(group->state, fds, SLEEP_DESCRIPTORS)
                                    : DIST_ARM_BLIND;

    for (int i = 0; i < count; i++)
        sleep_add(polls, count_p, fds[i]);
    if (group->backend->arm && count < 0)
        group->backend->disarm(group->state);
    if (count == DIST_ARM_BLIND && *ns_p > nap_ns)
        *ns_p = nap_ns;
    return count != DIST_ARM_READY;
}

/* News are read once: after that their end of file would keep us awake. */
static void sleep_arm_news(struct dist_group *group, struct pollfd *polls, int *count_p)
{
    int fd = group->lost_rank < 0 ? disti_group_news_fd(group) : -1;

    if (fd >= 0)
        sleep_add(polls, count_p, fd);
}

static int64_t sleep_ns(const struct dist_group *group)
{
    int64_t most = group->policy.sleep_ms * INT64_C(1000000);
    int64_t left = group->works ? group->works->deadline_ns - disti_now_ns() : most;

    if (group->lost_rank >= 0)
        return SLEEP_DEAF_NS;
    return left < 0 ? 0 : left < most ? left : most;
}

bool disti_drive_arm(struct dist_group *group, int wake_fd, struct pollfd *polls, int room,
                     int64_t nap_ns, int *count_p, int64_t *ns_p)
{
    int64_t ns = sleep_ns(group);

    if (wake_fd < 0 && ns > SLEEP_DEAF_NS)
        ns = SLEEP_DEAF_NS;
    if (ns < *ns_p)
        *ns_p = ns;
    if (group->failed || group->drive.completion_due)
        return false;
    if (room - *count_p < SLEEP_DESCRIPTORS + 1)
        *ns_p = *ns_p < nap_ns ? *ns_p : nap_ns;
    else if (!sleep_arm_backend(group, polls, count_p, nap_ns, ns_p))
        return false;
    else
        sleep_arm_news(group, polls, count_p);
    group->drive.wake_fd = wake_fd;
    return disti_drive_go_either(&group->drive, DISTI_DRIVE_CALLER_SLEEPS,
                                 DISTI_DRIVE_THREAD_SLEEPS) == DIST_OK;
}

/* Sleeps, without the lock, until something may have happened, here or to a group that nobody
 * drives.
 */
static void sleep_caller(struct dist_group *group, int64_t nap_ns, int64_t until)
{
    struct pollfd polls[SLEEP_CALLER_DESCRIPTORS];
    int64_t ns = until == INT64_MAX ? INT64_MAX : until - disti_now_ns();
    int count = 1; /* the first is what wakes us */

    polls[0] = (struct pollfd){.fd = disti_doorbell(), .events = POLLIN};
    if (ns <= 0 ||
        !disti_drive_arm(group, polls[0].fd, polls, SLEEP_CALLER_DESCRIPTORS, nap_ns, &count, &ns))
        return;
    disti_group_unlock(group);
    disti_others_sleep(polls, count, SLEEP_CALLER_DESCRIPTORS, nap_ns, ns);
    disti_doorbell_hear();
    disti_group_lock(group);
    disti_drive_disarm(group);
}

/* Nothing has moved: spins, yields or sleeps, as the policy says. */
void disti_drive_rest(struct dist_group *group, struct disti_wait *wait, int64_t until)
{
    bool yields = wait->polls >= group->policy.spins;
    bool tired;

    if (yields)
        disti_group_unlock(group);
    tired = disti_wait_step(&group->policy, wait);
    if (yields) {
        disti_group_lock(group);
        disti_wait_learn(&group->policy, wait, tired);
    }
    if (!tired)
        return;
    disti_drive_watch(group);
    sleep_caller(group, disti_wait_nap(wait), until);
}
