/* SPDX-License-Identifier: BSD-3-Clause */
/* Digits that the program draws itself. */
#include "digits.h"

#include <math.h>
#include <string.h>

#include "glyphs.h"
#include "train/rng.h"

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

static struct glyph_point digits_at(const struct glyph_stroke *stroke, int i, float t)
{
    const struct glyph_point *p = stroke->points;
    const int before = i > 0 ? i - 1 : 0;
    const int after = i + 2 < stroke->count ? i + 2 : stroke->count - 1;

    return (struct glyph_point){
        digits_spline(p[before].x, p[i].x, p[i + 1].x, p[after].x, t),
        digits_spline(p[before].y, p[i].y, p[i + 1].y, p[after].y, t),
    };
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

            if (stroke->curve)
                to = digits_at(stroke, i, t);
            to = digits_warp_point(warp, to);
            digits_line(from, to, half, image);
            from = to;
        }
    }
}

static void digits_shake(struct rng *rng, struct glyph_stroke *stroke)
{
    for (int i = 0; i < stroke->count; i++) {
        stroke->points[i].x += rng_between(rng, -0.08F, 0.08F);
        stroke->points[i].y += rng_between(rng, -0.08F, 0.08F);
    }
}

/* Grain on the paper and in the ink. */
static void digits_grain(uint64_t key, uint8_t *image)
{
    for (uint32_t i = 0; i < DIGITS_SIDE * DIGITS_SIDE; i++) {
        const int value = image[i] + (int)(rng_u32(key, i) % 61) - 30;

        image[i] = (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
    }
}

uint8_t digits_draw(uint64_t seed, bool train, size_t index, uint8_t *image)
{
    const enum rng_purpose purpose = train ? RNG_DRAW_TRAIN : RNG_DRAW_TEST;
    struct rng rng = {rng_key(seed, purpose, index, 0), 0};
    struct glyph glyph = glyphs[rng_below(&rng, GLYPH_COUNT)];
    const float half = rng_between(&rng, 0.45F, 1.5F);
    struct digits_warp warp;

    digits_warp_init(&rng, &warp);
    memset(image, 0, DIGITS_SIDE * DIGITS_SIDE);
    for (int i = 0; i < glyph.count; i++) {
        digits_shake(&rng, &glyph.strokes[i]);
        digits_stroke(&glyph.strokes[i], &warp, half, image);
    }
    digits_grain(rng_key(seed, purpose, index, 1), image);
    return (uint8_t)glyph.digit;
}
