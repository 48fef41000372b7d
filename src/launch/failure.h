/* SPDX-License-Identifier: BSD-3-Clause */
/* The failure block in torchrun's format: which worker failed first, where and how. */
#ifndef DISTI_LAUNCH_FAILURE_H
#define DISTI_LAUNCH_FAILURE_H

#include "launch/agents/agents.h"
#include "launch/workers.h"

/*
 * Fills *failure_p for a worker that has ended. Its last call is read from last_calls_fd (-1:
 * unknown).
 */
void disti_run_failure_of(const struct disti_run_round *round,
                          const struct disti_run_worker *worker, int last_calls_fd,
                          struct disti_agents_failure *failure_p);

/* The exit code as a shell reports it: the worker's, or 128 + the signal's number. */
int disti_run_exit_code(const struct disti_agents_failure *failure);

/*
 * Returns the more likely cause of two failures that are seen at once; NULL if neither worker has
 * failed. `first` has failed or is NULL, `next` has ended. A worker that has lost a peer is the
 * least likely cause; a worker ended by a signal precedes one that exited, and a worker precedes
 * the scheduler.
 */
const struct disti_run_worker *disti_run_first_failure(const struct disti_run_worker *first,
                                                       const struct disti_run_worker *next);

/*
 * Prints the block to stderr with one write: `first`, which may be another node's, and the other
 * workers of this node that failed by themselves, not by our signals.
 */
void disti_run_failure_print(const struct disti_run_options *options,
                             const struct disti_run_round *round,
                             const struct disti_run_worker *workers, int last_calls_fd,
                             const struct disti_agents_failure *first);

/* The error file (TORCHELASTIC_ERROR_FILE), in which a worker reports why it failed. */

/*
 * Returns the traceback in the error file, else its message, for the failure block; lines after the
 * first are indented. NULL if the file has no readable message. The caller frees the text.
 */
char *disti_run_error_text(const char *path);

#endif
