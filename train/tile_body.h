/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Included by layers.c once per instruction set. TILE(name) is the name of a function for that set,
 * TILE_ROWS the number of vectors in a tile. A tile has TILE_ROWS rows (pixels, or inputs of
 * weights) of TILE_LANES channels. Each step of a sum multiplies one vector of the second operand
 * by one number of the first operand for each row.
 */

/* sums[row] += from[row * step] * vector */
static inline __attribute__((always_inline)) void TILE(step)(const float *from, int step,
                                                             const float *with, tile_vector *sums)
{
    const tile_vector vector = *(const tile_vector *)with;

#pragma GCC unroll 8
    for (int r = 0; r < TILE_ROWS; r++)
        sums[r] += from[(long)r * step] * vector;
}

/* Computes TILE_ROWS pixels beginning at (y, x), for TILE_LANES channels beginning at `channel`. */
static inline __attribute__((always_inline)) void TILE(pixels)(const struct tile_job *job, int y,
                                                               int x, int channel,
                                                               const float *frame,
                                                               const float *weight, float *out)
{
    const int run = job->kernel * job->inputs, step = job->stride * job->inputs;
    const long row = (long)job->frame_width * job->inputs;
    tile_vector sums[TILE_ROWS] = {{0}};

    frame += y * job->stride * row + (long)x * step;
    weight += channel;
    for (int k = 0; k < job->kernel; k++, frame += row) {
        for (int i = 0; i < run; i++, weight += job->channels)
            TILE(step)(frame + i, step, weight, sums);
    }
    out += ((long)y * job->width + x) * job->channels + channel;
#pragma GCC unroll 8
    for (int r = 0; r < TILE_ROWS; r++)
        *(tile_vector *)(out + (long)r * job->channels) = sums[r];
}

/* The last tile of a row is aligned to the end of the row, so it computes some pixels twice. */
static void TILE(forward)(const struct tile_job *job, const float *frame, const float *weight,
                          float *out)
{
    const int last = job->width - TILE_ROWS;

    for (int y = 0; y < job->height; y++) {
        for (int x = 0; x < job->width; x += TILE_ROWS) {
            for (int c = 0; c < job->channels; c += TILE_LANES)
                TILE(pixels)(job, y, x < last ? x : last, c, frame, weight, out);
        }
    }
}

/*
 * Adds to TILE_ROWS inputs of a window's row and TILE_LANES channels; frame, dout and dweight point
 * to the first of them. Sums over all pixels.
 */
static inline __attribute__((always_inline)) void
TILE(inputs)(const struct tile_job *job, const float *frame, const float *dout, float *dweight)
{
    const int channels = job->channels, step = job->stride * job->inputs;
    const long row = (long)job->stride * job->frame_width * job->inputs;
    tile_vector sums[TILE_ROWS];

#pragma GCC unroll 8
    for (int r = 0; r < TILE_ROWS; r++)
        sums[r] = *(tile_vector *)(dweight + (long)r * channels);
    for (int y = 0; y < job->height; y++) {
        const float *from = frame + y * row;

        for (int x = 0; x < job->width; x++, from += step, dout += channels)
            TILE(step)(from, 1, dout, sums);
    }
#pragma GCC unroll 8
    for (int r = 0; r < TILE_ROWS; r++)
        *(tile_vector *)(dweight + (long)r * channels) = sums[r];
}

static void TILE(weight)(const struct tile_job *job, const float *frame, const float *dout,
                         float *dweight)
{
    const int run = job->kernel * job->inputs;
    const long row = (long)job->frame_width * job->inputs;

    for (int k = 0; k < job->kernel; k++) {
        for (int i = 0; i < run; i += TILE_ROWS) {
            float *to = dweight + ((long)k * run + i) * job->channels;

            for (int c = 0; c < job->channels; c += TILE_LANES)
                TILE(inputs)(job, frame + k * row + i, dout + c, to + c);
        }
    }
}
