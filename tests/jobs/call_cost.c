/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * call_cost CALLS COLLECTIVE ROOT: rank 0 makes CALLS short calls, each LATE_NS after rank 1's
 * call; rank 1 busy-waits meanwhile. Rank 0 runs under callgrind, which counts the instructions of
 * a call whose input data have all arrived.
 */
#include <dist/dist.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LATE_NS (300 * 1000)
#define COUNT 2
#define TYPE DIST_FLOAT32

static dist_group *group;
static const float in[2 * COUNT] = {1, 2, 1, 2};
static float out[2 * COUNT];
static const size_t counts[2] = {COUNT, COUNT};
static int root;

/* ---- rank 0 ---- */

static dist_status all_reduce(void)
{
    return dist_all_reduce(group, in, out, COUNT, TYPE, DIST_SUM);
}

static dist_status barrier(void)
{
    return dist_barrier(group);
}

static dist_status broadcast(void)
{
    return dist_broadcast(group, out, COUNT, TYPE, root);
}

static dist_status reduce(void)
{
    return dist_reduce(group, in, out, COUNT, TYPE, DIST_SUM, root);
}

static dist_status gather(void)
{
    return dist_gather(group, in, out, COUNT, TYPE, root);
}

static dist_status scatter(void)
{
    return dist_scatter(group, in, out, COUNT, TYPE, root);
}

static dist_status gather_v(void)
{
    return dist_gather_v(group, in, COUNT, out, counts, NULL, TYPE, root);
}

static dist_status scatter_v(void)
{
    return dist_scatter_v(group, in, counts, NULL, out, COUNT, TYPE, root);
}

static dist_status all_to_all_v(void)
{
    return dist_all_to_all_v(group, in, counts, NULL, out, counts, NULL, TYPE);
}

/* ---- rank 1 ---- */

static dist_status all_reduce_start(dist_work **work_p)
{
    return dist_all_reduce_async(group, in, out, COUNT, TYPE, DIST_SUM, work_p);
}

static dist_status barrier_start(dist_work **work_p)
{
    return dist_barrier_async(group, work_p);
}

static dist_status broadcast_start(dist_work **work_p)
{
    return dist_broadcast_async(group, out, COUNT, TYPE, root, work_p);
}

static dist_status reduce_start(dist_work **work_p)
{
    return dist_reduce_async(group, in, out, COUNT, TYPE, DIST_SUM, root, work_p);
}

static dist_status gather_start(dist_work **work_p)
{
    return dist_gather_async(group, in, out, COUNT, TYPE, root, work_p);
}

static dist_status scatter_start(dist_work **work_p)
{
    return dist_scatter_async(group, in, out, COUNT, TYPE, root, work_p);
}

static dist_status gather_v_start(dist_work **work_p)
{
    return dist_gather_v_async(group, in, COUNT, out, counts, NULL, TYPE, root, work_p);
}

static dist_status scatter_v_start(dist_work **work_p)
{
    return dist_scatter_v_async(group, in, counts, NULL, out, COUNT, TYPE, root, work_p);
}

static dist_status all_to_all_v_start(dist_work **work_p)
{
    return dist_all_to_all_v_async(group, in, counts, NULL, out, counts, NULL, TYPE, work_p);
}

struct kind {
    const char *name;
    dist_status (*call)(void);
    dist_status (*start)(dist_work **work_p);
};

static const struct kind kinds[] = {
    {"all_reduce", all_reduce, all_reduce_start},
    {"barrier", barrier, barrier_start},
    {"broadcast", broadcast, broadcast_start},
    {"reduce", reduce, reduce_start},
    {"gather", gather, gather_start},
    {"scatter", scatter, scatter_start},
    {"gather_v", gather_v, gather_v_start},
    {"scatter_v", scatter_v, scatter_v_start},
    {"all_to_all_v", all_to_all_v, all_to_all_v_start},
};

static const struct kind *kind_of(const char *name)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (strcmp(kinds[i].name, name) == 0)
            return &kinds[i];
    }
    return NULL;
}

/* Starts the call before rank 0 does and polls for its completion without sleeping. */
static dist_status wait_awake(const struct kind *kind)
{
    dist_work *work;
    bool done = false;
    dist_status status = kind->start(&work);

    if (status != DIST_OK)
        return status;
    while (!done && status == DIST_OK)
        status = dist_test(work, &done);
    return dist_wait(work);
}

int main(int argc, char **argv)
{
    const struct timespec late = {.tv_nsec = LATE_NS};
    const struct kind *kind = kind_of(argc > 2 ? argv[2] : "all_reduce");
    int calls = argc > 1 ? atoi(argv[1]) : 1;
    dist_status status = dist_init_process_group(NULL, &group);

    root = argc > 3 ? atoi(argv[3]) : 0;
    for (int i = 0; kind && i < calls && status == DIST_OK; i++) {
        if (dist_get_rank(group) != 0) {
            status = wait_awake(kind);
            continue;
        }
        nanosleep(&late, NULL);
        status = kind->call();
    }
    if (kind && status == DIST_OK)
        return dist_destroy_process_group(group) != DIST_OK;
    fprintf(stderr, "call_cost: %s\n", kind ? dist_last_error() : "no such collective");
    return 1;
}
