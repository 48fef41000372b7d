/* SPDX-License-Identifier: BSD-3-Clause */
/* A small model with layers and a side branch, for tests of data-parallel training. */
#ifndef TESTS_JOBS_DDP_MODEL_H
#define TESTS_JOBS_DDP_MODEL_H

#include <stdbool.h>
#include <stddef.h>

/*
 *     x -- w0 b0 -- tanh -- w1 b1 -- tanh -- w2 b2 -- y
 *      \__ side ________________________________________/     if `side` is set
 */
enum { MODEL_IN = 37, MODEL_WIDTH = 301, MODEL_OUT = 5, MODEL_PARAMETERS = 7, MODEL_SIDE = 6 };

extern const size_t model_counts[MODEL_PARAMETERS];
extern const char *const model_names[MODEL_PARAMETERS];

struct model {
    float *values[MODEL_PARAMETERS], *gradients[MODEL_PARAMETERS];
};

/* Called in the backward pass when gradient `index` is complete. */
typedef void (*model_ready_fn)(void *arg, int index);

/* Ranks that pass the same seed get the same model. gradients: whether to allocate them. */
void model_create(struct model *model, unsigned seed, bool gradients);
void model_destroy(struct model *model, bool gradients);

/*
 * Adds the gradients of one sample, drawn from `sample`, times share. ready may be NULL. Returns
 * the loss.
 */
double model_learn(struct model *model, unsigned sample, float share, bool side,
                   model_ready_fn ready, void *arg);

void model_zero(struct model *model);
void model_update(struct model *model, float rate);

#endif
