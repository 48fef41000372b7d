/* SPDX-License-Identifier: BSD-3-Clause */
/* Segments in the process that owns them: alloc, find, free, fork, threads. */
#include "unit.h"

#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/resource.h>

#define PAGE ((size_t)sysconf(_SC_PAGESIZE))

static void test_alloc_is_aligned_and_zeroed(void **state)
{
    static const size_t sizes[] = {0, 1, 4096, 4097, 100000, (2 << 20) - 1, 2 << 20, 5000001};

    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        unsigned char *memory = unit_alloc(sizes[i]);
        size_t align = sizes[i] >= 2 << 20 ? 2 << 20 : PAGE;

        assert_int_equal((uintptr_t)memory % align, 0);
        assert_true(unit_zeros(memory, sizes[i]));
        unit_fill(memory, sizes[i], 3);
        assert_true(unit_filled(memory, sizes[i], 3));
        assert_true(unit_name(memory).bytes >= sizes[i]);
        assert_int_equal(unit_name(memory).bytes % PAGE, 0);
        assert_int_equal(disti_segment_free(memory), DIST_OK);
    }
    assert_true(unit_shared_mappings() <= UNIT_ARENA_MAPPINGS);
}

static void test_free_refuses_other_addresses(void **state)
{
    char *memory = unit_alloc(3 * PAGE);
    int local;

    (void)state;
    assert_int_equal(disti_segment_free(NULL), DIST_OK);
    assert_int_equal(disti_segment_free(&local), DIST_ERR_INVALID_ARGUMENT);
    assert_int_equal(disti_segment_free(memory + PAGE), DIST_ERR_INVALID_ARGUMENT);
    assert_int_equal(disti_segment_unregister(memory), DIST_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(dist_last_error(), "dist_free"));
    assert_int_equal(disti_segment_free(memory), DIST_OK);
    assert_int_equal(disti_segment_free(memory), DIST_ERR_INVALID_ARGUMENT);
}

static void test_find_needs_the_whole_range(void **state)
{
    struct disti_segment_location at = {.offset = 0};
    char *memory, *other;

    (void)state;
    assert_false(disti_segment_find(&at, 1, &at));
    memory = unit_alloc(2 * PAGE);
    other = unit_alloc(PAGE);
    assert_false(disti_segment_find(&at, 1, &at));
    assert_false(disti_segment_find(NULL, 0, &at));
    assert_true(disti_segment_find(memory, 2 * PAGE, &at));
    assert_int_equal(at.offset, 0);
    assert_int_equal(at.name.pid, getpid());
    assert_true(at.name.key != 0);
    assert_true(disti_segment_find(memory + PAGE + 7, 1, &at));
    assert_int_equal(at.offset, PAGE + 7);
    assert_true(disti_segment_find(memory + 2 * PAGE - 1, 1, &at));
    assert_true(disti_segment_find(memory + 2 * PAGE - 1, 0, &at));
    assert_false(disti_segment_find(memory + 2 * PAGE - 1, 2, &at));
    assert_false(disti_segment_find(memory + 1, 2 * PAGE, &at));
    assert_false(disti_segment_find(memory + 1, SIZE_MAX, &at));
    assert_false(disti_segment_find(memory - 1, 2, &at));
    assert_int_equal(disti_segment_free(memory), DIST_OK);
    assert_false(disti_segment_find(memory, 1, &at));
    assert_true(disti_segment_find(other, PAGE, &at));
    assert_int_equal(disti_segment_free(other), DIST_OK);
}

/* disti_segment_map returns the owner's own mapping too. */
static void test_the_owner_can_map_its_segment(void **state)
{
    void *memory = unit_alloc(PAGE), *mapped = NULL;
    struct disti_segment_name name = unit_name(memory);

    (void)state;
    assert_int_equal(disti_segment_map(&name, &mapped), DIST_OK);
    assert_ptr_equal(mapped, memory);
    assert_int_equal(disti_segment_free(memory), DIST_OK);
    name.key ^= 1;
    assert_int_equal(disti_segment_map(&name, &mapped), DIST_ERR_SYSTEM);
    name.key = 0;
    assert_int_equal(disti_segment_map(&name, &mapped), DIST_ERR_INVALID_ARGUMENT);
}

/* Blocks are freed in an order unrelated to their addresses; the remaining blocks are still found.
 */
static void test_many_blocks_freed_out_of_order(void **state)
{
    enum { MANY = 1000, STEP = 387 };
    static char *memory[MANY];
    struct disti_segment_location at;

    (void)state;
    for (int i = 0; i < MANY; i++) {
        memory[i] = unit_alloc(PAGE);
        memory[i][0] = (char)i;
    }
    for (int i = 0; i < MANY; i++) {
        int next = (i + 1) * STEP % MANY, at_i = i * STEP % MANY;

        assert_true(disti_segment_find(memory[next] + 1, 5, &at) || i == MANY - 1);
        assert_true(memory[at_i][0] == (char)at_i);
        assert_int_equal(disti_segment_free(memory[at_i]), DIST_OK);
        assert_false(disti_segment_find(memory[at_i], 1, &at));
    }
    assert_true(unit_shared_mappings() <= UNIT_ARENA_MAPPINGS);
}

