/* SPDX-License-Identifier: BSD-3-Clause */
/* The pictures of the page, in SVG: values over the steps, and where the time of a step goes. */
#ifndef TRAIN_CHART_H
#define TRAIN_CHART_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "records.h"

/* ---- what the pictures share: text, numbers, ticks ---- */

/* A value between ticks: 1, 2 or 5 times a power of ten, such that [least, most] has about `wanted`
 * ticks. 1 where the range is empty. */
double svg_tick(double least, double most, int wanted);

enum { SVG_NUMBER = 40 };

/* "12 500", "0.05", "1.2M": a number, told apart from its neighbours at that tick's distance. */
void svg_number(double value, double tick, char text[SVG_NUMBER]);

/* ---- a value over the steps of a run of any length, in memory that does not grow ---- */

enum { HISTORY_ROOM = 1024 }; /* even; more than a picture has pixels */

/* Points next to each other. Numbers that are not finite only count as `bad`. */
struct history_bin {
    double first, last;      /* x */
    double least, most, sum; /* y, of the finite ones */
    int64_t finite, bad;
};

/* All bins but the last have `stride` points. */
struct history {
    struct history_bin bins[HISTORY_ROOM];
    int count;
    int64_t stride; /* 0 is 1: a zeroed history is empty */
};

/* x does not fall. When there is no more room, each two bins become one. */
void history_add(struct history *history, double x, double y);

/* ---- values over the steps ---- */

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

/* ---- where the time of a step goes, as bars of the parts behind each other ---- */

/* What the parts are called, and the class of their colour. */
const char *bars_name(enum balance_part part);
const char *bars_class(enum balance_part part);

/* The mean of all ranks: one bar. */
void bars_mean(const struct balance *balance, FILE *to);

/* A bar a rank; of more than BARS_MOST those whose own work takes longest. */
enum { BARS_MOST = 128 };
void bars_ranks(const struct balance *balance, FILE *to);

/* Seconds a step of a rank: all of it; without what it waits for others. */
double bars_total(const struct balance_rank *rank);
double bars_work(const struct balance_rank *rank);

/* All ranks added up. */
struct balance_rank bars_sum(const struct balance *balance);

#endif
