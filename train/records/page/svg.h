/* SPDX-License-Identifier: BSD-3-Clause */
/* What the pictures of the page share: text, numbers, ticks. */
#ifndef TRAIN_RECORDS_SVG_H
#define TRAIN_RECORDS_SVG_H

#include <stdio.h>

/* A text of that class, where `anchor` is "start", "middle" or "end". */
void svg_text(double x, double y, const char *anchor, const char *class, const char *text,
              FILE *to);
void svg_line(double x1, double y1, double x2, double y2, const char *class, FILE *to);

/* A value between ticks: 1, 2 or 5 times a power of ten, such that [least, most] has about `wanted`
 * ticks. 1 where the range is empty. */
double svg_tick(double least, double most, int wanted);

enum { SVG_NUMBER = 40 };

/* "12 500", "0.05", "1.2M": a number, told apart from its neighbours at that tick's distance. */
void svg_number(double value, double tick, char text[SVG_NUMBER]);

#endif
