/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * hooked BACKEND: registers and unregisters memory in a process in which libc's functions for
 * mappings are hooked by UCX, by MPI, or by tests/standin/hooks.c, which enables more checks. Exit
 * 0: address 0 is free, the memory becomes shared and then private again, contents and sums are
 * right, and the mappings of another thread are unaffected.
 */
#include <dist/dist.h>
#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES ((size_t)1 << 20)
#define LOWEST 0x10000 /* the kernel maps nothing below it for ordinary processes */
#define ROUNDS 100

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "line %d: %s is false: %s\n", __LINE__, #condition,                    \
                    dist_last_error());                                                            \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static dist_group *group;
static int32_t *memory;

/* Functions of tests/standin/hooks.c; NULL if another library's hooks are used. */
static struct {
    void (*pin)(const void *memory, size_t bytes);
    bool (*has_pinned)(void);
    void (*interrupt)(void);
    void (*mislead)(bool misleads);
} hooks;

static void hooks_find(void)
{
    void *symbols[] = {dlsym(RTLD_DEFAULT, "hooks_pin"), dlsym(RTLD_DEFAULT, "hooks_has_pinned"),
                       dlsym(RTLD_DEFAULT, "hooks_interrupt"),
                       dlsym(RTLD_DEFAULT, "hooks_mislead")};

    memcpy(&hooks, symbols, sizeof(hooks));
    CHECK(!getenv("LD_PRELOAD") || !strstr(getenv("LD_PRELOAD"), "hooks") || hooks.mislead);
}

/* ---- mappings ---- */

/* Returns the kind of the mapping that contains `memory`: 's' or 'p'. */
static char kind_of_memory(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    uintptr_t begin, end;
    char rights[8], line[512], kind = '?';

    CHECK(maps);
    while (fgets(line, sizeof(line), maps)) {
        CHECK(sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %7s", &begin, &end, rights) == 3);
        if (begin < LOWEST)
            fprintf(stderr, "mapped at a NULL pointer: %s", line);
        CHECK(begin >= LOWEST);
        if (begin <= (uintptr_t)memory && end >= (uintptr_t)memory + BYTES)
            kind = rights[3];
    }
    fclose(maps);
    return kind;
}

static void fill(int32_t number)
{
    for (size_t i = 0; i < BYTES / sizeof(*memory); i++)
        memory[i] = number;
}

static bool is_filled(int32_t number)
{
    for (size_t i = 0; i < BYTES / sizeof(*memory); i++) {
        if (memory[i] != number)
            return false;
    }
    return true;
}

/* Sums in the memory in place, so that a library that has cached the pages of the memory uses them.
 */
static void sum(void)
{
    fill(dist_get_rank(group) + 1);
    CHECK(dist_all_reduce(group, memory, memory, BYTES / sizeof(*memory), DIST_INT32, DIST_SUM) ==
          DIST_OK);
    CHECK(is_filled(dist_get_world_size(group) * (dist_get_world_size(group) + 1) / 2));
}

/* ---- the tests ---- */

static void register_and_back(void)
{
    fill(5);
    CHECK(dist_register(group, memory, BYTES) == DIST_OK);
    CHECK(kind_of_memory() == 's' && is_filled(5));
    sum();
    fill(6);
    CHECK(dist_unregister(group, memory) == DIST_OK);
    CHECK(kind_of_memory() == 'p' && is_filled(6));
    sum();
}

/* Registering and unregistering replace pages. A library that has pinned the pages must be notified
 * before. */
static void forget_pages(void)
{
    hooks.pin(memory, BYTES);
    CHECK(dist_register(group, memory, BYTES) == DIST_OK);
    CHECK(!hooks.has_pinned());
    hooks.pin(memory, BYTES);
    CHECK(dist_unregister(group, memory) == DIST_OK);
    CHECK(!hooks.has_pinned());
}

static atomic_bool ended;

/* Repeatedly maps as many bytes as the memory has, which the kernel may place where a registration
 * has just moved pages away. */
static void *map_and_unmap(void *arg)
{
    (void)arg;
    while (!ended) {
        int32_t *mine =
            mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        CHECK(mine != MAP_FAILED);
        for (size_t i = 0; i < BYTES / sizeof(*mine); i += 1024)
            mine[i] = 77;
        for (size_t i = 0; i < BYTES / sizeof(*mine); i += 1024)
            CHECK(mine[i] == 77);
        munmap(mine, BYTES);
    }
    return NULL;
}

static void register_beside_thread(void)
{
    pthread_t thread;

    CHECK(pthread_create(&thread, NULL, map_and_unmap, NULL) == 0);
    for (int i = 0; i < ROUNDS; i++) {
        fill(i);
        CHECK(dist_register(group, memory, BYTES) == DIST_OK);
        CHECK(dist_unregister(group, memory) == DIST_OK);
        CHECK(is_filled(i));
    }
    ended = true;
    CHECK(pthread_join(thread, NULL) == 0);
}

/* If mremap places pages at another address than the requested one, registering and unregistering
 * change neither the contents of the memory nor its mapping. */
static void register_moved(void)
{
    fill(8);
    hooks.mislead(true);
    CHECK(dist_register(group, memory, BYTES) == DIST_OK);
    CHECK(kind_of_memory() == 'p' && is_filled(8));
    CHECK(dist_unregister(group, memory) == DIST_OK);
    hooks.mislead(false);
    CHECK(dist_register(group, memory, BYTES) == DIST_OK);
    hooks.mislead(true);
    CHECK(dist_unregister(group, memory) == DIST_ERR_SYSTEM);
    CHECK(strstr(dist_last_error(), "mremap to"));
    CHECK(kind_of_memory() == 's' && is_filled(8));
    hooks.mislead(false);
    CHECK(dist_unregister(group, memory) == DIST_OK);
    CHECK(kind_of_memory() == 'p' && is_filled(8));
}

static void fork_child(void)
{
    void *allocated;
    pid_t child;
    int status;

    CHECK(dist_alloc(group, BYTES, &allocated) == DIST_OK);
    memset(allocated, 3, BYTES);
    fill(9);
    CHECK(dist_register(group, memory, BYTES) == DIST_OK);
    child = fork();
    if (child == 0)
        _exit(is_filled(9) && ((char *)allocated)[BYTES - 1] == 3 ? 0 : 1);
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    CHECK(dist_unregister(group, memory) == DIST_OK);
    CHECK(dist_free(group, allocated) == DIST_OK);
}

int main(int argc, char **argv)
{
    struct dist_options options = DIST_OPTIONS_INIT;

    CHECK(argc == 2);
    hooks_find();
    options.backend = argv[1];
    CHECK(dist_init_process_group(&options, &group) == DIST_OK);
    memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    sum();
    for (int i = 0; i < 3; i++)
        register_and_back();
    register_beside_thread();
    fork_child();
    if (hooks.mislead) {
        forget_pages();
        register_moved();
        hooks.interrupt();
        sum();
    }
    CHECK(dist_destroy_process_group(group) == DIST_OK);
    munmap(memory, BYTES);
    return 0;
}
