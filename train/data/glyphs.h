/* SPDX-License-Identifier: BSD-3-Clause */
/* The shapes of handwritten digits, as strokes. */
#ifndef TRAIN_GLYPHS_H
#define TRAIN_GLYPHS_H

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

/* Two ways for each digit, digit after digit. */
extern const struct glyph glyphs[GLYPH_COUNT];

#endif
