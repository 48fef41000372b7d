/* SPDX-License-Identifier: BSD-3-Clause */
/* A value over the steps of a run of any length, in memory that does not grow. */
#ifndef TRAIN_RECORDS_HISTORY_H
#define TRAIN_RECORDS_HISTORY_H

#include <stdint.h>

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

/* The mean of a bin's finite points; NaN: it has none. */
double history_mean(const struct history_bin *bin);

#endif
