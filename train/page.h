/* SPDX-License-Identifier: BSD-3-Clause */
/* --report: a self-contained HTML page that shows a training. */
#ifndef TRAIN_PAGE_H
#define TRAIN_PAGE_H

#include <stdio.h>

#include <dist/dist.h>

#include "records.h"

/* ---- the history of a value, in constant memory for runs of any length ---- */

enum { HISTORY_BINS = 1024 }; /* even; more bins than a chart has pixels */

/* Adjacent points. Points that are not finite are only counted, in `bad`. */
struct history_bin {
    double first, last;      /* range of x */
    double least, most, sum; /* minimum, maximum and sum of the finite y values */
    int64_t finite, bad;
};

/* All bins except the last contain `stride` points. */
struct history {
    struct history_bin bins[HISTORY_BINS];
    int count;
    int64_t stride; /* 0 means 1, so that a zeroed history is empty */
};

/* ---- the page ---- */

enum { BARS_MOST = 128 }; /* maximum number of ranks that are shown as bars */

/* The contents of the page. */
struct page {
    const struct records_setup *setup;
    dist_group *group;                  /* NULL: not known yet */
    struct history loss, lr, pace;      /* over the steps; pace is in seconds per sample */
    struct history test_loss, accuracy; /* over the steps; measured at the end of epochs */
    struct record_test last, best;      /* tests; count is 0 before the first test */
    int64_t steps, samples, bad;        /* of this run; bad: losses that are not finite */
    int64_t bad_step;                   /* the first step with such a loss */
    int64_t epoch;                      /* the current epoch, from 1 */
    double seconds;                     /* time of rank 0 in steps */
    double share;                       /* fraction of the time spent in communication, 0 to 1 */
    struct balance balance;
    char *topology;     /* an SVG picture; NULL: not known */
    bool ended;         /* the page is final; otherwise it reloads itself */
    const char *failed; /* error message of the training; NULL: it did not fail */
};

void page_add_step(struct page *page, const struct record_step *step, double loss);
void page_add_test(struct page *page, const struct record_test *test);

/* Replaces the file at path. */
int page_write(const struct page *page, const char *path);

#endif
