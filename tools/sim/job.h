/* SPDX-License-Identifier: BSD-3-Clause */
/* dist_sim's parts: what is asked for, what comes out, how it is shown. */
#ifndef DISTI_SIM_JOB_H
#define DISTI_SIM_JOB_H

#include "topology/topology.h"
#include "tuning/tuning.h"
#include "verify/verify.h"

#include <stdio.h>

#define JOB_SIZES_MAX 32
#define JOB_ALGORITHMS_MAX 16
#define JOB_WHY_MAX 512

enum job_format { JOB_TEXT, JOB_CSV, JOB_JSON };

/* What the command line asks for. */
struct job {
    dist_collective collective;
    struct disti_topology *topology;
    struct disti_cost cost;
    size_t sizes[JOB_SIZES_MAX]; /* bytes of a block, ascending */
    int size_count;
    const struct disti_algorithm *only; /* NULL: all */
    uint32_t segments;                  /* 0: what the library takes */
    int root;
    enum job_format format;
    const char *draw; /* a file; NULL: nothing is drawn */
    bool verify;
};

/* One algorithm with one size. */
struct job_cell {
    uint32_t segments;
    dist_status status;
    struct disti_forecast forecast; /* if that is DIST_OK */
    char why[JOB_WHY_MAX];          /* if it is not */
};

/* One algorithm. */
struct job_row {
    const struct disti_algorithm *algorithm;
    bool verified;
    dist_status status; /* of the verification */
    struct disti_verdict verdict;
    char why[JOB_WHY_MAX]; /* it could not be verified */
    struct job_cell cells[JOB_SIZES_MAX];
};

struct job_result {
    int count;
    struct job_row rows[JOB_ALGORITHMS_MAX];
    int best[JOB_SIZES_MAX]; /* by size: the fastest row; -1: none could be simulated */
};

/*
 * "other_node=20us/10gbit/5us,step=100ns", or without any '=' the name of a tuning file; changes
 * *cost. ERR_INVALID_ARGUMENT.
 */
dist_status job_links(const char *text, struct disti_cost *cost);

/* Verifies and simulates. Of what fails for single algorithms the result tells. */
void job_run(const struct job *job, struct job_result *result);

void job_print(const struct job *job, const struct job_result *result, FILE *to);

/* Draws the ring and the trees. ERR_SYSTEM, ERR_UNSUPPORTED: too many ranks for a picture. */
dist_status job_draw(const struct disti_topology *topology, int root, const char *file);

/* The names of distances, as job_links and all outputs have them. */
extern const char *const job_distances[DISTI_DISTANCES];

/* True if two ranks of the topology are at this distance. */
bool job_has(const struct disti_topology *topology, int distance);

#endif
