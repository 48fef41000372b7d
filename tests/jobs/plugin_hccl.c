/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * plugin_hccl PART: backend hccl on memory of Ascend devices, which dist_info selftest does not
 * use. `streams`: collectives ordered by a stream, sends, receives, mixed memory. `stuck`: rank 1
 * makes no call, and the other ranks get an error in time. `fails`: an operation fails with HCCL's
 * reason.
 */
#include <dist/dist.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { TO_DEVICE = 1, TO_HOST = 2, COUNT = 1000 };

/* Functions of CANN's runtime, from the library that the backend loads. */
static struct {
    int (*device_set)(int32_t device);
    int (*malloc)(void **memory, size_t bytes, int policy);
    int (*memcpy)(void *to, size_t room, const void *from, size_t bytes, int kind);
    int (*memcpy_async)(void *to, size_t room, const void *from, size_t bytes, int kind,
                        void *stream);
    int (*stream_create)(void **stream);
    int (*stream_sync)(void *stream);
} acl;

static dist_group *group;
static int rank, ranks, faults;
static void *stream;

static void check(bool good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "rank %d: FAULT %s: %s\n", rank, what, dist_last_error());
    faults++;
}

static void find(const char *symbol, void *to)
{
    void *library = dlopen(getenv("DIST_ACL_LIBRARY"), RTLD_NOW);
    void *found = library ? dlsym(library, symbol) : NULL;

    if (!found) {
        fprintf(stderr, "no %s: %s\n", symbol, dlerror());
        exit(1);
    }
    memcpy(to, &found, sizeof(found));
}

static void start(void)
{
    find("aclrtSetDevice", &acl.device_set);
    find("aclrtMalloc", &acl.malloc);
    find("aclrtMemcpy", &acl.memcpy);
    find("aclrtMemcpyAsync", &acl.memcpy_async);
    find("aclrtCreateStream", &acl.stream_create);
    find("aclrtSynchronizeStream", &acl.stream_sync);
    acl.device_set(rank);
    check(acl.stream_create(&stream) == 0, "aclrtCreateStream");
    check(dist_set_stream(group, stream) == DIST_OK, "set_stream");
}

static int32_t *device(size_t count)
{
    void *memory = NULL;

    check(acl.malloc(&memory, count * sizeof(int32_t), 0) == 0, "aclrtMalloc");
    return memory;
}

/* Returns element i of rank r's input in a round. */
static int32_t number(int r, size_t i, int round)
{
    return (int32_t)((size_t)(r + 1) * 1000 + i % 37 + (size_t)round);
}

static void put(int32_t *to, size_t count, int round)
{
    int32_t numbers[count];

    for (size_t i = 0; i < count; i++)
        numbers[i] = number(rank, i, round);
    check(acl.memcpy(to, sizeof(numbers), numbers, sizeof(numbers), TO_DEVICE) == 0, "aclrtMemcpy");
}

static bool is_sum(const int32_t *found, size_t first, size_t count, int round)
{
    for (size_t i = 0; i < count; i++) {
        int32_t sum = 0;

        for (int r = 0; r < ranks; r++)
            sum += number(r, first + i, round);
        if (found[i] != sum)
            return false;
    }
    return true;
}

static void get(int32_t *to, const int32_t *from, size_t count)
{
    check(acl.stream_sync(stream) == 0, "aclrtSynchronizeStream");
    check(acl.memcpy(to, count * 4, from, count * 4, TO_HOST) == 0, "aclrtMemcpy");
}

/* Makes calls of which each uses the result of the previous one, without a wait between them. */
static void try_chain(void)
{
    int32_t *a = device(COUNT), *b = device(COUNT), *all = device((size_t)ranks * COUNT);
    int32_t found[ranks * COUNT];

    put(a, COUNT, 0);
    check(dist_all_reduce(group, a, b, COUNT, DIST_INT32, DIST_SUM) == DIST_OK, "all_reduce");
    check(dist_all_gather(group, b, all, COUNT, DIST_INT32) == DIST_OK, "all_gather");
    get(found, all, (size_t)ranks * COUNT);
    for (int r = 0; r < ranks; r++)
        check(is_sum(found + r * COUNT, 0, COUNT, 0), "all_reduce, then all_gather");
}

