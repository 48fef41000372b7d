/* SPDX-License-Identifier: BSD-3-Clause */
/* Plots, pictures and pages: colours, axes, curves and the frame of a page, as SVG and HTML. */
#ifndef DISTI_TOOLS_COMMON_PLOT_H
#define DISTI_TOOLS_COMMON_PLOT_H

#include <stdbool.h>
#include <stdio.h>

/* ---- colours and rules of style ---- */

/* A colour of the palette: one value for light pages, one for dark pages. */
enum plot_ink {
    PLOT_SERIES,             /* the first of PLOT_STYLES colours for data */
    PLOT_BLUE = PLOT_SERIES, /* three of them by name */
    PLOT_ORANGE,
    PLOT_GREEN,
    PLOT_STYLES = 10,
    PLOT_TEXT = PLOT_STYLES,
    PLOT_FAINT, /* text of less weight, frames */
    PLOT_GRID,
    PLOT_GROUND, /* of the page */
    PLOT_PANEL,  /* of a box on the page */
    PLOT_BEST,   /* ground of a table's marked cell */
    PLOT_INKS
};

/* One rule of CSS: the elements that `selector` names have that colour as `property`. */
struct plot_rule {
    const char *selector, *property;
    enum plot_ink ink;
};

/* ---- pictures and pages ---- */

/*
 * A file of SVG, which shrinks to the width of a window: the head, the rules below, `count` further
 * rules, the text `more` of rules without colours, and the ground. The caller prints "</svg>".
 */
void plot_svg_begin(int width, int height, const struct plot_rule *rules, int count,
                    const char *more, FILE *to);

/*
 * A page of HTML that needs no other file, up to <body>. `title` is escaped. Its rules: text,
 * headings, code, dl, tables in <div class="wide">, "faint" and "best", legends in
 * <ul class="keys">, and plots side by side in <div class="plots">. The variables --text, --faint,
 * --grid, --ground, --panel, --best and --c0 to --c9 are set. The caller prints "</body></html>".
 */
void plot_page_begin(const char *title, FILE *to);

/* Text at x, y; anchor is "start", "middle" or "end". It is escaped. */
void plot_text(double x, double y, const char *anchor, const char *class, const char *text,
               FILE *to);

/* ---- numbers ---- */

#define PLOT_NUMBER 40

/* "64 KiB", "1.23 ms", "12k". plot_number tells apart numbers that are `tick` apart. All return
 * text. */
char *plot_bytes(double bytes, char text[PLOT_NUMBER]);
char *plot_time(double ns, char text[PLOT_NUMBER]);
char *plot_number(double value, double tick, char text[PLOT_NUMBER]);

/* The distance of ticks: 1, 2, 5 or 10 times a power of ten, so that [least, most] has about
 * `wanted` of them. 1 if the range is empty. */
double plot_tick(double least, double most, int wanted);

/* ---- axes ---- */

#define PLOT_TICKS_MAX 24

struct plot_axis {
    const char *name; /* with the unit */
    bool logarithmic;
    double least, most; /* of the values */
    double from, to;    /* coordinates of these in the picture */
    double ticks[PLOT_TICKS_MAX];
    int count;
    double strong; /* a tick whose line is strong; 0: none */
    char *(*label)(double tick, double distance, char text[PLOT_NUMBER]);
};

/* The coordinate of a value. */
double plot_at(const struct plot_axis *axis, double value);

/* Widens the range to multiples of a round number and sets about `wanted` ticks, labelled with
 * plot_number. */
void plot_axis_round(struct plot_axis *axis, int wanted);

/* ---- curves: sizes in bytes from left to right, logarithmic ---- */

/* Size of a plot in the units of the SVG. */
#define PLOT_WIDTH 600
#define PLOT_HEIGHT 360

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

/* Draws the line of a series with its marker, 34 wide and 14 high, for a legend. */
void plot_key(const struct plot_series *series, FILE *to);

#endif
