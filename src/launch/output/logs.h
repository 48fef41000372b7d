/* SPDX-License-Identifier: BSD-3-Clause */
/* The files of a job, in torchrun's folders: DIR/JOB_RANDOM/attempt_0/0/stdout.log. */
#ifndef DISTI_LAUNCH_RUN_LOGS_H
#define DISTI_LAUNCH_RUN_LOGS_H

#include "launch/options/options.h"

#include <dist/dist.h>

#define DISTI_RUN_PATH 1024

struct disti_run_logs {
    char folder[DISTI_RUN_PATH]; /* of the job; "": it has no files */
};

/*
 * Makes the job's folder, if --log-dir is given, or a stream goes to a file: then without --log-dir
 * below TMPDIR, and says where. ERR_SYSTEM names the folder that cannot be made.
 */
dist_status disti_run_logs_open(const struct disti_run_options *options, const char *job,
                                struct disti_run_logs *logs_p);

/* Makes the folder of a worker, for the round after `restarts`. */
dist_status disti_run_logs_add(const struct disti_run_logs *logs, int restarts, int local_rank);

/* Opens "stdout.log" or another file of it to write. *fd_p is the caller's. */
dist_status disti_run_logs_file(const struct disti_run_logs *logs, int restarts, int local_rank,
                                const char *name, int *fd_p);

/* Its path. */
void disti_run_logs_path(const struct disti_run_logs *logs, int restarts, int local_rank,
                         const char *name, char path[DISTI_RUN_PATH + 64]);

#endif
