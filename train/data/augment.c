/* SPDX-License-Identifier: BSD-3-Clause */
/* Augmentation. */
#include "augment.h"

#include <math.h>
#include <string.h>

#include "train/model/model.h"
#include "train/model/rng.h"

static float augment_pixel(const uint8_t *image, int x, int y)
{
    if (x < 0 || y < 0 || x >= MODEL_SIDE || y >= MODEL_SIDE)
        return 0.0F;
    return image[y * MODEL_SIDE + x];
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

void augment_image(uint64_t key, uint8_t *image)
{
    const float middle = (MODEL_SIDE - 1) / 2.0F;
    struct rng rng = {key, 0};
    const float turn = rng_between(&rng, -0.175F, 0.175F);
    const float scale = rng_between(&rng, 0.92F, 1.08F);
    const float shift_x = rng_between(&rng, -2.0F, 2.0F), shift_y = rng_between(&rng, -2.0F, 2.0F);
    const float sine = sinf(turn) * scale, cosine = cosf(turn) * scale;
    uint8_t from[MODEL_PIXELS];

    memcpy(from, image, sizeof(from));
    for (int y = 0; y < MODEL_SIDE; y++) {
        for (int x = 0; x < MODEL_SIDE; x++) {
            const float dx = (float)x - middle - shift_x, dy = (float)y - middle - shift_y;
            const float ink = augment_between(from, middle + cosine * dx - sine * dy,
                                              middle + sine * dx + cosine * dy);

            image[y * MODEL_SIDE + x] = (uint8_t)(ink + 0.5F);
        }
    }
}
