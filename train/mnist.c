/* SPDX-License-Identifier: BSD-3-Clause */
/* MNIST: its files, or digits that are drawn. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dataset.h"
#include "failure.h"
#include "idx.h"
#include "rng.h"

/* ---- the shapes of handwritten digits, as strokes ---- */

enum { GLYPH_POINTS = 10, GLYPH_STROKES = 3, GLYPH_COUNT = 20 };

struct glyph_point {
    float x, y;
};

/* Points in a square of side 1, x to the right, y down. */
struct glyph_stroke {
    int curve; /* a smooth curve through the points; 0: straight lines */
    int count;
    struct glyph_point points[GLYPH_POINTS];
};

/* One way to write a digit. */
struct glyph {
    int digit;
    int count;
    struct glyph_stroke strokes[GLYPH_STROKES];
};

/* clang-format off */
#define LINE(n, ...)  {0, n, {__VA_ARGS__}}
#define CURVE(n, ...) {1, n, {__VA_ARGS__}}

/* Two ways for each digit, digit after digit. */

static const struct glyph glyphs[GLYPH_COUNT] = {
    {0, 1, {CURVE(8, {.50F, .05F}, {.22F, .22F}, {.15F, .60F}, {.38F, .94F}, {.70F, .85F},
                     {.85F, .50F}, {.75F, .15F}, {.47F, .06F})}},
    {0, 1, {CURVE(8, {.62F, .04F}, {.35F, .25F}, {.28F, .65F}, {.42F, .95F}, {.60F, .85F},
                     {.72F, .50F}, {.72F, .18F}, {.52F, .08F})}},
    {1, 1, {LINE(2, {.52F, .05F}, {.48F, .95F})}},
    {1, 1, {LINE(3, {.32F, .28F}, {.55F, .05F}, {.53F, .95F})}},
    {2, 2, {CURVE(6, {.20F, .25F}, {.42F, .06F}, {.72F, .14F}, {.73F, .40F}, {.48F, .68F},
                     {.18F, .93F}),
            LINE(2, {.18F, .93F}, {.85F, .91F})}},
    {2, 1, {CURVE(9, {.22F, .22F}, {.50F, .05F}, {.76F, .25F}, {.60F, .58F}, {.28F, .90F},
                     {.18F, .80F}, {.38F, .77F}, {.62F, .92F}, {.88F, .90F})}},
    {3, 2, {CURVE(5, {.20F, .15F}, {.50F, .05F}, {.75F, .20F}, {.65F, .42F}, {.40F, .48F}),
            CURVE(5, {.40F, .48F}, {.74F, .55F}, {.78F, .80F}, {.50F, .96F}, {.17F, .85F})}},
    {3, 2, {LINE(3, {.20F, .08F}, {.76F, .08F}, {.45F, .42F}),
            CURVE(5, {.45F, .42F}, {.78F, .54F}, {.75F, .84F}, {.45F, .96F}, {.17F, .86F})}},
    {4, 2, {LINE(3, {.60F, .05F}, {.15F, .62F}, {.88F, .62F}),
            LINE(2, {.64F, .32F}, {.62F, .96F})}},
    {4, 2, {LINE(3, {.24F, .06F}, {.20F, .50F}, {.78F, .50F}),
            LINE(2, {.76F, .05F}, {.72F, .96F})}},
    {5, 2, {LINE(3, {.80F, .07F}, {.32F, .08F}, {.25F, .45F}),
            CURVE(5, {.25F, .45F}, {.55F, .38F}, {.80F, .62F}, {.62F, .92F}, {.18F, .90F})}},
    {5, 3, {LINE(2, {.28F, .08F}, {.26F, .44F}),
            CURVE(5, {.26F, .44F}, {.60F, .40F}, {.74F, .68F}, {.52F, .95F}, {.20F, .88F}),
            LINE(2, {.28F, .08F}, {.78F, .04F})}},
    {6, 1, {CURVE(8, {.70F, .05F}, {.40F, .25F}, {.22F, .60F}, {.32F, .92F}, {.65F, .92F},
                     {.76F, .68F}, {.50F, .52F}, {.25F, .70F})}},
    {6, 1, {CURVE(8, {.52F, .04F}, {.34F, .35F}, {.30F, .75F}, {.50F, .96F}, {.72F, .82F},
                     {.66F, .60F}, {.44F, .60F}, {.31F, .78F})}},
    {7, 1, {LINE(3, {.16F, .08F}, {.82F, .08F}, {.42F, .95F})}},
    {7, 3, {LINE(2, {.18F, .10F}, {.80F, .08F}),
            CURVE(3, {.80F, .08F}, {.55F, .45F}, {.42F, .95F}),
            LINE(2, {.34F, .52F}, {.76F, .50F})}},
    {8, 1, {CURVE(9, {.72F, .22F}, {.50F, .05F}, {.28F, .20F}, {.46F, .46F}, {.73F, .74F},
                     {.50F, .95F}, {.25F, .76F}, {.54F, .46F}, {.72F, .20F})}},
    {8, 2, {CURVE(7, {.50F, .05F}, {.30F, .18F}, {.34F, .40F}, {.52F, .47F}, {.70F, .36F},
                     {.70F, .15F}, {.48F, .05F}),
            CURVE(7, {.52F, .47F}, {.26F, .60F}, {.27F, .86F}, {.50F, .95F}, {.74F, .85F},
                     {.74F, .60F}, {.50F, .47F})}},
    {9, 2, {CURVE(6, {.74F, .28F}, {.52F, .06F}, {.25F, .25F}, {.38F, .50F}, {.66F, .44F},
                     {.75F, .22F}),
            LINE(3, {.75F, .22F}, {.72F, .55F}, {.62F, .96F})}},
    {9, 2, {CURVE(6, {.72F, .26F}, {.50F, .06F}, {.26F, .26F}, {.40F, .50F}, {.64F, .44F},
                     {.74F, .20F}),
            CURVE(4, {.74F, .20F}, {.78F, .68F}, {.55F, .95F}, {.25F, .86F})}},
};
/* clang-format on */

