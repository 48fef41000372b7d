/* SPDX-License-Identifier: BSD-3-Clause */
/* One measurement: how long is a call, then rounds of turns. */
#include "measurement.h"

#include "bench/measure/buffers.h"
#include "summary.h"

#include <stdlib.h>
#include <string.h>

/* The clock reads in tens of ns, and a barrier leaves the ranks some hundred ns apart. */
#define MEASUREMENT_SAMPLE 20e3
#define MEASUREMENT_SAMPLES_LEAST 5
#define MEASUREMENT_SAMPLES_MOST 2000
#define MEASUREMENT_BATCH_MOST 1000
#define MEASUREMENT_TRIAL 3 /* samples */
#define MEASUREMENT_GROWTH 10

#define MEASUREMENT_MESSAGES_MOST ((int64_t)4 << 20)
#define MEASUREMENT_MOST ((int64_t)1 << 20)

struct measurement {
    const struct schedule *schedule;
    struct order *order;
    struct result_measurement *result;
    struct summary *summaries;
    double *calls;   /* ns of a call, by library; 0: it does not take part */
    double *fastest; /* of the trial */
    double *most;    /* samples of the next turn at most */
    double *times;   /* of a turn */
    int rounds;
};

static double *measurement_reserve(struct measurement *m, const struct runner *runner, long samples)
{
    double *more = realloc(m->times, (size_t)runner->ranks * (size_t)samples * sizeof(*more));

    if (more)
        m->times = more;
    return more;
}

/* The library takes no part in this measurement any more. */
static void measurement_exclude(struct measurement *m, int c, enum outcome outcome,
                                const char *reason)
{
    struct result_time *time = &m->result->times[c];

    time->wrong = outcome == OUTCOME_WRONG;
    free(time->reason);
    time->reason = strdup(reason);
    m->calls[c] = 0;
}

/* A run of a barrier makes the others' memory free. */
static void measurement_release_memory(struct runner *runner)
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

static int measurement_turn(struct measurement *m, int c)
{
    struct runner *runner = m->schedule->runners[c];
    char reason[MEASURE_REASON] = "";
    enum outcome outcome;

    if (!measurement_reserve(m, runner, m->order->samples))
        return -1;
    outcome = runner->turn(runner, m->order, m->times, reason);
    if (outcome != OUTCOME_TOOK)
        measurement_exclude(m, c, outcome, reason);
    else if (m->schedule->frugal)
        measurement_release_memory(runner);
    return outcome == OUTCOME_TOOK ? 0 : -1;
}

/* ---- how long is a call? ---- */

static double measurement_trial(struct measurement *m, int c, long warmup, long batch)
{
    struct order *order = m->order;
    int ranks = m->schedule->runners[c]->ranks;

    order->warmup = warmup;
    order->samples = MEASUREMENT_TRIAL;
    order->batch = batch;
    if (measurement_turn(m, c) != 0)
        return 0;
    m->fastest[c] = summary_quantile(m->times, ranks, MEASUREMENT_TRIAL, 0);
    m->most[c] = MEASUREMENT_TRIAL * MEASUREMENT_GROWTH;
    return summary_quantile(m->times, ranks, MEASUREMENT_TRIAL, 0.5);
}

static long measurement_batch(double call)
{
    double batch = call > 0 ? MEASUREMENT_SAMPLE / call + 1 : 1;

    return batch > MEASUREMENT_BATCH_MOST ? MEASUREMENT_BATCH_MOST : (long)batch;
}

static void measurement_calibrate(struct measurement *m)
{
    const struct options *options = m->schedule->options;
    bool check = options->check && !options->no_check;

    for (int c = 0; c < m->schedule->count; c++) {
        if (m->schedule->runners[c]->gone || m->schedule->stopped()) {
            measurement_exclude(m, c, OUTCOME_FAILED, "it was left out before");
            continue;
        }
        m->order->check = check;
        m->calls[c] = measurement_trial(m, c, 1, 1);
        m->order->check = false;
        if (m->calls[c] > 0 && measurement_batch(m->fastest[c]) > 1)
            m->calls[c] = measurement_trial(m, c, measurement_batch(m->fastest[c]),
                                            measurement_batch(m->fastest[c]));
    }
}

/* ---- the rounds ---- */

/* Calls in a sample: enough for the fastest, and the same for all. */
static long measurement_common_batch(const struct measurement *m)
{
    double fastest = 0;

    if (m->schedule->options->iterations > 0)
        return 1;
    for (int c = 0; c < m->schedule->count; c++) {
        if (m->calls[c] > 0 && (fastest == 0 || m->fastest[c] < fastest))
            fastest = m->fastest[c];
    }
    return measurement_batch(fastest);
}

