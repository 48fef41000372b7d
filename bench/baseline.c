/* SPDX-License-Identifier: BSD-3-Clause */
/* Compares a run with an earlier one. */
#include "baseline.h"

#include "json.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BASELINE_BYTES_MAX ((size_t)256 << 20)

static char *baseline_read(const char *file, size_t *length_p)
{
    FILE *from = fopen(file, "re");
    char *text = NULL, *more;
    size_t length = 0, room = 0;

    while (from && length == room && room < BASELINE_BYTES_MAX) {
        room = room ? 2 * room : 65536;
        more = realloc(text, room);
        if (!more)
            break;
        text = more;
        length += fread(text + length, 1, room - length, from);
    }
    if (!from || ferror(from) || length == room) {
        fprintf(stderr, "dist_bench: --baseline %s: %s\n", file, strerror(from ? EFBIG : errno));
        free(text);
        text = NULL;
    }
    if (from)
        fclose(from);
    *length_p = length;
    return text;
}

static bool baseline_same(const struct json *saved, const struct result_point *point)
{
    const struct json *place = json_get(saved, "in_place");

    return strcmp(json_text_of(json_get(saved, "collective"), ""), point->collective) == 0 &&
           strcmp(json_text_of(json_get(saved, "type"), ""), point->dtype) == 0 &&
           strcmp(json_text_of(json_get(saved, "redop"), ""), point->op ? point->op : "none") ==
               0 &&
           json_number_of(json_get(saved, "size"), -1) == (double)point->bytes &&
           json_number_of(json_get(saved, "root"), -2) == point->root &&
           json_number_of(json_get(saved, "buffers"), point->buffers) == point->buffers &&
           (place && place->type == JSON_TRUE) == point->in_place;
}

/* The saved time of that contestant at that point, in ns; -1: there is none. */
static double baseline_time(const struct json *saved, const struct result_point *point,
                            const char *contestant)
{
    const struct json *results = json_get(saved, "results");

    for (const struct json *p = results ? results->child : NULL; p; p = p->next) {
        const struct json *times = json_get(p, "times");

        if (!baseline_same(p, point))
            continue;
        for (const struct json *t = times ? times->child : NULL; t; t = t->next) {
            if (strcmp(json_text_of(json_get(t, "contestant"), ""), contestant) == 0)
                return json_number_of(json_get(t, "time"), -1e-3) * 1e3;
        }
    }
    return -1;
}

/* One line; 1 if it is too slow now, 0 if not, -1 if there is nothing to compare. */
static int baseline_line(FILE *to, const struct json *saved, const struct result_point *point,
                         const char *contestant, double now, double tolerance)
{
    double before = baseline_time(saved, point, contestant);
    bool slower = before > 0 && now > before * (1 + tolerance / 100);

    if (before <= 0)
        return -1;
    fprintf(to, "%-20s %12zu %-16s %12.2f %12.2f %7.2f%s\n", point->collective, point->bytes,
            contestant, before / 1e3, now / 1e3, now / before, slower ? "  SLOWER" : "");
    return slower;
}

static int baseline_lines(FILE *to, const struct result *result, const struct json *saved,
                          double tolerance)
{
    int compared = 0, slower = 0;

    fprintf(to, "\n# against the baseline of %s, times in us\n#%-19s %12s %-16s %12s %12s %7s\n",
            json_text_of(json_get(saved, "date"), "?"), "collective", "bytes", "contestant",
            "baseline", "now", "ratio");
    for (int p = 0; p < result->point_count; p++) {
        for (int c = 0; c < result->contestant_count; c++) {
            const struct result_time *time = &result->points[p].times[c];
            int line = !time->measured
                           ? -1
                           : baseline_line(to, saved, &result->points[p],
                                           result->contestants[c].name, time->median, tolerance);

            compared += line >= 0;
            slower += line > 0;
        }
    }
    return compared ? slower : -1;
}

int baseline_compare(const struct result *result, const char *file, double tolerance,
                     bool quiet_stdout)
{
    size_t length, at;
    char *text = baseline_read(file, &length);
    struct json *saved;
    int slower = -1;

    if (!text)
        return -1;
    saved = json_parse(text, length, &at);
    if (!saved || json_number_of(json_get(saved, "dist_bench"), 0) != 1)
        fprintf(stderr, "dist_bench: --baseline %s: not what --save writes (byte %zu)\n", file, at);
    else if (json_number_of(json_get(saved, "ranks"), 0) != result->ranks)
        fprintf(stderr, "dist_bench: --baseline %s: it was saved with %.0f ranks, these are %d\n",
                file, json_number_of(json_get(saved, "ranks"), 0), result->ranks);
    else if ((slower = baseline_lines(quiet_stdout ? stderr : stdout, result, saved, tolerance)) <
             0)
        fprintf(stderr, "dist_bench: --baseline %s: it has none of these points\n", file);
    json_free(saved);
    free(text);
    return slower;
}
