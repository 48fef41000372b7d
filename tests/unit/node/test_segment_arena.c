/* SPDX-License-Identifier: BSD-3-Clause */
/* Tests of memory that comes as blocks of arenas: in the owner, in peers, in children. */
#include "unit.h"

#include "base/log.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define PAGE ((size_t)sysconf(_SC_PAGESIZE))

static unsigned char *take(size_t bytes)
{
    void *memory = NULL;

    if (disti_segment_alloc(bytes, &memory) != DIST_OK)
        fail_msg("%s", dist_last_error());
    return memory;
}

static struct disti_segment_location where(const void *memory, size_t bytes)
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

/* ---- what a block is ---- */

static void test_sizes(void **state)
{
    static const size_t sizes[] = {0, 1, 4096, 4097, 100000, (2 << 20) - 1, 2 << 20, 5000001};

    (void)state;
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            unsigned char *memory = take(sizes[i]);

            assert_int_equal((uintptr_t)memory % (sizes[i] >= 2 << 20 ? 2 << 20 : PAGE), 0);
            assert_true(unit_zeros(memory, sizes[i]));
            unit_fill(memory, sizes[i], 3);
            assert_true(unit_filled(memory, sizes[i], 3));
            assert_int_equal(where(memory, sizes[i]).name.pid, getpid());
            assert_int_equal(disti_segment_free(memory), DIST_OK);
        }
    }
    assert_true(unit_shared_mappings() <= UNIT_ARENA_MAPPINGS);
}

static void test_bounds(void **state)
{
    unsigned char *first = take(2 * PAGE), *second = take(2 * PAGE);
    struct disti_segment_location at;

    (void)state;
    assert_int_equal(where(first + 5, PAGE).offset, where(first, 1).offset + 5);
    assert_int_equal(where(first, 1).name.key, where(second, 1).name.key);
    assert_true(where(first, 1).offset != where(second, 1).offset);
    assert_false(disti_segment_find(first, 2 * PAGE + 1, &at));
    assert_false(disti_segment_find(first + 1, SIZE_MAX, &at));
    assert_int_equal(disti_segment_free(first + PAGE), DIST_ERR_INVALID_ARGUMENT);
    assert_int_equal(disti_segment_unregister(first), DIST_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(dist_last_error(), "dist_free"));
    assert_int_equal(disti_segment_free(first), DIST_OK);
    assert_int_equal(disti_segment_free(first), DIST_ERR_INVALID_ARGUMENT);
    assert_false(disti_segment_find(first, 1, &at));
    assert_int_equal(where(second, 2 * PAGE).name.pid, getpid());
    assert_int_equal(disti_segment_free(second), DIST_OK);
}

/* The file's bytes that take memory. */
static size_t resident(const struct disti_segment_location *at)
{
    struct stat info;

    assert_int_equal(fstat(at->name.fd, &info), 0);
    return (size_t)info.st_blocks * 512;
}

/* What is freed is the system's at once, though the arena stays. */
static void test_gives_memory_back(void **state)
{
    enum { SOME = 5 << 20 };
    unsigned char *memory = take(SOME), *beside = take(1);
    struct disti_segment_location at = where(memory, SOME);

    (void)state;
    memset(memory, 1, SOME);
    beside[0] = 7;
    assert_true(resident(&at) >= SOME);
    assert_int_equal(disti_segment_free(memory), DIST_OK);
    assert_true(resident(&at) < SOME / 2);
    assert_int_equal(beside[0], 7);
    assert_int_equal(disti_segment_free(beside), DIST_OK);
}

/* ---- many ---- */

enum { MANY = 3000 };

/* Of sizes from a page to some MiB, freed in another order: one descriptor more than before, two at
 * most, and contents that do not meet. */
static void test_many(void **state)
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
        memory[i] = take(bytes[i]);
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

