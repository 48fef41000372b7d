/* SPDX-License-Identifier: BSD-3-Clause */
/* Optimizers over flat parameter memory: SGD with momentum, Adadelta. */
#ifndef TRAIN_OPTIMIZER_H
#define TRAIN_OPTIMIZER_H

#include <stdbool.h>
#include <stddef.h>

/* Adadelta's constants. */
#define OPTIMIZER_RHO 0.9F
#define OPTIMIZER_EPSILON 1e-6F

#define OPTIMIZER_STATES 2 /* numbers that one keeps for a parameter, at most */

struct optimizer;

/* Some parameters, and what the optimizer keeps of them: an array for each number. */
struct optimizer_slice {
    size_t count;
    float *weights;
    const float *gradients;
    float *const *state;
};
typedef void (*optimizer_fn)(const struct optimizer *optimizer, float lr,
                             const struct optimizer_slice *slice);

/*
 * name is "sgd" (v = momentum v + g; w -= lr v, the first v being g) or "adadelta"
 * (Zeiler 2012, with rho 0.9 and epsilon 1e-6; momentum is not used). Both as PyTorch
 * has them; weight decay adds decay * w to the gradient. count: parameters. On success
 * *optimizer_p is the caller's. -1: unknown name, out of memory.
 */
int optimizer_create(const char *name, size_t count, float momentum, float weight_decay,
                     struct optimizer **optimizer_p);
void optimizer_destroy(struct optimizer *optimizer); /* NULL is accepted */

/*
 * What it remembers from step to step, so many floats: copied to `state` (save) or from it. Zeroes
 * are what it begins with.
 */
int optimizer_states(const struct optimizer *optimizer); /* numbers for each parameter */
void optimizer_state(struct optimizer *optimizer, bool save, float *state);

/* Others keep it from now on, zeroes at first: optimizer_state does nothing, and all steps are of
 * slices. */
void optimizer_release(struct optimizer *optimizer);

/*
 * Scales the gradients such that the root of the sum of their squares is at most max_norm, unless
 * it is no finite number. The same bits give the same bits.
 */
void optimizer_clip(double max_norm, float *gradients, size_t count);

/*
 * Moves the parameters one step. No sum runs across elements and nothing is fused, so the
 * same inputs give the same bits on every processor.
 */
void optimizer_step(struct optimizer *optimizer, float lr, float *weights, const float *gradients);
void optimizer_step_slice(const struct optimizer *optimizer, float lr,
                          const struct optimizer_slice *slice);

#endif
