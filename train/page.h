/* SPDX-License-Identifier: BSD-3-Clause */
/* --report: a page that shows a training, in one file that needs no other and no network. */
#ifndef TRAIN_PAGE_H
#define TRAIN_PAGE_H

#include <stdio.h>

#include <dist/dist.h>

#include "chart.h"
#include "records.h"

/* ---- what the page says of the machine and the job ---- */

enum { HOST_FACTS = 8 };

/* Fills in what is known of this machine and the group, NULL: of none. Returns how many facts. */
int host_facts(dist_group *group, struct record_fact facts[HOST_FACTS]);

/* All that it shows. */
struct page {
    const struct records_setup *setup;
    struct history loss, lr, pace;      /* over the steps; seconds a sample */
    struct history test_loss, accuracy; /* over the steps, at the end of epochs */
    struct record_test last, best;      /* tests; count 0: there was none yet */
    int64_t steps, samples, bad;        /* of this run; losses that are not finite */
    int64_t bad_step;                   /* the first */
    int64_t epoch;                      /* the last one that was begun */
    double seconds;                     /* rank 0's, in steps */
    double share;                       /* of the time, that was communication; 0 to 1 */
    struct balance balance;
    struct record_fact facts[HOST_FACTS];
    int fact_count;
    char *topology;     /* a picture, SVG; NULL: it is not known */
    bool ended;         /* nothing more comes: else the page asks to be loaded again */
    const char *failed; /* why the training did; NULL: it did not */
};

void page_add_step(struct page *page, const struct record_step *step, double loss);
void page_add_test(struct page *page, const struct record_test *test);

/* The text of the file. */
void page_print(const struct page *page, FILE *to);

/* Replaces the file. */
int page_write(const struct page *page, const char *path);

#endif
