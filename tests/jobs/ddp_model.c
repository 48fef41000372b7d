/* SPDX-License-Identifier: BSD-3-Clause */
/* A small model, written as plain loops. */
#include "ddp_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const size_t model_counts[MODEL_PARAMETERS] = {
    MODEL_WIDTH * MODEL_IN, MODEL_WIDTH, MODEL_WIDTH *MODEL_WIDTH, MODEL_WIDTH,
    MODEL_OUT *MODEL_WIDTH, MODEL_OUT,   MODEL_OUT *MODEL_IN,
};
const char *const model_names[MODEL_PARAMETERS] = {"w0", "b0", "w1", "b1", "w2", "b2", "side"};

static float model_draw(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) / 8388608.0f - 1.0f;
}

void model_create(struct model *model, unsigned seed, bool gradients)
{
    for (int i = 0; i < MODEL_PARAMETERS; i++) {
        float scale = i == 2 || i == 4 ? 1.0f / sqrtf(MODEL_WIDTH) : 0.3f / sqrtf(MODEL_IN);

        model->values[i] = malloc(model_counts[i] * sizeof(float));
        model->gradients[i] = gradients ? calloc(model_counts[i], sizeof(float)) : NULL;
        if (!model->values[i] || (gradients && !model->gradients[i]))
            exit(99);
        for (size_t j = 0; j < model_counts[i]; j++)
            model->values[i][j] = scale * model_draw(&seed);
    }
}

void model_destroy(struct model *model, bool gradients)
{
    for (int i = 0; i < MODEL_PARAMETERS; i++) {
        free(model->values[i]);
        if (gradients)
            free(model->gradients[i]);
    }
}

/* out = act(w in + b) */
static void model_dense(const float *w, const float *b, const float *in, int inputs, float *out,
                        int outputs, bool bend)
{
    for (int o = 0; o < outputs; o++) {
        float sum = b[o];

        for (int i = 0; i < inputs; i++)
            sum += w[o * inputs + i] * in[i];
        out[o] = bend ? tanhf(sum) : sum;
    }
}

/* dw += d in, db += d, din = w d */
static void model_dense_back(const float *w, const float *in, int inputs, const float *d,
                             int outputs, float *dw, float *db, float *din)
{
    for (int i = 0; din && i < inputs; i++)
        din[i] = 0.0f;
    for (int o = 0; o < outputs; o++) {
        db[o] += d[o];
        for (int i = 0; i < inputs; i++) {
            dw[o * inputs + i] += d[o] * in[i];
            if (din)
                din[i] += w[o * inputs + i] * d[o];
        }
    }
}

static void model_bend_back(const float *out, float *d, int n)
{
    for (int i = 0; i < n; i++)
        d[i] *= 1.0f - out[i] * out[i];
}

static void model_side(struct model *model, const float *x, float *y)
{
    for (int o = 0; o < MODEL_OUT; o++)
        for (int i = 0; i < MODEL_IN; i++)
            y[o] += model->values[MODEL_SIDE][o * MODEL_IN + i] * x[i];
}

static void model_side_back(struct model *model, const float *x, const float *d)
{
    for (int o = 0; o < MODEL_OUT; o++)
        for (int i = 0; i < MODEL_IN; i++)
            model->gradients[MODEL_SIDE][o * MODEL_IN + i] += d[o] * x[i];
}

static void model_tell(model_ready_fn ready, void *arg, int index)
{
    if (ready)
        ready(arg, index);
}

double model_learn(struct model *model, unsigned sample, float share, bool side,
                   model_ready_fn ready, void *arg)
{
    float x[MODEL_IN], h0[MODEL_WIDTH], h1[MODEL_WIDTH], y[MODEL_OUT];
    float d[MODEL_OUT], d1[MODEL_WIDTH], d0[MODEL_WIDTH];
    float **w = model->values, **g = model->gradients;
    unsigned state = sample * 2654435761u + 1;
    double loss = 0.0;

    for (int i = 0; i < MODEL_IN; i++)
        x[i] = model_draw(&state);
    model_dense(w[0], w[1], x, MODEL_IN, h0, MODEL_WIDTH, true);
    model_dense(w[2], w[3], h0, MODEL_WIDTH, h1, MODEL_WIDTH, true);
    model_dense(w[4], w[5], h1, MODEL_WIDTH, y, MODEL_OUT, false);
    if (side)
        model_side(model, x, y);
    for (int o = 0; o < MODEL_OUT; o++) {
        float error = y[o] - sinf(3.0f * x[o]);

        loss += 0.5 * (double)(error * error);
        d[o] = error * share;
    }
    if (side) {
        model_side_back(model, x, d);
        model_tell(ready, arg, MODEL_SIDE);
    }
    model_dense_back(w[4], h1, MODEL_WIDTH, d, MODEL_OUT, g[4], g[5], d1);
    model_tell(ready, arg, 5);
    model_tell(ready, arg, 4);
    model_bend_back(h1, d1, MODEL_WIDTH);
    model_dense_back(w[2], h0, MODEL_WIDTH, d1, MODEL_WIDTH, g[2], g[3], d0);
    model_tell(ready, arg, 3);
    model_tell(ready, arg, 2);
    model_bend_back(h0, d0, MODEL_WIDTH);
    model_dense_back(w[0], x, MODEL_IN, d0, MODEL_WIDTH, g[0], g[1], NULL);
    model_tell(ready, arg, 1);
    model_tell(ready, arg, 0);
    return loss;
}

void model_zero(struct model *model)
{
    for (int i = 0; i < MODEL_PARAMETERS; i++)
        memset(model->gradients[i], 0, model_counts[i] * sizeof(float));
}

void model_update(struct model *model, float rate)
{
    for (int i = 0; i < MODEL_PARAMETERS; i++)
        for (size_t j = 0; j < model_counts[i]; j++)
            model->values[i][j] -= rate * model->gradients[i][j];
}
