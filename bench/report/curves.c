/* SPDX-License-Identifier: BSD-3-Clause */
/* The results taken apart for drawing. */
#include "curves.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int curves_open(const struct result *result, struct curves *curves)
{
    const size_t points = (size_t)result->point_count + 1,
                 libraries = (size_t)result->library_count + 1;

    *curves = (struct curves){.result = result,
                              .points = calloc(points, sizeof(*curves->points)),
                              .x = calloc(points, sizeof(double)),
                              .y = calloc(points * libraries, sizeof(double)),
                              .series = calloc(libraries, sizeof(*curves->series))};
    return curves->points && curves->x && curves->y && curves->series ? 0 : -1;
}

void curves_close(struct curves *curves)
{
    free(curves->points);
    free(curves->x);
    free(curves->y);
    free(curves->series);
}

static bool curves_same(const struct result_point *a, const struct result_point *b)
{
    return strcmp(a->collective, b->collective) == 0 && strcmp(a->dtype, b->dtype) == 0 &&
           strcmp(a->op ? a->op : "", b->op ? b->op : "") == 0 && a->root == b->root &&
           a->in_place == b->in_place;
}

static int by_size(const void *a, const void *b)
{
    const struct result_point *x = *(const struct result_point *const *)a;
    const struct result_point *y = *(const struct result_point *const *)b;

    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

/* All points like the one at `first`, if that is the first of them. */
static int curves_gather(struct curves *curves, int first)
{
    const struct result *result = curves->result;
    const struct result_point *like = &result->points[first];

    curves->count = 0;
    for (int p = 0; p < first; p++)
        if (curves_same(&result->points[p], like))
            return 0;
    for (int p = first; p < result->point_count; p++)
        if (curves_same(&result->points[p], like))
            curves->points[curves->count++] = &result->points[p];
    qsort(curves->points, (size_t)curves->count, sizeof(curves->points[0]), by_size);
    for (int p = 0; p < curves->count; p++)
        curves->x[p] = (double)curves->points[p]->bytes;
    return curves->count;
}

bool curves_next(struct curves *curves)
{
    while (curves->next < curves->result->point_count) {
        if (curves_gather(curves, curves->next++) > 0)
            return true;
    }
    return false;
}

char *curves_what(const struct curves *curves, char text[128])
{
    const struct result_point *point = curves->points[0];
    char root[24] = "";

    if (point->root >= 0)
        snprintf(root, sizeof(root), ", root %d", point->root);
    snprintf(text, 128, "%s%s%s%s%s", point->dtype, point->op ? " " : "",
             point->op ? point->op : "", root, point->in_place ? ", in place" : "");
    return text;
}

static double curves_value(const struct curves *curves, enum plot_kind kind, int c, int p)
{
    const struct result_point *point = curves->points[p];
    const struct result_time *time = &point->times[c], *first = &point->times[0];

    if (!time->measured || point->bytes == 0)
        return 0;
    if (kind == PLOT_TIME)
        return time->median;
    if (kind == PLOT_BANDWIDTH)
        return result_bus_bandwidth(point, curves->result->ranks, time->median);
    return first->measured && first->median > 0 ? time->median / first->median : 0;
}

struct plot curves_plot(struct curves *curves, enum plot_kind kind)
{
    static const char *const titles[] = {
        "Time", "Bus bandwidth", "Time relative to the first (above 1: the first is ahead)"};
    int libraries = curves->result->library_count;

    for (int c = 0; c < libraries; c++) {
        const struct result_library *one = &curves->result->libraries[c];
        double *y = curves->y + (size_t)c * (size_t)curves->count;

        for (int p = 0; p < curves->count; p++)
            y[p] = curves_value(curves, kind, c, p);
        curves->series[c] =
            (struct plot_series){one->name, c, one->limit, curves->x, y, curves->count};
    }
    return (struct plot){kind, titles[kind], curves->series, libraries};
}
