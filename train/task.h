/* SPDX-License-Identifier: BSD-3-Clause */
/* What a program trains: all that train_mnist and train_cifar10 do not share. */
#ifndef TRAIN_TASK_H
#define TRAIN_TASK_H

#include <stdbool.h>
#include <stdint.h>

#include "dataset.h"

struct task {
    const char *program; /* its name */
    const char *about;   /* one sentence for --help */
    const char *model;   /* --save-model writes MODEL_ARCH.safetensors */
    const struct dataset_kind *data;
    /* What holds where no option says otherwise. */
    const char *arch, *optimizer, *schedule;
    int64_t epochs, batch_size, train_samples, test_samples;
    double lr_adadelta, lr_sgd, gamma, weight_decay;
    bool augment;
};

extern const struct task task_mnist, task_cifar10;

/* All of main of a task's program. Returns the exit code: 0 success, 1 failure, 2 wrong usage. */
int program_main(const struct task *task, int argc, char *argv[]);

#endif
