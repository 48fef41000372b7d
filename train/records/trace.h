/* SPDX-License-Identifier: BSD-3-Clause */
/* --trace: what all ranks did when, for ui.perfetto.dev or chrome://tracing. */
#ifndef TRAIN_RECORDS_TRACE_H
#define TRAIN_RECORDS_TRACE_H

#include <dist/dist.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>

#include "clock.h"
#include "records.h"

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
