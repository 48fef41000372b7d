/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of dist_alloc and dist_register, from the backend and in segments. */
#include "alone.h"
#include "fake.h"
#include "node/node.h"
#include "worlds.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- segments ---- */

static void backends_without_memory_use_segments(void **state)
{
    dist_group *group = single_rank_world();
    struct disti_segment_location at;
    void *memory = NULL;

    (void)state;
    assert_int_equal(dist_alloc(group, 10000, &memory), DIST_OK);
    assert_true(disti_segment_find(memory, 10000, &at));
    memset(memory, 7, 10000);
    assert_int_equal(dist_free(group, (char *)memory), DIST_OK);
    assert_false(disti_segment_find(memory, 1, &at));
    refused(dist_free(group, memory), "allocated");
    assert_int_equal(dist_destroy_process_group(group), DIST_OK);
}

static void allocated_memory_outlives_the_group(void **state)
{
    dist_group *group = single_rank_world();
    void *memory[2] = {NULL, NULL};

    (void)state;
    for (int i = 0; i < 2; i++)
        assert_int_equal(dist_alloc(group, 5000, &memory[i]), DIST_OK);
    assert_int_equal(dist_destroy_process_group(group), DIST_OK);
    memset(memory[0], 1, 5000);
    assert_int_equal(dist_free(group, memory[0]), DIST_OK);
    assert_int_equal(dist_free(NULL, memory[1]), DIST_OK);
    refused(dist_alloc(group, 5000, &memory[0]), "destroyed");
    refused(dist_register(group, memory[0], 4096), "destroyed");
}

/* Memory can be allocated before there is a group, and after the group has been destroyed. */
static void memory_can_be_allocated_without_a_group(void **state)
{
    struct disti_segment_location at;
    dist_group *group;
    void *memory[2];

    (void)state;
    for (int i = 0; i < 2; i++)
        assert_int_equal(dist_alloc(NULL, 5000, &memory[i]), DIST_OK);
    assert_true(disti_segment_find(memory[0], 5000, &at));
    refused(dist_alloc(NULL, 1, NULL), "NULL");
    group = single_rank_world();
    assert_int_equal(dist_all_reduce(group, memory[0], memory[1], 100, DIST_INT32, DIST_SUM),
                     DIST_OK);
    assert_int_equal(dist_free(group, memory[0]), DIST_OK);
    assert_int_equal(dist_destroy_process_group(group), DIST_OK);
    assert_int_equal(dist_free(NULL, memory[1]), DIST_OK);
    refused(dist_free(NULL, memory[1]), "allocated");
}

static void bad_sizes_and_pointers_are_rejected(void **state)
{
    dist_group *group = single_rank_world();
    int local;
    void *memory = &local;

    (void)state;
    assert_int_equal(dist_alloc(group, 0, &memory), DIST_OK);
    assert_null(memory);
    assert_int_equal(dist_free(group, NULL), DIST_OK);
    assert_int_equal(dist_register(group, NULL, 0), DIST_OK);
    assert_int_equal(dist_unregister(group, NULL), DIST_OK);
    refused(dist_alloc(group, 1, NULL), "NULL");
    refused(dist_register(NULL, &local, 4096), "group is NULL");
    refused(dist_register(group, NULL, 4096), "NULL");
    refused(dist_register(group, &local, 4), "stack");
    refused(dist_unregister(group, &local), "registered");
    refused(dist_free(group, &local), "allocated");
    assert_int_equal(dist_alloc(group, SIZE_MAX, &memory), DIST_ERR_INVALID_ARGUMENT);
    assert_null(memory);
    for (int i = 0; i < 2; i++)
        assert_int_equal(dist_register(group, &local, 0), DIST_OK);
    for (int i = 0; i < 2; i++)
        assert_int_equal(dist_unregister(group, &local), DIST_OK);
    refused(dist_unregister(group, &local), "registered");
    refused(dist_register(group, &local, SIZE_MAX), "end of the address space");
    assert_int_equal(dist_destroy_process_group(group), DIST_OK);
}

