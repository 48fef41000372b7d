/* SPDX-License-Identifier: BSD-3-Clause */
/* The network of PyTorch's MNIST example. */
#include "model.h"

static const struct layer layers[] = {
    {.kind = &layer_conv, .name = "conv1", .kernel = 3, .out.channels = 32, .relu = true},
    {.kind = &layer_conv, .name = "conv2", .kernel = 3, .out.channels = 64, .relu = true},
    {.kind = &layer_pool, .kernel = 2},
    {.kind = &layer_dropout, .rate = 0.25F},
    {.kind = &layer_dense, .name = "fc1", .out.channels = 128, .relu = true},
    {.kind = &layer_dropout, .rate = 0.5F},
    {.kind = &layer_dense, .name = "fc2", .out.channels = MODEL_CLASSES},
};

const struct arch arch_cnn = {layers, sizeof(layers) / sizeof(layers[0])};
