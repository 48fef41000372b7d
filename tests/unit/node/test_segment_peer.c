/* SPDX-License-Identifier: BSD-3-Clause */
/* Segments in the processes that map them. */
#include "unit.h"

#include "base/log.h"

#include <fcntl.h>
#include <stdlib.h>

#define PAGE ((size_t)sysconf(_SC_PAGESIZE))
#define SOME ((size_t)5 << 20)

/* ---- reading and writing ---- */

static int peer_reads_and_writes(void *arg, int channel)
{
    const struct disti_segment_name *name = arg;
    void *memory = NULL, *again = NULL;

    (void)channel;
    UNIT_CHECK(disti_segment_map(name, &memory) == DIST_OK);
    UNIT_CHECK((uintptr_t)memory % PAGE == 0);
    UNIT_CHECK(unit_filled(memory, name->bytes, 1));
    unit_fill(memory, name->bytes, 2);
    UNIT_CHECK(disti_segment_map(name, &again) == DIST_OK && again == memory);
    UNIT_CHECK(unit_shared_mappings() == 1);
    return 0;
}

static void check_share(size_t bytes)
{
    struct unit_segment own = unit_segment(bytes);

    unit_fill(own.memory, bytes, 1);
    unit_run(peer_reads_and_writes, &own.name);
    assert_true(unit_filled(own.memory, bytes, 2));
    unit_segment_free(&own);
}

static void test_a_peer_reads_and_writes(void **state)
{
    (void)state;
    check_share(PAGE);
    check_share(SOME);
}

/* ---- a process without /proc ---- */

static int peer_has_no_proc(void *arg, int channel)
{
    void *memory = NULL;

    (void)channel;
    UNIT_CHECK(chroot("/sys") == 0 && chdir("/") == 0); /* a directory without /proc */
    UNIT_CHECK(disti_segment_map(arg, &memory) == DIST_ERR_SYSTEM);
    UNIT_CHECK(strstr(dist_last_error(), "there is no /proc"));
    return 0;
}

static void test_map_fails_without_proc(void **state)
{
    struct unit_segment own;

    (void)state;
    if (geteuid() != 0)
        skip();
    own = unit_segment(PAGE);
    unit_run(peer_has_no_proc, &own.name);
    unit_segment_free(&own);
}

/* ---- freed while another process has it mapped ---- */

static int peer_outlives_segment(void *arg, int channel)
{
    const struct disti_segment_name *name = arg;
    void *memory = NULL;

    UNIT_CHECK(disti_segment_map(name, &memory) == DIST_OK);
    UNIT_CHECK(unit_filled(memory, SOME, 1));
    UNIT_CHECK(unit_signal(channel) && unit_wait(channel));
    UNIT_CHECK(unit_zeros(memory, SOME));
    unit_fill(memory, SOME, 4);
    disti_segment_unmap(name->key);
    disti_segment_trim(0);
    UNIT_CHECK(disti_segment_map(name, &memory) == DIST_ERR_SYSTEM);
    return 0;
}

static void test_freed_memory_reads_as_zeros(void **state)
{
    struct unit_segment own = unit_segment(SOME);
    struct unit_peer peer;

    (void)state;
    unit_fill(own.memory, SOME, 1);
    peer = unit_fork(peer_outlives_segment, &own.name);
    assert_true(unit_wait(peer.channel));
    unit_segment_free(&own);
    assert_true(unit_signal(peer.channel));
    unit_join(&peer);
}

/* ---- wrong names ---- */

static int peer_is_refused(void *arg, int channel)
{
    const struct disti_segment_name *name = arg;
    void *memory = NULL;

    (void)channel;
    UNIT_CHECK(disti_segment_map(name, &memory) == DIST_ERR_SYSTEM);
    UNIT_CHECK(memory == NULL && unit_shared_mappings() == 0);
    UNIT_CHECK(dist_last_error()[0]);
    return 0;
}

/* The name of a freed segment is refused, also if its descriptor now belongs to another file or to
 * another segment of the same size. */
