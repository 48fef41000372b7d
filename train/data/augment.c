/* SPDX-License-Identifier: BSD-3-Clause */
/* Augmentation. */
#include "augment.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "digits.h"
#include "pictures.h"
#include "train/rng.h"

static float augment_pixel(const uint8_t *image, int x, int y)
{
    if (x < 0 || y < 0 || x >= DIGITS_SIDE || y >= DIGITS_SIDE)
        return 0.0F;
    return image[y * DIGITS_SIDE + x];
}

static float augment_between(const uint8_t *image, float x, float y)
{
    const int left = (int)floorf(x), top = (int)floorf(y);
    const float right = x - (float)left, down = y - (float)top;

    return (1.0F - down) * ((1.0F - right) * augment_pixel(image, left, top) +
                            right * augment_pixel(image, left + 1, top)) +
           down * ((1.0F - right) * augment_pixel(image, left, top + 1) +
                   right * augment_pixel(image, left + 1, top + 1));
}

void augment_turn(uint64_t key, uint8_t *image)
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
            const float ink = augment_between(from, middle + cosine * dx - sine * dy,
                                              middle + sine * dx + cosine * dy);

            image[y * DIGITS_SIDE + x] = (uint8_t)(ink + 0.5F);
        }
    }
}

enum { AUGMENT_EDGE = 4 };

/* One row, moved to the left by `shift` pixels (to the right if that is negative). */
static void augment_row(const uint8_t *from, int shift, bool mirror, uint8_t *to)
{
    for (int x = 0; x < PICTURES_SIDE; x++) {
        const int at = (mirror ? PICTURES_SIDE - 1 - x : x) + shift;

        if (at >= 0 && at < PICTURES_SIDE)
            memcpy(to + 3 * (size_t)x, from + 3 * (size_t)at, 3);
    }
}

void augment_crop(uint64_t key, uint8_t *image)
{
    const size_t row = 3 * (size_t)PICTURES_SIDE;
    struct rng rng = {key, 0};
    const int down = (int)rng_below(&rng, 2 * AUGMENT_EDGE + 1) - AUGMENT_EDGE;
    const int right = (int)rng_below(&rng, 2 * AUGMENT_EDGE + 1) - AUGMENT_EDGE;
    const bool mirror = rng_below(&rng, 2) == 1;
    uint8_t from[PICTURES_SIDE * PICTURES_SIDE * 3];

    memcpy(from, image, sizeof(from));
    memset(image, 0, sizeof(from));
    for (int y = 0; y < PICTURES_SIDE; y++) {
        if (y + down >= 0 && y + down < PICTURES_SIDE)
            augment_row(from + (size_t)(y + down) * row, right, mirror, image + (size_t)y * row);
    }
}
