/* SPDX-License-Identifier: BSD-3-Clause */
/* --trace: what a rank keeps, and the file of all ranks. */
#include "trace.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "failure.h"
#include "file.h"
#include "tools/common/output.h"
#include "tools/common/text.h"

/* ---- the clocks of all ranks ---- */

enum { CLOCK_ROUNDS = 24 };

/* When a rank entered and left each round. */
struct clock_card {
    double enter[CLOCK_ROUNDS], leave[CLOCK_ROUNDS];
};

struct clock_offset clock_bound(const double *enter0, const double *leave0, const double *enter,
                                const double *leave, int rounds)
{
    struct clock_offset offset = {.at = leave0[rounds - 1]};
    double least = -INFINITY, most = INFINITY;

    for (int i = 0; i < rounds; i++) {
        least = fmax(least, enter[i] - leave0[i]);
        most = fmin(most, leave[i] - enter0[i]);
    }
    /* On one machine all ranks have the same clock, which is within the bounds then. */
    offset.offset = least <= 0 && most >= 0 ? 0 : (least + most) / 2;
    offset.error = fmax(most - offset.offset, offset.offset - least);
    return offset;
}

dist_status clock_compare(dist_group *group, struct clock_offset *offsets)
{
    const int world = dist_get_world_size(group);
    struct clock_card own, *cards = calloc((size_t)world, sizeof(*cards));
    dist_status status = cards ? DIST_OK : DIST_ERR_NO_MEMORY;

    /* What the rounds gather is of no interest: they have room for a card of each rank. */
    for (int i = 0; i < CLOCK_ROUNDS && status == DIST_OK; i++) {
        own.enter[i] = comm_now();
        status = dist_all_gather(group, own.enter + i, cards, 1, DIST_FLOAT64);
        own.leave[i] = comm_now();
    }
    if (status == DIST_OK)
        status = dist_all_gather(group, &own, cards, sizeof(own) / sizeof(double), DIST_FLOAT64);
    if (status == DIST_OK && dist_get_rank(group) == 0) {
        for (int rank = 0; rank < world; rank++)
            offsets[rank] = clock_bound(cards[0].enter, cards[0].leave, cards[rank].enter,
                                        cards[rank].leave, CLOCK_ROUNDS);
        offsets[0].error = 0;
    }
    free(cards);
    return status;
}

double clock_aligned(const struct clock_offset *first, const struct clock_offset *last, double time)
{
    const double span = last->at - first->at;
    double part = span > 0 ? (time - first->offset - first->at) / span : 0;

    part = part < 0 ? 0 : part > 1 ? 1 : part;
    return time - (first->offset + part * (last->offset - first->offset));
}

/* ---- what a rank keeps, and the file's text ---- */

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

static void trace_event(const struct trace_track *track, const struct trace_span *span,
                        double origin, FILE *to)
{
    const double began = clock_aligned(&track->first, &track->last, span->began);
    const double ended = clock_aligned(&track->first, &track->last, span->ended);
    const char *name = (uint32_t)span->part < RECORD_PARTS ? record_part_names[span->part] : "?";
    const bool bucket = span->part == RECORD_BUCKET;

    fprintf(to, ",\n{\"ph\": \"X\", \"pid\": %d, \"tid\": %d, \"ts\": %.3f, \"dur\": %.3f, ",
            track->rank, bucket ? TRACE_ROW_BUCKETS + span->number : TRACE_ROW_STEPS,
            (began - origin) * 1e6, ended > began ? (ended - began) * 1e6 : 0.0);
    fprintf(to, "\"name\": \"%s\", \"cat\": \"%s\", \"args\": {\"step\": %" PRId64 "}}", name,
            bucket ? "communication" : "step", span->step);
}

void trace_track(const struct trace_track *track, const struct trace_span *spans, double origin,
                 FILE *to)
{
    char name[128];
    int buckets = 0;

    for (int64_t i = 0; i < track->count; i++)
        if (spans[i].part == RECORD_BUCKET && spans[i].number >= buckets)
            buckets = spans[i].number + 1;
    if (track->rank > 0)
        fputs(",\n", to);
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
    if (track->lost > 0)
        fprintf(
            to,
            ",\n{\"ph\": \"i\", \"s\": \"p\", \"pid\": %d, \"tid\": %d, \"ts\": %.3f, \"name\": "
            "\"%" PRId64 " earlier spans were not kept\"}",
            track->rank, TRACE_ROW_STEPS,
            (clock_aligned(&track->first, &track->last, track->earliest) - origin) * 1e6,
            track->lost);
    for (int64_t i = 0; i < track->count; i++)
        trace_event(track, &spans[i], origin, to);
}

