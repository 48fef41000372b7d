/* SPDX-License-Identifier: BSD-3-Clause */
/* Architectures: which layers a model has, a table for each. */
#ifndef TRAIN_ARCH_H
#define TRAIN_ARCH_H

#include "train/model/layer.h"

enum { ARCH_CLASSES = 10 };

struct arch {
    const char *name;
    const struct layer *layers; /* only what is chosen; the model works out the rest */
    int count;
};

#define ARCH_COUNT(layers) ((int)(sizeof(layers) / sizeof((layers)[0])))

extern const struct arch arch_cnn; /* conv 32, conv 64, pool, dropout, dense 128, dropout, dense */
extern const struct arch arch_mlp; /* dense 256, dropout, dense */
extern const struct arch arch_resnet20; /* residual network of 20 layers for small pictures */

/* -1: there is none of that name; the text lists those that there are. */
int arch_find(const char *name, const struct arch **arch_p);

#endif
