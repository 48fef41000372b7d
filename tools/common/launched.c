/* SPDX-License-Identifier: BSD-3-Clause */
/* Detects a launcher, and reports how ranks that this process started have ended. */
#include "launched.h"

#include <dist/dist.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool launched_in_job(void)
{
    static const char *const marks[] = {
        "TORCHELASTIC_RUN_ID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_STEP_ID",
        "PMIX_RANK",           "WORLD_SIZE",           "RANK",     "MS_WORKER_NUM"};

    for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++) {
        if (getenv(marks[i]) && *getenv(marks[i]))
            return true;
    }
    return false;
}

/* If dist_last_error names no rank, the job was ended by a signal that was sent to this process. */
void launched_report_end(const char *program, int code)
{
    if (dist_last_error()[0] != '\0')
        fprintf(stderr, "%s: %s\n", program, dist_last_error());
    else
        fprintf(stderr, "%s: ended by signal %d (%s); all ranks were ended, too\n", program,
                code - 128, strsignal(code - 128));
}
