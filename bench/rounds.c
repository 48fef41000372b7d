/* SPDX-License-Identifier: BSD-3-Clause */
/* Measures libraries in rounds, prints, saves and compares the results. */
#include "bench/rounds.h"
#include "bench/jobs.h"
#include "bench/measure.h"
#include "bench/options.h"
#include "bench/report.h"
#include "tools/common/output.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int summary_begin(struct summary *summary, const struct order *order, int ranks, int rounds)
{
    *summary = (struct summary){.ranks = ranks, .scale = 1};
    if (order->operation->layout == LAYOUT_MESSAGES)
        summary->ranks = ranks < 2 ? ranks : 2;
    if (order->operation->id == OPERATION_latency) /* a round trip */
        summary->scale = 0.5;
    summary->mean = order->apart && order->operation->layout != LAYOUT_MESSAGES;
    summary->rounds = calloc((size_t)rounds, sizeof(double));
    summary->sums = calloc((size_t)ranks, sizeof(double));
    if (summary->rounds && summary->sums)
        return 0;
    summary_free(summary);
    return -1;
}

void summary_free(struct summary *summary)
{
    free(summary->samples);
    free(summary->rounds);
    free(summary->sums);
    *summary = (struct summary){0};
}

/* Returns sample s of the slowest rank, or the mean over all ranks. */
static double summary_sample(const double *times, int ranks, long samples, long s, bool mean)
{
    double slowest = 0, sum = 0;

    for (int r = 0; r < ranks; r++) {
        double time = times[(size_t)r * (size_t)samples + (size_t)s];

        slowest = time > slowest ? time : slowest;
        sum += time;
    }
    return mean ? sum / ranks : slowest;
}

/* Returns a quantile of the slowest ranks' samples of one run. 0: out of memory. */
static double summary_quantile(const double *times, int ranks, long samples, double q)
{
    double *slowest = calloc((size_t)samples, sizeof(double)), quantile;

    if (!slowest)
        return 0;
    for (long s = 0; s < samples; s++)
        slowest[s] = summary_sample(times, ranks, samples, s, false);
    quantile = result_quantile(slowest, (size_t)samples, q);
    free(slowest);
    return quantile;
}

int summary_add(struct summary *summary, const double *times, long samples)
{
    size_t count = (size_t)samples;
    double *more = realloc(summary->samples, (summary->count + count) * sizeof(double));
    double *round;

    if (!more)
        return -1;
    summary->samples = more;
    round = more + summary->count;
    for (long s = 0; s < samples; s++)
        round[s] =
            summary->scale * summary_sample(times, summary->ranks, samples, s, summary->mean);
    for (int r = 0; r < summary->ranks; r++) {
        for (long s = 0; s < samples; s++)
            summary->sums[r] += summary->scale * times[(size_t)r * count + (size_t)s];
    }
    summary->count += count;
    summary->rounds[summary->round_count++] = result_quantile(round, count, 0.5);
    return 0;
}

int summary_end(struct summary *summary, long batch, struct result_time *time)
{
    double *sorted = calloc((size_t)summary->round_count + 1, sizeof(double));
    double count = (double)summary->count;

    if (!sorted || summary->count == 0) {
        free(sorted);
        return -1;
    }
    memcpy(sorted, summary->rounds, (size_t)summary->round_count * sizeof(double));
    time->median = result_quantile(sorted, (size_t)summary->round_count, 0.5);
    free(sorted);
    time->p50 = result_quantile(summary->samples, summary->count, 0.5);
    time->p99 = result_quantile(summary->samples, summary->count, 0.99);
    time->min = summary->samples[0]; /* sorted by result_quantile */
    time->max = summary->samples[summary->count - 1];
    for (size_t i = 0; i < summary->count; i++)
        time->mean += summary->samples[i] / count;
    for (int r = 0; r < summary->ranks; r++) {
        double mean = summary->sums[r] / count;

        time->rank_avg += mean / summary->ranks;
        time->rank_min = r == 0 || mean < time->rank_min ? mean : time->rank_min;
        time->rank_max = mean > time->rank_max ? mean : time->rank_max;
    }
    time->rounds = summary->rounds;
    summary->rounds = NULL;
    time->round_count = summary->round_count;
    time->samples = (long)summary->count;
    time->batch = batch;
    time->measured = true;
    return 0;
}

