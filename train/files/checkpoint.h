/* SPDX-License-Identifier: BSD-3-Clause */
/* A model's parameters in a safetensors file, with PyTorch's names and layouts. */
#ifndef TRAIN_CHECKPOINT_H
#define TRAIN_CHECKPOINT_H

#include <stdint.h>

#include "train/model/model.h"

/*
 * The names (conv1.weight, conv1.bias, ...) and the order of the elements are those of
 * the PyTorch MNIST example's state_dict: convolutions out x in x height x width, dense
 * layers out x in with the inputs in the order channel, row, column.
 */

/*
 * Writes path + ".tmp", brings it to the disk, and renames it: path is the old file or
 * the complete new one, never a part. epoch: epochs done.
 */
int checkpoint_save(const char *path, const struct model *model, int64_t epoch);

/*
 * Replaces the model's weights. *epoch_p becomes the epochs done, 0 if the file does not
 * say. Everything is checked before anything is changed: the file must have the model's
 * tensors, with its shapes, and nothing else.
 */
int checkpoint_load(const char *path, struct model *model, int64_t *epoch_p);

#endif
