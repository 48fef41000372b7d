/* SPDX-License-Identifier: BSD-3-Clause */
/* One rank's training: everything it holds, and the loops over epochs and steps. */
#ifndef TRAIN_TRAINER_H
#define TRAIN_TRAINER_H

#include <stdio.h>

#include <dist/ddp.h>
#include <dist/sampler.h>
#include <dist/zero.h>

#include "checkpoint.h"
#include "dataset.h"
#include "device.h"
#include "model.h"
#include "options.h"
#include "records.h"

/*
 * With --reproducible: micro-batches of all ranks together, in one step. Micro-batch m has the
 * positions m, m + 8, m + 16, ... of the global batch, so that with 1, 2, 4 or 8 ranks it has the
 * same samples in the same order. With other numbers a rank's part is one micro-batch.
 */
enum { TRAINER_MICRO_BATCHES = 8 };

/* The ranks. */
struct comm {
    dist_group *group;
    int rank, world, local_rank;
    double seconds; /* spent in calls that only exchange results */
};

/* What rank 0 shows of an epoch. */
struct report {
    bool bar;                     /* stderr is a terminal, where a bar is drawn */
    bool blocks;                  /* it shows UTF-8 */
    int64_t interval;             /* steps between lines */
    int64_t steps, batch, before; /* before: samples that were taken before this run went on */
    double started, drawn;        /* when the epoch began, when the bar was last drawn */
};

/* What --metrics and its like keep of this run. */
struct trainer_records {
    struct records *to; /* NULL: nothing */
    struct record_fact *settings;
    double told[RECORD_IN_STEP]; /* the times up to the last step that was told */
    double since;                /* when that ended */
    double mark;                 /* when the pass at hand began */
    enum record_part pass;       /* which one; RECORD_PARTS: none yet */
};

struct trainer {
    const struct options *options;
    struct comm *comm;
    struct dataset train, test;
    dist_sampler *sampler;
    struct loader *loader;      /* of the training samples */
    int64_t begun;              /* steps done when its epoch began */
    struct batch batch;         /* of test samples */
    struct model *model;        /* the host's copy of the weights; for the CPU the only one */
    struct device *device;      /* where gradients and updates are computed */
    dist_ddp *ddp;              /* who averages the gradients; */
    dist_zero *zero;            /* with --zero: and updates the parameters */
    bool failed;                /* a gradient could not go on its way: failure_text says why */
    double times[RECORD_PARTS]; /* of this run, in seconds; a GPU has no RECORD_FORWARD */
    int micro_batches;          /* of this rank in a step; 1 without --reproducible */
    struct report report;
    struct trainer_records records;
    FILE *loss_log;      /* rank 0's; NULL: none */
    int64_t local_batch; /* samples of this rank in a pass; --accumulate passes are a step */
    int64_t taken;       /* samples of this rank in the step at hand */
    double lr;           /* of the step at hand */
    struct checkpoint_rest progress; /* what a file has besides the weights; state NULL: no file */
    struct writer *writer;           /* rank 0's, of --checkpoint; NULL: it does not write */
    bool resumed;                    /* it goes on from there */
    int64_t steps_here;              /* steps done by this run */
    int pending;                /* of them, the last ones whose losses were not asked for yet */
    double loss, losses;        /* the last one known; the sum of the epoch's */
    double began, communicated; /* the time, and trainer_communicated, when this run began */
};

/*
 * Trains, tests, saves, as the options say. Collective. The trainer must be zeroed; trainer_close
 * frees it either way. trainer_prepare is the part of it that a rank does alone at the start.
 */
int trainer_run(const struct options *options, struct comm *comm, struct trainer *trainer);
int trainer_prepare(const struct options *options, struct comm *comm, struct trainer *trainer);
int trainer_close(struct trainer *trainer); /* -1: a file is incomplete */

/*
 * Parts of a step. The first sets the device's sums to this rank's gradients for step `step`
 * of the epoch, which come one after the other from 0 on, and gives them to the ddp as they come,
 * if there is one. The second updates the parameters, once the sums are the mean over the ranks.
 */
int trainer_gradients(struct trainer *trainer, int64_t step);
int trainer_update(struct trainer *trainer);

/*
 * --checkpoint and --resume: files of the whole training, which the first rank writes and reads.
 * The first makes room, and reads what is there. The second copies the training, which is written
 * in the background; a failure of that comes out of the next one, or of the writer.
 */
int trainer_keep_open(struct trainer *trainer);
int trainer_keep_write(struct trainer *trainer);

#endif
