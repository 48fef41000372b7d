/* SPDX-License-Identifier: BSD-3-Clause */
/* dist_info explain: reads what is asked, asks the library, has it printed. */
#include "explain.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int explain_usage(void)
{
    fprintf(stderr,
            "usage: dist_info explain COLLECTIVE [--bytes SIZE] [--ranks N] [--topology TEXT]\n"
            "                         [--dtype NAME] [--run] [--format table|csv|json]\n");
    return 2;
}

int explain_ranks(const char *text)
{
    char *end;
    long ranks = strtol(text, &end, 10);

    return *text && !*end && ranks >= 1 && ranks <= 65536 ? (int)ranks : 0;
}

/* "4096", "64K", "1M", "2G". */
static bool explain_bytes(const char *text, size_t *bytes_p)
{
    static const char units[] = "KMG";
    unsigned long long bytes;
    const char *unit;
    unsigned shift;
    char *end;

    errno = 0;
    bytes = strtoull(text, &end, 10);
    unit = *end ? strchr(units, *end & ~0x20) : NULL;
    shift = unit ? 10 * (unsigned)(unit - units + 1) : 0;
    if (errno || text[0] < '0' || text[0] > '9' || (*end && (!unit || end[1])) ||
        bytes > SIZE_MAX >> shift)
        return false;
    *bytes_p = (size_t)bytes << shift;
    return true;
}

static bool explain_collective(const char *text, dist_collective *collective_p)
{
    for (int c = 0; c < DIST_COLL_SEND; c++) {
        if (strcmp(text, dist_collective_string((dist_collective)c)) == 0) {
            *collective_p = (dist_collective)c;
            return true;
        }
    }
    fprintf(stderr, "dist_info: there is no collective '%s'; there are", text);
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

static bool explain_format(const char *text, enum explain_format *format_p)
{
    static const char *const names[] = {"table", "csv", "json"};

    for (int f = 0; f < 3; f++) {
        if (strcmp(text, names[f]) == 0) {
            *format_p = (enum explain_format)f;
            return true;
        }
    }
    return false;
}

/* One option; false: what stands behind it is not understood. */
static bool explain_option(int option, const char *text, struct explain_report *report)
{
    switch (option) {
    case 'b':
        return explain_bytes(text, &report->question.bytes);
    case 'r':
        return (report->question.ranks = explain_ranks(text)) != 0;
    case 't':
        report->question.topology = text;
        return true;
    case 'd':
        return explain_dtype(text, &report->dtype);
    case 'f':
        return explain_format(text, &report->format);
    default:
        report->run = true;
        return true;
    }
}

static bool explain_options(int argc, char **argv, struct explain_report *report)
{
    static const struct option options[] = {{"bytes", required_argument, NULL, 'b'},
                                            {"ranks", required_argument, NULL, 'r'},
                                            {"topology", required_argument, NULL, 't'},
                                            {"dtype", required_argument, NULL, 'd'},
                                            {"run", no_argument, NULL, 'x'},
                                            {"format", required_argument, NULL, 'f'},
                                            {NULL, 0, NULL, 0}};
    int option, index = 0;

    while ((option = getopt_long(argc, argv, "", options, &index)) != -1) {
        if (option == '?')
            return false;
        if (!explain_option(option, optarg, report)) {
            fprintf(stderr, "dist_info: --%s: '%s' is not understood\n", options[index].name,
                    optarg);
            return false;
        }
    }
    if (optind + 1 != argc) {
        fprintf(stderr, "dist_info: explain wants one collective, such as all_reduce\n");
        return false;
    }
    if (report->run && report->question.topology) {
        fprintf(stderr, "dist_info: --run measures ranks that there are: give --ranks, or start it "
                        "as you start your job, with no --topology\n");
        return false;
    }
    return explain_collective(argv[optind], &report->question.collective);
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
    struct explain_report report = {
        .question = {.size = sizeof(report.question), .bytes = (size_t)1 << 20},
        .dtype = DIST_FLOAT32,
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
    return fflush(stdout) == 0 ? 0 : 1;
}
