/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * churn WHAT TIMES: repeats an action TIMES times. Fails if descriptors, threads, mappings or
 * resident memory of this process grow during the second half. WHAT:
 *
 *     worlds    joins the job, sums, and leaves it
 *     groups    makes a group of all ranks, sums, and destroys it
 *     memory    allocates memory that other ranks of the node can map, sums there, and frees it
 *
 * listeners: joins one world and fails if a listening socket of this process or its parent is bound
 * to the wildcard address. TIMES is ignored.
 */
#include "descriptors.h"
#include "listeners.h"

#include <dist/dist.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Allowed growth: memory that an allocator's pools may add, and what remains of a destroyed group
 * so that its handle is recognized. */
#define GROWTH_KIB 512
#define HANDLE_BYTES 768
#define HANDLES 1024 /* the maximum number of groups that leave a handle */
#define GROWTH_MAPPINGS 4
#define GROWTH_DESCRIPTORS 2 /* descriptors that are made when a call sleeps for the first time */
#define RANKS_MAX 8

struct holding {
    int descriptors, threads, mappings;
    long kib;
};

static void fail(const char *what)
{
    fprintf(stderr, "churn: %s: %s\n", what, dist_last_error());
    exit(1);
}

static void check(dist_status status, const char *what)
{
    if (status != DIST_OK)
        fail(what);
}

/* Returns the number after a name in /proc/self/status. */
static long status_number(const char *name)
{
    FILE *file = fopen("/proc/self/status", "re");
    char line[256];
    long value = -1;

    while (file && fgets(line, sizeof(line), file)) {
        if (strncmp(line, name, strlen(name)) == 0)
            value = strtol(line + strlen(name), NULL, 10);
    }
    if (file)
        fclose(file);
    return value;
}

static int mappings(void)
{
    FILE *file = fopen("/proc/self/maps", "re");
    int count = 0;

    for (int c; file && (c = getc(file)) != EOF;)
        count += c == '\n';
    if (file)
        fclose(file);
    return count;
}

static struct holding hold(void)
{
    return (struct holding){descriptors(), (int)status_number("Threads:"), mappings(),
                            status_number("VmRSS:")};
}

/* True under a sanitizer, which keeps freed memory and maps memory for it. */
static bool keeps_freed_memory(void)
{
    return getenv("CHECK_SHORT") != NULL;
}

static void compare(const struct holding *before, const struct holding *after, long handles)
{
    bool grown = after->descriptors > before->descriptors + GROWTH_DESCRIPTORS ||
                 after->threads > before->threads;

    if (handles > HANDLES)
        handles = HANDLES;
    if (!keeps_freed_memory())
        grown = grown || after->mappings > before->mappings + GROWTH_MAPPINGS ||
                after->kib > before->kib + GROWTH_KIB + handles * HANDLE_BYTES / 1024;
    fprintf(grown ? stderr : stdout,
            "%d -> %d descriptors, %d -> %d threads, %d -> %d mappings, %ld -> %ld KiB\n",
            before->descriptors, after->descriptors, before->threads, after->threads,
            before->mappings, after->mappings, before->kib, after->kib);
    if (grown)
        exit(1);
}

static void sum(dist_group *group, int32_t *data)
{
    int32_t ranks = (int32_t)dist_get_world_size(group);

    for (int i = 0; i < 64; i++)
        data[i] = i;
    check(dist_all_reduce(group, data, data, 64, DIST_INT32, DIST_SUM), "all_reduce");
    for (int i = 0; i < 64; i++) {
        if (data[i] != i * ranks)
            fail("the sum is wrong");
    }
}

static dist_group *join(void)
{
    dist_group *world;

    check(dist_init_process_group(NULL, &world), "init");
    return world;
}

static void once_world(dist_group *unused)
{
    int32_t data[64];
    dist_group *world = join();

    (void)unused;
    sum(world, data);
    check(dist_destroy_process_group(world), "destroy");
}

static void once_group(dist_group *world)
{
    int32_t data[64];
    int ranks[RANKS_MAX];
    dist_group *group;

    for (int r = 0; r < RANKS_MAX; r++)
        ranks[r] = r;
    check(dist_new_group(world, ranks, dist_get_world_size(world), NULL, &group), "new_group");
    sum(group, data);
    check(dist_destroy_process_group(group), "destroy the group");
}

static void once_memory(dist_group *world)
{
    void *data;

    check(dist_alloc(world, 100000, &data), "alloc");
    sum(world, data);
    check(dist_free(world, data), "free");
}

static void repeat(void (*once)(dist_group *world), dist_group *world, int times)
{
    struct holding before, after;

    for (int i = 0; i < times / 2; i++)
        once(world);
    before = hold();
    for (int i = times / 2; i < times; i++)
        once(world);
    after = hold();
    compare(&before, &after, once == once_memory ? 0 : times / 2);
}

/* Returns the number of listening sockets of a process; a socket bound to the wildcard is an error.
 */
static int listeners(pid_t process)
{
    struct listener found[LISTENERS_MOST];
    int count = listeners_of(process, found);

    for (int i = 0; i < count; i++) {
        if (found[i].everywhere) {
            fprintf(stderr, "churn: process %d listens on the wildcard address\n", (int)process);
            exit(1);
        }
    }
    return count;
}

static void look_at_listeners(void)
{
    dist_group *world = join();
    int32_t data[64];
    int32_t count = listeners(getpid()) + listeners(getppid());

    printf("%d sockets listen\n", (int)count);
    sum(world, data);
    check(dist_all_reduce(world, &count, &count, 1, DIST_INT32, DIST_MAX), "all_reduce");
    if (count == 0)
        fail("no socket listens: nothing was checked");
    check(dist_destroy_process_group(world), "destroy");
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    int times = argc > 2 ? atoi(argv[2]) : 0;
    dist_group *world;

    if (strcmp(what, "listeners") == 0) {
        look_at_listeners();
    } else if (strcmp(what, "worlds") == 0) {
        repeat(once_world, NULL, times);
    } else if (strcmp(what, "groups") == 0 || strcmp(what, "memory") == 0) {
        world = join();
        repeat(strcmp(what, "groups") == 0 ? once_group : once_memory, world, times);
        check(dist_destroy_process_group(world), "destroy");
    } else {
        return 2;
    }
    return 0;
}
