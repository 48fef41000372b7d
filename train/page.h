/* SPDX-License-Identifier: BSD-3-Clause */
/* --report: a page that shows a training, in one file that needs no other and no network. */
#ifndef TRAIN_PAGE_H
#define TRAIN_PAGE_H

#include <stdio.h>

#include <dist/dist.h>

#include "records.h"

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

/* ---- the page ---- */

enum { BARS_MOST = 128 }; /* ranks of which each has a bar */

/* All that it shows. */
struct page {
    const struct records_setup *setup;
    dist_group *group;                  /* NULL: not known yet */
    struct history loss, lr, pace;      /* over the steps; seconds a sample */
    struct history test_loss, accuracy; /* over the steps, at the end of epochs */
    struct record_test last, best;      /* tests; count 0: there was none yet */
    int64_t steps, samples, bad;        /* of this run; losses that are not finite */
    int64_t bad_step;                   /* the first */
    int64_t epoch;                      /* the last one that was begun */
    double seconds;                     /* rank 0's, in steps */
    double share;                       /* of the time, that was communication; 0 to 1 */
    struct balance balance;
    char *topology;     /* a picture, SVG; NULL: it is not known */
    bool ended;         /* nothing more comes: else the page asks to be loaded again */
    const char *failed; /* why the training did; NULL: it did not */
};

void page_add_step(struct page *page, const struct record_step *step, double loss);
void page_add_test(struct page *page, const struct record_test *test);

/* Replaces the file. */
int page_write(const struct page *page, const char *path);

#endif
