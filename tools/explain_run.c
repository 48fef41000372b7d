/* SPDX-License-Identifier: BSD-3-Clause */
/* dist_info explain --run: what each candidate takes on ranks of this machine. */
#include "explain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

/* Calls before those that are timed, and how many these are: for so long, about. */
#define RUN_WARM 5
#define RUN_SECONDS 0.3
#define RUN_CALLS_MAX 2000

/* What a rank needs; seconds is memory that rank 0 shares with the program. */
struct run {
    const struct explain_report *report;
    double *seconds;
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
static dist_status run_measure(const struct run *run)
{
    double seconds = 0;
    int32_t calls = 0;
    dist_status status = run_calls(run, RUN_WARM, &seconds);

    if (status == DIST_OK)
        status = run_calls(run, RUN_WARM, &seconds);
    calls =
        seconds * RUN_CALLS_MAX < RUN_SECONDS ? RUN_CALLS_MAX : (int32_t)(RUN_SECONDS / seconds);
    calls = calls < 3 ? 3 : calls;
    if (status == DIST_OK)
        status = dist_broadcast(run->group, &calls, 1, DIST_INT32, 0);
    if (status == DIST_OK)
        status = run_calls(run, calls, &seconds);
    if (status == DIST_OK && dist_get_rank(run->group) == 0)
        *run->seconds = seconds;
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

/* A rank, in a process of its own. */
static int run_rank(int rank, void *arg)
{
    struct run run = *(struct run *)arg;
    struct dist_options options = DIST_OPTIONS_INIT;
    dist_status status;

    options.backend = "gloo";
    status = dist_init_process_group(&options, &run.group);
    if (status == DIST_OK && !run_alloc(&run)) {
        fprintf(stderr, "dist_info: rank %d has no memory for such blocks\n", rank);
        return 1;
    }
    if (status == DIST_OK)
        status = run_measure(&run);
    if (status == DIST_OK)
        status = dist_destroy_process_group(run.group);
    if (status != DIST_OK)
        fprintf(stderr, "dist_info: rank %d: %s\n", rank, dist_last_error());
    free(run.in);
    free(run.out);
    free(run.counts);
    free(run.offsets);
    return status == DIST_OK ? 0 : 1;
}

/* One candidate; NULL: whatever the library chooses. */
static dist_status run_candidate(struct run *run, const struct dist_candidate *candidate,
                                 double *seconds_p)
{
    char algorithm[96], segments[16];
    int code = 0;
    dist_status status;

    if (candidate) {
        snprintf(algorithm, sizeof(algorithm), "%s:%s",
                 dist_collective_string(run->report->question.collective), candidate->algorithm);
        snprintf(segments, sizeof(segments), "%d", candidate->segments);
        setenv("DIST_ALGO", algorithm, 1);
        setenv("DIST_SEGMENTS", segments, 1);
    }
    *run->seconds = -1;
    status = dist_spawn(run->ranks, run_rank, run, &code);
    unsetenv("DIST_ALGO");
    unsetenv("DIST_SEGMENTS");
    *seconds_p = *run->seconds;
    return status;
}

dist_status explain_run(struct explain_report *report)
{
    struct run run = {.report = report,
                      .ranks = report->explanation.ranks,
                      .count = report->question.bytes / dist_dtype_size(report->dtype)};
    dist_status status;

    run.seconds =
        mmap(NULL, sizeof(*run.seconds), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (run.seconds == MAP_FAILED)
        return DIST_ERR_NO_MEMORY;
    status = run_candidate(&run, NULL, &report->free);
    for (int i = 0; i < report->count && status == DIST_OK; i++)
        status = run_candidate(&run, &report->candidates[i], &report->measured[i]);
    munmap(run.seconds, sizeof(*run.seconds));
    return status;
}
