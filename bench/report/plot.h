/* SPDX-License-Identifier: BSD-3-Clause */
/* A plot as SVG: sizes in bytes from left to right, logarithmic. */
#ifndef BENCH_PLOT_H
#define BENCH_PLOT_H

#include <stdbool.h>
#include <stdio.h>

/* What a plot takes, in the units of the SVG. */
#define PLOT_WIDTH 720
#define PLOT_HEIGHT 400

enum plot_kind { PLOT_TIME, PLOT_BANDWIDTH, PLOT_RATIO };

struct plot_series {
    const char *name;
    int style;           /* chooses colour and marker */
    int dashed;          /* a bound, no library */
    const double *x, *y; /* bytes above 0, rising; a y of 0 or less is a gap */
    int count;
};

struct plot {
    enum plot_kind kind; /* ns, logarithmic; GB/s, from 0 on; a factor, logarithmic */
    const char *title;   /* plain text */
    const struct plot_series *series;
    int series_count;
};

/*
 * Draws within an <svg>; false, and nothing, if there is no size above 0 that has a y. The sizes of
 * the first series are written below.
 */
bool plot_draw(const struct plot *plot, FILE *to);

/* A line with its marker, 34 wide and 14 high, for a legend. */
void plot_key(const struct plot_series *series, FILE *to);

/* The rules that these need, inside of <style>. */
void plot_style(FILE *to);

/* Text for people: "64 KiB", "1.23 ms". Both return text. */
char *plot_bytes(double bytes, char text[24]);
char *plot_time(double ns, char text[24]);

#endif
