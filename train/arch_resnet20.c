/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ResNet-20: He et al., "Deep Residual Learning for Image Recognition", CVPR 2016, section 4.2.
 * Shortcuts without parameters (option A). Names of parameters as in the usual PyTorch code.
 */
#include "model.h"

/* Two convolutions, and a skip connection that adds the block's input to their output. */
/* clang-format off */
#define BLOCK(block, width, step)                                                                  \
    {.kind = &layer_conv, .name = block ".conv1", .kernel = 3, .stride = step, .padding = 1,       \
     .out.channels = width, .no_bias = true},                                                      \
    {.kind = &layer_batchnorm, .name = block ".bn1", .relu = true},                                \
    {.kind = &layer_conv, .name = block ".conv2", .kernel = 3, .padding = 1,                       \
     .out.channels = width, .no_bias = true},                                                      \
    {.kind = &layer_batchnorm, .name = block ".bn2"},                                              \
    {.kind = &layer_add, .skip = 5, .relu = true}

static const struct layer layers[] = {
    {.kind = &layer_conv, .name = "conv1", .kernel = 3, .padding = 1, .out.channels = 16,
     .no_bias = true},
    {.kind = &layer_batchnorm, .name = "bn1", .relu = true},
    BLOCK("layer1.0", 16, 1),
    BLOCK("layer1.1", 16, 1),
    BLOCK("layer1.2", 16, 1),
    BLOCK("layer2.0", 32, 2),
    BLOCK("layer2.1", 32, 1),
    BLOCK("layer2.2", 32, 1),
    BLOCK("layer3.0", 64, 2),
    BLOCK("layer3.1", 64, 1),
    BLOCK("layer3.2", 64, 1),
    {.kind = &layer_mean},
    {.kind = &layer_dense, .name = "linear", .out.channels = MODEL_CLASSES},
};
/* clang-format on */

const struct arch arch_resnet20 = {layers, sizeof(layers) / sizeof(layers[0])};