static void registered_memory_is_moved_into_a_segment(void **state)
{
    dist_group *group = single_rank_world();
    struct disti_segment_location at;
    char *memory = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    (void)state;
    memset(memory, 9, 65536);
    assert_int_equal(dist_register(group, memory, 65536), DIST_OK);
    assert_true(disti_segment_find(memory, 65536, &at));
    assert_true(memory[0] == 9 && memory[65535] == 9);
    refused(dist_free(group, memory), "dist_unregister");
    assert_int_equal(dist_destroy_process_group(group), DIST_OK);
    assert_int_equal(dist_unregister(NULL, memory), DIST_OK);
    assert_true(memory[0] == 9 && memory[65535] == 9);
    munmap(memory, 65536);
}

/* ---- memory of the backend ---- */

static void memory_of_the_backend_is_used(void **state)
{
    struct fake *fake = *state;
    struct disti_segment_location at;
    struct dist_group *group;
    void *memory[3];

    fake->has_memory = true;
    group = fake_open(fake);
    for (int i = 0; i < 3; i++)
        assert_int_equal(dist_alloc(group, 100, &memory[i]), DIST_OK);
    assert_int_equal(fake->allocations, 3);
    assert_false(disti_segment_find(memory[0], 1, &at));
    assert_int_equal(dist_free(group, memory[1]), DIST_OK);
    assert_int_equal(dist_free(NULL, memory[2]), DIST_OK);
    assert_int_equal(fake->allocations, 1);
    refused(dist_free(group, memory[1]), "allocated");
    disti_memory_reclaim(group);
    assert_int_equal(fake->allocations, 0);
    refused(dist_free(group, memory[0]), "allocated");
    assert_int_equal(fake_close(fake, group), DIST_OK);
}

static void a_backend_without_free_memory_is_an_error(void **state)
{
    struct fake *fake = *state;
    struct dist_group *group;
    void *memory = NULL, *kept = NULL;
    struct dist_work *work;

    fake->has_memory = true;
    group = fake_open(fake);
    assert_int_equal(dist_alloc(group, 100, &kept), DIST_OK);
    fake->out_of_memory = true;
    assert_int_equal(dist_alloc(group, 100, &memory), DIST_ERR_NO_MEMORY);
    fake->out_of_memory = false;
    work = fake_start(group, DIST_COLL_ALL_REDUCE);
    fake_break(fake, DIST_ERR_SYSTEM);
    assert_int_equal(dist_wait(work), DIST_ERR_SYSTEM);
    assert_int_equal(dist_alloc(group, 100, &memory), DIST_ERR_ABORTED);
    assert_null(memory);
    assert_int_equal(fake->allocations, 1);
    assert_int_equal(dist_free(group, kept), DIST_OK);
    assert_int_equal(fake->allocations, 0);
    fake_close(fake, group);
}

/* The progress thread is the progress owner and sleeps with the backend armed. */
static void allocating_does_not_disturb_a_sleeping_backend(void **state)
{
    struct fake *fake = *state;
    struct dist_group *group;
    struct dist_work *work;
    void *memory = NULL;

    fake->has_memory = true;
    group = fake_open(fake);
    work = fake_start(group, DIST_COLL_ALL_REDUCE);
    for (int i = 0; i < 50; i++) {
        fake_sleep(i % 10);
        assert_int_equal(dist_alloc(group, 64, &memory), DIST_OK);
        assert_int_equal(dist_free(group, memory), DIST_OK);
    }
    fake_release(fake, 0);
    assert_int_equal(dist_wait(work), DIST_OK);
    assert_int_equal(fake_close(fake, group), DIST_OK);
}

/* ---- collectives on this memory ---- */

enum { RANKS = 3, COUNT = 100003 };

/* Maps memory. Memory of malloc is executable under valgrind, so it cannot be moved into a segment.
 * */
