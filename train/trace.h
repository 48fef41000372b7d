/* SPDX-License-Identifier: BSD-3-Clause */
/* --trace: what all ranks did when, for ui.perfetto.dev or chrome://tracing. */
#ifndef TRAIN_TRACE_H
#define TRAIN_TRACE_H

#include <limits.h>
#include <stdint.h>
#include <stdio.h>

#include <dist/dist.h>

#include "records.h"

/*
 * The clocks of all ranks, seen from rank 0's.
 *
 * In an all-gather no rank leaves before all have entered. So of two ranks a and b
 *
 *     a entered  <=  b left        and        b entered  <=  a left
 *
 * on any one clock. Each round bounds how far their clocks are apart; of many rounds the narrowest
 * bounds hold.
 */

struct clock_offset {
    double at;     /* rank 0's clock, about when they were compared */
    double offset; /* seconds to take from the rank's clock to have rank 0's */
    double error;  /* at most so many seconds off, either way */
};

/* The narrowest bounds of these rounds: when one rank entered and left, and the other. */
struct clock_offset clock_bound(const double *enter0, const double *leave0, const double *enter,
                                const double *leave, int rounds);

/* Collective; blocks. offsets: a rank each, on rank 0; elsewhere it is not touched. */
dist_status clock_compare(dist_group *group, struct clock_offset *offsets);

/* When that was on rank 0's clock; between two comparisons the clocks drift evenly. */
double clock_aligned(const struct clock_offset *first, const struct clock_offset *last,
                     double time);

/* ---- the trace ---- */

/* Spans that a rank keeps, the last ones: 1 MiB. */
enum { TRACE_ROOM = 1 << 15 };

struct trace_span {
    double began, ended; /* seconds of the rank's clock */
    int64_t step;
    int32_t part, number; /* of enum record_part; of the bucket */
};

struct trace {
    struct trace_span *spans; /* a ring of TRACE_ROOM; NULL: no trace */
    int64_t count;            /* that were ever added: the last is at (count - 1) % TRACE_ROOM */
    struct clock_offset *first, *last; /* rank 0: of each rank; compared at the start, at the end */
};

/* A rank's part of the file, without its spans. */
struct trace_track {
    char host[HOST_NAME_MAX + 1];
    int32_t rank;
    int64_t count, lost; /* spans; earlier ones, for which there was no room */
    double earliest;     /* of the spans, on the rank's clock */
    struct clock_offset first, last;
};

int trace_open(int world, struct trace *trace);
void trace_add(struct trace *trace, const struct trace_span *span);
void trace_close(struct trace *trace);

/*
 * Brings all ranks' spans to rank 0, which writes the file by temporary file and rename. Collective
 * with a group; with NULL the file has this rank's part alone. What the collectives came to is in
 * *status_p. -1: the file could not be written.
 */
int trace_write(const struct trace *trace, const char *path, dist_group *group,
                dist_status *status_p);

/* The file's text: its beginning, each rank's track, its end. error: of the clocks, in seconds. */
void trace_begin(double error, FILE *to);
void trace_track(const struct trace_track *track, const struct trace_span *spans, double origin,
                 FILE *to);
void trace_end(FILE *to);

#endif
