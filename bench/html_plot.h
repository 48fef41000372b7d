/* SPDX-License-Identifier: BSD-3-Clause */
/* A plot as inline SVG: sizes in bytes from left to right, logarithmic. */
#ifndef BENCH_HTML_PLOT_H
#define BENCH_HTML_PLOT_H

#include <stdio.h>

enum plot_kind { PLOT_TIME, PLOT_BANDWIDTH, PLOT_RATIO };

struct plot_series {
    const char *name;
    int style;           /* chooses colour and marker */
    int dashed;          /* a bound, no contestant */
    const double *x, *y; /* bytes above 0, rising; a y of 0 or less is a gap */
    int count;
};

struct plot {
    enum plot_kind kind; /* ns, logarithmic; GB/s, from 0 on; a factor, logarithmic */
    const char *title;   /* plain text */
    const struct plot_series *series;
    int series_count;
};

/* Writes the figure; nothing if there are not two different sizes or no y at all. */
void plot_write(const struct plot *plot, FILE *to);

/* A line with its marker, for a legend. */
void plot_legend(const struct plot_series *series, FILE *to);

/* The rules that figures need, inside of <style>. */
void plot_style(FILE *to);

/* Text for people: "64 KiB", "1.23 ms". Both return text. */
char *plot_bytes(double bytes, char text[24]);
char *plot_time(double ns, char text[24]);

/* Text with what HTML has for its own replaced. */
void plot_text(const char *text, FILE *to);

#endif
