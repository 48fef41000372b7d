/* SPDX-License-Identifier: BSD-3-Clause */
/* Registration and unregistration of memory, both in place. */
#include "unit.h"

#include "base/log.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>

#define PAGE ((size_t)sysconf(_SC_PAGESIZE))

static void *map_private(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_ptr_not_equal(memory, MAP_FAILED);
    return memory;
}

struct registered {
    struct disti_segment_location at;
    size_t bytes;
};

/* Reads the contents from before the registration, then what the owner writes, and writes data that
 * the owner reads. After the owner has unregistered the memory, reads zeros. */
static int peer_shares(void *arg, int channel)
{
    const struct registered *registered = arg;
    unsigned char *memory;
    void *mapped = NULL;

    UNIT_CHECK(disti_segment_map(&registered->at.name, &mapped) == DIST_OK);
    memory = (unsigned char *)mapped + registered->at.offset;
    UNIT_CHECK(unit_filled(memory, registered->bytes, 1));
    UNIT_CHECK(unit_signal(channel) && unit_wait(channel));
    UNIT_CHECK(unit_filled(memory, registered->bytes, 2));
    unit_fill(memory, registered->bytes, 3);
    UNIT_CHECK(unit_signal(channel) && unit_wait(channel));
    UNIT_CHECK(unit_zeros(memory, registered->bytes));
    return 0;
}

static void check_register(unsigned char *memory, size_t bytes)
{
    struct registered registered = {.bytes = bytes};
    struct disti_segment_location at;
    struct unit_peer peer;

    unit_fill(memory, bytes, 1);
    if (disti_segment_register(memory, bytes) != DIST_OK)
        fail_msg("%s", dist_last_error());
    assert_true(unit_filled(memory, bytes, 1));
    assert_true(disti_segment_find(memory, bytes, &registered.at));
    assert_false(disti_segment_find(memory, bytes + 1, &at));
    assert_true(disti_segment_find(memory + bytes - 1, 1, &at));
    assert_int_equal(at.offset, registered.at.offset + bytes - 1);
    peer = unit_fork(peer_shares, &registered);
    assert_true(unit_wait(peer.channel));
    unit_fill(memory, bytes, 2);
    assert_true(unit_signal(peer.channel) && unit_wait(peer.channel));
    assert_true(unit_filled(memory, bytes, 3));
    assert_int_equal(disti_segment_unregister(memory), DIST_OK);
    assert_true(unit_filled(memory, bytes, 3));
    assert_false(disti_segment_find(memory, 1, &at));
    unit_fill(memory, bytes, 4); /* the peer does not see it */
    assert_true(unit_signal(peer.channel));
    unit_join(&peer);
    assert_true(unit_filled(memory, bytes, 4));
    assert_true(unit_shared_mappings() <= UNIT_ARENA_MAPPINGS);
}

/* Part of a larger mapping, registered twice: the remaining mapping is unchanged. */
static void test_register_keeps_the_contents(void **state)
{
    size_t bytes = ((size_t)5 << 20) + PAGE;
    unsigned char *memory = map_private(bytes + 2 * PAGE);

    (void)state;
    memset(memory, 9, bytes + 2 * PAGE);
    check_register(memory + PAGE, bytes);
    check_register(memory + PAGE, PAGE);
    for (size_t i = 0; i < PAGE; i++)
        assert_true(memory[i] == 9 && memory[PAGE + bytes + i] == 9);
    munmap(memory, bytes + 2 * PAGE);
}

static void test_heap_memory_can_be_registered(void **state)
{
    static const size_t pages[] = {1, 3, 1000};
    void *memory = NULL;

    (void)state;
    if (unit_is_watched()) /* Valgrind's heap is executable */
        skip();
    for (int i = 0; i < 3; i++) {
        assert_int_equal(posix_memalign(&memory, PAGE, pages[i] * PAGE), 0);
        check_register(memory, pages[i] * PAGE);
        free(memory);
    }
}

/* The memory consists of several adjacent mappings. */
static void test_several_mappings_can_be_registered(void **state)
{
    unsigned char *memory = map_private(6 * PAGE);

    (void)state;
    assert_int_equal(madvise(memory + 2 * PAGE, 2 * PAGE, MADV_DONTDUMP), 0);
    check_register(memory, 6 * PAGE);
    munmap(memory, 6 * PAGE);
}

/* ---- memory that is refused ---- */

