/* SPDX-License-Identifier: BSD-3-Clause */
/* Collects the samples of a library's turns at one measurement, and makes its times of them. */
#ifndef BENCH_SUMMARY_H
#define BENCH_SUMMARY_H

#include "bench/measure/order.h"
#include "bench/report/result.h"

struct summary {
    int ranks; /* that count: of messages two */
    double scale;
    bool mean;                       /* a sample's time is that of all ranks, not of the slowest */
    double *samples, *rounds, *sums; /* of all turns; medians; by rank */
    size_t count, room;
    int round_count;
};

/* -1: no memory. A zeroed summary may be freed. */
int summary_begin(struct summary *summary, const struct order *order, int ranks, int rounds);
void summary_free(struct summary *summary);

/* Takes a turn's times, as a runner gives them. -1: no memory. */
int summary_add(struct summary *summary, const double *times, long samples);

/* Fills in what was measured. -1: no memory. */
int summary_end(struct summary *summary, long batch, struct result_time *time);

/* A quantile of the slowest ranks' samples of one turn. 0: no memory. */
double summary_quantile(const double *times, int ranks, long samples, double q);

/* Their mean. */
double summary_mean(const double *times, int ranks, long samples);

#endif
