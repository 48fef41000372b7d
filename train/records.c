/* SPDX-License-Identifier: BSD-3-Clause */
/* Passes on what the trainer tells to the records that were asked for. */
#include "records.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "failure.h"
#include "file.h"
#include "metrics.h"
#include "options.h"
#include "page.h"
#include "tools/topology/topology.h"
#include "trace.h"

/* ---- how long the ranks take ---- */

/* Divides the waits since the last time into communication and waiting for others. */
static dist_status balance_compare(struct balance *balance, dist_group *group)
{
    dist_status status;

    if (balance->pending == 0)
        return DIST_OK;
    status = dist_all_reduce(group, balance->waits, balance->least, (size_t)balance->pending,
                             DIST_FLOAT32, DIST_MIN);
    for (int i = 0; i < balance->pending && status == DIST_OK; i++) {
        balance->own.seconds[BALANCE_COMMUNICATION] += balance->least[i];
        balance->own.seconds[BALANCE_WAITING] += balance->waits[i] - balance->least[i];
    }
    balance->pending = 0;
    return status;
}

/* Collective once in BALANCE_ROOM steps. */
static dist_status balance_step(struct balance *balance, dist_group *group,
                                const struct record_step *step)
{
    static const enum balance_part parts[RECORD_IN_STEP] = {
        [RECORD_DATA] = BALANCE_DATA,         [RECORD_FORWARD] = BALANCE_FORWARD,
        [RECORD_BACKWARD] = BALANCE_BACKWARD, [RECORD_WAIT] = BALANCE_PARTS,
        [RECORD_UPDATE] = BALANCE_UPDATE,
    };
    double other = step->seconds;

    for (int i = 0; i < RECORD_IN_STEP; i++) {
        other -= step->parts[i];
        if (parts[i] != BALANCE_PARTS)
            balance->own.seconds[parts[i]] += step->parts[i];
    }
    balance->own.seconds[BALANCE_OTHER] += other > 0 ? other : 0;
    balance->own.steps++;
    balance->waits[balance->pending++] = (float)step->parts[RECORD_WAIT];
    return balance->pending == BALANCE_ROOM ? balance_compare(balance, group) : DIST_OK;
}

/* ---- the records ---- */

struct records {
    struct records_setup setup;
    dist_group *group; /* NULL before records_start */
    FILE *metrics, *events;
    struct trace trace;
    struct record_step pending[RECORDS_AHEAD]; /* steps without losses, from `first` on, around */
    int64_t first, steps;                      /* counted from the start of this run */
    struct record_step sum;                    /* of steps that are no line yet */
    double losses;                             /* of them */
    int summed;
    struct page *page; /* NULL: no report. All ranks have one, for the balance; rank 0 writes it */
    bool page_lost;    /* it could not be written: that was said */
    const char *lost;  /* the option of a file that is incomplete; NULL: all are complete */
};

const char *const record_part_names[RECORD_PARTS] = {
    [RECORD_DATA] = "data", [RECORD_FORWARD] = "forward", [RECORD_BACKWARD] = "backward",
    [RECORD_WAIT] = "wait", [RECORD_UPDATE] = "update",   [RECORD_BUCKET] = "bucket",
    [RECORD_TEST] = "test",
};

/* What goes wrong at the start ends the job. */
static int records_refuse(const char *option, const char *path)
{
    char why[512];

    snprintf(why, sizeof(why), "%s", failure_text());
    return failure("%s %s: %s", option, path, why);
}

/* Later the training is worth more than its records, and goes on to its end. */
static void records_lose(struct records *records, const char *option, const char *path, FILE **file)
{
    records->lost = option;
    fprintf(stderr, "%s: warning: %s %s: %s: training goes on without it\n", records->setup.program,
            option, path, failure_text());
    if (file)
        metrics_close(file);
}

static int records_collective(dist_status status)
{
    return status == DIST_OK ? 0 : failure_dist("the records of the ranks");
}

