/* SPDX-License-Identifier: BSD-3-Clause */
/* Collects the samples of a library's turns at one point, and makes its times of them. */
#ifndef BENCH_DIGEST_H
#define BENCH_DIGEST_H

#include "bench/measure/order.h"
#include "bench/report/result.h"

struct digest {
    int ranks; /* that count: of messages two */
    double scale;
    double *samples, *rounds, *sums; /* of all turns; medians; by rank */
    size_t count, room;
    int round_count;
};

/* -1: no memory. A zeroed digest may be freed. */
int digest_begin(struct digest *digest, const struct order *order, int ranks, int rounds);
void digest_free(struct digest *digest);

/* Takes a turn's times, as a runner gives them. -1: no memory. */
int digest_add(struct digest *digest, const double *times, long samples);

/* Fills in what was measured. -1: no memory. */
int digest_end(struct digest *digest, long batch, struct result_time *time);

/* A quantile of the slowest ranks' samples of one turn. 0: no memory. */
double digest_quantile(const double *times, int ranks, long samples, double q);

/* Their mean. */
double digest_mean(const double *times, int ranks, long samples);

#endif
