/* SPDX-License-Identifier: BSD-3-Clause */
/* A model's parameters, or a whole training, in a safetensors file. */
#ifndef TRAIN_CHECKPOINT_H
#define TRAIN_CHECKPOINT_H

#include <stdint.h>

#include "train/model/model.h"

/*
 * The names (conv1.weight, conv1.bias, ...) and the order of the elements are those of
 * the PyTorch MNIST example's state_dict: convolutions out x in x height x width, dense
 * layers out x in with the inputs in the order channel, row, column. A whole training has one
 * tensor more, optimizer.NAME, of one dimension and this program's own layout.
 */

/* What a training is besides its parameters. */
struct checkpoint_rest {
    int64_t epoch;         /* epochs done */
    int64_t samples;       /* seen in the epoch that is under way, by all ranks together */
    int64_t step;          /* steps done in all epochs */
    const char *optimizer; /* its name */
    float *state;          /* of the device, `count` floats; the caller's */
    size_t count;
};

/* As below, for a whole training: bit by bit it goes on as if it had not been interrupted. */
int checkpoint_save_all(const char *path, const struct model *model,
                        const struct checkpoint_rest *rest);
/* `optimizer`, `state` and `count` are given, and must fit the file's. */
int checkpoint_load_all(const char *path, struct model *model, struct checkpoint_rest *rest);

/*
 * Writes path + ".tmp", brings it to the disk, and renames it: path is the old file or
 * the complete new one, never a part. epoch: epochs done.
 */
int checkpoint_save(const char *path, const struct model *model, int64_t epoch);

/*
 * Replaces the model's weights. *epoch_p becomes the epochs done, 0 if the file does not
 * say. Everything is checked before anything is changed: the file must have the model's
 * tensors, with its shapes, and nothing else but an optimizer's.
 */
int checkpoint_load(const char *path, struct model *model, int64_t *epoch_p);

#endif
