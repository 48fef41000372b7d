/* SPDX-License-Identifier: BSD-3-Clause */
/* Coloured pictures that the program draws itself. */
#include "pictures.h"

#include <math.h>
#include <stdlib.h>

#include "train/rng.h"

/*
 * Every pixel is asked at four points whether the shape covers it, which smooths the edges. The
 * ground runs from one colour to another, and a second shape's colour is near it or far from it,
 * so that neither colour nor brightness tells the class: only the outline does.
 */

enum { PICTURES_SHAPES = 10, PICTURES_LEAST_CONTRAST = 110 };

static float pictures_larger(float a, float b)
{
    return a > b ? a : b;
}

static float pictures_smaller(float a, float b)
{
    return a < b ? a : b;
}

/* Five rays: the edge's distance from the middle goes up and down with the direction. */
static bool pictures_in_star(float x, float y)
{
    const float ray = fabsf(cosf(2.5F * atan2f(y, x)));

    return sqrtf(x * x + y * y) < 0.35F + 0.65F * ray * ray;
}

/* Whether the shape, whose size is 1 in each direction, covers a point. */
static bool pictures_covers(int shape, float x, float y)
{
    const float right = fabsf(x), up = fabsf(y), far = sqrtf(x * x + y * y);
    const float most = pictures_larger(right, up), least = pictures_smaller(right, up);

    switch (shape) {
    case 0: /* disc */
        return far < 0.9F;
    case 1: /* ring */
        return far > 0.55F && far < 0.95F;
    case 2: /* square */
        return most < 0.8F;
    case 3: /* frame */
        return most > 0.5F && most < 0.85F;
    case 4: /* triangle */
        return y < 0.65F && right < (y + 0.95F) * 0.58F;
    case 5: /* cross */
        return most < 0.95F && least < 0.28F;
    case 6: /* star */
        return pictures_in_star(x, y);
    case 7: /* crescent */
        return far < 0.95F && (x - 0.4F) * (x - 0.4F) + y * y > 0.55F;
    case 8: /* half of a disc */
        return far < 0.95F && y > -0.1F;
    default: /* two bars */
        return up < 0.9F && right > 0.25F && right < 0.7F;
    }
}

struct pictures_colour {
    float parts[3];
};

/* What is drawn before the pixels are. */
struct pictures_scene {
    int shape;
    float sine, cosine, middle_x, middle_y; /* pixels to the shape's square */
    struct pictures_colour fill, ground[2]; /* ground: at both ends */
    float along_x, along_y, phase;          /* of the wave from one end to the other */
};

static struct pictures_colour pictures_colour(struct rng *rng)
{
    struct pictures_colour colour;

    for (int c = 0; c < 3; c++)
        colour.parts[c] = rng_between(rng, 20.0F, 235.0F);
    return colour;
}

static float pictures_contrast(struct pictures_colour a, struct pictures_colour b)
{
    float sum = 0.0F;

    for (int c = 0; c < 3; c++)
        sum += fabsf(a.parts[c] - b.parts[c]);
    return sum;
}

/* The ground's two colours are drawn until the shape can be seen on both. */
static void pictures_scene_init(int shape, struct rng *rng, struct pictures_scene *scene)
{
    const float turn = rng_between(rng, -0.6F, 0.6F), size = rng_between(rng, 6.5F, 13.0F);

    scene->shape = shape;
    scene->sine = sinf(turn) / size;
    scene->cosine = cosf(turn) / size;
    scene->middle_x = (PICTURES_SIDE - 1) / 2.0F + rng_between(rng, -5.0F, 5.0F);
    scene->middle_y = (PICTURES_SIDE - 1) / 2.0F + rng_between(rng, -5.0F, 5.0F);
    scene->fill = pictures_colour(rng);
    for (int i = 0; i < 2; i++) {
        do {
            scene->ground[i] = pictures_colour(rng);
        } while (pictures_contrast(scene->fill, scene->ground[i]) < PICTURES_LEAST_CONTRAST);
    }
    scene->along_x = rng_between(rng, -0.25F, 0.25F);
    scene->along_y = rng_between(rng, -0.25F, 0.25F);
    scene->phase = rng_between(rng, 0.0F, 6.2832F);
}

/* How much of a pixel the shape covers, 0 to 1. */
static float pictures_part(const struct pictures_scene *scene, int x, int y)
{
    int covered = 0;

    for (int i = 0; i < 4; i++) {
        const float dx = (float)x + (i % 2 ? 0.25F : -0.25F) - scene->middle_x;
        const float dy = (float)y + (i / 2 ? 0.25F : -0.25F) - scene->middle_y;

        covered += pictures_covers(scene->shape, scene->cosine * dx + scene->sine * dy,
                                   scene->cosine * dy - scene->sine * dx);
    }
    return (float)covered / 4.0F;
}

uint8_t pictures_draw(uint64_t seed, bool train, size_t index, uint8_t *image)
{
    const uint64_t key = rng_key(seed, train ? RNG_DRAW_TRAIN : RNG_DRAW_TEST, index, 1);
    struct rng rng = {key, 0};
    const int shape = (int)rng_below(&rng, PICTURES_SHAPES);
    struct pictures_scene scene;

    pictures_scene_init(shape, &rng, &scene);
    for (int i = 0; i < PICTURES_SIDE * PICTURES_SIDE; i++) {
        const int x = i % PICTURES_SIDE, y = i / PICTURES_SIDE;
        const float part = pictures_part(&scene, x, y);
        const float wave =
            0.5F + 0.5F * sinf(scene.along_x * (float)x + scene.along_y * (float)y + scene.phase);

        for (int c = 0; c < 3; c++) {
            const float ground =
                scene.ground[0].parts[c] * wave + scene.ground[1].parts[c] * (1.0F - wave);
            const float value = scene.fill.parts[c] * part + ground * (1.0F - part) +
                                rng_between(&rng, -20.0F, 20.0F);

            *image++ = (uint8_t)pictures_larger(0.0F, pictures_smaller(255.0F, value));
        }
    }
    return (uint8_t)shape;
}