/* One measurement: estimates the time of a call, then runs the rounds. */

/*
 * Minimum length of a sample in ns: the clock has a resolution of tens of ns, and after a barrier
 * the ranks differ by some hundred ns.
 */
#define MEASUREMENT_SAMPLE 20e3
#define MEASUREMENT_SAMPLES_LEAST 5
#define MEASUREMENT_SAMPLES_MOST 2000
#define MEASUREMENT_BATCH_MOST 1000
#define MEASUREMENT_TRIAL 3 /* samples of the trial */
#define MEASUREMENT_GROWTH 10

#define MEASUREMENT_MESSAGES_MOST ((int64_t)4 << 20)
#define MEASUREMENT_MOST ((int64_t)1 << 20)

/* The state of one library in a measurement. */
struct measurement_library {
    struct summary summary;
    double call;    /* ns per call; 0: the library is excluded */
    double fastest; /* fastest sample of the trial */
    double most;    /* maximum number of samples in the next round */
};

struct measurement {
    const struct run *run;
    struct order *order;
    struct result_measurement *result;
    struct measurement_library *libraries; /* by library */
    double *times;                         /* times of the last run */
    int rounds;
};

/* Excludes the library from the rest of this measurement. */
static void measurement_exclude(struct measurement *m, int c, enum outcome outcome,
                                const char *reason)
{
    struct result_time *time = &m->result->times[c];

    time->wrong = outcome == OUTCOME_WRONG;
    free(time->reason);
    time->reason = strdup(reason);
    m->libraries[c].call = 0;
}

static int measurement_run(struct measurement *m, int c)
{
    struct runner *runner = m->run->runners[c];
    char reason[MEASURE_REASON] = "";
    enum outcome outcome;

    double *more =
        realloc(m->times, (size_t)runner->ranks * (size_t)m->order->samples * sizeof(*more));

    if (!more)
        return -1;
    m->times = more;
    outcome = runner->run_order(runner, m->order, m->times, reason);
    if (outcome != OUTCOME_TOOK) {
        measurement_exclude(m, c, outcome, reason);
    } else if (m->run->frugal) {
        /* Running a barrier frees the library's buffers, for the sake of the other libraries. */
        struct order barrier = {.operation = &operation_table[OPERATION_barrier],
                                .dtype = DIST_UINT8,
                                .op = DIST_SUM,
                                .samples = 1,
                                .batch = 1,
                                .window = 1};
        double *times = calloc((size_t)runner->ranks, sizeof(double));
        char unused[MEASURE_REASON];

        if (times)
            runner->run_order(runner, &barrier, times, unused);
        free(times);
    }
    return outcome == OUTCOME_TOOK ? 0 : -1;
}

/* ---- estimate of the time of a call ---- */

static double measurement_trial(struct measurement *m, int c, long warmup, long batch)
{
    struct order *order = m->order;
    int ranks = m->run->runners[c]->ranks;

    order->warmup = warmup;
    order->samples = MEASUREMENT_TRIAL;
    order->batch = batch;
    if (measurement_run(m, c) != 0)
        return 0;
    m->libraries[c].fastest = summary_quantile(m->times, ranks, MEASUREMENT_TRIAL, 0);
    m->libraries[c].most = MEASUREMENT_TRIAL * MEASUREMENT_GROWTH;
    return summary_quantile(m->times, ranks, MEASUREMENT_TRIAL, 0.5);
}

static long measurement_batch(double call)
{
    double batch = call > 0 ? MEASUREMENT_SAMPLE / call + 1 : 1;

    return batch > MEASUREMENT_BATCH_MOST ? MEASUREMENT_BATCH_MOST : (long)batch;
}

/* ---- the rounds ---- */

