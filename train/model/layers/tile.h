/* SPDX-License-Identifier: BSD-3-Clause */
/* Convolution without copies of windows: a tile of the result stays in vector registers. */
#ifndef TRAIN_TILE_H
#define TRAIN_TILE_H

#include <stdbool.h>

/* One sample. All pixels have their channels next to each other. */
struct tile_job {
    int height, width, channels; /* of out */
    int kernel, stride;
    int frame_width, inputs; /* of what the windows look at, its padding included */
};

/* Whether this CPU has the vectors, and the sizes are whole numbers of tiles. */
bool tile_fits(const struct tile_job *job);

/* out = the windows of frame x weight (kernel x kernel x inputs x channels). */
void tile_forward(const struct tile_job *job, const float *frame, const float *weight, float *out);

/* dweight += the transposed windows of frame x dout. */
void tile_weight(const struct tile_job *job, const float *frame, const float *dout, float *dweight);

/*
 * For tests: from here on the numberth of the kinds that this CPU can run, 0 for the best, which is
 * used by itself; the last makes no tiles. Returns its name; NULL: there are not so many, and the
 * best is used again.
 */
const char *tile_use(int number);

#endif
