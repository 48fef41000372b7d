/* SPDX-License-Identifier: BSD-3-Clause */
/* One point: how long is a call, then rounds of turns. */
#include "point.h"

#include "bench/measure/buffers.h"
#include "digest.h"

#include <stdlib.h>
#include <string.h>

/* The clock reads in tens of ns, and a barrier leaves the ranks some hundred ns apart. */
#define POINT_SAMPLE 20e3
#define POINT_SAMPLES_LEAST 5
#define POINT_SAMPLES_MOST 2000
#define POINT_BATCH_MOST 1000
#define POINT_TRIAL 3 /* samples */
#define POINT_GROWTH 10

#define POINT_MESSAGES_MOST ((int64_t)4 << 20)
#define POINT_MOST ((int64_t)1 << 20)

struct point {
    const struct point_plan *plan;
    struct order *order;
    struct result_point *result;
    struct digest *digests;
    double *calls;   /* ns of a call, by library; 0: it does not take part */
    double *fastest; /* of the trial */
    double *most;    /* samples of the next turn at most */
    double *times;   /* of a turn */
    int rounds;
};

static double *point_room(struct point *point, const struct runner *runner, long samples)
{
    double *more = realloc(point->times, (size_t)runner->ranks * (size_t)samples * sizeof(*more));

    if (more)
        point->times = more;
    return more;
}

/* The library takes no part in this point any more. */
static void point_leave(struct point *point, int c, enum outcome outcome, const char *reason)
{
    struct result_time *time = &point->result->times[c];

    time->wrong = outcome == OUTCOME_WRONG;
    free(time->reason);
    time->reason = strdup(reason);
    point->calls[c] = 0;
}

/* A run of a barrier makes the others' memory free. */
static void point_rest(struct runner *runner)
{
    struct order rest = {.operation = &operation_table[OPERATION_barrier],
                         .dtype = DIST_UINT8,
                         .op = DIST_SUM,
                         .samples = 1,
                         .batch = 1,
                         .window = 1};
    double *times = calloc((size_t)runner->ranks, sizeof(double));
    char reason[MEASURE_REASON];

    if (times)
        runner->turn(runner, &rest, times, reason);
    free(times);
}

static int point_turn(struct point *point, int c)
{
    struct runner *runner = point->plan->runners[c];
    char reason[MEASURE_REASON] = "";
    enum outcome outcome;

    if (!point_room(point, runner, point->order->samples))
        return -1;
    outcome = runner->turn(runner, point->order, point->times, reason);
    if (outcome != OUTCOME_TOOK)
        point_leave(point, c, outcome, reason);
    else if (point->plan->frugal)
        point_rest(runner);
    return outcome == OUTCOME_TOOK ? 0 : -1;
}

/* ---- how long is a call? ---- */

static double point_trial(struct point *point, int c, long warmup, long batch)
{
    struct order *order = point->order;
    int ranks = point->plan->runners[c]->ranks;

    order->warmup = warmup;
    order->samples = POINT_TRIAL;
    order->batch = batch;
    if (point_turn(point, c) != 0)
        return 0;
    point->fastest[c] = digest_quantile(point->times, ranks, POINT_TRIAL, 0);
    point->most[c] = POINT_TRIAL * POINT_GROWTH;
    return digest_quantile(point->times, ranks, POINT_TRIAL, 0.5);
}

static long point_batch(double call)
{
    double batch = call > 0 ? POINT_SAMPLE / call + 1 : 1;

    return batch > POINT_BATCH_MOST ? POINT_BATCH_MOST : (long)batch;
}

static void point_calibrate(struct point *point)
{
    const struct options *options = point->plan->options;
    bool check = options->check && !options->no_check;

    for (int c = 0; c < point->plan->count; c++) {
        if (point->plan->runners[c]->gone || point->plan->stopped()) {
            point_leave(point, c, OUTCOME_FAILED, "it was left out before");
            continue;
        }
        point->order->check = check;
        point->calls[c] = point_trial(point, c, 1, 1);
        point->order->check = false;
        if (point->calls[c] > 0 && point_batch(point->fastest[c]) > 1)
            point->calls[c] = point_trial(point, c, point_batch(point->fastest[c]),
                                          point_batch(point->fastest[c]));
    }
}

/* ---- the rounds ---- */

/* Calls in a sample: enough for the fastest, and the same for all. */
static long point_common_batch(const struct point *point)
{
    double fastest = 0;

    if (point->plan->options->iterations > 0)
        return 1;
    for (int c = 0; c < point->plan->count; c++) {
        if (point->calls[c] > 0 && (fastest == 0 || point->fastest[c] < fastest))
            fastest = point->fastest[c];
    }
    return point_batch(fastest);
}

static void point_schedule(struct point *point, int c, long batch)
{
    const struct options *options = point->plan->options;
    struct order *order = point->order;
    double turn = options->time * 1e9 / (double)options->rounds;
    double samples = turn / (point->calls[c] * (double)batch);

    if (samples < POINT_SAMPLES_LEAST)
        samples = samples * 4 < POINT_SAMPLES_LEAST ? samples * 4 + 1 : POINT_SAMPLES_LEAST;
    if (samples > point->most[c])
        samples = point->most[c];
    if (samples > POINT_SAMPLES_MOST)
        samples = POINT_SAMPLES_MOST;
    order->batch = batch;
    order->samples = options->iterations > 0 ? options->iterations : (long)samples;
    order->warmup = order->samples * batch / 20;
    order->warmup = order->warmup < 1 ? 1 : order->warmup > 50 ? 50 : order->warmup;
    if (options->warmup >= 0)
        order->warmup = options->warmup;
}

