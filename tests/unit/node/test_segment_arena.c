/* SPDX-License-Identifier: BSD-3-Clause */
/* Blocks of arenas: in the owner, in processes that map them, in forked children. */
#include "unit.h"

#include "base/log.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define PAGE ((size_t)sysconf(_SC_PAGESIZE))

static unsigned char *allocate(size_t bytes)
{
    void *memory = NULL;

    if (disti_segment_alloc(bytes, &memory) != DIST_OK)
        fail_msg("%s", dist_last_error());
    return memory;
}

static struct disti_segment_location locate(const void *memory, size_t bytes)
{
    struct disti_segment_location at = {.offset = 0};

    assert_true(disti_segment_find(memory, bytes, &at));
    return at;
}

static int descriptors(void)
{
    int count = 0;

    for (int fd = 0; fd < 2048; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

/* ---- size, alignment and bounds of a block ---- */

static void test_alloc_is_aligned_and_zeroed(void **state)
{
    static const size_t sizes[] = {0, 1, 4096, 4097, 100000, (2 << 20) - 1, 2 << 20, 5000001};

    (void)state;
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            unsigned char *memory = allocate(sizes[i]);

            assert_int_equal((uintptr_t)memory % (sizes[i] >= 2 << 20 ? 2 << 20 : PAGE), 0);
            assert_true(unit_zeros(memory, sizes[i]));
            unit_fill(memory, sizes[i], 3);
            assert_true(unit_filled(memory, sizes[i], 3));
            assert_int_equal(locate(memory, sizes[i]).name.pid, getpid());
            assert_int_equal(disti_segment_free(memory), DIST_OK);
        }
    }
    assert_true(unit_shared_mappings() <= UNIT_ARENA_MAPPINGS);
}

static void test_find_and_free_check_bounds(void **state)
{
    unsigned char *first = allocate(2 * PAGE), *second = allocate(2 * PAGE);
    struct disti_segment_location at;

    (void)state;
    assert_int_equal(locate(first + 5, PAGE).offset, locate(first, 1).offset + 5);
    assert_int_equal(locate(first, 1).name.key, locate(second, 1).name.key);
    assert_true(locate(first, 1).offset != locate(second, 1).offset);
    assert_false(disti_segment_find(first, 2 * PAGE + 1, &at));
    assert_false(disti_segment_find(first + 1, SIZE_MAX, &at));
    assert_int_equal(disti_segment_free(first + PAGE), DIST_ERR_INVALID_ARGUMENT);
    assert_int_equal(disti_segment_unregister(first), DIST_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(dist_last_error(), "dist_free"));
    assert_int_equal(disti_segment_free(first), DIST_OK);
    assert_int_equal(disti_segment_free(first), DIST_ERR_INVALID_ARGUMENT);
    assert_false(disti_segment_find(first, 1, &at));
    assert_int_equal(locate(second, 2 * PAGE).name.pid, getpid());
    assert_int_equal(disti_segment_free(second), DIST_OK);
}

/* Returns the number of bytes of the segment's file that have pages. */
static size_t resident(const struct disti_segment_location *at)
{
    struct stat info;

    assert_int_equal(fstat(at->name.fd, &info), 0);
    return (size_t)info.st_blocks * 512;
}

/* The pages of a freed block are freed at once, although the arena still exists. */
static void test_free_frees_the_pages(void **state)
{
    enum { SOME = 5 << 20 };
    unsigned char *memory = allocate(SOME), *beside = allocate(1);
    struct disti_segment_location at = locate(memory, SOME);

    (void)state;
    memset(memory, 1, SOME);
    beside[0] = 7;
    assert_true(resident(&at) >= SOME);
    assert_int_equal(disti_segment_free(memory), DIST_OK);
    assert_true(resident(&at) < SOME / 2);
    assert_int_equal(beside[0], 7);
    assert_int_equal(disti_segment_free(beside), DIST_OK);
}

/* ---- many blocks ---- */

enum { MANY = 3000 };

/* Blocks of up to 1 MiB are allocated and freed at random: they do not overlap, and need at most 3
 * descriptors. */
static void test_many_blocks_do_not_overlap(void **state)
{
    static unsigned char *memory[MANY];
    static size_t bytes[MANY];
    int before = descriptors();

    (void)state;
    srand(3);
    for (int round = 0; round < 4 * MANY; round++) {
        int i = rand() % MANY;

        if (memory[i]) {
            assert_true(memory[i][0] == (unsigned char)i && memory[i][bytes[i] - 1] == i % 7);
            assert_int_equal(disti_segment_free(memory[i]), DIST_OK);
            memory[i] = NULL;
            continue;
        }
        bytes[i] = 2 + (size_t)rand() % ((size_t)1 << rand() % 21);
        memory[i] = allocate(bytes[i]);
        assert_true(memory[i][0] == 0 && memory[i][bytes[i] - 1] == 0);
        memory[i][0] = (unsigned char)i;
        memory[i][bytes[i] - 1] = (unsigned char)(i % 7);
    }
    assert_true(descriptors() <= before + 3);
    for (int i = 0; i < MANY; i++)
        assert_int_equal(disti_segment_free(memory[i]), DIST_OK);
    assert_true(descriptors() <= before + 1);
    assert_true(unit_shared_mappings() <= UNIT_ARENA_MAPPINGS);
}