static void *map_private(size_t bytes)
{
    return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

/* Reduces from allocated to registered memory in two groups, then frees both memories. */
static void rank_reduces(int rank, void *arg)
{
    dist_group *group = world_join(arg, rank), *other = NULL;
    size_t bytes = (COUNT * sizeof(int32_t) + 65535) / 65536 * 65536;
    int32_t *in, *out;
    void *memory = NULL, *registered = map_private(bytes);

    CHECK(dist_dup_group(group, NULL, &other) == DIST_OK);
    CHECK(dist_alloc(group, COUNT * sizeof(int32_t), &memory) == DIST_OK);
    CHECK(dist_register(group, registered, bytes) == DIST_OK);
    in = memory;
    out = registered;
    for (int round = 0; round < 3; round++) {
        dist_group *user = round % 2 ? other : group;

        for (int i = 0; i < COUNT; i++)
            in[i] = i * (rank + 1) + round;
        CHECK(dist_all_reduce(user, in, out, COUNT, DIST_INT32, DIST_SUM) == DIST_OK);
        for (int i = 0; i < COUNT; i++)
            CHECK(out[i] == i * (RANKS * (RANKS + 1) / 2) + RANKS * round);
    }
    CHECK(dist_all_reduce(other, in, in, COUNT, DIST_INT32, DIST_MAX) == DIST_OK);
    CHECK(in[7] == 7 * RANKS + 2);
    CHECK(dist_free(group, memory) == DIST_OK);
    CHECK(dist_unregister(group, registered) == DIST_OK);
    CHECK(out[5] == 5 * (RANKS * (RANKS + 1) / 2) + RANKS * 2);
    munmap(registered, bytes);
    CHECK(dist_barrier(group) == DIST_OK);
    CHECK(dist_destroy_process_group(group) == DIST_OK);
}

static void collectives_use_allocated_and_registered_memory(void **state)
{
    (void)state;
    world_run(RANKS, rank_reduces);
}

/* ---- memory that is allocated and freed repeatedly ---- */

enum { CHANGES = 150, CHANGE_COUNT = 40000 };

/* Returns the number of mapped segments, of this rank and of other ranks. */
static int count_mappings(void)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];
    int count = 0;

    while (maps && fgets(line, sizeof(line), maps))
        count += strstr(line, "memfd:libdist") != NULL;
    if (maps)
        fclose(maps);
    return count;
}

/* Uses new memory for every call and frees it when the call has returned. The other ranks have read
 * the memory by then, and must not keep their mappings forever. */
static void rank_reallocates(int rank, void *arg)
{
    dist_group *group = world_join(arg, rank);
    int before = 0;

    for (int round = 0; round < CHANGES; round++) {
        void *memory[2] = {NULL, NULL};
        int64_t *in, *out;

        for (int i = 0; i < 2; i++)
            CHECK(dist_alloc(group, CHANGE_COUNT * sizeof(int64_t), &memory[i]) == DIST_OK);
        in = memory[0];
        out = memory[1];
        for (int i = 0; i < CHANGE_COUNT; i++)
            in[i] = (int64_t)i * (rank + 1) + round;
        CHECK(dist_all_reduce(group, in, out, CHANGE_COUNT, DIST_INT64, DIST_SUM) == DIST_OK);
        CHECK(dist_free(group, in) == DIST_OK);
        for (int i = 0; i < CHANGE_COUNT; i++)
            CHECK(out[i] == (int64_t)i * (RANKS * (RANKS + 1) / 2) + (int64_t)RANKS * round);
        CHECK(dist_free(group, out) == DIST_OK);
        if (round == 0)
            before = count_mappings();
    }
    CHECK(count_mappings() <= before + DISTI_SEGMENT_KEEP);
    CHECK(dist_destroy_process_group(group) == DIST_OK);
}

static void memory_may_be_freed_after_each_call(void **state)
{
    (void)state;
    world_run(RANKS, rank_reallocates);
}

/* ---- few descriptors ---- */

