/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs groups of forked ranks over one transport, and waits for requests without library calls. */
#ifndef TESTS_UNIT_CORE_JOB_H
#define TESTS_UNIT_CORE_JOB_H

#include "../rendezvous/ranks.h"

#include <dist/dist.h>
#include <pthread.h>
#include <stdatomic.h>

struct job {
    int ranks, timeout_ms;
    char place[64];
};

static inline dist_group *join(const struct job *job, int rank)
{
    struct dist_options options = DIST_OPTIONS_INIT;
    char url[96];
    dist_group *group;

    snprintf(url, sizeof(url), "file://%s", job->place);
    options.backend = "gloo";
    options.init_method = url;
    options.rank = rank;
    options.world_size = job->ranks;
    options.timeout_ms = job->timeout_ms;
    CHECK(dist_init_process_group(&options, &group) == DIST_OK);
    return group;
}

static inline void leave(dist_group *group)
{
    CHECK(dist_destroy_process_group(group) == DIST_OK);
}

static inline void run(int ranks, int timeout_ms, ranks_fn fn)
{
    struct job job = {.ranks = ranks, .timeout_ms = timeout_ms * unit_patience()};
    int fd;

    strcpy(job.place, "/tmp/dist-overlap.XXXXXX");
    fd = mkstemp(job.place);
    assert_true(fd >= 0);
    close(fd);
    unlink(job.place);
    ranks_run(ranks, fn, &job);
    unlink(job.place);
}

static inline void set_flag(void *arg, dist_status status)
{
    atomic_store((atomic_int *)arg, status == DIST_OK ? 1 : -1);
}

/* Waits for the flag without library calls, so that no call of this thread makes progress. */
static inline bool within(int ms, atomic_int *flag)
{
    int64_t until = disti_deadline_ms(ms);

    while (!atomic_load(flag) && !disti_expired(until))
        disti_sleep_ns(200 * 1000);
    return atomic_load(flag) == 1;
}

static inline int over(void **state, const char *transport)
{
    (void)state;
    return setenv("DIST_TRANSPORT", transport, 1);
}

static inline int over_shm(void **state)
{
    return over(state, "shm");
}

static inline int over_tcp(void **state)
{
    return over(state, "tcp");
}

#define test(name) cmocka_unit_test_setup(name, over_shm), cmocka_unit_test_setup(name, over_tcp)

#endif
