/* SPDX-License-Identifier: BSD-3-Clause */
/* The command line, and what train_mnist and train_cifar10 do not share. */
#ifndef TRAIN_OPTIONS_H
#define TRAIN_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "dataset.h"
#include "tools/common/args.h"

/* ---- the command line ---- */

enum options_action { OPTIONS_RUN, OPTIONS_HELP, OPTIONS_VERSION };

/* Numbers that were not given are -1 where the comment says so; texts are NULL. */
struct options {
    const struct task *task;
    const char *data; /* NULL: draw the images */
    bool dummy;
    int64_t train_samples, test_samples; /* drawn */
    bool augment;
    const char *arch;
    int64_t epochs;
    int64_t start_epoch; /* epochs taken as done; -1: what the checkpoint says, else 0 */
    int64_t batch_size;  /* global */
    int64_t test_batch_size;
    const char *optimizer;
    double lr; /* -1: the optimizer's own */
    const char *schedule;
    int64_t warmup; /* steps */
    double gamma, momentum, weight_decay;
    int64_t seed;
    int64_t max_steps;  /* -1: no limit */
    int64_t accumulate; /* batches of a step */
    double clip;        /* 0: not at all */
    const char *wire;
    double bucket_mb; /* 0: the library's */
    bool zero;
    int64_t patience; /* epochs; 0: never too long */
    bool save_best;
    bool reproducible;
    bool dry_run, evaluate, save_model;
    const char *resume, *checkpoint;
    int64_t keep;                /* newest checkpoints of a folder; 0: not given */
    int64_t checkpoint_interval; /* steps; 0: at the end of an epoch only */
    int64_t log_interval;        /* steps; 0: ten lines an epoch */
    const char *loss_log;
    const char *metrics, *tensorboard, *report, *trace;
    int64_t record_interval; /* steps */
    const char *dist_backend, *dist_url;
    int64_t world_size, rank, local_rank; /* processes; -1: ask the launcher */
    const char *addr;
    int64_t port; /* -1: not given */
    bool spawn;
    int64_t timeout; /* seconds; -1: the library's */
    const char *device;
    int64_t threads; /* 0: not given */
    bool no_accel;   /* accepted, changes nothing */
    int64_t workers; /* threads that load */
    int action;      /* of enum options_action */
};

/* What a program trains. */
struct task {
    const char *program; /* its name */
    const char *about;   /* one sentence for --help */
    const char *model;   /* --save-model writes MODEL_ARCH.safetensors */
    const struct dataset_kind *data;
    double lr_sgd;        /* the learning rate with --optimizer sgd */
    struct options usual; /* holds where no option says otherwise */
};

extern const struct task task_mnist, task_cifar10;

/*
 * Reads the command line of the task's program; texts point into argv. -1: the text (failure_text)
 * names the option; the caller exits with 2.
 */
int options_parse(const struct task *task, int argc, char *const argv[], struct options *options);
void options_help(const struct task *task, FILE *to);

/*
 * The options and their values as a table. Returns how many rows; facts has room
 * for `room`, NULL: for none.
 */
struct record_fact;
int options_facts(const struct options *options, struct record_fact *facts, int room);

/* The table of options. */
extern const struct args options_args;

#endif