static void records_write_page(struct records *records)
{
    if (records->setup.rank != 0 || records->page_lost ||
        page_write(records->page, records->setup.options->report) == 0)
        return;
    records_lose(records, "--report", records->setup.options->report, NULL);
    records->page_lost = true;
}

static int records_open_page(struct records *records)
{
    struct page *page = calloc(1, sizeof(*page));

    if (!page)
        return failure("out of memory");
    records->page = page;
    page->setup = &records->setup;
    page->balance.world = records->setup.world;
    page->balance.ranks = calloc((size_t)page->balance.world, sizeof(*page->balance.ranks));
    if (!page->balance.ranks)
        return failure("out of memory");
    return records->setup.rank == 0 ? page_write(page, records->setup.options->report) : 0;
}

static int records_open_files(struct records *records)
{
    const struct records_setup *setup = &records->setup;
    const struct options *options = setup->options;
    const bool first = setup->rank == 0;

    if (options->metrics && first && metrics_open(options->metrics, setup, &records->metrics) < 0)
        return records_refuse("--metrics", options->metrics);
    if (options->tensorboard && first &&
        events_open(options->tensorboard, setup->step, setup->resumed, &records->events) < 0)
        return records_refuse("--tensorboard", options->tensorboard);
    if (options->report && records_open_page(records) < 0)
        return records_refuse("--report", options->report);
    /* It is written at the end; whether it can be is known now. */
    if (options->trace && (trace_open(setup->world, &records->trace) < 0 ||
                           (first && file_can_replace(options->trace) < 0)))
        return records_refuse("--trace", options->trace);
    return 0;
}

static void records_free(struct records *records)
{
    metrics_close(&records->metrics);
    metrics_close(&records->events);
    trace_close(&records->trace);
    if (records->page) {
        free(records->page->balance.ranks);
        free(records->page->topology);
        free(records->page);
    }
    free(records);
}

int records_open(const struct records_setup *setup, struct records **records_p)
{
    struct records *records = calloc(1, sizeof(*records));

    if (!records)
        return failure("out of memory for the records");
    records->setup = *setup;
    if (records_open_files(records) < 0) {
        records_free(records);
        return -1;
    }
    *records_p = records;
    return 0;
}

/* Rank 0 has the picture of dist_info topology. */
static int records_start_page(struct records *records)
{
    struct topology topology;
    const dist_status status = topology_gather_group(records->group, &topology);
    size_t size;

    if (status == DIST_OK && records->setup.rank == 0) {
        char *text = NULL;
        FILE *to = open_memstream(&text, &size);

        if (to)
            topology_draw(&topology, to);
        if (to && fclose(to) == 0)
            records->page->topology = text;
        else
            free(text);
    }
    free(topology.machine);
    free(topology.rank);
    records->page->group = records->group;
    return records_collective(status);
}

int records_start(struct records *records, dist_group *group)
{
    if (!records)
        return 0;
    records->group = group;
    if (records->page && records_start_page(records) < 0)
        return -1;
    return records->trace.spans ? records_collective(clock_compare(group, records->trace.first))
                                : 0;
}

void records_span(struct records *records, enum record_part part, int64_t step, int number,
                  double began, double ended)
{
    const struct trace_span span = {began, ended, step, part, number};

    if (records && records->trace.spans)
        trace_add(&records->trace, &span);
}

int records_step(struct records *records, const struct record_step *step)
{
    records->pending[records->steps++ % RECORDS_AHEAD] = *step;
    if (!records->page)
        return 0;
    return records_collective(balance_step(&records->page->balance, records->group, step));
}