static void leave_descriptors(rlim_t more)
{
    struct rlimit limit;
    int next = dup(0);

    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = (rlim_t)next + more;
    close(next);
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

static void reduce_and_check(dist_group *group, int32_t *memory, size_t count, int rank)
{
    for (size_t i = 0; i < count; i++)
        memory[i] = (int32_t)i + rank;
    CHECK(dist_all_reduce(group, memory, memory, count, DIST_INT32, DIST_SUM) == DIST_OK);
    for (size_t i = 0; i < count; i++)
        CHECK(memory[i] == (int32_t)i * RANKS + RANKS * (RANKS - 1) / 2);
}

enum { MANY = 1000 };

/* Each memory is used twice, because the second time it is accessed in place. */
static void rank_has_many(int rank, void *arg)
{
    dist_group *group = world_join(arg, rank);
    void *memory[MANY];

    reduce_and_check(group, map_private(4 * COUNT), COUNT, rank); /* opens all it opens on demand */
    leave_descriptors(16);
    for (int i = 0; i < MANY; i++)
        CHECK(dist_alloc(group, 4 * (1 + (size_t)i * i % 40000), &memory[i]) == DIST_OK);
    for (int i = 0; i < 2 * MANY; i++)
        reduce_and_check(group, memory[i % MANY], 1 + (size_t)(i % MANY) * (i % MANY) % 40000,
                         rank);
    for (int i = 0; i < MANY; i++)
        CHECK(dist_free(i % 2 ? NULL : group, memory[i]) == DIST_OK);
    CHECK(dist_destroy_process_group(group) == DIST_OK);
}

/* Leaves one rank without descriptors, so that it can neither map nor share memory, before or after
 * other ranks have shared memory. */
static void rank_has_no_descriptors(int rank, void *arg)
{
    dist_group *group = world_join(arg, rank);
    size_t bytes = (4 * (size_t)COUNT + 65535) / 65536 * 65536;
    void *memory[2] = {NULL, NULL}, *registered = map_private(bytes);

    reduce_and_check(group, map_private(4 * COUNT), COUNT, rank);
    if (rank == 1)
        leave_descriptors(0);
    for (int i = 0; i < 2; i++)
        CHECK(dist_alloc(group, bytes, &memory[i]) == DIST_OK);
    CHECK(dist_register(group, registered, bytes) == DIST_OK);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 2; i++)
            reduce_and_check(group, memory[i], COUNT, rank);
        reduce_and_check(group, registered, COUNT, rank);
        CHECK(dist_broadcast(group, memory[0], COUNT, DIST_INT32, round) == DIST_OK);
        CHECK(dist_all_gather(group, registered, memory[1], COUNT / RANKS, DIST_INT32) == DIST_OK);
    }
    CHECK(dist_unregister(group, registered) == DIST_OK);
    CHECK(dist_destroy_process_group(group) == DIST_OK);
    for (int i = 0; i < 2; i++)
        CHECK(dist_free(NULL, memory[i]) == DIST_OK);
    munmap(registered, bytes);
}

static void collectives_work_with_few_descriptors(void **state)
{
    (void)state;
    world_run(RANKS, rank_has_many);
    world_run(RANKS, rank_has_no_descriptors);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(backends_without_memory_use_segments),
        cmocka_unit_test(allocated_memory_outlives_the_group),
        cmocka_unit_test(memory_can_be_allocated_without_a_group),
        cmocka_unit_test(bad_sizes_and_pointers_are_rejected),
        cmocka_unit_test(registered_memory_is_moved_into_a_segment),
        cmocka_unit_test_setup_teardown(memory_of_the_backend_is_used, fake_without_thread,
                                        fake_finish),
        cmocka_unit_test_setup_teardown(a_backend_without_free_memory_is_an_error,
                                        fake_without_thread, fake_finish),
        cmocka_unit_test_setup_teardown(allocating_does_not_disturb_a_sleeping_backend,
                                        fake_with_thread, fake_finish),
        cmocka_unit_test(collectives_use_allocated_and_registered_memory),
        cmocka_unit_test(memory_may_be_freed_after_each_call),
        cmocka_unit_test(collectives_work_with_few_descriptors),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
