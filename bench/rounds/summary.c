/* SPDX-License-Identifier: BSD-3-Clause */
/* Samples of turns to times. */
#include "summary.h"

#include <stdlib.h>
#include <string.h>

int summary_begin(struct summary *summary, const struct order *order, int ranks, int rounds)
{
    *summary = (struct summary){.ranks = ranks, .scale = 1};
    if (order->operation->layout == LAYOUT_MESSAGES)
        summary->ranks = ranks < 2 ? ranks : 2;
    if (order->operation->id == OPERATION_latency) /* there and back */
        summary->scale = 0.5;
    summary->mean = order->apart && order->operation->layout != LAYOUT_MESSAGES;
    summary->rounds = calloc((size_t)rounds, sizeof(double));
    summary->sums = calloc((size_t)ranks, sizeof(double));
    if (summary->rounds && summary->sums)
        return 0;
    summary_free(summary);
    return -1;
}

void summary_free(struct summary *summary)
{
    free(summary->samples);
    free(summary->rounds);
    free(summary->sums);
    *summary = (struct summary){0};
}

static double summary_slowest(const double *times, int ranks, long samples, long s)
{
    double slowest = 0;

    for (int r = 0; r < ranks; r++) {
        if (times[(size_t)r * (size_t)samples + (size_t)s] > slowest)
            slowest = times[(size_t)r * (size_t)samples + (size_t)s];
    }
    return slowest;
}

double summary_quantile(const double *times, int ranks, long samples, double q)
{
    double *slowest = calloc((size_t)samples, sizeof(double)), quantile;

    if (!slowest)
        return 0;
    for (long s = 0; s < samples; s++)
        slowest[s] = summary_slowest(times, ranks, samples, s);
    quantile = result_quantile(slowest, (size_t)samples, q);
    free(slowest);
    return quantile;
}

double summary_mean(const double *times, int ranks, long samples)
{
    double sum = 0;

    for (long s = 0; s < samples; s++)
        sum += summary_slowest(times, ranks, samples, s);
    return sum / (double)samples;
}

static double summary_middle(const double *times, int ranks, long samples, long s)
{
    double sum = 0;

    for (int r = 0; r < ranks; r++)
        sum += times[(size_t)r * (size_t)samples + (size_t)s];
    return sum / ranks;
}

static double summary_sample(const struct summary *summary, const double *times, long samples,
                             long s)
{
    return summary->scale * (summary->mean ? summary_middle(times, summary->ranks, samples, s)
                                           : summary_slowest(times, summary->ranks, samples, s));
}

int summary_add(struct summary *summary, const double *times, long samples)
{
    size_t count = (size_t)samples;
    double *more = realloc(summary->samples, (summary->count + count) * sizeof(double));
    double *turn;

    if (!more)
        return -1;
    summary->samples = more;
    turn = more + summary->count;
    for (long s = 0; s < samples; s++)
        turn[s] = summary_sample(summary, times, samples, s);
    for (int r = 0; r < summary->ranks; r++) {
        for (long s = 0; s < samples; s++)
            summary->sums[r] += summary->scale * times[(size_t)r * count + (size_t)s];
    }
    summary->count += count;
    summary->rounds[summary->round_count++] = result_quantile(turn, count, 0.5);
    return 0;
}

int summary_end(struct summary *summary, long batch, struct result_time *time)
{
    double *sorted = calloc((size_t)summary->round_count + 1, sizeof(double));
    double count = (double)summary->count;

    if (!sorted || summary->count == 0) {
        free(sorted);
        return -1;
    }
    memcpy(sorted, summary->rounds, (size_t)summary->round_count * sizeof(double));
    time->median = result_quantile(sorted, (size_t)summary->round_count, 0.5);
    free(sorted);
    time->p50 = result_quantile(summary->samples, summary->count, 0.5);
    time->p99 = result_quantile(summary->samples, summary->count, 0.99);
    time->min = summary->samples[0]; /* they are sorted now */
    time->max = summary->samples[summary->count - 1];
    for (size_t i = 0; i < summary->count; i++)
        time->mean += summary->samples[i] / count;
    for (int r = 0; r < summary->ranks; r++) {
        double mean = summary->sums[r] / count;

        time->rank_avg += mean / summary->ranks;
        time->rank_min = r == 0 || mean < time->rank_min ? mean : time->rank_min;
        time->rank_max = mean > time->rank_max ? mean : time->rank_max;
    }
    time->rounds = summary->rounds;
    summary->rounds = NULL;
    time->round_count = summary->round_count;
    time->samples = (long)summary->count;
    time->batch = batch;
    time->measured = true;
    return 0;
}
