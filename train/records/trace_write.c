/* SPDX-License-Identifier: BSD-3-Clause */
/* --trace: from all ranks into one file. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/common/draft.h"
#include "trace.h"
#include "train/failure.h"
#include "train/file.h"

enum { TRACE_TAG = 1 };

/* The spans in the order in which they ended; the caller frees them. */
static struct trace_span *trace_copy(const struct trace *trace, struct trace_track *track)
{
    struct trace_span *spans;

    track->count = trace->count < TRACE_ROOM ? trace->count : TRACE_ROOM;
    track->lost = trace->count - track->count;
    spans = calloc((size_t)track->count + 1, sizeof(*spans));
    track->earliest = track->count ? INFINITY : 0;
    for (int64_t i = 0; spans && i < track->count; i++) {
        spans[i] = trace->spans[(track->lost + i) % TRACE_ROOM];
        track->earliest = fmin(track->earliest, spans[i].began);
    }
    return spans;
}

static struct trace_track trace_own(dist_group *group)
{
    struct trace_track track = {.rank = group ? dist_get_rank(group) : 0};

    gethostname(track.host, sizeof(track.host));
    return track;
}

/* The earliest moment of all, on rank 0's clock: the timeline's zero. Adds what rank 0 knows. */
static double trace_align(const struct trace *trace, struct trace_track *tracks, int world,
                          double *error_p)
{
    double origin = INFINITY;

    *error_p = 0;
    for (int rank = 0; rank < world; rank++) {
        struct trace_track *track = &tracks[rank];

        track->first = trace->first[rank];
        track->last = trace->last[rank];
        *error_p = fmax(*error_p, fmax(track->first.error, track->last.error));
        if (track->count)
            origin = fmin(origin, clock_aligned(&track->first, &track->last, track->earliest));
    }
    return isfinite(origin) ? origin : 0;
}

/* Takes the ranks' spans one after the other, so that only one rank's are in memory. */
static dist_status trace_take(dist_group *group, const struct trace_track *tracks, int world,
                              double origin, FILE *to)
{
    struct trace_span *spans = calloc(TRACE_ROOM, sizeof(*spans));
    dist_status status = spans ? DIST_OK : DIST_ERR_NO_MEMORY;

    for (int rank = 1; rank < world && status == DIST_OK; rank++) {
        status = dist_recv(group, spans, (size_t)tracks[rank].count * sizeof(*spans), DIST_UINT8,
                           rank, TRACE_TAG, NULL);
        if (status == DIST_OK)
            trace_track(&tracks[rank], spans, origin, to);
    }
    free(spans);
    return status;
}

/* Rank 0's part, once it knows every rank's track. */
static dist_status trace_put(const struct trace *trace, dist_group *group,
                             struct trace_track *tracks, int world, const struct trace_span *spans,
                             FILE *to)
{
    dist_status status = DIST_OK;
    double error, origin = trace_align(trace, tracks, world, &error);

    trace_begin(error, to);
    trace_track(&tracks[0], spans, origin, to);
    if (world > 1)
        status = trace_take(group, tracks, world, origin, to);
    trace_end(to);
    return status;
}

/* Nothing of it may be lost on the way: only a whole one takes the name. */
static int trace_finish(const char *draft, FILE *to)
{
    errno = 0;
    if (fflush(to) == 0 && !ferror(to) && draft_finish(draft, fileno(to)) == 0)
        return 0;
    return failure("%s", errno ? strerror(errno) : "a write failed");
}

/* Into a new file beside it, which then takes its name. */
static int trace_replace(const struct trace *trace, const char *path, dist_group *group,
                         struct trace_track *tracks, int world, const struct trace_span *spans,
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
    if (result == 0 && *status_p == DIST_OK)
        result = trace_finish(draft, to);
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
    struct trace_track own = trace_own(group), *tracks = calloc((size_t)world, sizeof(*tracks));
    struct trace_span *spans = trace_copy(trace, &own);
    int result = 0;

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
