/* SPDX-License-Identifier: BSD-3-Clause */
/* Plots, pictures and pages: colours, axes, curves and the frame of a page, as SVG and HTML. */
#ifndef DISTI_TOOLS_COMMON_PLOT_H
#define DISTI_TOOLS_COMMON_PLOT_H

#include <stdbool.h>
#include <stdio.h>

/* ---- colours and style rules ---- */

/* A colour of the palette, with one value for light pages and one for dark pages. */
enum plot_ink {
    PLOT_SERIES,             /* the first of PLOT_STYLES colours for data */
    PLOT_BLUE = PLOT_SERIES, /* names of the first three data colours */
    PLOT_ORANGE,
    PLOT_GREEN,
    PLOT_STYLES = 10,
    PLOT_TEXT = PLOT_STYLES,
    PLOT_FAINT, /* secondary text, frames */
    PLOT_GRID,
    PLOT_GROUND, /* background of the page */
    PLOT_PANEL,  /* background of a box */
    PLOT_BEST,   /* background of a highlighted table cell */
    PLOT_INKS
};

/* One CSS rule: sets `property` of the elements that match `selector` to the colour `ink`. */
struct plot_rule {
    const char *selector, *property;
    enum plot_ink ink;
};

/* ---- pictures and pages ---- */

/*
 * Begins an SVG file that shrinks to the width of its window: prints the header, the common style
 * rules, `count` more colour rules, the CSS text `more`, and the background. The caller prints
 * "</svg>".
 */
void plot_svg_begin(int width, int height, const struct plot_rule *rules, int count,
                    const char *more, FILE *to);

/*
 * Begins a self-contained HTML page: prints everything up to <body>. `title` is escaped. There are
 * styles for text, headings, code, dl, tables in <div class="wide">, the classes "faint" and
 * "best", legends in <ul class="keys">, and plots side by side in <div class="plots">. The
 * variables --text, --faint, --grid, --ground, --panel, --best and --c0 to --c9 are set. The caller
 * prints "</body></html>".
 */
void plot_page_begin(const char *title, FILE *to);

/* Prints an SVG text element at x, y. `anchor` is "start", "middle" or "end"; `text` is escaped. */
void plot_text(double x, double y, const char *anchor, const char *class, const char *text,
               FILE *to);

/* ---- numbers ---- */

#define PLOT_NUMBER 40

/* Format a number as "64 KiB", "1.23 ms" or "12k", and return `text`. plot_number prints enough
 * digits to distinguish numbers that differ by `tick`. */
char *plot_bytes(double bytes, char text[PLOT_NUMBER]);
char *plot_time(double ns, char text[PLOT_NUMBER]);
char *plot_number(double value, double tick, char text[PLOT_NUMBER]);

/* Returns a distance between ticks: 1, 2, 5 or 10 times a power of ten, so that [least, most] has
 * about `wanted` ticks. Returns 1 if the range is empty. */
double plot_tick(double least, double most, int wanted);

/* ---- axes ---- */

#define PLOT_TICKS_MAX 24

struct plot_axis {
    const char *name; /* with the unit */
    bool logarithmic;
    double least, most; /* range of the values */
    double from, to;    /* coordinates of `least` and `most` in the picture */
    double ticks[PLOT_TICKS_MAX];
    int count;
    double strong; /* tick with an emphasized grid line; 0: none */
    char *(*label)(double tick, double distance, char text[PLOT_NUMBER]);
};

/* Returns the coordinate of a value. */
double plot_at(const struct plot_axis *axis, double value);

/* Widens the range to multiples of a round number and sets about `wanted` ticks, labelled with
 * plot_number. */
void plot_axis_round(struct plot_axis *axis, int wanted);

/* ---- curves: the x axis is the size in bytes, logarithmic ---- */

/* Size of a plot in the units of the SVG. */
#define PLOT_WIDTH 600
#define PLOT_HEIGHT 360

enum plot_kind { PLOT_TIME, PLOT_BANDWIDTH, PLOT_RATIO };

struct plot_series {
    const char *name;
    int style;           /* selects colour and marker */
    int dashed;          /* true for a bound, as opposed to measurements of a library */
    const double *x, *y; /* x: bytes above 0, ascending; y: 0 or less is a gap */
    int count;
};

struct plot {
    enum plot_kind kind; /* unit of y: ns, logarithmic; GB/s from 0; a ratio, logarithmic */
    const char *title;   /* plain text */
    const struct plot_series *series;
    int series_count;
};

/*
 * Draws the plot within an <svg>. The x axis is labelled with the sizes of the first series. Draws
 * nothing and returns false if no point has both a size and a y above 0.
 */
bool plot_draw(const struct plot *plot, FILE *to);

/* Draws a legend entry, 34 wide and 14 high: the line of a series with its marker. */
void plot_key(const struct plot_series *series, FILE *to);

#endif
