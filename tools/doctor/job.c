/* SPDX-License-Identifier: BSD-3-Clause */
/* dist_info doctor --job: the reports of all ranks, gathered by libdist itself. */
#include "doctor.h"

#include <dist/dist.h>
#include <stdlib.h>
#include <time.h>

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

int doctor_job(struct doctor_report *report, int timeout_s)
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
