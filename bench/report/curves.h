/* SPDX-License-Identifier: BSD-3-Clause */
/* The results taken apart for drawing: what differs in its size only makes curves. */
#ifndef BENCH_CURVES_H
#define BENCH_CURVES_H

#include "plot.h"
#include "result.h"

/* The measurements of one collective, and what is plotted of them. */
struct curves {
    const struct result *result;
    const struct result_measurement **measurements; /* sizes rise */
    int count, next;
    double *x, *y; /* y has a row of measurements for each library */
    struct plot_series *series;
    char title[96]; /* of the last plot */
};

/* -1: no memory. curves_close in either case. */
int curves_open(const struct result *result, struct curves *curves);
void curves_close(struct curves *curves);

/* Goes to the next collective, in the order of measuring; false: there is none. */
bool curves_next(struct curves *curves);

/* What all its measurements share: "float32 sum, root 0, in place". Returns text. */
char *curves_what(const struct curves *curves, char text[128]);

/* The plot of that kind, until the next call of these functions. */
struct plot curves_plot(struct curves *curves, enum plot_kind kind);

#endif