static void measurement_set_counts(struct measurement *m, int c, long batch)
{
    const struct options *options = m->schedule->options;
    struct order *order = m->order;
    double turn = options->time * 1e9 / (double)options->rounds;
    double samples = turn / (m->calls[c] * (double)batch);

    if (samples < MEASUREMENT_SAMPLES_LEAST)
        samples =
            samples * 4 < MEASUREMENT_SAMPLES_LEAST ? samples * 4 + 1 : MEASUREMENT_SAMPLES_LEAST;
    if (samples > m->most[c])
        samples = m->most[c];
    if (samples > MEASUREMENT_SAMPLES_MOST)
        samples = MEASUREMENT_SAMPLES_MOST;
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
static void measurement_adapt(struct measurement *m, int c)
{
    m->calls[c] = summary_mean(m->times, m->schedule->runners[c]->ranks, m->order->samples);
    m->most[c] = (double)m->order->samples * MEASUREMENT_GROWTH;
}

static void measurement_round(struct measurement *m, int round, long batch)
{
    const struct options *options = m->schedule->options;
    int count = m->schedule->count;

    for (int i = 0; i < count && !m->schedule->stopped(); i++) {
        int c = (round + i) % count;

        if (m->calls[c] <= 0)
            continue;
        measurement_set_counts(m, c, batch);
        m->order->check = options->check && !options->no_check && round + 1 == m->rounds;
        if (measurement_turn(m, c) != 0)
            continue;
        if (summary_add(&m->summaries[c], m->times, m->order->samples) != 0)
            measurement_exclude(m, c, OUTCOME_FAILED, "dist_bench has no memory for its times");
        else
            measurement_adapt(m, c);
    }
}

static void measurement_all_rounds(struct measurement *m)
{
    long batch;

    measurement_calibrate(m);
    batch = measurement_common_batch(m);
    for (int round = 0; round < m->rounds; round++)
        measurement_round(m, round, batch);
    for (int c = 0; c < m->schedule->count; c++) {
        if (m->calls[c] > 0 && summary_end(&m->summaries[c], batch, &m->result->times[c]) != 0)
            measurement_exclude(m, c, OUTCOME_FAILED, "the run was stopped");
    }
}

static struct result_measurement measurement_head(const struct order *order, int ranks)
{
    const struct operation *operation = order->operation;

    return (struct result_measurement){
        .collective = operation->name,
        .dtype = dist_dtype_string(order->dtype),
        .op = operation->reduces ? dist_op_string(order->op) : NULL,
        .root = operation->rooted ? order->root : -1,
        .in_place = buffers_in_place(order),
        .bytes = order->bytes,
        .block = order_block(order, ranks),
        .element = dist_dtype_size(order->dtype),
        .buffers = buffers_sets(order, ranks),
        .apart = order->apart,
        .window =
            operation->id == OPERATION_bw || operation->id == OPERATION_bibw ? order->window : 1};
}

struct result_measurement *measurement_take(const struct schedule *schedule, struct order *order,
                                            struct result *result)
{
    struct measurement m = {
        .schedule = schedule, .order = order, .rounds = (int)schedule->options->rounds};
    struct result_measurement head = measurement_head(order, result->ranks);
    bool good = false;

    m.result = result_add_measurement(result, &head);
    m.calls = calloc((size_t)schedule->count, sizeof(double));
    m.most = calloc((size_t)schedule->count, sizeof(double));
    m.fastest = calloc((size_t)schedule->count, sizeof(double));
    m.summaries = calloc((size_t)schedule->count, sizeof(*m.summaries));
    if (!m.result || !m.calls || !m.most || !m.fastest || !m.summaries)
        goto out;
    for (int c = 0; c < schedule->count; c++) {
        if (summary_begin(&m.summaries[c], order, result->ranks, m.rounds) != 0)
            goto out;
    }
    measurement_all_rounds(&m);
    good = true;
out:
    for (int c = 0; m.summaries && c < schedule->count; c++)
        summary_free(&m.summaries[c]);
    free(m.summaries);
    free(m.calls);
    free(m.fastest);
    free(m.most);
    free(m.times);
    return good ? m.result : NULL;
}

/* ---- which measurements ---- */

/* OSU's sizes are those of a block, NCCL's and ours of all blocks. */
static size_t measurement_bytes(const struct options *options, const struct operation *operation,
                                int ranks, int64_t size)
{
    size_t element = dist_dtype_size(options->dtype),
           blocks = (size_t)operation_blocks(operation, ranks);
    size_t total = (size_t)size * (strcmp(options->format, "osu") == 0 ? blocks : 1);

    total -= total % (element * blocks);
    return total || size == 0 ? total : element * blocks;
}

static int measurement_sizes(const struct options *options, int ranks, struct order *order,
                             int (*each)(void *arg, struct order *order, bool first), void *arg)
{
    const struct operation *operation = order->operation;
    int64_t standard =
        operation->layout == LAYOUT_MESSAGES ? MEASUREMENT_MESSAGES_MOST : MEASUREMENT_MOST;
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
        size_t bytes = measurement_bytes(options, operation, ranks, size);

        if (first || bytes != order->bytes) {
            order->bytes = bytes;
            ended = each(arg, order, first);
            first = false;
        }
        size = options->step ? size + options->step : size ? size * options->factor : 1;
    }
    return ended;
}

int measurement_each(const struct options *options, int ranks,
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
                              .buffers = (int)options->buffers,
                              .apart = options_apart(options)};

        if (options->operations[k])
            ended = measurement_sizes(options, ranks, &order, each, arg);
    }
    return ended;
}
