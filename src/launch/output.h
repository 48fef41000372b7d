/* SPDX-License-Identifier: BSD-3-Clause */
/* What workers print: merged line by line, and kept in files. */
#ifndef DISTI_LAUNCH_OUTPUT_H
#define DISTI_LAUNCH_OUTPUT_H

#include "launch/options.h"

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

#endif
