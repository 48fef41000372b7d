/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of dist_shared_alloc: all ranks can access all parts, and use them in calls. */
#include "alone.h"
#include "worlds.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define RANKS 3
#define LARGE ((size_t)5 << 20)

/* Returns the length of a rank's part: 0 for rank 0, little for rank 1, much for rank 2. */
static size_t part_bytes(int rank)
{
    return rank == 0 ? 0 : rank == 1 ? 1001 : LARGE;
}

/* A forked child can read what other ranks have written. */
static void check_in_child(unsigned char *const *parts)
{
    int code = 99;
    pid_t pid = fork();

    CHECK(pid >= 0);
    if (pid == 0) {
        for (int r = 1; r < RANKS; r++)
            if (parts[r][5] != 10 + r || dist_shared_free(parts[r]) != DIST_ERR_INVALID_ARGUMENT)
                _exit(1);
        execlp("true", "true", NULL); /* at exit, valgrind would search all memory */
        _exit(2);
    }
    CHECK(waitpid(pid, &code, 0) == pid && WIFEXITED(code) && WEXITSTATUS(code) == 0);
}

static void rank_shares(int rank, void *arg)
{
    dist_group *group = world_join(arg, rank);
    unsigned char *parts[RANKS] = {NULL};

    CHECK(dist_shared_alloc(group, part_bytes(rank), (void **)parts) == DIST_OK);
    for (int r = 0; r < RANKS; r++)
        CHECK((uintptr_t)parts[r] % 4096 == 0 && parts[r][0] == 0);
    CHECK(dist_barrier(group) == DIST_OK);
    memset(parts[rank], 10 + rank, part_bytes(rank));
    parts[1][100 + rank] = (unsigned char)(50 + rank);
    CHECK(dist_barrier(group) == DIST_OK);
    CHECK(parts[1][5] == 11 && parts[2][LARGE - 1] == 12);
    check_in_child(parts);
    CHECK(dist_barrier(group) == DIST_OK);
    if (rank == 0)
        memset(parts[2], 1, LARGE);
    CHECK(dist_barrier(group) == DIST_OK);
    CHECK(dist_all_reduce(group, parts[rank], parts[rank], 512, DIST_UINT8, DIST_MAX) == DIST_OK);
    CHECK(dist_barrier(group) == DIST_OK);
    CHECK(parts[0][7] == 11 && parts[2][511] == 11);
    CHECK(dist_barrier(group) == DIST_OK);
    CHECK(dist_shared_free(parts[(rank + 1) % RANKS]) == DIST_ERR_INVALID_ARGUMENT);
    CHECK(dist_shared_free(parts[rank]) == DIST_OK);
    CHECK(dist_shared_free(parts[rank]) == DIST_ERR_INVALID_ARGUMENT);
    CHECK_SAYS("freed");
    CHECK(dist_destroy_process_group(group) == DIST_OK);
}

static void all_ranks_access_all_parts(void **state)
{
    (void)state;
    world_run(RANKS, rank_shares);
}

/* If one rank cannot allocate its part, the call fails on all ranks. */
static void rank_refuses(int rank, void *arg)
{
    dist_group *group;
    void *parts[RANKS];

    group = world_join(arg, rank);
    if (rank == 1)
        setenv("DIST_NODE_MEMORY", "0", 1);
    CHECK(dist_shared_alloc(group, 100, parts) == DIST_ERR_UNSUPPORTED);
    CHECK_SAYS(rank == 1 ? "DIST_NODE_MEMORY" : "rank 1");
    unsetenv("DIST_NODE_MEMORY");
    CHECK(dist_shared_alloc(group, 100, parts) == DIST_OK);
    CHECK(dist_barrier(group) == DIST_OK);
    CHECK(dist_shared_free(parts[rank]) == DIST_OK);
    CHECK(dist_destroy_process_group(group) == DIST_OK);
}

static void all_ranks_get_the_memory_or_none(void **state)
{
    (void)state;
    world_run(RANKS, rank_refuses);
}

/* Prevents this process from opening files, or allows it again. */
static void forbid_open(bool forbid)
{
    const int next = forbid ? dup(0) : -1;
    struct rlimit limit;

    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = forbid ? (rlim_t)next : limit.rlim_max;
    CHECK(!forbid || (next >= 0 && close(next) == 0));
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

/* A rank can allocate its own part but cannot map those of other ranks. */
static void rank_maps_nothing(int rank, void *arg)
{
    dist_group *group = world_join(arg, rank);
    void *parts[RANKS], *own;

    CHECK(dist_alloc(NULL, 100, &own) == DIST_OK); /* its segment has room for the part too */
    if (rank == 1)
        forbid_open(true);
    CHECK(dist_shared_alloc(group, 100, parts) == DIST_ERR_UNSUPPORTED);
    CHECK_SAYS(rank == 1 ? "ulimit -n" : "rank 1");
    if (rank == 1)
        forbid_open(false);
    CHECK(dist_shared_alloc(group, 100, parts) == DIST_OK);
    CHECK(dist_barrier(group) == DIST_OK);
    CHECK(dist_shared_free(parts[rank]) == DIST_OK && dist_free(NULL, own) == DIST_OK);
    CHECK(dist_destroy_process_group(group) == DIST_OK);
}

static void a_rank_without_descriptors_makes_the_call_fail(void **state)
{
    (void)state;
    if (unit_patience() > 1)
        skip(); /* valgrind does not let its limits be changed */
    world_run(RANKS, rank_maps_nothing);
}

/* A part stays mapped after its rank has exited. */
static void rank_exits_early(int rank, void *arg)
{
    dist_group *group = world_join(arg, rank);
    char *parts[RANKS];

    CHECK(dist_shared_alloc(group, LARGE, (void **)parts) == DIST_OK);
    parts[1][LARGE - 1] = 7;
    CHECK(dist_barrier(group) == DIST_OK);
    if (rank == 1)
        _exit(0);
    CHECK(dist_barrier(group) == DIST_ERR_PEER_LOST);
    CHECK(parts[1][LARGE - 1] == 7);
    parts[1][0] = 1;
    CHECK(dist_shared_free(parts[rank]) == DIST_OK);
    dist_destroy_process_group(group);
}

static void parts_outlive_their_ranks(void **state)
{
    (void)state;
    world_run(RANKS, rank_exits_early);
}

static void arguments_are_checked(void **state)
{
    dist_group *group = single_rank_world();
    void *part;

    (void)state;
    assert_int_equal(dist_shared_alloc(NULL, 1, &part), DIST_ERR_INVALID_ARGUMENT);
    assert_int_equal(dist_shared_alloc(group, 1, NULL), DIST_ERR_INVALID_ARGUMENT);
    assert_int_equal(dist_shared_alloc(group, SIZE_MAX, &part), DIST_ERR_INVALID_ARGUMENT);
    assert_int_equal(dist_shared_alloc(group, 1, &part), DIST_OK);
    assert_int_equal(dist_shared_free(NULL), DIST_OK);
    assert_int_equal(dist_shared_free(part), DIST_OK);
    assert_int_equal(dist_destroy_process_group(group), DIST_OK);
    assert_int_equal(dist_shared_alloc(group, 1, &part), DIST_ERR_INVALID_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_ranks_access_all_parts),
        cmocka_unit_test(all_ranks_get_the_memory_or_none),
        cmocka_unit_test(a_rank_without_descriptors_makes_the_call_fail),
        cmocka_unit_test(parts_outlive_their_ranks),
        cmocka_unit_test(arguments_are_checked),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
