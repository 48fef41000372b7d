/* SPDX-License-Identifier: BSD-3-Clause */
/* Registered memory that does not begin or end at a page boundary ("ends" and twin: node.h). */
#include "unit.h"

#include <sys/mman.h>

#define PAGE ((size_t)sysconf(_SC_PAGESIZE))

static unsigned char *map_private(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_ptr_not_equal(memory, MAP_FAILED);
    return memory;
}

struct registered {
    struct disti_segment_location at;
    size_t bytes;
};

/* Reads all registered bytes, ends included, and zeros in place of the bytes beside them; then
 * writes all of them. */
static int peer_sees_ends(void *arg, int channel)
{
    const struct registered *registered = arg;
    void *mapped = NULL;
    unsigned char *memory;

    UNIT_CHECK(disti_segment_map(&registered->at.name, &mapped) == DIST_OK);
    memory = (unsigned char *)mapped + registered->at.offset;
    UNIT_CHECK(unit_filled(memory, registered->bytes, 1));
    UNIT_CHECK((uintptr_t)memory % PAGE == 0 || memory[-1] == 0);
    UNIT_CHECK(((uintptr_t)memory + registered->bytes) % PAGE == 0 ||
               memory[registered->bytes] == 0);
    unit_fill(memory, registered->bytes, 2);
    UNIT_CHECK(unit_signal(channel) && unit_wait(channel));
    return 0;
}

static void check_ends(unsigned char *memory, size_t bytes)
{
    struct registered registered = {.bytes = bytes};
    struct unit_peer peer;

    unit_fill(memory, bytes, 1);
    assert_int_equal(disti_segment_register(memory, bytes), DIST_OK);
    assert_true(unit_filled(memory, bytes, 1));
    assert_true(disti_segment_find(memory, bytes, &registered.at));
    assert_ptr_not_equal(disti_segment_load(memory, bytes), memory);
    peer = unit_fork(peer_sees_ends, &registered);
    assert_true(unit_wait(peer.channel));
    disti_segment_store(memory, bytes);
    assert_true(unit_filled(memory, bytes, 2));
    assert_true(unit_signal(peer.channel));
    unit_join(&peer);
    assert_int_equal(disti_segment_unregister(memory), DIST_OK);
    assert_true(unit_filled(memory, bytes, 2));
}

/* Bytes beside the memory, in its first and last page, keep their contents and stay private. */
static void test_ends_are_shared_without_their_neighbours(void **state)
{
    unsigned char *memory = map_private(5 * PAGE);

    (void)state;
    memset(memory, 9, 5 * PAGE);
    for (size_t head = 0; head < 3; head++) {
        for (size_t tail = head ? 0 : 1; tail < 3; tail++) {
            unsigned char *begin = memory + PAGE + 700 * head;
            size_t bytes = 3 * PAGE - 700 * head - 900 * tail;

            check_ends(begin, bytes);
            for (unsigned char *at = memory; at < memory + 5 * PAGE; at++)
                assert_true((at >= begin && at < begin + bytes) || *at == 9);
            memset(begin, 9, bytes);
        }
    }
    munmap(memory, 5 * PAGE);
}

/* load and store copy only the part of a range that is in an end. A range in no end needs no twin.
 */
static void test_only_parts_in_an_end_are_copied(void **state)
{
    unsigned char *memory = map_private(4 * PAGE), *mine = memory + PAGE - 100, *twin;
    size_t bytes = PAGE + 300;

    (void)state;
    assert_int_equal(disti_segment_register(mine, bytes), DIST_OK);
    unit_fill(mine, bytes, 1);
    assert_ptr_equal(disti_segment_load(mine + 100, PAGE), mine + 100);
    twin = disti_segment_load(mine + 10, 20);
    assert_memory_equal(twin, mine + 10, 20);
    assert_ptr_equal(disti_segment_load(mine + PAGE + 120, 30), twin + PAGE + 110);
    memset(twin, 7, 20);
    disti_segment_store(mine + 15, 5);
    assert_true(mine[14] != 7 && mine[15] == 7 && mine[19] == 7 && mine[20] != 7);
    assert_ptr_equal(disti_segment_load(memory, 5), memory); /* not registered */
    assert_int_equal(disti_segment_unregister(mine), DIST_OK);
    munmap(memory, 4 * PAGE);
}

/* Registers and unregisters two areas that share a page, and one that has no whole page, in any
 * order. */
static void test_registrations_can_share_a_page(void **state)
{
    unsigned char *memory = map_private(4 * PAGE), *second = memory + PAGE + 100;
    size_t first = PAGE + 100, bytes = 2 * PAGE;
    struct disti_segment_location at;

    (void)state;
    unit_fill(memory, 4 * PAGE, 1);
    assert_int_equal(disti_segment_register(memory, first), DIST_OK);
    assert_int_equal(disti_segment_register(second - 1, 10), DIST_ERR_INVALID_ARGUMENT);
    assert_int_equal(disti_segment_register(second, bytes), DIST_OK);
    assert_int_equal(disti_segment_register(second + bytes, 50), DIST_OK);
    assert_true(disti_segment_find(memory, first, &at) && disti_segment_find(second, bytes, &at));
    assert_false(disti_segment_find(memory, first + 1, &at));
    assert_false(disti_segment_find(second + bytes, 50, &at));
    assert_int_equal(disti_segment_unregister(memory), DIST_OK);
    assert_true(disti_segment_find(second, bytes, &at));
    assert_int_equal(disti_segment_unregister(second + bytes), DIST_OK);
    assert_int_equal(disti_segment_unregister(second), DIST_OK);
    assert_true(unit_filled(memory, 4 * PAGE, 1));
    munmap(memory, 4 * PAGE);
}

/* ---- a forked child ---- */

static int child_writes(void *arg, int channel)
{
    unsigned char *memory = arg;

    (void)channel;
    UNIT_CHECK(unit_filled(memory, 4 * PAGE, 1));
    UNIT_CHECK(disti_segment_load(memory + 100, 2 * PAGE) == memory + 100);
    unit_fill(memory, 4 * PAGE, 2);
    UNIT_CHECK(unit_filled(memory, 4 * PAGE, 2));
    return 0;
}

/* The parent sees none of the child's writes, neither to shared pages nor beside them. */
static void test_writes_of_a_child_are_private(void **state)
{
    unsigned char *memory = map_private(4 * PAGE);
    struct disti_segment_location at;

    (void)state;
    unit_fill(memory, 4 * PAGE, 1);
    assert_int_equal(disti_segment_register(memory + 100, 2 * PAGE), DIST_OK);
    unit_run(child_writes, memory);
    assert_true(unit_filled(memory, 4 * PAGE, 1));
    assert_true(disti_segment_find(memory + 100, 2 * PAGE, &at));
    assert_int_equal(disti_segment_unregister(memory + 100), DIST_OK);
    munmap(memory, 4 * PAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ends_are_shared_without_their_neighbours),
        cmocka_unit_test(test_only_parts_in_an_end_are_copied),
        cmocka_unit_test(test_registrations_can_share_a_page),
        cmocka_unit_test(test_writes_of_a_child_are_private),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