/* Makes calls in place, for which the backend does not use HCCL's in-place mode. */
static void try_in_place(void)
{
    int32_t *all = device((size_t)ranks * COUNT), found[ranks * COUNT];
    bool right = true;

    put(all + rank * COUNT, COUNT, 3);
    check(dist_all_gather(group, all + rank * COUNT, all, COUNT, DIST_INT32) == DIST_OK,
          "all_gather in place");
    get(found, all, (size_t)ranks * COUNT);
    for (int i = 0; i < ranks * COUNT; i++)
        right = right && found[i] == number(i / COUNT, (size_t)i % COUNT, 3);
    check(right, "all_gather in place is right");
    put(all, (size_t)ranks * COUNT, 4);
    check(dist_reduce_scatter(group, all, all + rank * COUNT, COUNT, DIST_INT32, DIST_SUM) ==
              DIST_OK,
          "reduce_scatter in place");
    get(found, all + rank * COUNT, COUNT);
    check(is_sum(found, (size_t)rank * COUNT, COUNT, 4), "reduce_scatter in place is right");
}

/* Starts many requests at once. The stream's work after dist_wait must begin after the request. */
static void try_works(void)
{
    static int32_t found[300][COUNT];
    int32_t *data[300];
    dist_work *works[300];

    for (int w = 0; w < 300; w++) {
        data[w] = device(COUNT);
        put(data[w], COUNT, w);
        check(dist_all_reduce_async(group, data[w], data[w], COUNT, DIST_INT32, DIST_SUM,
                                    &works[w]) == DIST_OK,
              "all_reduce_async");
    }
    for (int w = 299; w >= 0; w--) {
        check(dist_wait(works[w]) == DIST_OK, "wait");
        acl.memcpy_async(found[w], sizeof(found[w]), data[w], sizeof(found[w]), TO_HOST, stream);
    }
    check(acl.stream_sync(stream) == 0, "aclrtSynchronizeStream");
    for (int w = 0; w < 300; w++)
        check(is_sum(found[w], 0, COUNT, w), "request that the stream waited for");
}

/*
 * Makes calls with one buffer in host and one in device memory, and with blocks of different sizes.
 */
static void try_mixed(void)
{
    int32_t host[COUNT], *to = device(COUNT), found[COUNT];
    size_t counts[ranks];
    int32_t *all = device((size_t)ranks * COUNT), blocks[ranks * COUNT];
    bool right = true;
    int at = 0;

    for (size_t i = 0; i < COUNT; i++)
        host[i] = number(rank, i, 5);
    check(dist_all_reduce(group, host, to, COUNT, DIST_INT32, DIST_SUM) == DIST_OK,
          "all_reduce from the host");
    get(found, to, COUNT);
    check(is_sum(found, 0, COUNT, 5), "all_reduce from the host is right");
    put(to, COUNT, 6);
    for (int r = 0; r < ranks; r++)
        counts[r] = (size_t)(r * 7 % 20);
    check(dist_all_gather_v(group, to, all, counts, NULL, DIST_INT32) == DIST_OK, "all_gather_v");
    get(blocks, all, (size_t)ranks * COUNT);
    for (int r = 0; r < ranks; r++) {
        for (size_t i = 0; i < counts[r]; i++)
            right = right && blocks[at++] == number(r, i, 6);
    }
    check(right, "all_gather_v is right");
}

