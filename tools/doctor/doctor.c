/* SPDX-License-Identifier: BSD-3-Clause */
/* dist_info doctor --job: the reports of all ranks, gathered by libdist itself. */
#include "doctor.h"
#include "tools/common/args.h"
#include "tools/common/launched.h"

#include <dist/dist.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Shortly after a barrier, so that clocks can be compared. */
static double job_clock(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Gathers into *reports_p on rank 0, to be freed; elsewhere that is NULL. */
static dist_status job_gather(dist_group *group, struct doctor_report *report,
                              struct doctor_report **reports_p)
{
    const size_t ranks = (size_t)dist_get_world_size(group);
    dist_status status;

    report->rank = dist_get_rank(group);
    *reports_p = report->rank == 0 ? calloc(ranks, sizeof(*report)) : NULL;
    if (report->rank == 0 && !*reports_p)
        return DIST_ERR_NO_MEMORY;
    status = dist_barrier(group);
    report->clock = job_clock();
    if (status == DIST_OK)
        status = dist_gather(group, report, *reports_p, sizeof(*report), DIST_UINT8, 0);
    return status;
}

/* Each rank says its own answers, in one piece. */
static int job_alone(const struct doctor_report *report)
{
    char *text = NULL, why[1024];
    size_t length;
    FILE *to;

    snprintf(why, sizeof(why), "%s", dist_last_error());
    to = open_memstream(&text, &length);
    if (!to)
        return 1;
    fprintf(to, "The job cannot be set up: %s\nWhat %s says alone:\n", why, report->host);
    doctor_print(report, false, to);
    fclose(to);
    fwrite(text, 1, length, stdout);
    free(text);
    return 1;
}

/*
 * On every rank of a job: gathers the reports of all, and prints on rank 0 what all have, and what
 * only some have. Returns the exit code.
 */
static int doctor_job(struct doctor_report *report, int timeout_s)
{
    struct dist_options options = DIST_OPTIONS_INIT;
    struct doctor_report *reports = NULL;
    dist_group *group = NULL;
    dist_status status;
    int code = 0;

    options.backend = "gloo";
    options.timeout_ms = timeout_s * 1000;
    status = dist_init_process_group(&options, &group);
    if (status == DIST_OK)
        status = job_gather(group, report, &reports);
    if (status != DIST_OK)
        code = job_alone(report);
    else if (reports)
        code = doctor_compare(reports, dist_get_world_size(group), stdout) > 0;
    if (group)
        dist_destroy_process_group(group);
    free(reports);
    return code;
}

/* dist_info doctor: looks for what keeps jobs from running, or from running fast. */

struct words {
    int64_t ranks, timeout;
    const char *format;
    bool job;
    int action;
};

enum { WORDS_TIMEOUT = 60 };

#define AT(member) offsetof(struct words, member)
static const struct args_row words_rows[] = {
    {"ranks", 0, ARGS_INT, AT(ranks), 1, 65536, "N", "look whether N ranks fit on this machine"},
    {"job", 0, ARGS_FLAG, AT(job), 0, 0, NULL,
     "as a rank of the job that starts it: show the answers of all ranks, and how they differ"},
    {"timeout", 0, ARGS_INT, AT(timeout), 1, 86400, "SECONDS",
     "for which the ranks wait for each other (default: 60)"},
    {"format", 0, ARGS_CHOICE, AT(format), 0, 0, "table|json",
     "for people (the default), or for programs"},
    ARGS_HELP_ROWS(struct words, 0),
};
static const struct args words_args = {
    .rows = words_rows,
    .count = sizeof(words_rows) / sizeof(words_rows[0]),
    .program = "dist_info doctor",
    .usage = "[--ranks N] [--job] [--timeout SECONDS] [--format table|json]",
    .about = "Looks for what keeps jobs from running here, or from running fast, and shows the "
             "command that fixes each fault. It changes nothing.\n",
    .after = "Exit: 0 no fault, 1 a fault, or the job cannot be set up, 2 wrong usage.\n"};

/* All checks, in the order in which they are shown. This process must have no threads. */
static void doctor_examine(struct doctor_report *report)
{
    gethostname(report->host, sizeof(report->host));
    report->clock = (double)time(NULL);
    doctor_cpus(report);
    doctor_launch(report);
    doctor_network(report);
    doctor_tls(report);
    doctor_limits(report);
    doctor_memory(report);
    doctor_gpu(report);
}

/* -1: go on; else the exit code. */
static int doctor_options(int argc, char **argv, struct words *words)
{
    int rest, code = args_begin(&words_args, argc, argv, words, 0, &rest);

    if (code < 0 && words->job && words->format)
        return args_wrong(&words_args, "--job has no --format");
    return code;
}

/* The ranks of this machine, as the launcher says. */
static int doctor_local_ranks(void)
{
    static const char *const names[] = {"LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE",
                                        "MPI_LOCALNRANKS"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *value = getenv(names[i]);

        if (value && atoi(value) > 0)
            return atoi(value);
    }
    return 0;
}

int doctor_main(int argc, char **argv)
{
    struct words words = {.timeout = WORDS_TIMEOUT};
    struct doctor_report *report;
    int code = doctor_options(argc, argv, &words);

    if (code >= 0)
        return code;
    report = calloc(1, sizeof(*report));
    if (!report) {
        fprintf(stderr, "dist_info: out of memory\n");
        return 1;
    }
    report->ranks = words.ranks ? (int)words.ranks : doctor_local_ranks();
    fflush(stdout);
    doctor_examine(report);
    if (words.job && launched_in_job())
        code = doctor_job(report, (int)words.timeout);
    else
        code = doctor_print(report, words.format && strcmp(words.format, "json") == 0, stdout) > 0;
    if (words.job && !launched_in_job()) {
        fprintf(stderr, "dist_info: doctor: --job: no launcher has started this process\n");
        code = 1;
    }
    free(report);
    return code;
}