/*
 * The next turn is planned by this one, and by its mean: where others use the CPUs too, some calls
 * take thousands of times as long as most. Turns grow by a factor only, so that none can take very
 * long.
 */
static void point_learn(struct point *point, int c)
{
    point->calls[c] =
        digest_mean(point->times, point->plan->runners[c]->ranks, point->order->samples);
    point->most[c] = (double)point->order->samples * POINT_GROWTH;
}

static void point_round(struct point *point, int round, long batch)
{
    const struct options *options = point->plan->options;
    int count = point->plan->count;

    for (int i = 0; i < count && !point->plan->stopped(); i++) {
        int c = (round + i) % count;

        if (point->calls[c] <= 0)
            continue;
        point_schedule(point, c, batch);
        point->order->check = options->check && !options->no_check && round + 1 == point->rounds;
        if (point_turn(point, c) != 0)
            continue;
        if (digest_add(&point->digests[c], point->times, point->order->samples) != 0)
            point_leave(point, c, OUTCOME_FAILED, "dist_bench has no memory for its times");
        else
            point_learn(point, c);
    }
}

static void point_run(struct point *point)
{
    long batch;

    point_calibrate(point);
    batch = point_common_batch(point);
    for (int round = 0; round < point->rounds; round++)
        point_round(point, round, batch);
    for (int c = 0; c < point->plan->count; c++) {
        if (point->calls[c] > 0 &&
            digest_end(&point->digests[c], batch, &point->result->times[c]) != 0)
            point_leave(point, c, OUTCOME_FAILED, "the run was stopped");
    }
}

static struct result_point point_head(const struct order *order, int ranks)
{
    const struct operation *operation = order->operation;

    return (struct result_point){
        .collective = operation->name,
        .dtype = dist_dtype_string(order->dtype),
        .op = operation->reduces ? dist_op_string(order->op) : NULL,
        .root = operation->rooted ? order->root : -1,
        .in_place = buffers_in_place(order),
        .bytes = order->bytes,
        .block = order_block(order, ranks),
        .element = dist_dtype_size(order->dtype),
        .buffers = buffers_sets(order, ranks),
        .window =
            operation->id == OPERATION_bw || operation->id == OPERATION_bibw ? order->window : 1};
}

struct result_point *point_measure(const struct point_plan *plan, struct order *order,
                                   struct result *result)
{
    struct point point = {.plan = plan, .order = order, .rounds = (int)plan->options->rounds};
    struct result_point head = point_head(order, result->ranks);
    bool good = false;

    point.result = result_add_point(result, &head);
    point.calls = calloc((size_t)plan->count, sizeof(double));
    point.most = calloc((size_t)plan->count, sizeof(double));
    point.fastest = calloc((size_t)plan->count, sizeof(double));
    point.digests = calloc((size_t)plan->count, sizeof(*point.digests));
    if (!point.result || !point.calls || !point.most || !point.fastest || !point.digests)
        goto out;
    for (int c = 0; c < plan->count; c++) {
        if (digest_begin(&point.digests[c], order, result->ranks, point.rounds) != 0)
            goto out;
    }
    point_run(&point);
    good = true;
out:
    for (int c = 0; point.digests && c < plan->count; c++)
        digest_free(&point.digests[c]);
    free(point.digests);
    free(point.calls);
    free(point.fastest);
    free(point.most);
    free(point.times);
    return good ? point.result : NULL;
}

/* ---- which points ---- */

/* OSU's sizes are those of a block, NCCL's and ours of all blocks. */
static size_t point_bytes(const struct options *options, const struct operation *operation,
                          int ranks, int64_t size)
{
    size_t element = dist_dtype_size(options->dtype),
           blocks = (size_t)operation_blocks(operation, ranks);
    size_t total = (size_t)size * (strcmp(options->format, "osu") == 0 ? blocks : 1);

    total -= total % (element * blocks);
    return total || size == 0 ? total : element * blocks;
}

static int point_sizes(const struct options *options, int ranks, struct order *order,
                       int (*each)(void *arg, struct order *order, bool first), void *arg)
{
    const struct operation *operation = order->operation;
    int64_t standard = operation->layout == LAYOUT_MESSAGES ? POINT_MESSAGES_MOST : POINT_MOST;
    int64_t most = options->most >= 0 ? options->most : standard;
    int64_t least = options->least >= 0 ? options->least : most < 4 ? most : 4;
    bool first = true;
    int ended = 0;

    if (operation->layout == LAYOUT_NOTHING) {
        order->bytes = 0;
        return each(arg, order, true);
    }
    if (most < least)
        most = least;
    for (int64_t size = least; size <= most && !ended;) {
        size_t bytes = point_bytes(options, operation, ranks, size);

        if (first || bytes != order->bytes) {
            order->bytes = bytes;
            ended = each(arg, order, first);
            first = false;
        }
        size = options->step ? size + options->step : size ? size * options->factor : 1;
    }
    return ended;
}

int point_each(const struct options *options, int ranks,
               int (*each)(void *arg, struct order *order, bool first), void *arg)
{
    int ended = 0;

    for (int k = 0; k < OPERATION_COUNT && !ended; k++) {
        struct order order = {.operation = &operation_table[k],
                              .dtype = options->dtype,
                              .op = options->op,
                              .root = (int)options->root,
                              .in_place = options->in_place,
                              .window = (int)options->window,
                              .buffers = (int)options->buffers};

        if (options->operations[k])
            ended = point_sizes(options, ranks, &order, each, arg);
    }
    return ended;
}
