/* SPDX-License-Identifier: BSD-3-Clause */
/* What rank 0 prints: lines on stdout, a progress bar where stderr is a terminal. */
#ifndef TRAIN_REPORT_H
#define TRAIN_REPORT_H

#include <stdbool.h>
#include <stdint.h>

struct report {
    bool active;      /* rank 0; the others print nothing */
    bool bar;         /* stderr is a terminal */
    bool blocks;      /* it shows UTF-8 */
    int64_t every;    /* steps between lines; 0: ten lines an epoch */
    int64_t interval; /* that of the epoch at hand */
    /* the epoch at hand */
    int64_t epoch, steps, samples, batch;
    int64_t before;        /* samples that were taken before this run went on */
    double started, drawn; /* when the epoch began, when the bar was last drawn */
};

/* What an epoch, or the whole run, came to. */
struct report_result {
    double loss, seconds;
    double share; /* of seconds, spent in communication, 0 to 1, mean of the ranks */
    int64_t correct, count;
};

/* Lines come out as they are printed, also into a pipe. */
void report_open(struct report *report, bool active, int64_t every);

/* An epoch of `samples` samples, of which `before` were taken already: `steps` steps of `batch`. */
void report_epoch(struct report *report, int64_t epoch, int64_t steps, int64_t batch,
                  int64_t samples, int64_t before);

/*
 * Whether the loss of this step is wanted: else it need not be known, and report_step may be given
 * an earlier one. The same on all ranks, for they tell each other.
 */
bool report_is_due(const struct report *report, int64_t step);

/* Step `step` (from 0) of the epoch has ended; loss is the mean over its global batch. */
void report_step(struct report *report, int64_t step, double loss);

/* The epoch's training has ended: mean loss, learning rate, steps done. */
void report_epoch_end(struct report *report, const struct report_result *result, double lr,
                      int64_t steps);

/* Training ends before its time: so many tests were not better than the best. */
void report_enough(const struct report *report, int64_t tests, double best);
void report_test(const struct report *report, const struct report_result *result);
/* Which library multiplies matrices, and how. */
void report_products(const struct report *report, const char *name);
/* What --zero leaves to this rank of the optimizer's state, and how many ranks share parameters. */
void report_shares(const struct report *report, uint64_t bytes, uint64_t all, int sharers);
void report_hash(const struct report *report, uint64_t hash, int world);
void report_end(const struct report *report, const struct report_result *result,
                const char *backend, int world);

#endif
