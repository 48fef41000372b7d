/* SPDX-License-Identifier: BSD-3-Clause */
/* dist_sim: verifies and simulates algorithms on machines that need not be there. */
#include "tools/common/output.h"
#include "tools/sim/job.h"

#include <signal.h>
#include <stdlib.h>

static int sim_result(const struct job *job, const struct job_result *result)
{
    int code = 0;
    for (int r = 0; r < result->count; r++)
        if (job->verify && result->rows[r].status == DIST_OK && !result->rows[r].verdict.ok)
            code = 1; /* a plan is wrong */
    for (int i = 0; i < job->size_count; i++)
        if (result->best[i] < 0)
            code = 1; /* nothing could be predicted */
    return code;
}

int main(int argc, char **argv)
{
    struct job job = {0};
    struct job_result *result = NULL;
    int code;
    signal(SIGXFSZ, SIG_IGN); /* a write beyond the limit on files fails, and is reported */
    code = job_parse(argc, argv, &job);
    if (code >= 0)
        goto out;
    code = 1;
    if (job.draw && job_draw(job.topology, job.root, job.draw) != DIST_OK) {
        fprintf(stderr, "dist_sim: %s\n", dist_last_error());
        goto out;
    }
    result = malloc(sizeof(*result));
    if (!result) {
        fprintf(stderr, "dist_sim: no memory\n");
        goto out;
    }
    job_run(&job, result);
    job_print(&job, result, stdout);
    code = sim_result(&job, result);
out:
    free(result);
    disti_topology_free(job.topology);
    return output_exit("dist_sim", code);
}
