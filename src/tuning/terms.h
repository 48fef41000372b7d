/* SPDX-License-Identifier: BSD-3-Clause */
/* The words of a tuning file's costs; private to this folder. */
#ifndef DISTI_TUNING_TERMS_H
#define DISTI_TUNING_TERMS_H

#include "tuning/cost.h"

#define DISTI_SEGMENTS_MOST 1024

/* A number of struct disti_cost: written as a whole number of units within [least, most]. */
struct tuning_term {
    const char *word;
    size_t offset;
    double unit;
    uint64_t least, most;
};

/* Ends with one without a word. */
extern const struct tuning_term disti_tuning_terms[];

/* In units, brought into the range. */
uint64_t disti_term_get(const struct disti_cost *cost, const struct tuning_term *term);
void disti_term_set(struct disti_cost *cost, const struct tuning_term *term, uint64_t value);

#endif
