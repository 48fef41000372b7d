/* SPDX-License-Identifier: BSD-3-Clause */
/* dist_info explain: reads what is asked, asks the library, has it printed. */
#include "explain.h"

#include "common/args.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int explain_usage(void)
{
    fprintf(stderr,
            "usage: dist_info explain COLLECTIVE [--bytes SIZE] [--ranks N] [--topology TEXT]\n"
            "                         [--dtype NAME] [--run] [--format table|csv|json]\n");
    return 2;
}

static bool explain_collective(const char *text, dist_collective *collective_p)
{
    for (int c = 0; c < DIST_COLL_SEND; c++) {
        if (strcmp(text, dist_collective_string((dist_collective)c)) == 0) {
            *collective_p = (dist_collective)c;
            return true;
        }
    }
    fprintf(stderr, "dist_info: there is no collective '%s'; choose from", text);
    for (int c = 0; c < DIST_COLL_SEND; c++)
        fprintf(stderr, " %s", dist_collective_string((dist_collective)c));
    fprintf(stderr, "\n");
    return false;
}

static bool explain_dtype(const char *text, dist_dtype *dtype_p)
{
    for (int d = 0; d < DIST_DTYPE_COUNT; d++) {
        if (strcmp(text, dist_dtype_string((dist_dtype)d)) == 0) {
            *dtype_p = (dist_dtype)d;
            return true;
        }
    }
    return false;
}

/* What the options say. */
struct explain_words {
    int64_t bytes, ranks; /* 0 ranks: not given */
    const char *topology, *dtype, *format;
    bool run;
};

#define EXPLAIN_CHOICE(name, text) text "|"
static const struct args_row explain_rows[] = {
    {.names = "", .kind = ARGS_WORDS, .argument = DIST_COLLECTIVE_MAP(EXPLAIN_CHOICE)},
    {.names = "bytes",
     .kind = ARGS_BYTES,
     .offset = offsetof(struct explain_words, bytes),
     .most = 1e15},
    {.names = "ranks",
     .kind = ARGS_INT,
     .offset = offsetof(struct explain_words, ranks),
     .least = 1,
     .most = EXPLAIN_RANKS_MAX},
    {.names = "topology", .kind = ARGS_TEXT, .offset = offsetof(struct explain_words, topology)},
    {.names = "dtype", .kind = ARGS_TEXT, .offset = offsetof(struct explain_words, dtype)},
    {.names = "run", .kind = ARGS_FLAG, .offset = offsetof(struct explain_words, run)},
    {.names = "format",
     .kind = ARGS_CHOICE,
     .offset = offsetof(struct explain_words, format),
     .argument = "table|csv|json"},
};

static bool explain_words(const struct explain_words *words, struct explain_report *report)
{
    report->question.bytes = (size_t)words->bytes;
    report->question.ranks = (int)words->ranks;
    report->question.topology = words->topology;
    report->run = words->run;
    report->format = strcmp(words->format, "csv") == 0    ? EXPLAIN_CSV
                     : strcmp(words->format, "json") == 0 ? EXPLAIN_JSON
                                                          : EXPLAIN_TABLE;
    if (words->run && words->topology) {
        fprintf(stderr, "dist_info: --run measures real ranks: omit --topology, and give --ranks "
                        "or start dist_info as you start your job\n");
        return false;
    }
    if (explain_dtype(words->dtype, &report->dtype))
        return true;
    fprintf(stderr,
            "dist_info: --dtype: there is no type '%s'; `dist_info backends` lists the types\n",
            words->dtype);
    return false;
}

static bool explain_options(int argc, char **argv, struct explain_report *report)
{
    static const struct args args = {.rows = explain_rows,
                                     .count = sizeof(explain_rows) / sizeof(explain_rows[0])};
    struct explain_words words = {.bytes = 1 << 20, .dtype = "float32", .format = "table"};
    char failure[ARGS_FAILURE];
    int rest;

    if (args_read(&args, argc, argv, &words, &rest, failure) != 0) {
        fprintf(stderr, "dist_info: %s\n", failure);
        return false;
    }
    if (rest + 1 != argc) {
        fprintf(stderr, "dist_info: explain takes one collective, such as all_reduce\n");
        return false;
    }
    return explain_words(&words, report) &&
           explain_collective(argv[rest], &report->question.collective);
}

/* As many ranks as CPUs, if nothing is said, but two at least. */
static int explain_default_ranks(void)
{
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);

    return cpus < 2 ? 2 : cpus > 64 ? 64 : (int)cpus;
}

dist_status explain_ask(struct explain_report *report)
{
    dist_status status =
        dist_explain(&report->question, report->candidates, EXPLAIN_ROOM, &report->explanation);

    if (status != DIST_OK)
        fprintf(stderr, "dist_info: %s\n", dist_last_error());
    else
        report->count = report->explanation.candidates < EXPLAIN_ROOM
                            ? report->explanation.candidates
                            : EXPLAIN_ROOM;
    return status;
}

int explain_main(int argc, char **argv)
{
    struct explain_report report = {.question = {.size = sizeof(report.question)},
                                    .explanation = {.size = sizeof(report.explanation)},
                                    .free = -1};

    if (!explain_options(argc, argv, &report))
        return explain_usage();
    for (int i = 0; i < EXPLAIN_ROOM; i++)
        report.measured[i] = -1;
    if (report.question.collective == DIST_COLL_BARRIER)
        report.question.bytes = 0;
    if (report.run && !report.question.ranks)
        return explain_run_job(&report);
    if (!report.question.ranks && !report.question.topology)
        report.question.ranks = explain_default_ranks();
    if (explain_ask(&report) != DIST_OK)
        return 1;
    if (report.run && explain_run_here(&report) != DIST_OK) {
        fprintf(stderr, "dist_info: %s\n", dist_last_error());
        return 1;
    }
    explain_print(&report);
    return 0;
}
