/* SPDX-License-Identifier: BSD-3-Clause */
/* The failure block: which worker failed first, where and how; as torchrun prints it. */
#ifndef DISTI_LAUNCH_FAILURE_H
#define DISTI_LAUNCH_FAILURE_H

#include "launch/agents/agents.h"
#include "launch/workers.h"

/* What is told of a worker that has ended; its last call from that file (-1: unknown). */
void disti_run_failure_of(const struct disti_run_round *round,
                          const struct disti_run_worker *worker, int last_calls_fd,
                          struct disti_agents_failure *failure_p);

/* What the shell would say: the exit code, or 128 and the number of the signal. */
int disti_run_exit_code(const struct disti_agents_failure *failure);

/*
 * Of two that are seen at once the one that failed first; NULL: neither has. `first` has failed or
 * is NULL, `next` has ended. Causes go before what follows from them: who has lost another goes
 * last, one that a signal ended goes before one that exited, a worker before the scheduler.
 */
const struct disti_run_worker *disti_run_first_failure(const struct disti_run_worker *first,
                                                       const struct disti_run_worker *next);

/*
 * Prints the block to stderr, in one piece: `first`, which may be another node's, and workers of
 * this node that failed too. Those that were told to end did not.
 */
void disti_run_failure_print(const struct disti_run_options *options,
                             const struct disti_run_round *round,
                             const struct disti_run_worker *workers, int last_calls_fd,
                             const struct disti_agents_failure *first);

/* The file that TORCHELASTIC_ERROR_FILE names: why a worker failed, in its own words. */

/*
 * The traceback that the worker has left there, else its message, for the failure block: lines
 * behind the first are indented. NULL: it has left none that can be read. The caller frees it.
 */
char *disti_run_error_text(const char *path);

#endif
