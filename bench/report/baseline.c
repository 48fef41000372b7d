/* SPDX-License-Identifier: BSD-3-Clause */
/* Compares a run with an earlier one. */
#include "baseline.h"

#include <config.h>

#include <stdio.h>

#ifdef HAVE_JANSSON

#include <jansson.h>
#include <string.h>

static bool baseline_same(json_t *saved, const struct result_measurement *measurement)
{
    int root, in_place = 0, buffers = measurement->buffers;
    const char *collective, *dtype, *op, *timing = "row";
    json_int_t bytes;

    return json_unpack(saved, "{s:s, s:s, s:s, s:I, s:i, s?i, s?b, s?s}", "collective", &collective,
                       "type", &dtype, "redop", &op, "size", &bytes, "root", &root, "buffers",
                       &buffers, "in_place", &in_place, "timing", &timing) == 0 &&
           strcmp(timing, result_timing(measurement)) == 0 &&
           strcmp(collective, measurement->collective) == 0 &&
           strcmp(dtype, measurement->dtype) == 0 &&
           strcmp(op, measurement->op ? measurement->op : "none") == 0 &&
           bytes == (json_int_t)measurement->bytes && root == measurement->root &&
           buffers == measurement->buffers && (bool)in_place == measurement->in_place;
}

/* The saved time of that library at that measurement, in ns; -1: there is none. */
static double baseline_time(const json_t *saved, const struct result_measurement *measurement,
                            const char *library)
{
    json_t *same, *time;
    const char *name;
    double us;
    size_t p, t;

    json_array_foreach(json_object_get(saved, "results"), p, same)
    {
        if (!baseline_same(same, measurement))
            continue;
        json_array_foreach(json_object_get(same, "times"), t, time)
        {
            if (json_unpack(time, "{s:s, s:F}", "contestant", &name, "time", &us) == 0 &&
                strcmp(name, library) == 0)
                return us * 1e3;
        }
    }
    return -1;
}

/* One line; 1 if it is too slow now, 0 if not, -1 if there is nothing to compare. */
static int baseline_line(FILE *to, const json_t *saved,
                         const struct result_measurement *measurement, const char *library,
                         double now, double tolerance)
{
    double before = baseline_time(saved, measurement, library);
    bool slower = before > 0 && now > before * (1 + tolerance / 100);

    if (before <= 0)
        return -1;
    fprintf(to, "%-20s %12zu %-16s %12.2f %12.2f %7.2f%s\n", measurement->collective,
            measurement->bytes, library, before / 1e3, now / 1e3, now / before,
            slower ? "  SLOWER" : "");
    return slower;
}

static int baseline_lines(FILE *to, const struct result *result, const json_t *saved,
                          double tolerance)
{
    const char *date = json_string_value(json_object_get(saved, "date"));
    int compared = 0, slower = 0;

    fprintf(to, "\n# against the baseline of %s, times in us\n#%-19s %12s %-16s %12s %12s %7s\n",
            date ? date : "?", "collective", "bytes", "contestant", "baseline", "now", "ratio");
    for (int p = 0; p < result->measurement_count; p++) {
        for (int c = 0; c < result->library_count; c++) {
            const struct result_time *time = &result->measurements[p].times[c];
            int line = !time->measured
                           ? -1
                           : baseline_line(to, saved, &result->measurements[p],
                                           result->libraries[c].name, time->median, tolerance);

            compared += line >= 0;
            slower += line > 0;
        }
    }
    return compared ? slower : -1;
}

int baseline_compare(const struct result *result, const char *file, double tolerance,
                     bool quiet_stdout)
{
    json_error_t error;
    json_t *saved = json_load_file(file, 0, &error);
    int format, ranks, slower = -1;

    if (!saved && error.line < 1)
        fprintf(stderr, "dist_bench: --baseline: %s\n", error.text); /* which names the file */
    else if (!saved)
        fprintf(stderr, "dist_bench: --baseline %s: line %d: %s\n", file, error.line, error.text);
    else if (json_unpack_ex(saved, &error, 0, "{s:i, s:i}", "dist_bench", &format, "ranks",
                            &ranks) != 0 ||
             format != 1)
        fprintf(stderr,
                "dist_bench: --baseline %s: not a file of --save: write one with --save FILE\n",
                file);
    else if (ranks != result->ranks)
        fprintf(stderr, "dist_bench: --baseline %s: it was saved with %d ranks, these are %d\n",
                file, ranks, result->ranks);
    else if ((slower = baseline_lines(quiet_stdout ? stderr : stdout, result, saved, tolerance)) <
             0)
        fprintf(stderr,
                "dist_bench: --baseline %s: it has no point of this run: measure the same "
                "collectives and sizes\n",
                file);
    json_decref(saved);
    return slower;
}

#else

int baseline_compare(const struct result *result, const char *file, double tolerance,
                     bool quiet_stdout)
{
    (void)result, (void)tolerance, (void)quiet_stdout;
    fprintf(stderr, "dist_bench: --baseline %s: this program was built without jansson\n", file);
    return -1;
}

#endif