static void measurement_set_counts(struct measurement *m, int c, long batch)
{
    const struct options *options = m->run->options;
    struct order *order = m->order;
    double budget = options->time * 1e9 / (double)options->rounds;
    double samples = budget / (m->libraries[c].call * (double)batch);

    if (samples < MEASUREMENT_SAMPLES_LEAST)
        samples =
            samples * 4 < MEASUREMENT_SAMPLES_LEAST ? samples * 4 + 1 : MEASUREMENT_SAMPLES_LEAST;
    if (samples > m->libraries[c].most)
        samples = m->libraries[c].most;
    if (samples > MEASUREMENT_SAMPLES_MOST)
        samples = MEASUREMENT_SAMPLES_MOST;
    order->batch = batch;
    order->samples = options->iterations > 0 ? options->iterations : (long)samples;
    order->warmup = order->samples * batch / 20;
    order->warmup = order->warmup < 1 ? 1 : order->warmup > 50 ? 50 : order->warmup;
    if (options->warmup >= 0)
        order->warmup = options->warmup;
}

static void measurement_round(struct measurement *m, int round, long batch)
{
    const struct options *options = m->run->options;
    int count = m->run->result->library_count;

    for (int i = 0; i < count && !m->run->stopped(); i++) {
        int c = (round + i) % count;

        if (m->libraries[c].call <= 0)
            continue;
        measurement_set_counts(m, c, batch);
        m->order->check = options->check && round + 1 == m->rounds;
        if (measurement_run(m, c) != 0)
            continue;
        if (summary_add(&m->libraries[c].summary, m->times, m->order->samples) != 0) {
            measurement_exclude(m, c, OUTCOME_FAILED, "dist_bench is out of memory for its times");
        } else {
            /*
             * The mean of this round determines the number of samples of the next one: if other
             * processes use the CPUs too, some calls take thousands of times as long as most. The
             * number grows at most by a constant factor, so that no round can take very long.
             */
            int ranks = m->run->runners[c]->ranks;
            double sum = 0;

            for (long s = 0; s < m->order->samples; s++)
                sum += summary_sample(m->times, ranks, m->order->samples, s, false);
            m->libraries[c].call = sum / (double)m->order->samples;
            m->libraries[c].most = (double)m->order->samples * MEASUREMENT_GROWTH;
        }
    }
}

/*
 * Runs a measurement and appends it to the result. First estimates the time of a call for each
 * library. This determines the number of calls per sample, which is the same for all libraries, and
 * the number of samples per round. Then runs the rounds, each beginning with another library.
 * order: operation, bytes, dtype, op, root, in_place and window must be set. The reasons of
 * excluded libraries are in the measurement's times. NULL: out of memory.
 */
static struct result_measurement *measurement_take(const struct run *run, struct order *order)
{
    const struct options *options = run->options;
    struct result *result = run->result;
    const int count = result->library_count;
    struct measurement m = {.run = run, .order = order, .rounds = (int)options->rounds};
    const struct operation *operation = order->operation;
    struct result_measurement head = {
        .collective = operation->name,
        .dtype = dist_dtype_string(order->dtype),
        .op = operation->reduces ? dist_op_string(order->op) : NULL,
        .root = operation->rooted ? order->root : -1,
        .in_place = buffers_in_place(order),
        .bytes = order->bytes,
        .block = order_block(order, result->ranks),
        .element = dist_dtype_size(order->dtype),
        .buffers = buffers_sets(order, result->ranks),
        .apart = order->apart,
        .window =
            operation->id == OPERATION_bw || operation->id == OPERATION_bibw ? order->window : 1};
    bool good = false;

    m.result = result_add_measurement(result, &head);
    m.libraries = calloc((size_t)count, sizeof(*m.libraries));
    if (!m.result || !m.libraries)
        goto out;
    for (int c = 0; c < count; c++) {
        if (summary_begin(&m.libraries[c].summary, order, result->ranks, m.rounds) != 0)
            goto out;
    }
    long batch;
    double fastest = 0;

