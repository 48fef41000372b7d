/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of dist_shared_alloc: every rank sees every part, and its own serves calls. */
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

/* Rank 0 nothing, rank 1 little, rank 2 much. */
static size_t bytes_of(int rank)
{
    return rank == 0 ? 0 : rank == 1 ? 1001 : LARGE;
}

/* It sees what its parent's peers have written. */
static void forks(unsigned char *const *parts)
{
    int code = 99;
    pid_t pid = fork();

    CHECK(pid >= 0);
    if (pid == 0) {
        for (int r = 1; r < RANKS; r++)
            if (parts[r][5] != 10 + r || dist_shared_free(parts[r]) != DIST_ERR_INVALID_ARGUMENT)
                _exit(1);
        execlp("true", "true", NULL); /* as it exits valgrind would search all that is mapped */
        _exit(2);
    }
    CHECK(waitpid(pid, &code, 0) == pid && WIFEXITED(code) && WEXITSTATUS(code) == 0);
}

static void shares(int rank, void *arg)
{
    dist_group *group = world_join(arg, rank);
    unsigned char *parts[RANKS] = {NULL};

    CHECK(dist_shared_alloc(group, bytes_of(rank), (void **)parts) == DIST_OK);
    for (int r = 0; r < RANKS; r++)
        CHECK((uintptr_t)parts[r] % 4096 == 0 && parts[r][0] == 0);
    CHECK(dist_barrier(group) == DIST_OK);
    memset(parts[rank], 10 + rank, bytes_of(rank));
    parts[1][100 + rank] = (unsigned char)(50 + rank);
    CHECK(dist_barrier(group) == DIST_OK);
    CHECK(parts[1][5] == 11 && parts[2][LARGE - 1] == 12);
    forks(parts);
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

static void all_see_all(void **state)
{
    (void)state;
    world_run(RANKS, shares);
}

/* One rank cannot: none has it. */
static void refuses(int rank, void *arg)
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

static void all_have_it_or_none(void **state)
{
    (void)state;
    world_run(RANKS, refuses);
}

/* From now on this process opens no file; or it may again. */
static void open_none(bool none)
{
    const int next = none ? dup(0) : -1;
    struct rlimit limit;

    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = none ? (rlim_t)next : limit.rlim_max;
    CHECK(!none || (next >= 0 && close(next) == 0));
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

/* A rank has its own part, but cannot map another: as where none is to be seen. */
static void maps_nothing(int rank, void *arg)
{
    dist_group *group = world_join(arg, rank);
    void *parts[RANKS], *own;

    CHECK(dist_alloc(NULL, 100, &own) == DIST_OK); /* there is room for more where it is */
    if (rank == 1)
        open_none(true);
    CHECK(dist_shared_alloc(group, 100, parts) == DIST_ERR_UNSUPPORTED);
    CHECK_SAYS(rank == 1 ? "ulimit -n" : "rank 1");
    if (rank == 1)
        open_none(false);
    CHECK(dist_shared_alloc(group, 100, parts) == DIST_OK);
    CHECK(dist_barrier(group) == DIST_OK);
    CHECK(dist_shared_free(parts[rank]) == DIST_OK && dist_free(NULL, own) == DIST_OK);
    CHECK(dist_destroy_process_group(group) == DIST_OK);
}

static void no_descriptor_is_no_such_memory(void **state)
{
    (void)state;
    if (unit_patience() > 1)
        skip(); /* valgrind does not have its limits changed */
    world_run(RANKS, maps_nothing);
}

/* A part stays though its rank is gone. */
static void outlives(int rank, void *arg)
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
    world_run(RANKS, outlives);
}

static void arguments_are_checked(void **state)
{
    dist_group *group = alone();
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
        cmocka_unit_test(all_see_all),
        cmocka_unit_test(all_have_it_or_none),
        cmocka_unit_test(no_descriptor_is_no_such_memory),
        cmocka_unit_test(parts_outlive_their_ranks),
        cmocka_unit_test(arguments_are_checked),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