/* ---- digits that the program draws itself ---- */

/*
 * A glyph's control points are shaken, curves are cut into short lines, every point is
 * moved by a smooth random field (elastic) and by a random rotation, slant, scale and
 * shift (affine), and the lines are drawn with a random width: a pixel's ink falls from
 * full to none over one pixel's distance from the edge of the stroke.
 */

enum {
    DIGITS_PIECES = 4, /* lines for one piece of a curve */
    DIGITS_WAVES = 2   /* sine waves of the elastic field, in each direction */
};

/* The random part of a drawing; unit square to pixels. */
struct digits_warp {
    float xx, xy, yx, yy; /* affine, about the middle */
    float middle_x, middle_y;
    struct {
        float strength, phase, along_x, along_y;
    } waves[2][DIGITS_WAVES];
};

static void digits_warp_init(struct rng *rng, struct digits_warp *warp)
{
    const float turn = rng_between(rng, -0.38F, 0.38F), slant = rng_between(rng, -0.35F, 0.35F);
    const float width = rng_between(rng, 11.0F, 21.0F), height = rng_between(rng, 15.0F, 21.5F);
    const float sine = sinf(turn), cosine = cosf(turn);

    warp->xx = cosine * width;
    warp->xy = (-sine - slant * cosine) * height;
    warp->yx = sine * width;
    warp->yy = (cosine - slant * sine) * height;
    warp->middle_x = DIGITS_SIDE / 2.0F + rng_between(rng, -3.0F, 3.0F);
    warp->middle_y = DIGITS_SIDE / 2.0F + rng_between(rng, -3.0F, 3.0F);
    for (int i = 0; i < 2 * DIGITS_WAVES; i++) {
        warp->waves[i % 2][i / 2].strength = rng_between(rng, 0.0F, 0.07F);
        warp->waves[i % 2][i / 2].phase = rng_between(rng, 0.0F, 6.2832F);
        warp->waves[i % 2][i / 2].along_x = rng_between(rng, -7.0F, 7.0F);
        warp->waves[i % 2][i / 2].along_y = rng_between(rng, -7.0F, 7.0F);
    }
}

static struct glyph_point digits_warp_point(const struct digits_warp *warp,
                                            struct glyph_point point)
{
    float moved[2] = {point.x - 0.5F, point.y - 0.5F};

    for (int i = 0; i < 2 * DIGITS_WAVES; i++) {
        const float angle = warp->waves[i % 2][i / 2].along_x * point.x +
                            warp->waves[i % 2][i / 2].along_y * point.y;

        moved[i % 2] +=
            warp->waves[i % 2][i / 2].strength * sinf(angle + warp->waves[i % 2][i / 2].phase);
    }
    return (struct glyph_point){
        warp->middle_x + warp->xx * moved[0] + warp->xy * moved[1],
        warp->middle_y + warp->yx * moved[0] + warp->yy * moved[1],
    };
}

/* Pixels that a line of this half width can touch in one direction. */
static void digits_range(float a, float b, float reach, int *first_p, int *last_p)
{
    const float low = (a < b ? a : b) - reach, high = (a < b ? b : a) + reach;

    *first_p = low < 0.0F ? 0 : (int)low;
    *last_p = high > DIGITS_SIDE - 1 ? DIGITS_SIDE - 1 : (int)high;
}

