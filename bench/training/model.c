/* SPDX-License-Identifier: BSD-3-Clause */
/* A model that only computes: square layers in a row, by matrix products. */
#include "model.h"

#include <stdlib.h>
#include <string.h>

/* Small: layer after layer the values neither vanish nor grow beyond bounds. */
static void model_fill(float *values, size_t count, float bound)
{
    unsigned state = 1;

    for (size_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        values[i] = bound * ((float)(state >> 8) / (float)(1 << 23) - 1.0f);
    }
}

size_t model_count(const struct model *model)
{
    return (size_t)model->width * (size_t)model->width;
}

static size_t model_row_count(const struct model *model)
{
    return (size_t)model->batch * (size_t)model->width;
}

int model_create(int layers, int width, struct model *model)
{
    const size_t count = (size_t)layers * (size_t)width * (size_t)width;

    *model = (struct model){.layers = layers, .width = width};
    model->weights = malloc(count * sizeof(float));
    if (!model->weights)
        return -1;
    model_fill(model->weights, count, 1.0f / (float)width);
    return 0;
}

static void model_free_values(struct model *model)
{
    free(model->values);
    free(model->deltas);
    free(model->next);
    model->values = model->deltas = model->next = NULL;
}

void model_destroy(struct model *model)
{
    model_free_values(model);
    free(model->weights);
    model->weights = NULL;
}

int model_resize(struct model *model, int batch)
{
    size_t count;

    model_free_values(model);
    model->batch = batch;
    count = model_row_count(model);
    model->values = malloc((size_t)(model->layers + 1) * count * sizeof(float));
    model->deltas = malloc(count * sizeof(float));
    model->next = malloc(count * sizeof(float));
    if (!model->values || !model->deltas || !model->next)
        return -1;
    model_fill(model->values, count, 1.0f);
    return 0;
}

/* out (rows, width) = in (rows, width) * matrix; a row of the matrix serves all rows of in. */
static void model_multiply(const struct model *model, const float *in, const float *matrix,
                           float *out)
{
    const size_t width = (size_t)model->width;

    memset(out, 0, model_row_count(model) * sizeof(float));
    for (size_t k = 0; k < width; k++) {
        for (size_t row = 0; row < (size_t)model->batch; row++) {
            const float factor = in[row * width + k];

            for (size_t i = 0; i < width; i++)
                out[row * width + i] += factor * matrix[k * width + i];
        }
    }
}

/* out (width, width) = deltas transposed * in. */
static void model_multiply_transposed(const struct model *model, const float *deltas,
                                      const float *in, float *out)
{
    const size_t width = (size_t)model->width;

    for (size_t k = 0; k < width; k++) {
        memset(out + k * width, 0, width * sizeof(float));
        for (size_t row = 0; row < (size_t)model->batch; row++) {
            const float factor = deltas[row * width + k];

            for (size_t i = 0; i < width; i++)
                out[k * width + i] += factor * in[row * width + i];
        }
    }
}

void model_forward(struct model *model)
{
    const size_t rows = model_row_count(model), count = model_count(model);

    for (int i = 0; i < model->layers; i++)
        model_multiply(model, model->values + (size_t)i * rows, model->weights + (size_t)i * count,
                       model->values + (size_t)(i + 1) * rows);
    memcpy(model->deltas, model->values + (size_t)model->layers * rows, rows * sizeof(float));
}

void model_backward(struct model *model, int layer, float *gradient)
{
    float *deltas = model->next;

    model_multiply_transposed(model, model->deltas,
                              model->values + (size_t)layer * model_row_count(model), gradient);
    model_multiply(model, model->deltas, model->weights + (size_t)layer * model_count(model),
                   deltas);
    model->next = model->deltas;
    model->deltas = deltas;
}
