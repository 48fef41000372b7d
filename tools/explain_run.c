/* SPDX-License-Identifier: BSD-3-Clause */
/* dist_info explain --run: what each candidate takes on ranks of this machine. */
#include "explain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

/*
 * Calls before those that are timed, and how many these are: for so long, about. In batches, of
 * which the fastest counts: what others do on the machine makes calls longer, never shorter.
 */
#define RUN_WARM 5
#define RUN_SECONDS 0.3
#define RUN_BATCHES 10
#define RUN_CALLS_MAX 200

/* One thing to be measured; an empty name: whatever the library chooses. Exchanged as bytes. */
struct run_item {
    char algorithm[56];
    int32_t segments;
};

/* What rank 0 finds out: seconds by item, and what the library says then. */
struct run_found {
    double seconds[EXPLAIN_ROOM + 1];
    struct explain_report report;
};

/* What is measured, and where the times go, on rank 0. */
struct run_list {
    struct explain_report *report;
    struct run_item items[EXPLAIN_ROOM + 1];
    int32_t count;
    struct run_found *found;
};

/* What a rank needs for one of them. */
struct run {
    const struct explain_report *report;
    dist_group *group;
    int ranks;
    size_t count; /* elements of a block */
    char *in, *out;
    size_t *counts, *offsets;
};

static double run_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* The v-forms, all blocks alike. */
static dist_status run_call_v(const struct run *run)
{
    dist_dtype dtype = run->report->dtype;

    switch (run->report->question.collective) {
    case DIST_COLL_ALL_GATHER_V:
        return dist_all_gather_v(run->group, run->in, run->out, run->counts, run->offsets, dtype);
    case DIST_COLL_REDUCE_SCATTER_V:
        return dist_reduce_scatter_v(run->group, run->in, run->out, run->counts, dtype, DIST_SUM);
    case DIST_COLL_GATHER_V:
        return dist_gather_v(run->group, run->in, run->count, run->out, run->counts, run->offsets,
                             dtype, 0);
    case DIST_COLL_SCATTER_V:
        return dist_scatter_v(run->group, run->in, run->counts, run->offsets, run->out, run->count,
                              dtype, 0);
    default:
        return dist_all_to_all_v(run->group, run->in, run->counts, run->offsets, run->out,
                                 run->counts, run->offsets, dtype);
    }
}

static dist_status run_call(const struct run *run)
{
    dist_dtype dtype = run->report->dtype;
    dist_group *group = run->group;
    size_t count = run->count;

    switch (run->report->question.collective) {
    case DIST_COLL_ALL_REDUCE:
        return dist_all_reduce(group, run->in, run->out, count, dtype, DIST_SUM);
    case DIST_COLL_BROADCAST:
        return dist_broadcast(group, run->out, count, dtype, 0);
    case DIST_COLL_BARRIER:
        return dist_barrier(group);
    case DIST_COLL_ALL_GATHER:
        return dist_all_gather(group, run->in, run->out, count, dtype);
    case DIST_COLL_REDUCE:
        return dist_reduce(group, run->in, run->out, count, dtype, DIST_SUM, 0);
    case DIST_COLL_REDUCE_SCATTER:
        return dist_reduce_scatter(group, run->in, run->out, count, dtype, DIST_SUM);
    case DIST_COLL_GATHER:
        return dist_gather(group, run->in, run->out, count, dtype, 0);
    case DIST_COLL_SCATTER:
        return dist_scatter(group, run->in, run->out, count, dtype, 0);
    case DIST_COLL_ALL_TO_ALL:
        return dist_all_to_all(group, run->in, run->out, count, dtype);
    default:
        return run_call_v(run);
    }
}

/* Seconds of a call, of so many; what comes before them is not counted. */
static dist_status run_calls(const struct run *run, int calls, double *seconds_p)
{
    dist_status status = dist_barrier(run->group);
    double begin = run_now();

    for (int i = 0; i < calls && status == DIST_OK; i++)
        status = run_call(run);
    *seconds_p = (run_now() - begin) / calls;
    return status;
}