/* Darkens the pixels near the line from a to b. */
static void digits_line(struct glyph_point a, struct glyph_point b, float half, uint8_t *image)
{
    const float dx = b.x - a.x, dy = b.y - a.y;
    const float inverse = 1.0F / (dx * dx + dy * dy + 1e-6F);
    int x0, x1, y0, y1;

    digits_range(a.x, b.x, half + 0.5F, &x0, &x1);
    digits_range(a.y, b.y, half + 0.5F, &y0, &y1);
    for (int y = y0; y <= y1; y++) {
        for (int x = x0; x <= x1; x++) {
            const float px = (float)x - a.x, py = (float)y - a.y;
            float t = (px * dx + py * dy) * inverse, off_x, off_y, ink;

            t = t < 0.0F ? 0.0F : t > 1.0F ? 1.0F : t;
            off_x = px - t * dx;
            off_y = py - t * dy;
            ink = half + 0.5F - sqrtf(off_x * off_x + off_y * off_y);
            ink = ink < 0.0F ? 0.0F : ink > 1.0F ? 255.0F : ink * 255.0F;
            if ((uint8_t)ink > image[y * DIGITS_SIDE + x])
                image[y * DIGITS_SIDE + x] = (uint8_t)ink;
        }
    }
}

/* A point of the smooth curve (Catmull and Rom) between p[1] and p[2], t from 0 to 1. */
static float digits_spline(float p0, float p1, float p2, float p3, float t)
{
    return p1 +
           0.5F * t *
               (p2 - p0 +
                t * (2.0F * p0 - 5.0F * p1 + 4.0F * p2 - p3 + t * (3.0F * (p1 - p2) + p3 - p0)));
}

static void digits_stroke(const struct glyph_stroke *stroke, const struct digits_warp *warp,
                          float half, uint8_t *image)
{
    struct glyph_point from = digits_warp_point(warp, stroke->points[0]);

    for (int i = 0; i + 1 < stroke->count; i++) {
        for (int piece = 1; piece <= DIGITS_PIECES; piece++) {
            const float t = (float)piece / DIGITS_PIECES;
            const struct glyph_point *p = stroke->points;
            struct glyph_point to = {p[i].x + t * (p[i + 1].x - p[i].x),
                                     p[i].y + t * (p[i + 1].y - p[i].y)};

            if (stroke->curve) {
                const int before = i > 0 ? i - 1 : 0;
                const int after = i + 2 < stroke->count ? i + 2 : stroke->count - 1;

                to.x = digits_spline(p[before].x, p[i].x, p[i + 1].x, p[after].x, t);
                to.y = digits_spline(p[before].y, p[i].y, p[i + 1].y, p[after].y, t);
            }
            to = digits_warp_point(warp, to);
            digits_line(from, to, half, image);
            from = to;
        }
    }
}

/*
 * Draws sample index of the training or the test set: 28 x 28 bytes, ink is 255, edges
 * smooth. Returns the digit. A pure function of its arguments, so every rank draws the
 * same sample; some 10 microseconds.
 */