/* The steps since the last line become one. */
static void records_line(struct records *records)
{
    const struct record_step *sum = &records->sum;
    double loss;

    if (records->summed == 0)
        return;
    loss = records->losses / records->summed;
    if (records->metrics && metrics_step(records->metrics, sum, loss, records->summed) < 0)
        records_lose(records, "--metrics", records->setup.options->metrics, &records->metrics);
    if (records->events) {
        const struct events_scalar scalars[] = {
            {"loss/train", loss},
            {"lr", sum->lr},
            {"samples_per_s", (double)sum->samples / sum->seconds},
        };

        if (events_scalars(records->events, sum->step, scalars, 3) < 0)
            records_lose(records, "--tensorboard", records->setup.options->tensorboard,
                         &records->events);
    }
    records->sum = (struct record_step){.step = 0};
    records->losses = 0;
    records->summed = 0;
}

void records_losses(struct records *records, const double *losses, int count)
{
    for (int i = 0; records && i < count && records->first < records->steps; i++) {
        const struct record_step *step = &records->pending[records->first++ % RECORDS_AHEAD];
        struct record_step *sum = &records->sum;

        if (records->page)
            page_add_step(records->page, step, losses[i]);
        if (!records->metrics && !records->events)
            continue;
        sum->step = step->step;
        sum->epoch = step->epoch;
        sum->lr = step->lr;
        sum->samples += step->samples;
        sum->seconds += step->seconds;
        for (int part = 0; part < RECORD_IN_STEP; part++)
            sum->parts[part] += step->parts[part];
        records->losses += losses[i];
        records->summed++;
        if (step->step % records->setup.options->record_interval == 0)
            records_line(records);
    }
}

void records_share(struct records *records, double share)
{
    if (records && records->page)
        records->page->share = share;
}

int records_test(struct records *records, const struct record_test *test)
{
    const struct events_scalar scalars[] = {
        {"loss/test", test->loss},
        {"accuracy", (double)test->correct / (double)test->count},
    };
    struct balance *balance;
    dist_status status;

    if (!records)
        return 0;
    records_line(records);
    if (records->metrics && metrics_test(records->metrics, test) < 0)
        records_lose(records, "--metrics", records->setup.options->metrics, &records->metrics);
    if (records->events && events_scalars(records->events, test->step, scalars, 2) < 0)
        records_lose(records, "--tensorboard", records->setup.options->tensorboard,
                     &records->events);
    if (!records->page)
        return 0;
    page_add_test(records->page, test);
    balance = &records->page->balance;
    status = balance_compare(balance, records->group);
    if (status == DIST_OK)
        status = dist_all_gather(records->group, &balance->own, balance->ranks,
                                 sizeof(balance->own) / sizeof(double), DIST_FLOAT64);
    if (records_collective(status) < 0)
        return -1;
    records_write_page(records);
    return 0;
}

static void records_end_trace(struct records *records, bool ended)
{
    dist_group *group = ended ? records->group : NULL;
    dist_status status = DIST_OK;
    int result = 0;

    if (group)
        status = clock_compare(group, records->trace.last);
    if (status == DIST_OK && (group || records->setup.rank == 0))
        result = trace_write(&records->trace, records->setup.options->trace, group, &status);
    if (status != DIST_OK)
        result = failure_dist("gathering it from the ranks");
    if (result < 0 && records->setup.rank == 0)
        records_lose(records, "--trace", records->setup.options->trace, NULL);
}

/* Closing is when some file systems say that they are full. */
int records_close(struct records *records, const char *failed)
{
    int result = 0;

    if (!records)
        return 0;
    records_line(records);
    if (records->trace.spans)
        records_end_trace(records, !failed);
    if (records->page) {
        records->page->ended = true;
        records->page->failed = failed;
        records_write_page(records);
    }
    if (metrics_close(&records->metrics) < 0)
        records_lose(records, "--metrics", records->setup.options->metrics, NULL);
    if (metrics_close(&records->events) < 0)
        records_lose(records, "--tensorboard", records->setup.options->tensorboard, NULL);
    if (records->lost)
        result = failure("%s: the file is incomplete: see the warning above", records->lost);
    records_free(records);
    return result;
}