/* Rank 0's clock counts, and it says how many calls there are. */
static dist_status run_measure(const struct run *run, double *seconds_p)
{
    double seconds = 0, best = 1e9;
    int32_t calls = 0;
    dist_status status = run_calls(run, RUN_WARM, &seconds);

    if (status == DIST_OK)
        status = run_calls(run, RUN_WARM, &seconds);
    calls = seconds * RUN_BATCHES * RUN_CALLS_MAX < RUN_SECONDS
                ? RUN_CALLS_MAX
                : (int32_t)(RUN_SECONDS / RUN_BATCHES / seconds);
    calls = calls < 2 ? 2 : calls;
    if (status == DIST_OK)
        status = dist_broadcast(run->group, &calls, 1, DIST_INT32, 0);
    for (int i = 0; i < RUN_BATCHES && status == DIST_OK; i++) {
        status = run_calls(run, calls, &seconds);
        best = seconds < best ? seconds : best;
    }
    if (status == DIST_OK)
        *seconds_p = best;
    return status;
}

static bool run_alloc(struct run *run)
{
    size_t block = run->report->question.bytes + 8, ranks = (size_t)run->ranks;

    if (block > SIZE_MAX / ranks)
        return false;
    run->in = calloc(ranks, block);
    run->out = calloc(ranks, block);
    run->counts = calloc(ranks, sizeof(*run->counts));
    run->offsets = calloc(ranks, sizeof(*run->offsets));
    if (!run->in || !run->out || !run->counts || !run->offsets)
        return false;
    for (size_t r = 0; r < ranks; r++) {
        run->counts[r] = run->count;
        run->offsets[r] = r * run->count;
    }
    return true;
}

static void run_free(struct run *run)
{
    free(run->in);
    free(run->out);
    free(run->counts);
    free(run->offsets);
}

/* In a group of its own, which reads the settings anew. */
static dist_status run_item(dist_group *world, struct run *run, const struct run_item *item,
                            double *seconds_p)
{
    char algorithm[96], segments[16];
    dist_status status;

    if (item->algorithm[0]) {
        snprintf(algorithm, sizeof(algorithm), "%s:%s",
                 dist_collective_string(run->report->question.collective), item->algorithm);
        snprintf(segments, sizeof(segments), "%d", item->segments);
        setenv("DIST_ALGO", algorithm, 1);
        setenv("DIST_SEGMENTS", segments, 1);
    }
    status = dist_dup_group(world, NULL, &run->group);
    if (status != DIST_OK)
        return status;
    status = run_measure(run, seconds_p);
    return status == DIST_OK ? dist_destroy_process_group(run->group) : status;
}

static dist_status run_items(dist_group *world, const struct run_list *list)
{
    struct run run = {.report = list->report,
                      .ranks = dist_get_world_size(world),
                      .count = list->report->question.bytes / dist_dtype_size(list->report->dtype)};
    dist_status status = DIST_OK;
    bool there = run_alloc(&run);

    if (!there) {
        fprintf(stderr,
                "dist_info: rank %d has no memory for blocks of that size: give less --bytes\n",
                dist_get_rank(world));
        status = DIST_ERR_NO_MEMORY;
    }
    for (int i = 0; i < list->count && status == DIST_OK; i++)
        status = run_item(world, &run, &list->items[i], &list->found->seconds[i]);
    if (status != DIST_OK && there)
        fprintf(stderr, "dist_info: rank %d: %s\n", dist_get_rank(world), dist_last_error());
    run_free(&run);
    return status;
}

static dist_status run_open(dist_group **world_p)
{
    struct dist_options options = DIST_OPTIONS_INIT;
    dist_status status;

    options.backend = "gloo";
    status = dist_init_process_group(&options, world_p);
    if (status != DIST_OK)
        fprintf(stderr, "dist_info: %s\n", dist_last_error());
    return status;
}

/* What is forced now is shown as the choice, and would stand in the way. */
static void run_list(struct run_list *list)
{
    list->count = 1;
    for (int i = 0; i < list->report->count; i++) {
        struct run_item *item = &list->items[list->count++];

        if (list->report->candidates[i].segments == 0) /* it cannot be forced, nor need it be */
            continue;
        snprintf(item->algorithm, sizeof(item->algorithm), "%s",
                 list->report->candidates[i].algorithm);
        item->segments = list->report->candidates[i].segments;
    }
    unsetenv("DIST_ALGO");
    unsetenv("DIST_SEGMENTS");
}

/* The time of the item that the row was, when it was listed. */
static void run_take_row(const struct run_list *list, struct explain_report *report, int row)
{
    const struct dist_candidate *candidate = &report->candidates[row];

    for (int i = 1; i < list->count; i++) {
        const struct run_item *item = &list->items[i];

        if (item->segments == candidate->segments &&
            (!item->segments || strcmp(item->algorithm, candidate->algorithm) == 0))
            report->measured[row] = list->found->seconds[i];
    }
}