void trace_end(FILE *to)
{
    fputs("\n]}\n", to);
}

/* ---- from all ranks into one file ---- */

enum { TRACE_TAG = 1 };

/* Rank 0's part, once it knows every rank's track: one rank's spans at a time are in memory. */
static dist_status trace_put(const struct trace *trace, dist_group *group,
                             struct trace_track *tracks, int world, struct trace_span *spans,
                             FILE *to)
{
    dist_status status = DIST_OK;
    double error = 0, origin = INFINITY;

    /* The earliest moment of all, on rank 0's clock, is the timeline's zero. */
    for (int rank = 0; rank < world; rank++) {
        struct trace_track *track = &tracks[rank];

        track->first = trace->first[rank];
        track->last = trace->last[rank];
        error = fmax(error, fmax(track->first.error, track->last.error));
        if (track->count)
            origin = fmin(origin, clock_aligned(&track->first, &track->last, track->earliest));
    }
    origin = isfinite(origin) ? origin : 0;
    trace_begin(error, to);
    trace_track(&tracks[0], spans, origin, to);
    for (int rank = 1; rank < world && status == DIST_OK; rank++) {
        status = dist_recv(group, spans, (size_t)tracks[rank].count * sizeof(*spans), DIST_UINT8,
                           rank, TRACE_TAG, NULL);
        if (status == DIST_OK)
            trace_track(&tracks[rank], spans, origin, to);
    }
    trace_end(to);
    return status;
}

/* Into a new file beside it, which then takes its name. */
static int trace_replace(const struct trace *trace, const char *path, dist_group *group,
                         struct trace_track *tracks, int world, struct trace_span *spans,
                         dist_status *status_p)
{
    char *draft;
    const int fd = draft_open(path, &draft);
    FILE *to = fd >= 0 ? fdopen(fd, "w") : NULL;
    int result;

    result = to ? 0 : failure("%s", strerror(errno));
    /* The others send in any case: what cannot be kept is read all the same. */
    if (!to)
        to = fopen("/dev/null", "we");
    *status_p = to ? trace_put(trace, group, tracks, world, spans, to) : DIST_ERR_SYSTEM;
    /* Nothing of it may be lost on the way: only a whole one takes the name. */
    errno = 0;
    if (result == 0 && *status_p == DIST_OK &&
        (fflush(to) != 0 || ferror(to) || draft_finish(draft, fileno(to)) < 0))
        result = failure("%s", errno ? strerror(errno) : "a write failed");
    if (draft && (result < 0 || *status_p != DIST_OK))
        unlink(draft);
    if (to)
        fclose(to);
    free(draft);
    return result;
}

int trace_write(const struct trace *trace, const char *path, dist_group *group,
                dist_status *status_p)
{
    const int world = group ? dist_get_world_size(group) : 1;
    struct trace_track own = {.rank = group ? dist_get_rank(group) : 0};
    struct trace_track *tracks = calloc((size_t)world, sizeof(*tracks));
    struct trace_span *spans = calloc(TRACE_ROOM, sizeof(*spans)); /* rank 0: of others as well */
    int result = 0;

    gethostname(own.host, sizeof(own.host));
    /* The spans in the order in which they ended. */
    own.count = trace->count < TRACE_ROOM ? trace->count : TRACE_ROOM;
    own.lost = trace->count - own.count;
    own.earliest = own.count ? INFINITY : 0;
    for (int64_t i = 0; spans && i < own.count; i++) {
        spans[i] = trace->spans[(own.lost + i) % TRACE_ROOM];
        own.earliest = fmin(own.earliest, spans[i].began);
    }
    *status_p = tracks && spans ? DIST_OK : DIST_ERR_NO_MEMORY;
    if (*status_p == DIST_OK && group)
        *status_p = dist_gather(group, &own, tracks, sizeof(own), DIST_UINT8, 0);
    else if (*status_p == DIST_OK)
        tracks[0] = own;
    if (*status_p == DIST_OK && own.rank == 0)
        result = trace_replace(trace, path, group, tracks, world, spans, status_p);
    else if (*status_p == DIST_OK)
        *status_p =
            dist_send(group, spans, (size_t)own.count * sizeof(*spans), DIST_UINT8, 0, TRACE_TAG);
    free(tracks);
    free(spans);
    return result;
}
