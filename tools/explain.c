/* SPDX-License-Identifier: BSD-3-Clause */
/* dist_info explain: reads what is asked, asks the library, has it printed. */
#include "explain.h"

#include "common/args.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

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
    int action;
};

#define EXPLAIN_CHOICE(name, text) text "|"
#define AT(member) offsetof(struct explain_words, member)
static const struct args_row explain_rows[] = {
    {.names = "", .kind = ARGS_WORDS, .argument = DIST_COLLECTIVE_MAP(EXPLAIN_CHOICE)},
    {"bytes", 0, ARGS_BYTES, AT(bytes), 0, 1e15, "SIZE",
     "of a block, with K, M or G (default: 1M)"},
    {"ranks", 0, ARGS_INT, AT(ranks), 1, EXPLAIN_RANKS_MAX, "N",
     "ranks on one machine (default: a rank for each CPU)"},
    {"topology", 0, ARGS_TEXT, AT(topology), 0, 0, "TEXT",
     "where the ranks are, such as 'node:2 core:4'"},
    {"dtype", 0, ARGS_TEXT, AT(dtype), 0, 0, "NAME",
     "type of the elements that are measured (default: float32)"},
    {"run", 0, ARGS_FLAG, AT(run), 0, 0, NULL,
     "also measure each algorithm, with --ranks here, otherwise in the job that starts it"},
    {"format", 0, ARGS_CHOICE, AT(format), 0, 0, "table|csv|json",
     "for people (the default), or for programs"},
    ARGS_HELP_ROWS(struct explain_words, 0),
};
static const struct args explain_args = {
    .rows = explain_rows,
    .count = sizeof(explain_rows) / sizeof(explain_rows[0]),
    .program = "dist_info explain",
    .usage = "COLLECTIVE [--bytes SIZE] [--ranks N] [--topology TEXT] [--dtype NAME] [--run] "
             "[--format table|csv|json]",
    .about = "Shows which algorithm libdist chooses for blocks of that size, the predicted time "
             "of each algorithm, and why. COLLECTIVE is such as all_reduce or broadcast.\n"};

/* Returns -1, or the exit code: 2 for an unknown name. */
static int explain_collective(const char *text, dist_collective *collective_p)
{
    char names[512] = "";
    size_t used = 0;

    for (int c = 0; c < DIST_COLL_SEND; c++) {
        const char *name = dist_collective_string((dist_collective)c);

        if (strcmp(text, name) == 0) {
            *collective_p = (dist_collective)c;
            return -1;
        }
        used += (size_t)snprintf(names + used, sizeof(names) - used, " %s", name);
    }
    return args_wrong(&explain_args, "there is no collective '%s'; choose from%s", text, names);
}

/* Returns -1, or the exit code: 2 for a wrong command line. */
static int explain_take(const struct explain_words *words, const char *collective,
                        struct explain_report *report)
{
    report->question.bytes = (size_t)words->bytes;
    report->question.ranks = (int)words->ranks;
    report->question.topology = words->topology;
    report->run = words->run;
    report->format = strcmp(words->format, "csv") == 0    ? EXPLAIN_CSV
                     : strcmp(words->format, "json") == 0 ? EXPLAIN_JSON
                                                          : EXPLAIN_TABLE;
    if (words->run && words->topology)
        return args_wrong(&explain_args, "--run measures real ranks: omit --topology, and give "
                                         "--ranks or start dist_info as you start your job");
    if (!explain_dtype(words->dtype, &report->dtype))
        return args_wrong(&explain_args,
                          "--dtype: there is no type '%s'; `dist_info backends` lists the types",
                          words->dtype);
    return explain_collective(collective, &report->question.collective);
}

static int explain_options(int argc, char **argv, struct explain_report *report)
{
    struct explain_words words = {.bytes = 1 << 20, .dtype = "float32", .format = "table"};
    int rest, code = args_begin(&explain_args, argc, argv, &words, 1, &rest);

    if (code >= 0)
        return code;
    if (rest == argc)
        return args_wrong(&explain_args, "name a collective, such as all_reduce");
    return explain_take(&words, argv[rest], report);
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
    int code;

    code = explain_options(argc, argv, &report);
    if (code >= 0)
        return code;
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
