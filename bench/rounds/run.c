/* SPDX-License-Identifier: BSD-3-Clause */
/* A whole run. */
#include "run.h"

#include "bench/report/baseline.h"
#include "bench/report/html.h"
#include "bench/report/print.h"
#include "measurement.h"
#include "tools/common/draft.h"
#include "tools/common/output.h"
#include "tools/common/progress.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct run_state {
    struct run *run;
    struct schedule schedule;
    const struct print_format *format;
    int measured, wrong;
    bool failed;
};

static bool run_never(void)
{
    return false;
}

/* ---- memory ---- */

/* Bytes that this machine has left; SIZE_MAX where it does not say. */
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

static bool run_fits(const struct run_state *state, const struct order *order)
{
    size_t need = buffers_need(order, state->run->result->ranks);

    if (need <= (size_t)state->run->options->memory_limit)
        return true;
    fprintf(stderr,
            "dist_bench: %s of %zu bytes is left out: its buffers take more than --mem-limit "
            "(%lld bytes) of each rank\n",
            order->operation->name, order->bytes, (long long)state->run->options->memory_limit);
    return false;
}

/* ---- measurements ---- */

/* Said for the measurement before, of the same collective? */
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

static void run_report(struct run_state *state, const struct result_measurement *measurement)
{
    const struct result *result = state->run->result;

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
}

/* Copies the measurement, since the next one may move it: its times stay where they are. */
static int run_point(struct run_state *state, struct order *order,
                     struct result_measurement *measurement_p)
{
    struct result_measurement *measurement;
    size_t ranks = (size_t)state->run->result->ranks, count = (size_t)state->schedule.count;

    state->schedule.frugal = buffers_need(order, (int)ranks) > run_available() / 2 / ranks / count;
    progress_show("%s of %zu bytes", order->operation->name, order->bytes);
    measurement = measurement_take(&state->schedule, order, state->run->result);
    progress_clear();
    if (!measurement) {
        fprintf(stderr, "dist_bench: no memory for the results\n");
        return -1;
    }
    *measurement_p = *measurement;
    run_report(state, measurement);
    if (state->run->measured)
        state->run->measured(state->run->arg);
    return 0;
}

static bool run_over(const struct run_state *state)
{
    bool gone = true;

    for (int c = 0; c < state->schedule.count; c++)
        gone = gone && state->schedule.runners[c]->gone;
    return gone || state->schedule.stopped();
}

/* One size: as asked, or for a format of pairs out of place and in place. */
static int run_each(void *arg, struct order *order, bool first)
{
    struct run_state *state = arg;
    struct run *run = state->run;
    enum operation_in_place place = order->operation->in_place;
    bool pairs = state->format->pairs && !run->options->in_place;
    bool apart = pairs ? place != IN_PLACE_ALWAYS : !run->options->in_place;
    struct result_measurement measurements[2];

    if (!run_fits(state, order))
        return 0;
    order->in_place = false;
    if (apart && run_point(state, order, &measurements[0]) != 0)
        return -1;
    order->in_place = true;
    if ((!apart || (pairs && place != IN_PLACE_NEVER && !run_over(state))) &&
        run_point(state, order, &measurements[1]) != 0)
        return -1;
    if (first && state->format->head)
        state->format->head(run->options, run->result, &measurements[apart ? 0 : 1]);
    if (state->format->measurement)
        state->format->measurement(run->options, run->result, apart ? &measurements[0] : NULL,
                                   !apart || (pairs && place != IN_PLACE_NEVER) ? &measurements[1]
                                                                                : NULL);
    state->failed = state->failed || run_over(state);
    return run_over(state) ? 1 : 0;
}

/* ---- files ---- */

/* Whether the file can be written, found out before anything is measured. */
static bool run_can_write(const char *option, const char *file)
{
    if (!file || draft_is_possible(file) == 0)
        return true;
    fprintf(stderr, "dist_bench: --%s %s: cannot write: %s\n", option, file, strerror(errno));
    return false;
}

/* Writes a file of the results, if the option that names it was given. */
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

/* ---- a run ---- */

static int run_after(struct run_state *state)
{
    struct run *run = state->run;
    const struct options *options = run->options;
    bool for_programs = strcmp(options->format, "csv") == 0 || strcmp(options->format, "json") == 0;
    int slower = 0, written = 0;

    if (state->format->end)
        state->format->end(options, run->result);
    written += run_write(run, "save", options->save, print_json_file);
    written += run_write(run, "html", options->html, html_write);
    if (options->baseline)
        slower = baseline_compare(run->result, options->baseline, options->tolerance, for_programs);
    if (output_exit("dist_bench", 0) != 0 || written < 0 || slower < 0 || state->failed ||
        state->wrong || !state->measured)
        return RUN_FAILED;
    return slower ? RUN_SLOWER : RUN_OK;
}

int run_all(struct run *run)
{
    struct run_state state = {.run = run, .format = print_find(run->options->format)};

    state.schedule = (struct schedule){.options = run->options,
                                       .runners = run->runners,
                                       .count = run->result->library_count,
                                       .stopped = run->stopped ? run->stopped : run_never};
    run->result->rounds = (int)run->options->rounds;
    if (!run_can_write("save", run->options->save) || !run_can_write("html", run->options->html))
        return RUN_FAILED;
    if (state.format->begin)
        state.format->begin(run->options, run->result);
    if (measurement_each(run->options, run->result->ranks, run_each, &state) < 0)
        return RUN_FAILED;
    return run_after(&state);
}