/* Large blocks need few arenas, which are freed with their blocks. */
static void test_large_blocks_need_few_arenas(void **state)
{
    unsigned char *memory[48];
    int before = descriptors();

    (void)state;
    if (unit_is_watched())
        skip();
    for (int i = 0; i < 48; i++) {
        memory[i] = allocate((size_t)200 << 20);
        memory[i][0] = (unsigned char)i;
    }
    assert_true(descriptors() <= before + 8);
    for (int i = 0; i < 48; i++) {
        assert_int_equal(memory[i][0], i);
        assert_int_equal(disti_segment_free(memory[i]), DIST_OK);
    }
    assert_true(descriptors() <= before + 1);
}

/* ---- limits ---- */

/* arg: limits the size of files instead of the number of descriptors. */
static int peer_at_its_limits(void *arg, int channel)
{
    struct rlimit none = {0, 0}, small = {64 << 10, RLIM_INFINITY};
    struct disti_segment_location at;
    void *memory = NULL;

    (void)channel;
    UNIT_CHECK(setrlimit(arg ? RLIMIT_FSIZE : RLIMIT_NOFILE, arg ? &small : &none) == 0);
    UNIT_CHECK(disti_segment_alloc_shared(PAGE, &memory, &at) ==
               (arg ? DIST_OK : DIST_ERR_NO_MEMORY));
    UNIT_CHECK(disti_segment_alloc(1 << 20, &memory) == DIST_OK);
    UNIT_CHECK(unit_zeros(memory, 1 << 20) && !disti_segment_find(memory, 1, &at));
    unit_fill(memory, 1 << 20, 3);
    UNIT_CHECK(unit_filled(memory, 1 << 20, 3));
    UNIT_CHECK(disti_segment_register(memory, PAGE) == DIST_ERR_INVALID_ARGUMENT);
    UNIT_CHECK(disti_segment_free(memory) == DIST_OK);
    UNIT_CHECK(disti_segment_free(memory) == DIST_ERR_INVALID_ARGUMENT);
    return 0;
}

/* If descriptors or the size of files are limited, alloc returns ordinary memory; no signal is
 * raised. */
static void test_ordinary_memory_at_resource_limits(void **state)
{
    (void)state;
    if (unit_is_in_valgrind())
        print_message("not tested: Valgrind allows more descriptors than the limit\n");
    else
        unit_run(peer_at_its_limits, NULL);
    unit_run(peer_at_its_limits, "files");
}

/* ---- processes that map a block ---- */

struct two {
    struct disti_segment_location at[2];
};

/* Two blocks of an arena need one mapping. A freed block contains zeros, later the next block's
 * data. */
static int peer_maps_once(void *arg, int channel)
{
    const struct two *two = arg;
    void *mapped[2];
    unsigned char *memory[2];

    for (int i = 0; i < 2; i++) {
        UNIT_CHECK(disti_segment_map(&two->at[i].name, &mapped[i]) == DIST_OK);
        memory[i] = (unsigned char *)mapped[i] + two->at[i].offset;
    }
    UNIT_CHECK(mapped[0] == mapped[1] && unit_shared_mappings() == 1);
    UNIT_CHECK(unit_filled(memory[0], PAGE, 1) && unit_filled(memory[1], PAGE, 2));
    unit_fill(memory[1], PAGE, 3);
    UNIT_CHECK(unit_signal(channel) && unit_wait(channel));
    UNIT_CHECK(unit_zeros(memory[0], PAGE) && unit_filled(memory[1], PAGE, 3));
    UNIT_CHECK(unit_signal(channel) && unit_wait(channel));
    UNIT_CHECK(unit_filled(memory[0], PAGE, 4));
    return 0;
}