/* Checks that registration is refused with a message that contains `word`. */
static void refuse(void *memory, size_t bytes, const char *word)
{
    assert_int_equal(disti_segment_register(memory, bytes), DIST_ERR_INVALID_ARGUMENT);
    if (!strstr(dist_last_error(), word))
        fail_msg("the message '%s' does not contain '%s'", dist_last_error(), word);
}

static void test_wrong_ranges_are_refused(void **state)
{
    char *memory = map_private(4 * PAGE);

    (void)state;
    refuse(memory, 0, "empty");
    refuse(memory, SIZE_MAX - PAGE + 1, "exceeds the address space");
    refuse(memory, SIZE_MAX, "exceeds the address space");
    refuse((void *)(UINTPTR_MAX - 8), 8, "exceeds the address space");
    munmap(memory + 3 * PAGE, PAGE);
    refuse(memory + 2 * PAGE, 2 * PAGE, "not mapped");
    refuse(memory + 2 * PAGE, PAGE + 1, "not mapped");
    munmap(memory + PAGE, PAGE);
    refuse(memory, 3 * PAGE, "not mapped");
    munmap(memory, 3 * PAGE);
    refuse(memory, PAGE, "not mapped");
}

static void test_read_only_memory_is_refused(void **state)
{
    char *memory = map_private(3 * PAGE);

    (void)state;
    mprotect(memory + PAGE, PAGE, PROT_READ);
    refuse(memory, 2 * PAGE, "readable and writable");
    refuse(memory + PAGE, PAGE, "readable and writable");
    munmap(memory, 3 * PAGE);
}

/* Executable memory, as Valgrind's heap is, stays ordinary memory, because code may run there. */
static void test_executable_memory_stays_private(void **state)
{
    unsigned char *memory = (unsigned char *)map_private(3 * PAGE);
    struct disti_segment_location at;

    (void)state;
    mprotect(memory + PAGE, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC);
    unit_fill(memory, 3 * PAGE, 1);
    assert_int_equal(disti_segment_register(memory, 3 * PAGE), DIST_OK);
    assert_true(unit_filled(memory, 3 * PAGE, 1));
    assert_false(disti_segment_find(memory, 1, &at));
    refuse(memory, PAGE, "shared");
    assert_int_equal(disti_segment_unregister(memory), DIST_OK);
    assert_true(unit_filled(memory, 3 * PAGE, 1));
    munmap(memory, 3 * PAGE);
}

static void test_other_kinds_of_memory_are_refused(void **state)
{
    FILE *file = tmpfile();
    void *memory;
    char local;

    (void)state;
    assert_non_null(file);
    assert_int_equal(ftruncate(fileno(file), (off_t)PAGE), 0);
    memory = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fileno(file), 0);
    refuse(memory, PAGE, "file");
    munmap(memory, PAGE);
    fclose(file);
    memory = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    refuse(memory, PAGE, "shared");
    munmap(memory, PAGE);
    refuse((void *)((uintptr_t)&local & ~(PAGE - 1)), PAGE, "stack");
    memory = unit_alloc(PAGE);
    refuse(memory, PAGE, "shared");
    assert_int_equal(disti_segment_free(memory), DIST_OK);
}

static void test_registered_memory_is_not_registered_twice(void **state)
{
    char *memory = map_private(3 * PAGE);

    (void)state;
    assert_int_equal(disti_segment_unregister(NULL), DIST_OK);
    assert_int_equal(disti_segment_unregister(memory), DIST_ERR_INVALID_ARGUMENT);
    assert_int_equal(disti_segment_register(memory, 2 * PAGE), DIST_OK);
    refuse(memory, 2 * PAGE, "shared");
    refuse(memory + PAGE, 2 * PAGE, "shared");
    assert_int_equal(disti_segment_unregister(memory + PAGE), DIST_ERR_INVALID_ARGUMENT);
    assert_int_equal(disti_segment_free(memory), DIST_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(dist_last_error(), "dist_unregister"));
    assert_int_equal(disti_segment_unregister(memory), DIST_OK);
    assert_int_equal(disti_segment_unregister(memory), DIST_ERR_INVALID_ARGUMENT);
    munmap(memory, 3 * PAGE);
}

/* ---- a forked child has a view of its own ---- */