static void test_names_of_freed_segments_are_refused(void **state)
{
    struct unit_segment own = unit_segment(SOME);
    struct disti_segment_name name = own.name;
    int pipes[2];

    (void)state;
    unit_segment_free(&own);
    unit_run(peer_is_refused, &name);
    assert_int_equal(pipe(pipes), 0);
    assert_int_equal(pipes[0], name.fd);
    unit_run(peer_is_refused, &name);
    close(pipes[0]);
    close(pipes[1]);
    own = unit_segment(SOME);
    assert_int_equal(own.name.fd, name.fd);
    unit_run(peer_is_refused, &name);
    unit_segment_free(&own);
}

static void test_wrong_names_are_refused(void **state)
{
    struct unit_segment own = unit_segment(SOME);
    struct disti_segment_name good = own.name, name = good;

    (void)state;
    name.key++;
    unit_run(peer_is_refused, &name);
    name = good;
    name.bytes -= PAGE;
    unit_run(peer_is_refused, &name);
    name.bytes += 2 * PAGE;
    unit_run(peer_is_refused, &name);
    name.bytes = UINT64_MAX - PAGE + 1;
    unit_run(peer_is_refused, &name);
    name = good;
    name.fd = 1 << 20;
    unit_run(peer_is_refused, &name);
    name = good;
    name.pid = INT32_MAX;
    unit_run(peer_is_refused, &name);
    unit_segment_free(&own);
}

/* A file of the right size and key is refused if it is not sealed: if its owner truncated it, an
 * access would raise SIGBUS. */
static void test_unsealed_files_are_refused(void **state)
{
    struct disti_segment_name name = {.key = 77, .bytes = PAGE, .pid = (int32_t)getpid()};

    (void)state;
    name.fd = memfd_create("libdist", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(name.fd, (off_t)(2 * PAGE)), 0);
    assert_int_equal(pwrite(name.fd, &name.key, sizeof(name.key), (off_t)PAGE), sizeof(name.key));
    unit_run(peer_is_refused, &name);
    close(name.fd);
}

/* A second name with another size is refused, although a mapping is cached. */
static int peer_gets_two_sizes(void *arg, int channel)
{
    struct disti_segment_name name = *(struct disti_segment_name *)arg;
    void *memory = NULL;

    (void)channel;
    UNIT_CHECK(disti_segment_map(&name, &memory) == DIST_OK);
    name.bytes *= 2;
    UNIT_CHECK(disti_segment_map(&name, &memory) == DIST_ERR_SYSTEM);
    return 0;
}

static void test_a_second_size_is_refused(void **state)
{
    struct unit_segment own = unit_segment(PAGE);

    (void)state;
    unit_run(peer_gets_two_sizes, &own.name);
    unit_segment_free(&own);
}

/* ---- trim ---- */

enum { TRIMMED = 600 }; /* more than the hash table has chains */

struct trim {
    struct disti_segment_name names[TRIMMED];
};

static int child_has_no_mappings(void *arg, int channel)
{
    (void)arg;
    (void)channel;
    UNIT_CHECK(unit_shared_mappings() == 0);
    return 0;
}

/* Maps all segments; the first is mapped twice and released once, so it stays held. */
static int peer_trims(void *arg, int channel)
{
    struct trim *trim = arg;
    void *memory[TRIMMED], *again = NULL;
    int status;
    pid_t child;

    (void)channel;
    for (int i = 0; i < TRIMMED; i++)
        UNIT_CHECK(disti_segment_map(&trim->names[i], &memory[i]) == DIST_OK);
    disti_segment_trim(0);
    UNIT_CHECK(unit_shared_mappings() == TRIMMED);
    for (int i = 0; i < TRIMMED; i++)
        UNIT_CHECK(*(int *)memory[i] == i);
    child = fork();
    if (child == 0)
        _exit(child_has_no_mappings(NULL, -1));
    UNIT_CHECK(waitpid(child, &status, 0) == child && status == 0);
    UNIT_CHECK(disti_segment_map(&trim->names[0], &again) == DIST_OK && again == memory[0]);
    for (int i = 0; i < TRIMMED; i++)
        disti_segment_unmap(trim->names[i].key);
    UNIT_CHECK(unit_shared_mappings() == DISTI_SEGMENT_KEEP + 1);
    disti_segment_trim(0);
    UNIT_CHECK(unit_shared_mappings() == 1 && *(int *)memory[0] == 0);
    UNIT_CHECK(disti_segment_map(&trim->names[5], &again) == DIST_OK && *(int *)again == 5);
    disti_segment_unmap(trim->names[5].key);
    disti_segment_unmap(trim->names[0].key);
    disti_segment_unmap(trim->names[0].key);
    UNIT_CHECK(unit_shared_mappings() == 2);
    disti_segment_trim(1);
    UNIT_CHECK(unit_shared_mappings() == 1 && *(int *)memory[0] == 0);
    UNIT_CHECK(disti_segment_map(&trim->names[0], &again) == DIST_OK && again == memory[0]);
    disti_segment_trim(0);
    UNIT_CHECK(*(int *)again == 0);
    disti_segment_unmap(trim->names[0].key);
    disti_segment_unmap(0);
    disti_segment_trim(0);
    UNIT_CHECK(unit_shared_mappings() == 0);
    return 0;
}

