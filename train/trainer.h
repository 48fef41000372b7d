/* SPDX-License-Identifier: BSD-3-Clause */
/* One rank's training: everything it holds, and the loops over epochs and steps. */
#ifndef TRAIN_TRAINER_H
#define TRAIN_TRAINER_H

#include <dist/sampler.h>
#include <stdio.h>

#include "comm.h"
#include "options.h"
#include "report.h"
#include "train/data/batch.h"
#include "train/data/dataset.h"
#include "train/device/device.h"
#include "train/model/grid.h"
#include "train/model/model.h"

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
    dist_sampler *sampler;
    struct batch batch;
    struct model *model;   /* the host's copy of the weights; for the CPU the only one */
    struct device *device; /* where gradients and updates are computed */
    int micro_batches;     /* of this rank in a step */
    struct report report;
    FILE *loss_log;      /* rank 0's; NULL: none */
    int64_t local_batch; /* samples of this rank in a step */
    float *kept;         /* of --checkpoint: the device's state on its way; NULL: none is kept */
    bool resumed;        /* it goes on from there */
    int64_t epoch;       /* epochs done */
    int64_t samples;     /* seen in the one under way, by all ranks together */
    int64_t step;        /* steps done since training began, those of a checkpoint included */
    int64_t steps_here;  /* steps done by this run */
    int pending;         /* of them, the last ones whose losses were not asked for yet */
    double loss, losses; /* the last one known; the sum of the epoch's */
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
 * The parts of a step. The first sets the device's sums to this rank's gradients for step `step`
 * of the epoch, with GRID_TAIL floats behind them. The second updates the parameters, once the sums
 * are the mean over the ranks. Neither communicates.
 */
int trainer_gradients(struct trainer *trainer, int64_t step);
int trainer_update(struct trainer *trainer, double lr);

/*
 * The parts of a run. An epoch: all its steps, or until --max-steps. A test: the whole test
 * set, divided among the ranks, each sample once.
 */
int trainer_epoch(struct trainer *trainer, double lr, struct report_result *result);
int trainer_test(struct trainer *trainer, struct report_result *result);

/*
 * --checkpoint: a file of the whole training, which the first rank writes and reads. The first
 * makes room, and reads the file if it is there; then all ranks learn what it said, after the
 * weights; the third writes it. The last two are collective.
 */
int trainer_keep_open(struct trainer *trainer);
int trainer_keep_share(struct trainer *trainer);
int trainer_keep(struct trainer *trainer);

/* A pass over the batch. */
struct pass trainer_pass(const struct trainer *trainer, bool training);

#endif