/* Ever larger ones, untouched, need few arenas, which go with them. */
static void test_large(void **state)
{
    unsigned char *memory[48];
    int before = descriptors();

    (void)state;
    if (unit_is_watched())
        skip();
    for (int i = 0; i < 48; i++) {
        memory[i] = take((size_t)200 << 20);
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

/* Without descriptors, or with small files only, it is ordinary memory; no signal kills. */
static void test_limits(void **state)
{
    (void)state;
    if (unit_is_in_valgrind())
        print_message("valgrind gives descriptors beyond the limit\n");
    else
        unit_run(peer_at_its_limits, NULL);
    unit_run(peer_at_its_limits, "files");
}

/* ---- peers ---- */

struct two {
    struct disti_segment_location at[2];
};

/* Two blocks, one mapping; what is freed reads zeros, then what comes there next. */
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

static void test_peer(void **state)
{
    unsigned char *memory[2] = {take(PAGE), take(PAGE)}, *again;
    struct two two = {.at = {where(memory[0], PAGE), where(memory[1], PAGE)}};
    struct unit_peer peer;

    (void)state;
    unit_fill(memory[0], PAGE, 1);
    unit_fill(memory[1], PAGE, 2);
    peer = unit_fork(peer_maps_once, &two);
    assert_true(unit_wait(peer.channel));
    assert_true(unit_filled(memory[1], PAGE, 3));
    assert_int_equal(disti_segment_free(memory[0]), DIST_OK);
    assert_true(unit_signal(peer.channel) && unit_wait(peer.channel));
    again = take(PAGE);
    assert_ptr_equal(again, memory[0]);
    unit_fill(again, PAGE, 4);
    assert_true(unit_signal(peer.channel));
    unit_join(&peer);
    assert_int_equal(disti_segment_free(again), DIST_OK);
    assert_int_equal(disti_segment_free(memory[1]), DIST_OK);
}

/* ---- a peer that may still be writing ---- */

static void test_retire(void **state)
{
    unsigned char *kept = take(PAGE), *freed = take(PAGE), *fresh;
    struct disti_segment_location before = where(kept, PAGE);
    int open = descriptors();

    (void)state;
    disti_segment_retire();
    kept[0] = 5;
    assert_int_equal(disti_segment_free(freed), DIST_OK);
    fresh = take(PAGE);
    assert_true(where(fresh, PAGE).name.key != before.name.key);
    assert_int_equal(where(kept, PAGE).name.key, before.name.key);
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

static void test_fork(void **state)
{
    unsigned char *memory[3], *hole;

    (void)state;
    for (int i = 0; i < 3; i++) {
        memory[i] = take(3 * PAGE);
        unit_fill(memory[i], 3 * PAGE, (unsigned)i);
        if (i == 1) {
            hole = take(PAGE);
            assert_int_equal(disti_segment_free(hole), DIST_OK);
        }
    }
    unit_run(child_of_owner, memory);
    for (int i = 0; i < 3; i++) {
        assert_true(unit_filled(memory[i], 3 * PAGE, (unsigned)i));
        assert_int_equal(disti_segment_free(memory[i]), DIST_OK);
    }
}

/* A process that locks its future memory does not make all pages of an arena at once. */
static void test_locked(void **state)
{
    struct stat file;
    unsigned char *memory;

    (void)state;
    disti_segment_retire();
    if (mlockall(MCL_FUTURE) < 0)
        skip();
    memory = take(PAGE);
    memset(memory, 1, PAGE);
    assert_int_equal(fstat(where(memory, PAGE).name.fd, &file), 0);
    assert_true((size_t)file.st_blocks * 512 <= (size_t)16 << 20);
    assert_int_equal(disti_segment_free(memory), DIST_OK);
    munlockall();
    disti_segment_retire();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_gives_memory_back),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_large),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_peer),
        cmocka_unit_test(test_retire),
        cmocka_unit_test(test_locked),
        cmocka_unit_test(test_fork),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