    for (int c = 0; c < count; c++) {
        if (run->runners[c]->has_failed || run->stopped()) {
            measurement_exclude(&m, c, OUTCOME_FAILED, "it was excluded before");
            continue;
        }
        m.order->check = options->check;
        m.libraries[c].call = measurement_trial(&m, c, 1, 1);
        m.order->check = false;
        if (m.libraries[c].call > 0 && measurement_batch(m.libraries[c].fastest) > 1)
            m.libraries[c].call =
                measurement_trial(&m, c, measurement_batch(m.libraries[c].fastest),
                                  measurement_batch(m.libraries[c].fastest));
        if (m.libraries[c].call > 0 && (fastest == 0 || m.libraries[c].fastest < fastest))
            fastest = m.libraries[c].fastest;
    }
    /* Calls per sample: enough for the fastest library, and the same for all. */
    batch = options->iterations > 0 ? 1 : measurement_batch(fastest);
    for (int round = 0; round < m.rounds; round++)
        measurement_round(&m, round, batch);
    for (int c = 0; c < count; c++) {
        if (m.libraries[c].call > 0 &&
            summary_end(&m.libraries[c].summary, batch, &m.result->times[c]) != 0)
            measurement_exclude(&m, c, OUTCOME_FAILED, "the run was stopped");
    }
    good = true;
out:
    for (int c = 0; m.libraries && c < count; c++)
        summary_free(&m.libraries[c].summary);
    free(m.libraries);
    free(m.times);
    return good ? m.result : NULL;
}

/* ---- selection of measurements ---- */

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
        /* OSU's size is that of one block; NCCL's and libdist's sizes are those of all blocks. */
        size_t element = dist_dtype_size(options->dtype),
               blocks = (size_t)operation_blocks(operation, ranks);
        size_t total = (size_t)size * (strcmp(options->format, "osu") == 0 ? blocks : 1);

        total -= total % (element * blocks);
        size_t bytes = total || size == 0 ? total : element * blocks;

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
                              .apart = options->apart};

        if (options->operations[k])
            ended = measurement_sizes(options, ranks, &order, each, arg);
    }
    return ended;
}

/* A whole run. */

struct run_state {
    struct run *run;
    const struct print_format *format;
    int measured, wrong;
    bool failed;
};

static bool run_never(void)
{
    return false;
}

/* ---- memory ---- */

/* Returns the available memory in bytes; SIZE_MAX if unknown. */
static size_t run_available(void)
{
    FILE *file = fopen("/proc/meminfo", "re");
    char line[256];
    unsigned long long kilobytes = 0;

    while (file && fgets(line, sizeof(line), file)) {
        if (sscanf(line, "MemAvailable: %llu kB", &kilobytes) == 1)
            break;
    }
    if (file)
        fclose(file);
    return kilobytes ? (size_t)kilobytes << 10 : SIZE_MAX;
}

/* ---- measurements ---- */

/* True if the same reason was reported for the previous measurement of this collective. */
static bool run_is_reported(const struct result *result, int c)
{
    const struct result_measurement *measurement =
        &result->measurements[result->measurement_count - 1];
    const char *reason = measurement->times[c].reason, *before;

    if (result->measurement_count < 2 ||
        strcmp(measurement[-1].collective, measurement->collective) != 0)
        return false;
    before = measurement[-1].times[c].reason;
    return reason && before && strcmp(reason, before) == 0;
}

/*
 * Runs one measurement and copies it to *measurement_p, because adding the next one may move the
 * array; `times` stays valid.
 */
static int run_point(struct run_state *state, struct order *order,
                     struct result_measurement *measurement_p)
{
    struct result_measurement *measurement;
    struct run *run = state->run;
    const struct result *result = run->result;
    size_t ranks = (size_t)result->ranks, count = (size_t)result->library_count;

    run->frugal = buffers_need(order, (int)ranks) > run_available() / 2 / ranks / count;
    progress_show("%s of %zu bytes", order->operation->name, order->bytes);
    measurement = measurement_take(run, order);
    progress_clear();
    if (!measurement) {
        fprintf(stderr, "dist_bench: out of memory for the results\n");
        return -1;
    }
    *measurement_p = *measurement;
    for (int c = 0; c < result->library_count; c++) {
        const struct result_time *time = &measurement->times[c];

        state->measured += time->measured;
        state->wrong += time->wrong;
        if (!time->measured && time->reason && !result->libraries[c].reason &&
            !run_is_reported(result, c))
            fprintf(stderr, "dist_bench: %s: %s of %zu bytes: %s%s\n", result->libraries[c].name,
                    measurement->collective, measurement->bytes,
                    time->wrong ? "WRONG RESULT: " : "", time->reason);
    }
    if (run->measured)
        run->measured(run->arg);
    return 0;
}

