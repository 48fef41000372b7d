/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs worlds of forked ranks, whose rendezvous is a file, and checks which ranks take part in a
 * group. */
#ifndef TESTS_UNIT_CORE_WORLDS_H
#define TESTS_UNIT_CORE_WORLDS_H

#include "../rendezvous/ranks.h"

#define WORLD_TIMEOUT_MS 20000

struct world {
    int ranks;
    char url[64]; /* file:///tmp/... */
};

/* Joins the world as this rank, with backend gloo. */
static inline dist_group *world_join(const struct world *world, int rank)
{
    struct dist_options options = DIST_OPTIONS_INIT;
    dist_group *group = NULL;

    options.backend = "gloo";
    options.init_method = world->url;
    options.rank = rank;
    options.world_size = world->ranks;
    options.timeout_ms = WORLD_TIMEOUT_MS * unit_patience();
    CHECK(dist_init_process_group(&options, &group) == DIST_OK);
    return group;
}

/* Runs fn(rank, &world) in `count` processes. codes: their expected exit codes; NULL: 0. */
static inline void world_run_codes(int count, ranks_fn fn, const int *codes)
{
    struct world world = {.ranks = count};
    char path[] = "/tmp/disti_world_XXXXXX";
    int fd = mkstemp(path);
    struct ranks ranks;

    assert_true(fd >= 0);
    close(fd);
    unlink(path);
    snprintf(world.url, sizeof(world.url), "file://%s", path);
    ranks_start(&ranks, count, fn, &world);
    ranks_finish(&ranks);
    unlink(path);
    for (int r = 0; r < count; r++)
        assert_int_equal(ranks.codes[r], codes ? codes[r] : 0);
}

static inline void world_run(int count, ranks_fn fn)
{
    world_run_codes(count, fn, NULL);
}

/* All-reduces one bit for each rank of the world, so that the sum shows which ranks took part.
 * `set` has the expected bits. */
static inline dist_status world_meet(dist_group *group, int world_rank, int64_t set)
{
    int64_t mine = (int64_t)1 << world_rank, sum = -1;
    dist_status status = dist_all_reduce(group, &mine, &sum, 1, DIST_INT64, DIST_SUM);

    CHECK(status != DIST_OK || sum == set);
    return status;
}

#endif
