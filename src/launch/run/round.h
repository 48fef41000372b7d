/* SPDX-License-Identifier: BSD-3-Clause */
/* A round: the workers of all nodes run once, with the ranks of that round. */
#ifndef DISTI_LAUNCH_RUN_ROUND_H
#define DISTI_LAUNCH_RUN_ROUND_H

#include "launch/options/options.h"

#include <dist/dist.h>

struct disti_run_round {
    int restarts; /* how many rounds failed before */
    int attempt;  /* which round it is, for the folder of its files */
    int node_rank, nodes;
    int first_rank, workers, world_size; /* this node's workers have the ranks from first_rank on */
    int processes;                       /* of this node: its workers, then the scheduler */
    char master_address[256];            /* where rank 0 may listen */
    int master_port;
    char job[128];
    int store_port;        /* of the first node's agent's store; 0: any free one */
    char store_word[33];   /* what that asks for, 32 hexadecimal digits */
    char store[300];       /* its host and port, for the workers */
    char store_secret[64]; /* the file with what that asks for */
};

/* A port that is free here now, at all addresses. ERR_SYSTEM: there is none. Does not block. */
dist_status disti_run_free_port(int *port_p);

/* Where the store of all can be reached. */
const char *disti_run_store_host(const struct disti_run_round *round);

/* The node's processes: the first node has the scheduler, if the job has one. */
int disti_run_processes(const struct disti_run_options *options,
                        const struct disti_run_round *round);

/*
 * The round of a node that is the only one. ERR_ADDRESS_IN_USE, ERR_SYSTEM: there is no port for
 * rank 0. Does not block.
 */
dist_status disti_run_round_local(const struct disti_run_options *options, int restarts,
                                  struct disti_run_round *round_p);

#endif
