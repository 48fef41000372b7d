/* SPDX-License-Identifier: BSD-3-Clause */
/* What workers print: merged line by line, and kept in files. */
#ifndef DISTI_LAUNCH_OUTPUT_H
#define DISTI_LAUNCH_OUTPUT_H

#include "launch/options.h"

#include <dist/dist.h>

/*
 * A stream of the agent, stdout or stderr, with a thread that copies what the workers write to
 * theirs. It blocks where the reader is slow; so do the workers then, once their pipes are full,
 * and nothing is lost. Where the reader has gone, the workers lose theirs too. Where a disk is full
 * they go on.
 */
struct disti_run_output;

/* A worker's stream. */
struct disti_run_source {
    int fd;           /* the pipe's end to read from; taken */
    int log_fd;       /* a file that gets all bytes too; taken; -1: none */
    bool shown;       /* on the agent's stream; else the file alone gets it */
    char prefix[128]; /* of each line */
};

/*
 * Starts the thread, which ends when all sources have: it then writes 1 to the eventfd done_fd.
 * Sources are copied; what is taken is closed on failure too. ERR_NO_MEMORY, ERR_SYSTEM.
 */
dist_status disti_run_output_start(int to_fd, const struct disti_run_source *sources, int count,
                                   int done_fd, struct disti_run_output **output_p);

/* Starts both streams' threads, and counts those that were started. The same otherwise. */
dist_status disti_run_outputs_start(struct disti_run_source *const sources[2], const int counts[2],
                                    int done_fd, struct disti_run_output *outputs[2],
                                    int *started_p);

/* Waits for the thread's end; frees. False: something could not be written. NULL is accepted. */
bool disti_run_output_end(struct disti_run_output *output);

/* The files of a job, in torchrun's folders: DIR/JOB_RANDOM/attempt_0/0/stdout.log. */

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
