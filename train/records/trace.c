/* SPDX-License-Identifier: BSD-3-Clause */
/* --trace: what a rank keeps, and the file's text. */
#include "trace.h"

#include <inttypes.h>
#include <stdlib.h>

#include "tools/common/text.h"
#include "train/failure.h"

/* Rows of a rank: what it does one after the other, and a row for each bucket. */
enum { TRACE_ROW_STEPS = 0, TRACE_ROW_BUCKETS = 1 };

int trace_open(int world, struct trace *trace)
{
    *trace = (struct trace){.count = 0};
    trace->spans = calloc(TRACE_ROOM, sizeof(*trace->spans));
    trace->first = calloc((size_t)world, sizeof(*trace->first));
    trace->last = calloc((size_t)world, sizeof(*trace->last));
    return trace->spans && trace->first && trace->last ? 0 : failure("out of memory");
}

void trace_add(struct trace *trace, const struct trace_span *span)
{
    trace->spans[trace->count++ % TRACE_ROOM] = *span;
}

void trace_close(struct trace *trace)
{
    free(trace->spans);
    free(trace->first);
    free(trace->last);
    *trace = (struct trace){.spans = NULL};
}

void trace_begin(double error, FILE *to)
{
    fprintf(to,
            "{\"displayTimeUnit\": \"ms\", \"otherData\": {\"clock_error_us\": %.3f},\n"
            "\"traceEvents\": [\n",
            error * 1e6);
}

/* A name for a process (row -1) or one of its rows. */
static void trace_name(int rank, int row, const char *name, FILE *to)
{
    fprintf(to, "{\"ph\": \"M\", \"pid\": %d, \"tid\": %d, \"name\": \"%s\", \"args\": {\"name\": ",
            rank, row < 0 ? 0 : row, row < 0 ? "process_name" : "thread_name");
    json_string(name, to);
    fputs("}},\n", to);
}

static void trace_names(const struct trace_track *track, int buckets, FILE *to)
{
    char name[128];

    snprintf(name, sizeof(name), "rank %d on %s", track->rank, track->host);
    trace_name(track->rank, -1, name, to);
    trace_name(track->rank, TRACE_ROW_STEPS, "steps", to);
    for (int i = 0; i < buckets; i++) {
        snprintf(name, sizeof(name), "bucket %d", i);
        trace_name(track->rank, TRACE_ROW_BUCKETS + i, name, to);
    }
    /* Viewers show processes by this number. */
    fprintf(to,
            "{\"ph\": \"M\", \"pid\": %d, \"tid\": 0, \"name\": \"process_sort_index\", \"args\": "
            "{\"sort_index\": %d}}",
            track->rank, track->rank);
}

static void trace_event(const struct trace_track *track, const struct trace_span *span,
                        double origin, FILE *to)
{
    const double began = clock_aligned(&track->first, &track->last, span->began);
    const double ended = clock_aligned(&track->first, &track->last, span->ended);
    const char *name = record_part_name((enum record_part)span->part);
    const bool bucket = span->part == RECORD_BUCKET;

    fprintf(to, ",\n{\"ph\": \"X\", \"pid\": %d, \"tid\": %d, \"ts\": %.3f, \"dur\": %.3f, ",
            track->rank, bucket ? TRACE_ROW_BUCKETS + span->number : TRACE_ROW_STEPS,
            (began - origin) * 1e6, ended > began ? (ended - began) * 1e6 : 0.0);
    fprintf(to, "\"name\": \"%s\", \"cat\": \"%s\", \"args\": {\"step\": %" PRId64 "}}", name,
            bucket ? "communication" : "step", span->step);
}

/* That earlier spans are missing. */
static void trace_lost(const struct trace_track *track, double origin, FILE *to)
{
    const double at = clock_aligned(&track->first, &track->last, track->earliest);

    fprintf(to,
            ",\n{\"ph\": \"i\", \"s\": \"p\", \"pid\": %d, \"tid\": %d, \"ts\": %.3f, \"name\": "
            "\"%" PRId64 " earlier spans were not kept\"}",
            track->rank, TRACE_ROW_STEPS, (at - origin) * 1e6, track->lost);
}

void trace_track(const struct trace_track *track, const struct trace_span *spans, double origin,
                 FILE *to)
{
    int buckets = 0;

    for (int64_t i = 0; i < track->count; i++)
        if (spans[i].part == RECORD_BUCKET && spans[i].number >= buckets)
            buckets = spans[i].number + 1;
    if (track->rank > 0)
        fputs(",\n", to);
    trace_names(track, buckets, to);
    if (track->lost > 0)
        trace_lost(track, origin, to);
    for (int64_t i = 0; i < track->count; i++)
        trace_event(track, &spans[i], origin, to);
}

void trace_end(FILE *to)
{
    fputs("\n]}\n", to);
}
