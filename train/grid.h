/* SPDX-License-Identifier: BSD-3-Clause */
/* Sums of gradients that do not depend on the order of the additions. */
#ifndef TRAIN_GRID_H
#define TRAIN_GRID_H

#include <assert.h>
#include <math.h>
#include <stdbool.h>

#include "kernel.h"
#include "model.h"

/*
 * Training is chaotic: a difference in the last bit of a gradient, which is what another
 * order of additions makes, grows to the size of the loss within some ten steps. So a
 * step is cut into micro-batches that are the same for any number of ranks, and each
 * one's gradients are rounded to multiples of a step so large that all sums of them are
 * exact: float32 holds 24 bits,
 *
 *     16 bits of gradient | 8 bits for adding up to 8 and for gradients that grow
 *
 * Sums of multiples are then the same bits in any order, through any algorithm. The step
 * is a power of two, one for each tensor, from the largest gradients of the step before.
 * A gradient too large for it is not harmed, its sum is merely rounded as usual.
 */
struct grid {
    int count;                      /* tensors: a weight and a bias of each layer */
    float steps[MODEL_MAX_TENSORS]; /* of the mean over all ranks; 0: no rounding */
};

/* Floats that the sums carry behind the gradients: the loss, then the tensors' largest. */
enum { GRID_TAIL = 1 + MODEL_MAX_TENSORS };
static_assert((int)GRID_TAIL <= (int)MODEL_TAIL, "the gradients have room for the tail");

/* The largest gradient, in steps: grid_power of a power of two is twice that, which leaves 2^16. */
enum { GRID_BITS = 17 };

/* The next power of two, so that sums of them are exact as well; 0 for what is no number. */
ANYWHERE float grid_power(float most)
{
    int exponent = 0;

    if (!(most > 0.0F) || isinf(most))
        return 0.0F;
    frexpf(most, &exponent);
    return ldexpf(1.0F, exponent);
}

/*
 * Adding 1.5 * 2^23 steps leaves no room for what is below a step; taking it away again leaves the
 * rounded number.
 */
ANYWHERE float grid_shift(float step)
{
    return 0x1.8p23F * step;
}

/* Steps for the first batch, whose gradients are taken to be below 1. */
void grid_start(const struct model *model, struct grid *grid);

/*
 * sums (model->parameters + GRID_TAIL floats) becomes, or is increased by (`add`), the
 * model's gradients, rounded. The largest of each tensor, as a power of two, and loss
 * follow in the tail. scale: how often this rank's sums go into the mean, that is the
 * number of ranks. sums may be model->gradients unless `add`.
 */
void grid_add(const struct grid *grid, const struct model *model, int scale, float loss, bool add,
              float *sums);

/* Sets the steps from the tail of the sums, once they have been averaged over the ranks. */
void grid_advance(struct grid *grid, const struct model *model, const float *sums);

#endif
