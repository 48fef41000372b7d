/* SPDX-License-Identifier: BSD-3-Clause */
/* A model that only computes: square layers in a row, by matrix products. */
#ifndef BENCH_TRAINING_MODEL_H
#define BENCH_TRAINING_MODEL_H

#include <stddef.h>

struct model {
    int layers, width, batch;
    float *weights;       /* layers matrices of width rows and columns */
    float *values;        /* layers + 1 of batch rows and width columns */
    float *deltas, *next; /* of such rows: what the backward pass hands from layer to layer */
};

/* -1: no memory. */
int model_create(int layers, int width, struct model *model);
void model_destroy(struct model *model);

/* Room for another number of samples a step. -1: no memory. */
int model_resize(struct model *model, int batch);

size_t model_count(const struct model *model); /* gradients of a layer */

void model_forward(struct model *model);

/* The backward pass of one layer, the last one first; writes its gradient. */
void model_backward(struct model *model, int layer, float *gradient);

#endif
