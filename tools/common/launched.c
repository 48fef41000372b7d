/* SPDX-License-Identifier: BSD-3-Clause */
/* Whether a launcher has started this process. */
#include "launched.h"

#include <stddef.h>
#include <stdlib.h>

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
