/* SPDX-License-Identifier: BSD-3-Clause */
/* The variables of a worker: torchrun's, MindSpore's, and where the agent's store is. */
#ifndef DISTI_LAUNCH_RUN_ENVIRONMENT_H
#define DISTI_LAUNCH_RUN_ENVIRONMENT_H

#include "launch/options/options.h"
#include "launch/run/round.h"

/* What differs between the workers of a node. */
struct disti_run_place {
    int local_rank;         /* -1: it is the scheduler */
    const char *error_file; /* TORCHELASTIC_ERROR_FILE */
    const char *last_calls; /* DIST_AGENT_LAST_CALL */
    const char *files;      /* DIST_AGENT_FILES */
    int threads;            /* OMP_NUM_THREADS, unless that is set; 0: stays unset */
};

/*
 * The agent's own environment with the worker's variables, for execve. The caller frees it by
 * disti_run_environment_free. NULL: no memory.
 */
char **disti_run_environment(const struct disti_run_options *options,
                             const struct disti_run_round *round,
                             const struct disti_run_place *place);
void disti_run_environment_free(char **environment);

#endif
