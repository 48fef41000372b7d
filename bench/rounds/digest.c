/* SPDX-License-Identifier: BSD-3-Clause */
/* Samples of turns to times. */
#include "digest.h"

#include <stdlib.h>
#include <string.h>

int digest_begin(struct digest *digest, const struct order *order, int ranks, int rounds)
{
    *digest = (struct digest){.ranks = ranks, .scale = 1};
    if (order->operation->layout == LAYOUT_MESSAGES)
        digest->ranks = ranks < 2 ? ranks : 2;
    if (order->operation->id == OPERATION_latency) /* there and back */
        digest->scale = 0.5;
    digest->rounds = calloc((size_t)rounds, sizeof(double));
    digest->sums = calloc((size_t)ranks, sizeof(double));
    if (digest->rounds && digest->sums)
        return 0;
    digest_free(digest);
    return -1;
}

void digest_free(struct digest *digest)
{
    free(digest->samples);
    free(digest->rounds);
    free(digest->sums);
    *digest = (struct digest){0};
}

static double digest_slowest(const double *times, int ranks, long samples, long s)
{
    double slowest = 0;

    for (int r = 0; r < ranks; r++) {
        if (times[(size_t)r * (size_t)samples + (size_t)s] > slowest)
            slowest = times[(size_t)r * (size_t)samples + (size_t)s];
    }
    return slowest;
}

double digest_quantile(const double *times, int ranks, long samples, double q)
{
    double *slowest = calloc((size_t)samples, sizeof(double)), quantile;

    if (!slowest)
        return 0;
    for (long s = 0; s < samples; s++)
        slowest[s] = digest_slowest(times, ranks, samples, s);
    quantile = result_quantile(slowest, (size_t)samples, q);
    free(slowest);
    return quantile;
}

double digest_mean(const double *times, int ranks, long samples)
{
    double sum = 0;

    for (long s = 0; s < samples; s++)
        sum += digest_slowest(times, ranks, samples, s);
    return sum / (double)samples;
}

int digest_add(struct digest *digest, const double *times, long samples)
{
    size_t count = (size_t)samples;
    double *more = realloc(digest->samples, (digest->count + count) * sizeof(double));
    double *turn;

    if (!more)
        return -1;
    digest->samples = more;
    turn = more + digest->count;
    for (long s = 0; s < samples; s++)
        turn[s] = digest->scale * digest_slowest(times, digest->ranks, samples, s);
    for (int r = 0; r < digest->ranks; r++) {
        for (long s = 0; s < samples; s++)
            digest->sums[r] += digest->scale * times[(size_t)r * count + (size_t)s];
    }
    digest->count += count;
    digest->rounds[digest->round_count++] = result_quantile(turn, count, 0.5);
    return 0;
}

int digest_end(struct digest *digest, long batch, struct result_time *time)
{
    double *sorted = calloc((size_t)digest->round_count + 1, sizeof(double));
    double count = (double)digest->count;

    if (!sorted || digest->count == 0) {
        free(sorted);
        return -1;
    }
    memcpy(sorted, digest->rounds, (size_t)digest->round_count * sizeof(double));
    time->median = result_quantile(sorted, (size_t)digest->round_count, 0.5);
    free(sorted);
    time->p50 = result_quantile(digest->samples, digest->count, 0.5);
    time->p99 = result_quantile(digest->samples, digest->count, 0.99);
    time->min = digest->samples[0]; /* they are sorted now */
    time->max = digest->samples[digest->count - 1];
    for (size_t i = 0; i < digest->count; i++)
        time->mean += digest->samples[i] / count;
    for (int r = 0; r < digest->ranks; r++) {
        double mean = digest->sums[r] / count;

        time->rank_avg += mean / digest->ranks;
        time->rank_min = r == 0 || mean < time->rank_min ? mean : time->rank_min;
        time->rank_max = mean > time->rank_max ? mean : time->rank_max;
    }
    time->rounds = digest->rounds;
    digest->rounds = NULL;
    time->round_count = digest->round_count;
    time->samples = (long)digest->count;
    time->batch = batch;
    time->measured = true;
    return 0;
}