static uint8_t digits_draw(uint64_t seed, bool train, size_t index, uint8_t *image)
{
    const enum rng_purpose purpose = train ? RNG_DRAW_TRAIN : RNG_DRAW_TEST;
    const uint64_t grain = rng_key(seed, purpose, index, 1); /* on the paper and in the ink */
    struct rng rng = {rng_key(seed, purpose, index, 0), 0};
    struct glyph glyph = glyphs[rng_below(&rng, GLYPH_COUNT)];
    const float half = rng_between(&rng, 0.45F, 1.5F);
    struct digits_warp warp;

    digits_warp_init(&rng, &warp);
    memset(image, 0, DIGITS_SIDE * DIGITS_SIDE);
    for (int i = 0; i < glyph.count; i++) {
        struct glyph_stroke *stroke = &glyph.strokes[i];

        for (int j = 0; j < stroke->count; j++) {
            stroke->points[j].x += rng_between(&rng, -0.08F, 0.08F);
            stroke->points[j].y += rng_between(&rng, -0.08F, 0.08F);
        }
        digits_stroke(stroke, &warp, half, image);
    }
    for (uint32_t i = 0; i < DIGITS_SIDE * DIGITS_SIDE; i++) {
        const int value = image[i] + (int)(rng_u32(grain, i) % 61) - 30;

        image[i] = (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
    }
    return (uint8_t)glyph.digit;
}

/* ---- augmentation ---- */

static float augment_pixel(const uint8_t *image, int x, int y)
{
    if (x < 0 || y < 0 || x >= DIGITS_SIDE || y >= DIGITS_SIDE)
        return 0.0F;
    return image[y * DIGITS_SIDE + x];
}

/*
 * Replaces image (28 x 28) by itself, turned by up to 10 degrees, scaled by up to 8 %, and
 * shifted by up to 2 pixels, all drawn from key; between pixels it is interpolated, outside is
 * paper.
 */
static void augment_turn(uint64_t key, uint8_t *image)
{
    const float middle = (DIGITS_SIDE - 1) / 2.0F;
    struct rng rng = {key, 0};
    const float turn = rng_between(&rng, -0.175F, 0.175F);
    const float scale = rng_between(&rng, 0.92F, 1.08F);
    const float shift_x = rng_between(&rng, -2.0F, 2.0F), shift_y = rng_between(&rng, -2.0F, 2.0F);
    const float sine = sinf(turn) * scale, cosine = cosf(turn) * scale;
    uint8_t from[DIGITS_SIDE * DIGITS_SIDE];

    memcpy(from, image, sizeof(from));
    for (int y = 0; y < DIGITS_SIDE; y++) {
        for (int x = 0; x < DIGITS_SIDE; x++) {
            const float dx = (float)x - middle - shift_x, dy = (float)y - middle - shift_y;
            const float at_x = middle + cosine * dx - sine * dy;
            const float at_y = middle + sine * dx + cosine * dy;
            const int left = (int)floorf(at_x), top = (int)floorf(at_y);
            const float right = at_x - (float)left, down = at_y - (float)top;
            const float ink = (1.0F - down) * ((1.0F - right) * augment_pixel(from, left, top) +
                                               right * augment_pixel(from, left + 1, top)) +
                              down * ((1.0F - right) * augment_pixel(from, left, top + 1) +
                                      right * augment_pixel(from, left + 1, top + 1));

            image[y * DIGITS_SIDE + x] = (uint8_t)(ink + 0.5F);
        }
    }
}

/* ---- the files ---- */

/*
 * A set is two files: {train,t10k}-{images,labels} + -idx{3,1}-ubyte or .idx{3,1}-ubyte, plain or
 * with .gz.
 */

/* The first spelling that exists, in path (size bytes). */
static int mnist_find(const char *folder, const char *what, int dimensions, char *path, size_t size)
{
    static const char *const endings[] = {"", ".gz"};
    static const char joints[] = {'-', '.'};

    for (size_t i = 0; i < sizeof(joints); i++) {
        for (size_t j = 0; j < 2; j++) {
            const int length = snprintf(path, size, "%s/%s%cidx%d-ubyte%s", folder, what, joints[i],
                                        dimensions, endings[j]);

            if (length < 0 || (size_t)length >= size)
                return failure("--data %s: the path is too long", folder);
            if (access(path, F_OK) == 0)
                return 0;
        }
    }
    return failure("--data %s: there is no file %s-idx%d-ubyte or %s-idx%d-ubyte.gz in it", folder,
                   what, dimensions, what, dimensions);
}

static int mnist_read(const char *folder, bool train, struct dataset *dataset)
{
    struct idx images = {.bytes = NULL}, labels = {.bytes = NULL};
    char path[4096];

    if (mnist_find(folder, train ? "train-images" : "t10k-images", 3, path, sizeof(path)) < 0 ||
        idx_read(path, 3, &images) < 0)
        return -1;
    dataset->images = images.bytes;
    dataset->count = images.sizes[0];
    if (images.sizes[1] != DIGITS_SIDE || images.sizes[2] != DIGITS_SIDE)
        return failure("%s: byte 8: images of %u x %u, expected %d x %d", path, images.sizes[1],
                       images.sizes[2], DIGITS_SIDE, DIGITS_SIDE);
    if (mnist_find(folder, train ? "train-labels" : "t10k-labels", 1, path, sizeof(path)) < 0 ||
        idx_read(path, 1, &labels) < 0)
        return -1;
    dataset->labels = labels.bytes;
    if (labels.sizes[0] != dataset->count)
        return failure("%s: byte 4: %u labels, expected %zu, one for each image", path,
                       labels.sizes[0], dataset->count);
    for (size_t i = 0; i < dataset->count; i++) {
        if (labels.bytes[i] >= DATASET_CLASSES)
            return failure("%s: byte %zu: label %u, expected 0 to %d", path, 8 + i, labels.bytes[i],
                           DATASET_CLASSES - 1);
    }
    return 0;
}

const struct dataset_kind dataset_mnist = {
    .shape = {DIGITS_SIDE, DIGITS_SIDE, 1},
    .mean = {0.1307F},
    .deviation = {0.3081F},
    .read = mnist_read,
    .draw = digits_draw,
    .augment = augment_turn,
};