static bool run_has_ended(const struct run *run)
{
    bool all_failed = true;

    for (int c = 0; c < run->result->library_count; c++)
        all_failed = all_failed && run->runners[c]->has_failed;
    return all_failed || run->stopped();
}

/*
 * Measures one size: as the options require, or both out of place and in place for a format of
 * pairs.
 */
static int run_each(void *arg, struct order *order, bool first)
{
    struct run_state *state = arg;
    struct run *run = state->run;
    enum operation_in_place place = order->operation->in_place;
    bool pairs = state->format->pairs && !run->options->in_place;
    bool apart = pairs ? place != IN_PLACE_ALWAYS : !run->options->in_place;
    struct result_measurement measurements[2];

    if (buffers_need(order, run->result->ranks) > (size_t)run->options->memory_limit) {
        fprintf(stderr,
                "dist_bench: %s of %zu bytes is skipped: its buffers need more than --mem-limit "
                "(%lld bytes) per rank\n",
                order->operation->name, order->bytes, (long long)run->options->memory_limit);
        return 0;
    }
    order->in_place = false;
    if (apart && run_point(state, order, &measurements[0]) != 0)
        return -1;
    order->in_place = true;
    if ((!apart || (pairs && place != IN_PLACE_NEVER && !run_has_ended(run))) &&
        run_point(state, order, &measurements[1]) != 0)
        return -1;
    if (first && state->format->head)
        state->format->head(run->options, run->result, &measurements[apart ? 0 : 1]);
    if (state->format->measurement)
        state->format->measurement(run->options, run->result, apart ? &measurements[0] : NULL,
                                   !apart || (pairs && place != IN_PLACE_NEVER) ? &measurements[1]
                                                                                : NULL);
    state->failed = state->failed || run_has_ended(run);
    return run_has_ended(run) ? 1 : 0;
}

/* ---- files ---- */

/* Checks that the file can be written, before anything is measured. */
static bool run_can_write(const char *option, const char *file)
{
    if (!file || draft_is_possible(file) == 0)
        return true;
    fprintf(stderr, "dist_bench: --%s %s: cannot write: %s\n", option, file, strerror(errno));
    return false;
}

/* Writes the results to a file, if the option was given. */
static int run_write(const struct run *run, const char *option, const char *file,
                     int (*write)(const struct result *result, FILE *to))
{
    struct output output;
    bool complete;

    if (!file)
        return 0;
    output_begin(&output);
    complete = output.to && write(run->result, output.to) == 0;
    if (output_end(&output, complete ? file : NULL) == 0)
        return 0;
    fprintf(stderr, "dist_bench: --%s %s: cannot write: %s\n", option, file, strerror(errno));
    return -1;
}

int run_all(struct run *run)
{
    const struct options *options = run->options;
    struct run_state state = {.run = run, .format = print_find(options->format)};
    bool for_programs = strcmp(options->format, "csv") == 0 || strcmp(options->format, "json") == 0;
    int slower = 0, written = 0;

    if (!run->stopped)
        run->stopped = run_never;
    run->result->rounds = (int)options->rounds;
    if (!run_can_write("save", options->save) || !run_can_write("html", options->html))
        return RUN_FAILED;
    if (state.format->begin)
        state.format->begin(options, run->result);
    if (measurement_each(options, run->result->ranks, run_each, &state) < 0)
        return RUN_FAILED;
    if (state.format->end)
        state.format->end(options, run->result);
    written += run_write(run, "save", options->save, print_json_file);
    written += run_write(run, "html", options->html, html_write);
    if (options->baseline)
        slower = baseline_compare(run->result, options->baseline, options->tolerance, for_programs);
    if (output_exit("dist_bench", 0) != 0 || written < 0 || slower < 0 || state.failed ||
        state.wrong || !state.measured)
        return RUN_FAILED;
    return slower ? RUN_SLOWER : RUN_OK;
}