static void test_trim_unmaps_what_is_not_held(void **state)
{
    static struct trim trim;
    static struct unit_segment own[TRIMMED];

    (void)state;
    for (int i = 0; i < TRIMMED; i++) {
        own[i] = unit_segment(sizeof(int));
        *(int *)own[i].memory = i;
        trim.names[i] = own[i].name;
    }
    unit_run(peer_trims, &trim);
    for (int i = 0; i < TRIMMED; i++)
        unit_segment_free(&own[i]);
}

/* ---- huge pages ---- */

/* Returns how many KiB of the mapping that begins at `memory` are in huge pages; -1: no such
 * mapping. */
static long huge_kib(const void *memory)
{
    FILE *smaps = fopen("/proc/self/smaps", "re");
    char line[512], begin[32];
    bool inside = false;
    long kib = -1;

    snprintf(begin, sizeof(begin), "%lx-", (unsigned long)memory);
    while (smaps && kib < 0 && fgets(line, sizeof(line), smaps)) {
        inside = inside || strncmp(line, begin, strlen(begin)) == 0;
        if (inside)
            sscanf(line, "ShmemPmdMapped: %ld", &kib);
    }
    if (smaps)
        fclose(smaps);
    return kib;
}

/* True if the kernel provides huge pages for shared memory that is advised to have them. */
static bool huge_enabled(void)
{
    static const char *const paths[] = {
        "/sys/kernel/mm/transparent_hugepage/hugepages-2048kB/shmem_enabled",
        "/sys/kernel/mm/transparent_hugepage/shmem_enabled",
    };
    char text[128] = "";

    for (int i = 0; i < 2; i++) {
        FILE *file = fopen(paths[i], "re");

        if (!file)
            continue;
        if (!fgets(text, sizeof(text), file))
            text[0] = '\0';
        fclose(file);
        if (!strstr(text, "[inherit]"))
            break;
    }
    return strstr(text, "[advise]") || strstr(text, "[always]") || strstr(text, "[force]") ||
           strstr(text, "[within_size]");
}

static int peer_has_huge(void *arg, int channel)
{
    const struct disti_segment_name *name = arg;
    unsigned char *memory = NULL;
    void *mapped = NULL;

    (void)channel;
    UNIT_CHECK(disti_segment_map(name, &mapped) == DIST_OK);
    memory = mapped;
    UNIT_CHECK(memory[0] == 1 && memory[name->bytes - 1] == 1);
    UNIT_CHECK((uintptr_t)memory % (2 << 20) == 0);
    UNIT_CHECK(huge_kib(memory) >= 2048);
    return 0;
}

static void test_huge_pages_are_used(void **state)
{
    struct unit_segment own;

    (void)state;
    if (!huge_enabled()) {
        print_message("skipped: the kernel provides no huge pages for shared memory\n");
        skip();
    }
    own = unit_segment(SOME);
    memset(own.memory, 1, SOME);
    assert_true(huge_kib(own.memory) >= 2048);
    unit_run(peer_has_huge, &own.name);
    unit_segment_free(&own);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_map_fails_without_proc),
        cmocka_unit_test(test_a_peer_reads_and_writes),
        cmocka_unit_test(test_freed_memory_reads_as_zeros),
        cmocka_unit_test(test_names_of_freed_segments_are_refused),
        cmocka_unit_test(test_wrong_names_are_refused),
        cmocka_unit_test(test_unsealed_files_are_refused),
        cmocka_unit_test(test_a_second_size_is_refused),
        cmocka_unit_test(test_trim_unmaps_what_is_not_held),
        cmocka_unit_test(test_huge_pages_are_used),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
