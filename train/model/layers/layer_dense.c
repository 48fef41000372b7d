/* SPDX-License-Identifier: BSD-3-Clause */
/* A dense layer: one matrix product for the whole batch. */
#include "train/model/gemm.h"
#include "train/model/layer.h"

static void dense_forward(const struct layer *layer, const struct pass *pass, const float *in,
                          float *out)
{
    const int channels = layer->out.channels;

    gemm(false, false, pass->batch, channels, shape_size(layer->in), in, layer->weight, false, out);
    bias_forward(pass->batch, channels, layer->bias, layer->relu, out);
}

static void dense_backward(const struct layer *layer, const struct pass *pass, const float *in,
                           const float *out, float *dout, float *din)
{
    const int inputs = shape_size(layer->in), channels = layer->out.channels;

    bias_backward(pass->batch, channels, out, layer->relu, pass->add, dout, layer->dbias);
    gemm(true, false, inputs, channels, pass->batch, in, dout, pass->add, layer->dweight);
    if (din)
        gemm(false, true, pass->batch, inputs, channels, dout, layer->weight, false, din);
}

const struct layer_kind layer_dense = {
    .name = "dense",
    .forward = dense_forward,
    .backward = dense_backward,
};