/* On rank 0. */
static void run_take(const struct run_list *list)
{
    struct explain_report *report = &list->found->report;

    *report = *list->report;
    report->free = list->found->seconds[0];
    for (int i = 0; i < report->count; i++)
        run_take_row(list, report, i);
}

/* ---- on ranks that are started here ---- */

static int run_rank(int rank, void *arg)
{
    struct run_found own;
    struct run_list mine = *(const struct run_list *)arg;
    dist_group *world;
    dist_status status = run_open(&world);

    if (rank != 0)
        mine.found = &own;
    if (status == DIST_OK)
        status = run_items(world, &mine);
    if (status == DIST_OK && rank == 0)
        run_take(&mine);
    if (status == DIST_OK)
        status = dist_destroy_process_group(world);
    return status == DIST_OK ? 0 : 1;
}

dist_status explain_run_here(struct explain_report *report)
{
    struct run_list list = {.report = report};
    dist_status status;
    int code = 0;

    list.found =
        mmap(NULL, sizeof(*list.found), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (list.found == MAP_FAILED)
        return DIST_ERR_NO_MEMORY;
    run_list(&list);
    status = dist_spawn(report->question.ranks, run_rank, &list, &code);
    if (status == DIST_OK && code)
        status = DIST_ERR_ABORTED;
    if (status == DIST_OK)
        *report = list.found->report;
    munmap(list.found, sizeof(*list.found));
    return status;
}

/* ---- on the ranks of the job that this is started in ---- */

/* "node:2 core:4" of a job whose machines have equal numbers of ranks; false: they have not. */
static bool run_topology(dist_group *world, char *text, size_t size)
{
    int32_t mine = dist_get_local_rank(world) + 1, most = 0, ranks = dist_get_world_size(world);
    int32_t last = mine, lasts = 0;

    if (dist_all_reduce(world, &mine, &most, 1, DIST_INT32, DIST_MAX) != DIST_OK || most < 1)
        return false;
    last = mine == most;
    if (dist_all_reduce(world, &last, &lasts, 1, DIST_INT32, DIST_SUM) != DIST_OK)
        return false;
    snprintf(text, size, "node:%d core:%d", ranks / most, most);
    return (int64_t)lasts * most == ranks;
}

/* Rank 0 asks, and tells the others what there is. */
static dist_status run_ask(dist_group *world, struct run_list *list)
{
    struct explain_report *report = list->report;
    int32_t asked = DIST_OK;
    dist_status status;

    if (dist_get_rank(world) == 0) {
        asked = explain_ask(report);
        if (asked == DIST_OK)
            run_list(list);
    }
    status = dist_broadcast(world, &asked, 1, DIST_INT32, 0);
    if (status == DIST_OK && asked != DIST_OK)
        return (dist_status)asked;
    if (status == DIST_OK)
        status = dist_broadcast(world, &list->count, 1, DIST_INT32, 0);
    if (status == DIST_OK)
        status = dist_broadcast(world, list->items, sizeof(list->items), DIST_UINT8, 0);
    unsetenv("DIST_ALGO");
    unsetenv("DIST_SEGMENTS");
    return status;
}

int explain_run_job(struct explain_report *report)
{
    struct run_found found;
    struct run_list list = {.report = report, .found = &found};
    char topology[64];
    dist_group *world;
    dist_status status = run_open(&world);

    if (status != DIST_OK)
        return 1;
    if (dist_get_world_size(world) == 1 || !run_topology(world, topology, sizeof(topology))) {
        fprintf(stderr, "dist_info: %s\n",
                dist_get_world_size(world) == 1
                    ? "--run in a job of one rank: give --ranks, or start it as you start your job"
                    : "--run: the job's machines must have equal numbers of ranks");
        dist_destroy_process_group(world);
        return 1;
    }
    report->question.topology = topology;
    status = run_ask(world, &list);
    if (status == DIST_OK)
        status = run_items(world, &list);
    if (status == DIST_OK && dist_get_rank(world) == 0) {
        run_take(&list);
        explain_print(&found.report);
    }
    report->question.topology = NULL;
    if (dist_destroy_process_group(world) != DIST_OK)
        status = DIST_ERR_ABORTED;
    return status == DIST_OK ? 0 : 1;
}
