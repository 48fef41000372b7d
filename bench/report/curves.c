/* SPDX-License-Identifier: BSD-3-Clause */
/* The results taken apart for drawing. */
#include "curves.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int curves_open(const struct result *result, struct curves *curves)
{
    const size_t measurements = (size_t)result->measurement_count + 1,
                 libraries = (size_t)result->library_count + 1;

    *curves = (struct curves){.result = result,
                              .measurements = calloc(measurements, sizeof(*curves->measurements)),
                              .x = calloc(measurements, sizeof(double)),
                              .y = calloc(measurements * libraries, sizeof(double)),
                              .series = calloc(libraries, sizeof(*curves->series))};
    return curves->measurements && curves->x && curves->y && curves->series ? 0 : -1;
}

void curves_close(struct curves *curves)
{
    free(curves->measurements);
    free(curves->x);
    free(curves->y);
    free(curves->series);
}

static bool curves_same(const struct result_measurement *a, const struct result_measurement *b)
{
    return strcmp(a->collective, b->collective) == 0 && strcmp(a->dtype, b->dtype) == 0 &&
           strcmp(a->op ? a->op : "", b->op ? b->op : "") == 0 && a->root == b->root &&
           a->in_place == b->in_place && a->apart == b->apart;
}

static int by_size(const void *a, const void *b)
{
    const struct result_measurement *x = *(const struct result_measurement *const *)a;
    const struct result_measurement *y = *(const struct result_measurement *const *)b;

    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

/* All measurements like the one at `first`, if that is the first of them. */
static int curves_gather(struct curves *curves, int first)
{
    const struct result *result = curves->result;
    const struct result_measurement *like = &result->measurements[first];

    curves->count = 0;
    for (int p = 0; p < first; p++)
        if (curves_same(&result->measurements[p], like))
            return 0;
    for (int p = first; p < result->measurement_count; p++)
        if (curves_same(&result->measurements[p], like))
            curves->measurements[curves->count++] = &result->measurements[p];
    qsort(curves->measurements, (size_t)curves->count, sizeof(curves->measurements[0]), by_size);
    for (int p = 0; p < curves->count; p++)
        curves->x[p] = (double)curves->measurements[p]->bytes;
    return curves->count;
}

bool curves_next(struct curves *curves)
{
    while (curves->next < curves->result->measurement_count) {
        if (curves_gather(curves, curves->next++) > 0)
            return true;
    }
    return false;
}

char *curves_what(const struct curves *curves, char text[128])
{
    const struct result_measurement *measurement = curves->measurements[0];
    char root[24] = "";

    if (measurement->root >= 0)
        snprintf(root, sizeof(root), ", root %d", measurement->root);
    snprintf(text, 128, "%s%s%s%s%s%s", measurement->dtype, measurement->op ? " " : "",
             measurement->op ? measurement->op : "", root,
             measurement->in_place ? ", in place" : "",
             measurement->apart ? ", timed as OSU's programs do" : "");
    return text;
}

static double curves_value(const struct curves *curves, enum plot_kind kind, int c, int p)
{
    const struct result_measurement *measurement = curves->measurements[p];
    const struct result_time *time = &measurement->times[c], *first = &measurement->times[0];

    if (!time->measured || measurement->bytes == 0)
        return 0;
    if (kind == PLOT_TIME)
        return time->median;
    if (kind == PLOT_BANDWIDTH)
        return result_bus_bandwidth(measurement, curves->result->ranks, time->median);
    return first->measured && first->median > 0 ? time->median / first->median : 0;
}

struct plot curves_plot(struct curves *curves, enum plot_kind kind)
{
    const char *first = curves->result->libraries[0].name;
    int libraries = curves->result->library_count;

    for (int c = 0; c < libraries; c++) {
        const struct result_library *one = &curves->result->libraries[c];
        double *y = curves->y + (size_t)c * (size_t)curves->count;

        for (int p = 0; p < curves->count; p++)
            y[p] = curves_value(curves, kind, c, p);
        curves->series[c] =
            (struct plot_series){one->name, c, one->limit, curves->x, y, curves->count};
    }
    if (kind == PLOT_RATIO)
        snprintf(curves->title, sizeof(curves->title),
                 "Time relative to %.24s (above 1: %.24s is faster)", first, first);
    else
        snprintf(curves->title, sizeof(curves->title), "%s",
                 kind == PLOT_TIME ? "Time" : "Bus bandwidth");
    return (struct plot){kind, curves->title, curves->series, libraries};
}