/* Sends messages around the ring; every rank sends first. Uses zeroed memory of dist_alloc. */
static void try_messages(void)
{
    int32_t *from = device(COUNT), found[COUNT];
    int before = (rank + ranks - 1) % ranks, source = -1;
    dist_work *work = NULL;
    bool right = true;
    void *to = NULL;

    check(dist_alloc(group, sizeof(found), &to) == DIST_OK, "alloc");
    get(found, to, COUNT);
    for (int i = 0; i < COUNT; i++)
        right = right && found[i] == 0;
    check(right, "dist_alloc returns zeroed memory");
    put(from, COUNT, 7);
    check(dist_isend(group, from, COUNT, DIST_INT32, (rank + 1) % ranks, 3, &work) == DIST_OK,
          "isend");
    check(dist_recv(group, to, COUNT, DIST_INT32, before, 3, &source) == DIST_OK, "recv");
    check(dist_wait(work) == DIST_OK, "wait");
    get(found, to, COUNT);
    for (size_t i = 0; i < COUNT; i++)
        right = right && found[i] == number(before, i, 7);
    check(right && source == before, "the message is right");
    check(dist_free(group, to) == DIST_OK, "free");
}

static void try_persistent(void)
{
    int32_t *data = device(COUNT), found[COUNT];
    dist_work *work = NULL;

    check(dist_all_reduce_init(group, data, data, COUNT, DIST_INT32, DIST_SUM, &work) == DIST_OK,
          "all_reduce_init");
    for (int round = 0; round < 3; round++) {
        put(data, COUNT, round);
        check(dist_start(work) == DIST_OK && dist_wait(work) == DIST_OK, "a round");
        get(found, data, COUNT);
        check(is_sum(found, 0, COUNT, round), "a round is right");
    }
    check(dist_work_free(work) == DIST_OK, "work_free");
}

static void part_streams(void)
{
    try_chain();
    try_in_place();
    try_works();
    try_mixed();
    try_messages();
    try_persistent();
    check(dist_barrier(group) == DIST_OK, "barrier");
}

/* The first operation blocks in HCCL until the ranks are connected; later ones block on the device.
 */
static void part_stuck(bool warm, bool on_host)
{
    int32_t host[COUNT] = {0}, *memory = on_host ? host : device(COUNT);
    dist_status status = DIST_OK;
    time_t begin = time(NULL);

    if (warm)
        check(dist_barrier(group) == DIST_OK, "barrier");
    if (rank == 1)
        sleep(8);
    for (int tries = 0; rank != 1 && tries < 100 && status == DIST_OK; tries++) {
        status = dist_all_reduce(group, memory, memory, COUNT, DIST_INT32, DIST_SUM);
        usleep(100 * 1000);
    }
    if (rank == 1)
        return;
    check(status != DIST_OK, "a collective that one rank does not call");
    check(time(NULL) - begin <= 30, "in time");
    printf("rank %d: %s: %s\n", rank, dist_status_string(status), dist_last_error());
}

static void part_fails(void)
{
    int32_t *memory = device(COUNT);
    dist_status status = DIST_OK;

    for (int tries = 0; tries < 100 && status == DIST_OK; tries++) {
        status = dist_all_reduce(group, memory, memory, COUNT, DIST_INT32, DIST_SUM);
        usleep(50 * 1000);
    }
    check(status != DIST_OK, "an operation that fails");
    printf("rank %d: %s: %s\n", rank, dist_status_string(status), dist_last_error());
}

int main(int argc, char **argv)
{
    const char *part = argc > 1 ? argv[1] : "streams";
    struct dist_options options = DIST_OPTIONS_INIT;

    options.backend = "hccl";
    if (dist_init_process_group(&options, &group) != DIST_OK) {
        fprintf(stderr, "%s\n", dist_last_error());
        return 1;
    }
    rank = dist_get_rank(group);
    ranks = dist_get_world_size(group);
    start();
    if (strcmp(part, "streams") == 0)
        part_streams();
    else if (strcmp(part, "fails") == 0)
        part_fails();
    else
        part_stuck(strstr(part, "warm") != NULL, strstr(part, "host") != NULL);
    dist_destroy_process_group(group);
    return faults ? 1 : 0;
}