static int child_writes(void *arg, int channel)
{
    struct disti_segment_location at;

    (void)channel;
    UNIT_CHECK(unit_filled(arg, 4 * PAGE, 1));
    unit_fill(arg, 4 * PAGE, 2);
    UNIT_CHECK(!disti_segment_find(arg, 1, &at));
    UNIT_CHECK(disti_segment_unregister(arg) == DIST_ERR_INVALID_ARGUMENT);
    UNIT_CHECK(unit_filled(arg, 4 * PAGE, 2));
    return 0;
}

static void test_a_forked_child_has_its_own_view(void **state)
{
    unsigned char *memory = map_private(4 * PAGE);

    (void)state;
    unit_fill(memory, 4 * PAGE, 1);
    assert_int_equal(disti_segment_register(memory, 4 * PAGE), DIST_OK);
    unit_run(child_writes, memory);
    assert_true(unit_filled(memory, 4 * PAGE, 1));
    assert_int_equal(disti_segment_unregister(memory), DIST_OK);
    munmap(memory, 4 * PAGE);
}

/* ---- limits of the kernel ---- */

/* Without a free descriptor, registered memory stays ordinary memory and can be used. */
static int peer_without_descriptors(void *arg, int channel)
{
    struct rlimit none = {0, 0};
    struct disti_segment_location at;

    (void)channel;
    UNIT_CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    UNIT_CHECK(disti_segment_register(arg, 4 * PAGE) == DIST_OK);
    UNIT_CHECK(unit_filled(arg, 4 * PAGE, 1) && !disti_segment_find(arg, 1, &at));
    UNIT_CHECK(disti_segment_register(arg, PAGE) == DIST_ERR_INVALID_ARGUMENT);
    unit_fill(arg, 4 * PAGE, 2);
    UNIT_CHECK(disti_segment_unregister(arg) == DIST_OK);
    UNIT_CHECK(disti_segment_unregister(arg) == DIST_ERR_INVALID_ARGUMENT);
    UNIT_CHECK(unit_filled(arg, 4 * PAGE, 2));
    return 0;
}

static void test_works_without_descriptors(void **state)
{
    unsigned char *memory = map_private(4 * PAGE);

    (void)state;
    if (unit_is_in_valgrind()) {
        print_message("skipped: Valgrind allows more descriptors than the limit\n");
        skip();
    }
    unit_fill(memory, 4 * PAGE, 1);
    unit_run(peer_without_descriptors, memory);
    munmap(memory, 4 * PAGE);
}

/* At the limit of mappings, pages cannot be replaced by shared ones; the contents are unchanged. */
static int peer_without_mappings(void *arg, int channel)
{
    size_t pages = 1 << 18, made = 0;
    unsigned char *memory = arg;
    char *many = mmap(NULL, pages * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct disti_segment_location at;
    dist_status status;

    (void)channel;
    UNIT_CHECK(many != MAP_FAILED);
    while (made < pages && mprotect(many + made * PAGE, PAGE, PROT_READ) == 0)
        made += 2;
    status = disti_segment_register(memory, 4 * PAGE);
    munmap(many, pages * PAGE);
    UNIT_CHECK(unit_filled(memory, 4 * PAGE, 1));
    UNIT_CHECK(status == DIST_OK || status == DIST_ERR_NO_MEMORY);
    UNIT_CHECK(made >= pages || !disti_segment_find(memory, 1, &at));
    unit_fill(memory, 4 * PAGE, 2);
    UNIT_CHECK(status != DIST_OK || disti_segment_unregister(memory) == DIST_OK);
    UNIT_CHECK(unit_filled(memory, 4 * PAGE, 2));
    return 0;
}

static void test_works_without_mappings(void **state)
{
    unsigned char *memory = map_private(4 * PAGE);

    (void)state;
    if (unit_is_watched())
        skip();
    unit_fill(memory, 4 * PAGE, 1);
    unit_run(peer_without_mappings, memory);
    munmap(memory, 4 * PAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_register_keeps_the_contents),
        cmocka_unit_test(test_heap_memory_can_be_registered),
        cmocka_unit_test(test_several_mappings_can_be_registered),
        cmocka_unit_test(test_wrong_ranges_are_refused),
        cmocka_unit_test(test_read_only_memory_is_refused),
        cmocka_unit_test(test_executable_memory_stays_private),
        cmocka_unit_test(test_other_kinds_of_memory_are_refused),
        cmocka_unit_test(test_registered_memory_is_not_registered_twice),
        cmocka_unit_test(test_a_forked_child_has_its_own_view),
        cmocka_unit_test(test_works_without_descriptors),
        cmocka_unit_test(test_works_without_mappings),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
