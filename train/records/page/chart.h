/* SPDX-License-Identifier: BSD-3-Clause */
/* A picture of values over the steps, as SVG. */
#ifndef TRAIN_RECORDS_CHART_H
#define TRAIN_RECORDS_CHART_H

#include <stdbool.h>
#include <stdio.h>

#include "history.h"

struct chart_series {
    const struct history *history;
    const char *name;
    const char *class; /* of its line; "NAME-band" is the class of the band behind it */
    bool points;       /* a mark at each value, if they are few */
};

struct chart {
    const char *title; /* for who cannot see it */
    const char *x, *y; /* what the axes count, with its unit */
    double scale;      /* values are multiplied by this: 100 for a percentage */
    bool inverse;      /* 1 / value is shown: so of rates the mean over time, kept as times */
    bool from_zero;    /* the y axis begins at 0 */
    double ceiling;    /* no value is larger, and the y axis does not go beyond; 0: there is none */
    const struct history *steps; /* the x axis reaches as far as this, too; or NULL */
    struct chart_series series[2];
    int series_count;
};

/*
 * Draws it, whatever the values: none, one, equal ones, some that are not finite (a column
 * marks them). A band shows the smallest and the largest of the values that share a place.
 */
void chart_draw(const struct chart *chart, FILE *to);

#endif
