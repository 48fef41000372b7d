/* SPDX-License-Identifier: BSD-3-Clause */
/* A model of two dense layers. */
#include "model.h"

static const struct layer layers[] = {
    {.kind = &layer_dense, .name = "fc1", .out.channels = 256, .relu = true},
    {.kind = &layer_dropout, .rate = 0.25F},
    {.kind = &layer_dense, .name = "fc2", .out.channels = MODEL_CLASSES},
};

const struct arch arch_mlp = {layers, sizeof(layers) / sizeof(layers[0])};
