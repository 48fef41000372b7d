/* SPDX-License-Identifier: BSD-3-Clause */
/* The output of workers: merged line by line, and stored in files. */
#ifndef DISTI_LAUNCH_OUTPUT_H
#define DISTI_LAUNCH_OUTPUT_H

#include "launch/options.h"

/*
 * A thread that copies the workers' stdout or stderr to the agent's. It blocks if the reader is
 * slow; the workers then block too once their pipes are full, and no output is lost. If the reader
 * closes the stream, the workers' pipes are closed too. If a disk is full, the workers continue and
 * their output is lost.
 */
struct disti_run_output;

/* A worker's stream, to be copied by the thread of a disti_run_output. */
struct disti_run_source {
    int fd;     /* read end of the worker's pipe; owned by that thread */
    int log_fd; /* a file to which all output is also written; owned by that thread; -1: none */
    bool shown; /* copied to the agent's stream; else only to the file */
    char prefix[128]; /* prepended to each line */
};

/*
 * Starts a thread that copies the sources to to_fd. It ends when all sources have ended, and then
 * writes 1 to the eventfd done_fd. The array is copied. The sources' descriptors belong to the
 * thread; on failure they are closed. Errors: ERR_NO_MEMORY, ERR_SYSTEM.
 */
dist_status disti_run_output_start(int to_fd, const struct disti_run_source *sources, int count,
                                   int done_fd, struct disti_run_output **output_p);

/*
 * Starts the threads of stdout and stderr; adds the number of started threads to *started_p.
 * Descriptors and errors as in disti_run_output_start.
 */
dist_status disti_run_outputs_start(struct disti_run_source *const sources[2], const int counts[2],
                                    int done_fd, struct disti_run_output *outputs[2],
                                    int *started_p);

/* Waits until the thread ends, and frees it. False if output was lost. Accepts NULL. */
bool disti_run_output_end(struct disti_run_output *output);

#endif
