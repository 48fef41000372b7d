/* SPDX-License-Identifier: BSD-3-Clause */
/* One rank's training: everything it holds, and the loops over epochs and steps. */
#ifndef TRAIN_TRAINER_H
#define TRAIN_TRAINER_H

#include <stdio.h>

#include "batch.h"
#include "buffer.h"
#include "comm.h"
#include "dataset.h"
#include "grid.h"
#include "model.h"
#include "optimizer.h"
#include "options.h"
#include "report.h"
#include "sampler.h"

/*
 * Micro-batches of all ranks together, in one step. Micro-batch m has the positions m, m + 8,
 * m + 16, ... of the global batch, so that with 1, 2, 4 or 8 ranks it has the same samples in
 * the same order. With other numbers a rank's part is one micro-batch.
 */
enum { TRAINER_MICRO_BATCHES = 8 };

struct trainer {
    const struct options *options;
    struct comm *comm;
    struct dataset train, test;
    struct sampler sampler;
    struct batch batch;
    struct model *model;
    struct optimizer *optimizer;
    struct grid grid;
    int micro_batches; /* of this rank in a step */
    float *sums;       /* of their gradients, then of the ranks'; one: the model's gradients */
    struct buffer sums_buffer; /* where they are if they are not the model's */
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
 * trainer_prepare is the part of it that a rank does alone.
 */
int trainer_open(const struct options *options, struct comm *comm, struct trainer *trainer);
int trainer_prepare(const struct options *options, struct comm *comm, struct trainer *trainer);
int trainer_close(struct trainer *trainer); /* -1: the loss log could not be written */

/* Trains, tests, saves, as the options say. Collective. */
int trainer_run(struct trainer *trainer);

/*
 * The parts of a step. The first sets sums to this rank's gradients for step `step` of the epoch,
 * with GRID_TAIL floats behind them. The second updates the parameters, once sums is the
 * mean over the ranks, and returns the mean loss of the global batch. Neither communicates.
 */
void trainer_gradients(struct trainer *trainer, int64_t step);
double trainer_update(struct trainer *trainer, double lr);

/*
 * The parts of a run. An epoch: all its steps, or until --max-steps. A test: the whole test
 * set, divided among the ranks, each sample once.
 */
int trainer_epoch(struct trainer *trainer, double lr, struct report_result *result);
int trainer_test(struct trainer *trainer, struct report_result *result);

/* A pass over count samples of the batch, from begin on. */
struct pass trainer_pass(const struct trainer *trainer, bool training, int begin, int count);

#endif
