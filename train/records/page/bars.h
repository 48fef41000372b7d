/* SPDX-License-Identifier: BSD-3-Clause */
/* Where the time of a step goes, as bars of the parts behind each other, in SVG. */
#ifndef TRAIN_RECORDS_BARS_H
#define TRAIN_RECORDS_BARS_H

#include <stdio.h>

#include "train/records/balance.h"

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
