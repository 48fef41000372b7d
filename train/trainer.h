/* SPDX-License-Identifier: BSD-3-Clause */
/* The training of one rank: its state, and the loops over epochs and steps. */
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
 * With --reproducible: the number of micro-batches per step, over all ranks. Micro-batch m contains
 * the positions m, m + 8, m + 16, ... of the global batch, so with 1, 2, 4 or 8 ranks it has the
 * same samples in the same order. With other numbers of ranks, each rank's part is one micro-batch.
 */
enum { TRAINER_MICRO_BATCHES = 8 };

/* The ranks. */
struct comm {
    dist_group *group;
    int rank, world, local_rank;
    double seconds; /* spent in collectives that only exchange results */
};

/* The output of rank 0 for an epoch. */
struct report {
    bool bar;                     /* stderr is a terminal: draw a progress bar */
    bool blocks;                  /* the terminal supports UTF-8 */
    int64_t interval;             /* steps between lines */
    int64_t steps, batch, before; /* before: samples of the epoch done before this run */
    double started, drawn; /* time when the epoch began; time of the last update of the bar */
};

/* The records that --metrics, --report etc. write, and the times reported to them. */
struct trainer_records {
    struct records *to; /* NULL: no records */
    struct record_fact *settings;
    double recorded[RECORD_IN_STEP]; /* `times` as of the last recorded step */
    double since;                    /* end of the last recorded step */
    double mark;                     /* beginning of the current pass */
    enum record_part pass;           /* the current pass; RECORD_PARTS: none yet */
};

struct trainer {
    const struct options *options;
    struct comm *comm;
    struct dataset train, test;
    dist_sampler *sampler;
    struct loader *loader;      /* loads the training samples */
    int64_t begun;              /* steps done before the current epoch */
    struct batch batch;         /* contains test samples */
    struct model *model;        /* the host's copy of the weights; for the CPU the only one */
    struct device *device;      /* computes gradients and updates */
    dist_ddp *ddp;              /* averages the gradients; NULL with --zero */
    dist_zero *zero;            /* with --zero: averages the gradients and updates the parameters */
    bool failed;                /* dist_ddp_ready failed; failure_text has the reason */
    double times[RECORD_PARTS]; /* seconds per part in this run; on a GPU RECORD_FORWARD is 0 */
    int micro_batches;          /* of this rank per step; 1 without --reproducible */
    struct report report;
    struct trainer_records records;
    FILE *loss_log;      /* only on rank 0; NULL: none */
    int64_t local_batch; /* samples of this rank per pass; a step has --accumulate passes */
    int64_t taken;       /* samples of this rank in the current step */
    double lr;           /* learning rate of the current step */
    struct training_state
        progress; /* state that checkpoints store besides the weights; state NULL: no checkpoints */
    struct writer *writer; /* writes --checkpoint; NULL: ranks other than 0, or no --checkpoint */
    bool resumed;          /* continues from a checkpoint */
    int64_t steps_here;    /* steps done by this run */
    int pending;           /* number of last steps whose losses have not been obtained yet */
    double loss, losses;   /* the last known loss; the sum of the epoch's losses */
    double began, communicated; /* time and trainer_communicated() at the start of this run */
};

/*
 * Trains, tests and saves as the options require. Collective. The trainer must be zeroed; the
 * caller calls trainer_close in any case. trainer_prepare is the local part of trainer_run.
 */
int trainer_run(const struct options *options, struct comm *comm, struct trainer *trainer);
int trainer_prepare(const struct options *options, struct comm *comm, struct trainer *trainer);
int trainer_close(struct trainer *trainer); /* -1: a file is incomplete */

/*
 * Parts of a step. trainer_gradients computes this rank's gradients for step `step` of the epoch
 * and stores them in the device's sums; steps must be consecutive from 0. If there is a ddp, it
 * starts to average each gradient as soon as it is complete. trainer_update updates the parameters
 * after the sums have become the mean over the ranks.
 */
int trainer_gradients(struct trainer *trainer, int64_t step);
int trainer_update(struct trainer *trainer);

/*
 * --checkpoint and --resume: files of the whole training state, which rank 0 writes and reads.
 * trainer_keep_open allocates memory and loads the newest checkpoint. trainer_keep_write copies the
 * state, which is then written in the background; if that fails, the next call or writer_destroy
 * reports it.
 */
int trainer_keep_open(struct trainer *trainer);
int trainer_keep_write(struct trainer *trainer);

#endif
