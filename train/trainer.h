/* SPDX-License-Identifier: BSD-3-Clause */
/* One rank's training: everything it holds, and the loops over epochs and steps. */
#ifndef TRAIN_TRAINER_H
#define TRAIN_TRAINER_H

#include <stdio.h>

#include "batch.h"
#include "comm.h"
#include "dataset.h"
#include "model.h"
#include "optimizer.h"
#include "options.h"
#include "report.h"
#include "sampler.h"

struct trainer {
    const struct options *options;
    struct comm *comm;
    struct dataset train, test;
    struct sampler sampler;
    struct batch batch;
    struct model *model;
    struct optimizer *optimizer;
    struct report report;
    FILE *loss_log;      /* rank 0's; NULL: none */
    int64_t local_batch; /* samples of this rank in a step */
    int64_t epoch;       /* epochs done */
    int64_t step;        /* steps done since training began, those of a checkpoint included */
    int64_t steps_here;  /* steps done by this run */
};

/*
 * Reads or draws the data, makes the model, and gives every rank the same parameters. All
 * ranks succeed or all fail. The trainer must be zeroed; trainer_close frees it either way.
 */
int trainer_open(const struct options *options, struct comm *comm, struct trainer *trainer);
int trainer_close(struct trainer *trainer); /* -1: the loss log could not be written */

/* Trains, tests, saves, as the options say. Collective. */
int trainer_run(struct trainer *trainer);

/*
 * The parts of it. An epoch: all its steps, or until --max-steps. A test: the whole test
 * set, divided among the ranks, each sample once.
 */
int trainer_epoch(struct trainer *trainer, double lr, struct report_result *result);
int trainer_test(struct trainer *trainer, struct report_result *result);

#endif
