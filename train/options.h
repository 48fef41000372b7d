/* SPDX-License-Identifier: BSD-3-Clause */
/* The command line. */
#ifndef TRAIN_OPTIONS_H
#define TRAIN_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "tools/common/args.h"

enum options_action { OPTIONS_RUN, OPTIONS_HELP, OPTIONS_VERSION };

/* Numbers that were not given are -1 where the comment says so; texts are NULL. */
struct options {
    const char *data; /* NULL: draw the digits */
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
    double gamma, momentum, weight_decay;
    int64_t seed;
    int64_t max_steps; /* -1: no limit */
    bool dry_run, evaluate, save_model;
    const char *resume, *checkpoint;
    int64_t checkpoint_interval; /* steps; 0: at the end of an epoch only */
    int64_t log_interval;
    const char *loss_log;
    const char *dist_backend, *dist_url;
    int64_t world_size, rank, local_rank; /* processes; -1: ask the launcher */
    const char *addr;
    int64_t port; /* -1: not given */
    bool spawn;
    int64_t timeout; /* seconds; -1: the library's */
    const char *device;
    int64_t threads; /* 0: not given */
    bool no_accel;   /* accepted, changes nothing */
    int64_t workers; /* accepted, changes nothing */
    int action;      /* of enum options_action */
};

/*
 * Reads the command line; texts point into argv. -1: the text (failure_text) names the option; the
 * caller exits with 2.
 */
int options_parse(int argc, char *const argv[], struct options *options);
void options_help(FILE *to);

/* options_table.c: the options, and what holds where none is given. */
extern const struct args options_args;
extern const struct options options_defaults;

#endif
