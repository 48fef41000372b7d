/* SPDX-License-Identifier: BSD-3-Clause */
/* What all layers have. */
#include "layer.h"

size_t layer_scratch_size(const struct layer *layer)
{
    return layer->kind->scratch_size ? layer->kind->scratch_size(layer) : 0;
}

size_t layer_weight_size(const struct layer *layer)
{
    return layer->name ? (size_t)layer->spatial * layer->inputs * layer->out.channels : 0;
}

size_t layer_bias_size(const struct layer *layer)
{
    return layer->name && !layer->no_bias ? (size_t)layer->out.channels : 0;
}

size_t layer_buffer_size(const struct layer *layer)
{
    return layer->kind == &layer_batchnorm ? (size_t)layer->out.channels : 0;
}