static void test_blocks_of_an_arena_share_a_mapping(void **state)
{
    unsigned char *memory[2] = {allocate(PAGE), allocate(PAGE)}, *again;
    struct two two = {.at = {locate(memory[0], PAGE), locate(memory[1], PAGE)}};
    struct unit_peer peer;

    (void)state;
    unit_fill(memory[0], PAGE, 1);
    unit_fill(memory[1], PAGE, 2);
    peer = unit_fork(peer_maps_once, &two);
    assert_true(unit_wait(peer.channel));
    assert_true(unit_filled(memory[1], PAGE, 3));
    assert_int_equal(disti_segment_free(memory[0]), DIST_OK);
    assert_true(unit_signal(peer.channel) && unit_wait(peer.channel));
    again = allocate(PAGE);
    assert_ptr_equal(again, memory[0]);
    unit_fill(again, PAGE, 4);
    assert_true(unit_signal(peer.channel));
    unit_join(&peer);
    assert_int_equal(disti_segment_free(again), DIST_OK);
    assert_int_equal(disti_segment_free(memory[1]), DIST_OK);
}

/* ---- a peer that may still be writing ---- */

static void test_no_block_is_reused_after_retire(void **state)
{
    unsigned char *kept = allocate(PAGE), *freed = allocate(PAGE), *fresh;
    struct disti_segment_location before = locate(kept, PAGE);
    int open = descriptors();

    (void)state;
    disti_segment_retire();
    kept[0] = 5;
    assert_int_equal(disti_segment_free(freed), DIST_OK);
    fresh = allocate(PAGE);
    assert_true(locate(fresh, PAGE).name.key != before.name.key);
    assert_int_equal(locate(kept, PAGE).name.key, before.name.key);
    assert_int_equal(kept[0], 5);
    assert_int_equal(disti_segment_free(kept), DIST_OK);
    assert_int_equal(descriptors(), open);
    disti_segment_retire();
    assert_int_equal(disti_segment_free(fresh), DIST_OK);
    disti_segment_retire();
    assert_int_equal(descriptors(), open - 1);
    assert_int_equal(unit_shared_mappings(), 0);
}

/* ---- a forked child ---- */

static int child_of_owner(void *arg, int channel)
{
    unsigned char **memory = arg;
    struct disti_segment_location at;
    void *own = NULL;

    (void)channel;
    for (int i = 0; i < 3; i++) {
        UNIT_CHECK(!disti_segment_find(memory[i], 1, &at));
        UNIT_CHECK(unit_filled(memory[i], 3 * PAGE, (unsigned)i));
        memset(memory[i], 0, 3 * PAGE);
        UNIT_CHECK(disti_segment_free(memory[i]) == DIST_ERR_INVALID_ARGUMENT);
    }
    UNIT_CHECK(unit_shared_mappings() == 0);
    UNIT_CHECK(disti_segment_alloc(PAGE, &own) == DIST_OK);
    UNIT_CHECK(disti_segment_find(own, PAGE, &at) && at.name.pid == getpid());
    UNIT_CHECK(disti_segment_free(own) == DIST_OK);
    return 0;
}

static void test_a_forked_child_has_its_own_view(void **state)
{
    unsigned char *memory[3], *hole;

    (void)state;
    for (int i = 0; i < 3; i++) {
        memory[i] = allocate(3 * PAGE);
        unit_fill(memory[i], 3 * PAGE, (unsigned)i);
        if (i == 1) {
            hole = allocate(PAGE);
            assert_int_equal(disti_segment_free(hole), DIST_OK);
        }
    }
    unit_run(child_of_owner, memory);
    for (int i = 0; i < 3; i++) {
        assert_true(unit_filled(memory[i], 3 * PAGE, (unsigned)i));
        assert_int_equal(disti_segment_free(memory[i]), DIST_OK);
    }
}

/* mlockall(MCL_FUTURE) does not make all pages of an arena resident. */
static void test_locking_does_not_fill_an_arena(void **state)
{
    struct stat file;
    unsigned char *memory;

    (void)state;
    disti_segment_retire();
    if (mlockall(MCL_FUTURE) < 0)
        skip();
    memory = allocate(PAGE);
    memset(memory, 1, PAGE);
    assert_int_equal(fstat(locate(memory, PAGE).name.fd, &file), 0);
    assert_true((size_t)file.st_blocks * 512 <= (size_t)16 << 20);
    assert_int_equal(disti_segment_free(memory), DIST_OK);
    munlockall();
    disti_segment_retire();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alloc_is_aligned_and_zeroed),
        cmocka_unit_test(test_find_and_free_check_bounds),
        cmocka_unit_test(test_free_frees_the_pages),
        cmocka_unit_test(test_many_blocks_do_not_overlap),
        cmocka_unit_test(test_large_blocks_need_few_arenas),
        cmocka_unit_test(test_ordinary_memory_at_resource_limits),
        cmocka_unit_test(test_blocks_of_an_arena_share_a_mapping),
        cmocka_unit_test(test_no_block_is_reused_after_retire),
        cmocka_unit_test(test_locking_does_not_fill_an_arena),
        cmocka_unit_test(test_a_forked_child_has_its_own_view),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
