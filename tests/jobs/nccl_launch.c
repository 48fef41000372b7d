/* SPDX-License-Identifier: BSD-3-Clause */
/* nccl_launch RANKS: measures the CPU time to launch a small all-reduce with NCCL alone and with
 * libdist. */
#include "backends/nccl/abi.h"
#include "device/driver.h"

#include <dist/dist.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 20, CALLS = 50, COUNT = 4 };

struct launch {
    dist_group *group;
    const struct disti_driver *driver;
    struct disti_nccl_api api; /* only the members used below are set */
    void *comm, *stream;
    float *data;
};

/* Exits the rank if the expression is false. */
#define CHECK(expression)                                                                          \
    do {                                                                                           \
        if (!(expression)) {                                                                       \
            fprintf(stderr, "%s:%d: %s is false; %s\n", __FILE__, __LINE__, #expression,           \
                    dist_last_error());                                                            \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static double launch_now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

/* Binds this thread to the rank's device, as a CUDA program does. */
static void launch_device(struct launch *l, int rank)
{
    char reason[512] = "";
    void *context;
    int device, count;

    l->driver = disti_driver_load(reason, sizeof(reason));
    if (!l->driver)
        fprintf(stderr, "%s\n", reason);
    CHECK(l->driver);
    CHECK(l->driver->device_count(&count) == 0 &&
          l->driver->device_get(&device, rank % count) == 0);
    CHECK(l->driver->context_retain(&context, device) == 0);
    CHECK(l->driver->context_push(context) == 0);
    CHECK(l->driver->stream_create(&l->stream, DISTI_DRIVER_STREAM_NON_BLOCKING) == 0);
    CHECK(l->driver->memory_alloc((uintptr_t *)&l->data, COUNT * sizeof(float)) == 0);
}

/* Finds the functions of the NCCL library that the backend has loaded. */
static void launch_library(struct disti_nccl_api *api)
{
    const char *given = getenv("DIST_NCCL_LIBRARY");
    void *handle = dlopen(given ? given : "libnccl.so.2", RTLD_NOW), *symbol;

    if (!handle)
        handle = dlopen("librccl.so.1", RTLD_NOW);
    CHECK(handle);
#define LAUNCH_TAKE(member, name, parameters)                                                      \
    symbol = dlsym(handle, name);                                                                  \
    memcpy(&api->member, &symbol, sizeof(symbol));
    DISTI_NCCL_CALLS(LAUNCH_TAKE)
#undef LAUNCH_TAKE
}

/* Waits until calls on a non-blocking communicator have been launched. */
static void launch_wait(const struct launch *l)
{
    int error = DISTI_NCCL_IN_PROGRESS;

    while (error == DISTI_NCCL_IN_PROGRESS)
        CHECK(l->api.comm_error(l->comm, &error) == DISTI_NCCL_SUCCESS);
    CHECK(error == DISTI_NCCL_SUCCESS);
}

static void launch_nccl(struct launch *l)
{
    int result = l->api.all_reduce(l->data, l->data, COUNT, DISTI_NCCL_FLOAT32, DISTI_NCCL_SUM,
                                   l->comm, l->stream);

    CHECK(disti_nccl_accepted(result));
    if (result == DISTI_NCCL_IN_PROGRESS)
        launch_wait(l);
}

static void launch_libdist(struct launch *l)
{
    CHECK(dist_all_reduce(l->group, l->data, l->data, COUNT, DIST_FLOAT32, DIST_SUM) == DIST_OK);
}

/* Returns the mean of the fastest round, since other load of the machine only adds time. */
static double launch_measure(struct launch *l, void (*launch)(struct launch *l))
{
    double best = 1e12, start, mean;

    for (int round = 0; round < ROUNDS; round++) {
        CHECK(l->driver->stream_synchronize(l->stream) == 0);
        start = launch_now_us();
        for (int call = 0; call < CALLS; call++)
            launch(l);
        mean = (launch_now_us() - start) / CALLS;
        best = mean < best ? mean : best;
    }
    CHECK(l->driver->stream_synchronize(l->stream) == 0);
    return best;
}

/* Makes a communicator of NCCL directly, as programs without libdist do. */
static double launch_alone(struct launch *l, bool blocking)
{
    struct disti_nccl_config config = {sizeof(config), DISTI_NCCL_MAGIC,
                                       DISTI_NCCL_VERSION(2, 14, 0), blocking,
                                       DISTI_NCCL_UNDEFINED};
    struct disti_nccl_id id = {{0}};
    int rank = dist_get_rank(l->group);
    double us;

    if (rank == 0)
        CHECK(l->api.get_unique_id(&id) == DISTI_NCCL_SUCCESS);
    CHECK(dist_broadcast(l->group, &id, sizeof(id), DIST_UINT8, 0) == DIST_OK);
    CHECK(disti_nccl_accepted(
        l->api.comm_init(&l->comm, dist_get_world_size(l->group), id, rank, &config)));
    launch_wait(l);
    us = launch_measure(l, launch_nccl);
    CHECK(disti_nccl_accepted(l->api.comm_finalize(l->comm)));
    launch_wait(l);
    CHECK(disti_nccl_accepted(l->api.comm_destroy(l->comm)));
    return us;
}

static int launch_rank(int rank, void *arg)
{
    struct dist_options options = DIST_OPTIONS_INIT;
    struct launch l = {0};
    double blocking, not_blocking, ours;
    int version = 0;

    (void)arg;
    options.backend = "nccl";
    CHECK(dist_init_process_group(&options, &l.group) == DIST_OK);
    launch_device(&l, rank);
    launch_library(&l.api);
    CHECK(l.api.get_version(&version) == DISTI_NCCL_SUCCESS);
    blocking = launch_alone(&l, true);
    not_blocking = launch_alone(&l, false);
    CHECK(dist_set_stream(l.group, l.stream) == DIST_OK);
    ours = launch_measure(&l, launch_libdist);
    CHECK(dist_destroy_process_group(l.group) == DIST_OK);
    if (rank == 0)
        printf(
            "launch of an all-reduce of %d bytes, us: NCCL %d alone %.2f, with a communicator that "
            "does not block %.2f, libdist %.2f, difference %.2f\n",
            (int)(COUNT * sizeof(float)), version, blocking, not_blocking, ours, ours - blocking);
    return 0;
}

int main(int argc, char **argv)
{
    int ranks = argc == 2 ? atoi(argv[1]) : 0, code = 1;

    if (ranks < 1) {
        fprintf(stderr, "usage: nccl_launch RANKS\n");
        return 2;
    }
    if (dist_spawn(ranks, launch_rank, NULL, &code) != DIST_OK)
        fprintf(stderr, "%s\n", dist_last_error());
    return code;
}
