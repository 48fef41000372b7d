/* SPDX-License-Identifier: BSD-3-Clause */
/* The command line of train_mnist and train_cifar10, and the differences between these programs. */
#ifndef TRAIN_OPTIONS_H
#define TRAIN_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "dataset.h"
#include "tools/common/args.h"

/* ---- the command line ---- */

enum options_action { OPTIONS_RUN, OPTIONS_HELP, OPTIONS_VERSION };

/* An option that was not given has the value in its comment, or NULL if it is a string. */
struct options {
    const struct task *task;
    const char *data; /* NULL: synthetic images */
    bool dummy;
    int64_t train_samples, test_samples; /* number of synthetic images */
    bool augment;
    const char *arch;
    int64_t epochs;
    int64_t start_epoch; /* epochs to treat as done; -1: as stored in the checkpoint, or 0 */
    int64_t batch_size;  /* global */
    int64_t test_batch_size;
    const char *optimizer;
    double lr; /* -1: the default of the optimizer */
    const char *schedule;
    int64_t warmup; /* steps */
    double gamma, momentum, weight_decay;
    int64_t seed;
    int64_t max_steps;  /* -1: no limit */
    int64_t accumulate; /* batches per step */
    double clip;        /* 0: no clipping */
    const char *compression;
    double bucket_mb; /* 0: the library's default */
    bool zero;
    int64_t patience; /* epochs; 0: no limit */
    bool save_best;
    bool reproducible;
    bool dry_run, evaluate, save_model;
    const char *resume, *checkpoint;
    int64_t keep;                /* newest checkpoints in a directory; 0: not given */
    int64_t checkpoint_interval; /* steps; 0: at the end of an epoch only */
    int64_t log_interval;        /* steps; 0: ten lines per epoch */
    const char *loss_log;
    const char *metrics, *tensorboard, *report, *trace;
    int64_t record_interval; /* steps */
    const char *dist_backend, *dist_url;
    int64_t world_size, rank, local_rank; /* processes; -1: as set by the launcher */
    const char *addr;
    int64_t port; /* -1: not given */
    bool spawn;
    int64_t timeout; /* seconds; -1: the library's default */
    const char *device;
    int64_t threads; /* 0: not given */
    bool no_accel;   /* accepted for compatibility; no effect */
    int64_t workers; /* loading threads */
    int action;      /* an enum options_action */
};

/* A training task: the differences between the two programs. */
struct task {
    const char *program; /* name of the program */
    const char *about;   /* one sentence for --help */
    const char *model;   /* --save-model writes MODEL_ARCH.safetensors */
    const struct dataset_kind *data;
    double lr_sgd;           /* default learning rate for --optimizer sgd */
    struct options defaults; /* defaults of all options */
};

extern const struct task task_mnist, task_cifar10;

/*
 * Parses the command line of the task's program; strings in *options point into argv. -1: the
 * message (failure_text) names the option; the caller exits with status 2.
 */
int options_parse(const struct task *task, int argc, char *const argv[], struct options *options);
void options_help(const struct task *task, FILE *to);

/*
 * Writes the options and their values to facts, at most `capacity` rows. Returns the number of
 * rows, also if it exceeds capacity; facts may be NULL if capacity is 0.
 */
struct record_fact;
int options_facts(const struct options *options, struct record_fact *facts, int capacity);

/* The table of options. */
extern const struct args options_args;

#endif