static void test_alloc_reports_lack_of_memory(void **state)
{
    static const size_t sizes[] = {SIZE_MAX, SIZE_MAX / 2, (size_t)1 << 46};
    struct disti_segment_location at;
    struct rlimit limit, none;
    void *memory = NULL;

    (void)state;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(disti_segment_alloc(sizes[i], &memory), DIST_ERR_NO_MEMORY);
        assert_int_equal(disti_segment_alloc_shared(sizes[i], &memory, &at), DIST_ERR_NO_MEMORY);
    }
    getrlimit(RLIMIT_NOFILE, &limit);
    none = limit;
    none.rlim_cur = 0;
    setrlimit(RLIMIT_NOFILE, &none);
    assert_int_equal(disti_segment_alloc_shared(1, &memory, &at), DIST_ERR_NO_MEMORY);
    setrlimit(RLIMIT_NOFILE, &limit);
    assert_non_null(strstr(dist_last_error(), "ulimit -n"));
    assert_null(memory);
}

/* ---- a forked child ---- */

static int child_of_owner(void *arg, int channel)
{
    unsigned char *memory = arg;
    struct disti_segment_location at;
    void *own = NULL;

    (void)channel;
    UNIT_CHECK(!disti_segment_find(memory, 1, &at));
    UNIT_CHECK(unit_filled(memory, 3 * PAGE, 5));
    memset(memory, 0, 3 * PAGE);
    UNIT_CHECK(unit_zeros(memory, 3 * PAGE));
    UNIT_CHECK(disti_segment_free(memory) == DIST_ERR_INVALID_ARGUMENT);
    UNIT_CHECK(unit_shared_mappings() == 0);
    UNIT_CHECK(disti_segment_alloc(PAGE, &own) == DIST_OK);
    UNIT_CHECK(disti_segment_find(own, PAGE, &at) && at.name.pid == getpid());
    UNIT_CHECK(disti_segment_free(own) == DIST_OK);
    return 0;
}

static void test_a_forked_child_has_its_own_view(void **state)
{
    unsigned char *memory = unit_alloc(3 * PAGE);

    (void)state;
    unit_fill(memory, 3 * PAGE, 5);
    unit_run(child_of_owner, memory);
    assert_true(unit_filled(memory, 3 * PAGE, 5));
    assert_int_equal(unit_name(memory).pid, getpid());
    assert_int_equal(disti_segment_free(memory), DIST_OK);
}

/* ---- threads ---- */

/* Allocates, uses and frees a block. Returns NULL, or the name of the step that failed. */
static void *thread_round(unsigned seed, size_t pages)
{
    struct disti_segment_location at;
    void *memory, *mapped;
    size_t bytes = pages * PAGE;

    if (disti_segment_alloc(bytes, &memory) != DIST_OK)
        return "alloc";
    if (!unit_zeros(memory, bytes))
        return "zeros";
    unit_fill(memory, bytes, seed);
    if (!disti_segment_find((char *)memory + 1, bytes - 1, &at))
        return "find";
    if (disti_segment_map(&at.name, &mapped) != DIST_OK ||
        (char *)mapped + at.offset != (char *)memory + 1)
        return "map";
    if (!unit_filled(memory, bytes, seed))
        return "contents";
    disti_segment_unmap(at.name.key);
    disti_segment_trim(0);
    return disti_segment_free(memory) == DIST_OK ? NULL : "free";
}

static void *thread_work(void *arg)
{
    unsigned seed = (unsigned)(uintptr_t)arg;
    void *wrong = NULL;

    for (unsigned i = 0; i < 200 && !wrong; i++)
        wrong = thread_round(seed, 1 + (seed + i) % 4);
    return wrong;
}

static void test_threads_allocate_concurrently(void **state)
{
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    void *wrong;

    (void)state;
    for (uintptr_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, thread_work, (void *)i), 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], &wrong);
        assert_ptr_equal(wrong, NULL);
    }
    assert_true(unit_shared_mappings() <= UNIT_ARENA_MAPPINGS); /* one empty arena is kept */
}

/* ---- after a fork while other threads allocate, the child can use segments ---- */

static atomic_bool forks_done;

static void *allocate_until_done(void *arg)
{
    while (!atomic_load(&forks_done)) {
        if (thread_round(7, 1 + (unsigned)(uintptr_t)arg))
            return "thread_round";
    }
    return NULL;
}

static int child_of_threads(void *arg, int channel)
{
    (void)channel;
    UNIT_CHECK(unit_filled(arg, PAGE, 5));
    UNIT_CHECK(thread_round(3, 2) == NULL);
    UNIT_CHECK(unit_filled(arg, PAGE, 5));
    return 0;
}

static void test_fork_while_threads_allocate(void **state)
{
    unsigned char *memory = unit_alloc(PAGE);
    pthread_t threads[2];
    void *wrong;

    (void)state;
    unit_fill(memory, PAGE, 5);
    for (uintptr_t i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, allocate_until_done, (void *)i), 0);
    for (int i = 0; i < 40; i++)
        unit_run(child_of_threads, memory);
    atomic_store(&forks_done, true);
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], &wrong);
        assert_ptr_equal(wrong, NULL);
    }
    assert_int_equal(disti_segment_free(memory), DIST_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alloc_is_aligned_and_zeroed),
        cmocka_unit_test(test_free_refuses_other_addresses),
        cmocka_unit_test(test_find_needs_the_whole_range),
        cmocka_unit_test(test_the_owner_can_map_its_segment),
        cmocka_unit_test(test_many_blocks_freed_out_of_order),
        cmocka_unit_test(test_alloc_reports_lack_of_memory),
        cmocka_unit_test(test_a_forked_child_has_its_own_view),
        cmocka_unit_test(test_threads_allocate_concurrently),
        cmocka_unit_test(test_fork_while_threads_allocate),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
