/* SPDX-License-Identifier: BSD-3-Clause */
/* Where in a model the numbers stopped being numbers. */
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>

#include "model.h"
#include "train/failure.h"

#define BLAME_TEXT 512

static bool blame_is_finite(const float *values, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!isfinite(values[i]))
            return false;
    }
    return true;
}

/* Up to "the loss is ": of a step that is under way, or a test behind the last. */
static int blame(const struct pass *pass, double loss, const char *why)
{
    if (pass->training)
        return failure("step %" PRIu64 ": the loss is %f%s", pass->step + 1, loss, why);
    return failure("the test after step %" PRIu64 ": the loss is %f%s", pass->step, loss, why);
}

/* A layer without parameters is named by what it does, and by its place. */
static int blame_layer(const struct layer *layer, const struct pass *pass, double loss,
                       const char *what, const char *why)
{
    char text[BLAME_TEXT];

    snprintf(text, sizeof(text), ": the first %s are those of layer %d, %s%s", what,
             layer->index + 1, layer->name ? layer->name : layer->kind->name, why);
    return blame(pass, loss, text);
}

int model_blame(const struct model *model, const struct pass *pass, const float *images,
                double loss)
{
    if (!blame_is_finite(images, (size_t)pass->batch * (size_t)shape_size(model->input)))
        return blame(pass, loss, ": the images are not finite");
    for (int i = 0; i < model->count; i++) {
        const struct layer *layer = &model->layers[i];
        const size_t size = (size_t)pass->batch * (size_t)shape_size(layer->out);

        if (layer->name && (!blame_is_finite(layer->weight, layer_weight_size(layer)) ||
                            !blame_is_finite(layer->bias, layer_bias_size(layer))))
            return blame_layer(layer, pass, loss, "parameters that are not finite",
                               ": so was its gradient in the step before, or the learning rate is "
                               "too high");
        if (!blame_is_finite(model->activations[i], size))
            return blame_layer(layer, pass, loss, "outputs that are not finite", "");
    }
    return blame(pass, loss, ", though all outputs are finite");
}
