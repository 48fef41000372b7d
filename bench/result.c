/* SPDX-License-Identifier: BSD-3-Clause */
/* The results of a run: memory, derived values, comparison with a baseline. */
#include <config.h>

#include "bench/report.h"

#include <dist/dist.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

/* Joins the arguments with blanks; quotes arguments that contain blanks or shell characters. */
static char *result_command(int argc, char *const argv[])
{
    size_t length = 1;
    char *text, *end;

    for (int i = 0; i < argc; i++)
        length += strlen(argv[i]) + 3;
    text = calloc(length, 1);
    for (int i = 0, end_at = 0; text && i < argc; i++) {
        const char *quote = strpbrk(argv[i], " \t\n*?$|&;<>()\"") || !*argv[i] ? "'" : "";

        end = text + end_at;
        end_at += sprintf(end, "%s%s%s%s", i ? " " : "", quote, argv[i], quote);
    }
    return text;
}

struct result *result_new(int ranks, int argc, char *const argv[])
{
    struct result *result = calloc(1, sizeof(*result));
    struct utsname system;
    char kernel[sizeof(system.sysname) + sizeof(system.release) + sizeof(system.machine)];

    if (!result || uname(&system) != 0) {
        free(result);
        return NULL;
    }
    snprintf(kernel, sizeof(kernel), "%s %s %s", system.sysname, system.release, system.machine);
    result->ranks = ranks;
    cpu_set_t set;

    result->cpus = sched_getaffinity(0, sizeof(set), &set) == 0
                       ? CPU_COUNT(&set)
                       : (int)sysconf(_SC_NPROCESSORS_ONLN);
    result->command = result_command(argc, argv);
    result->version = strdup(dist_version());
    time_t now = time(NULL);
    struct tm local;
    char text[64] = "";

    if (localtime_r(&now, &local))
        strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S%z", &local);
    result->date = strdup(text);
    result->host = strdup(system.nodename);
    result->system = strdup(kernel);
    /* Read "model name : ..." of the first CPU; "" if there is none. */
    FILE *file = fopen("/proc/cpuinfo", "re");
    char line[512], *model = NULL;

    while (file && !model && fgets(line, sizeof(line), file)) {
        char *colon = strchr(line, ':');

        line[strcspn(line, "\n")] = '\0';
        if (colon && strncmp(line, "model name", 10) == 0)
            model = strdup(colon + 1 + strspn(colon + 1, " "));
    }
    if (file)
        fclose(file);
    result->cpu = model ? model : strdup("");
    if (result->command && result->version && result->date && result->host && result->system &&
        result->cpu)
        return result;
    result_free(result);
    return NULL;
}

void result_free(struct result *result)
{
    if (!result)
        return;
    for (int p = 0; p < result->measurement_count; p++) {
        for (int c = 0; c < result->library_count; c++) {
            free(result->measurements[p].times[c].reason);
            free(result->measurements[p].times[c].rounds);
        }
        free(result->measurements[p].times);
    }
    for (int c = 0; c < result->library_count; c++) {
        free(result->libraries[c].name);
        free(result->libraries[c].release);
        free(result->libraries[c].reason);
    }
    free(result->measurements);
    free(result->libraries);
    free(result->command);
    free(result->version);
    free(result->date);
    free(result->host);
    free(result->system);
    free(result->cpu);
    free(result);
}

int result_add_library(struct result *result, const char *name, bool limit)
{
    struct result_library *more =
        realloc(result->libraries, ((size_t)result->library_count + 1) * sizeof(*more));
    struct result_library one = {.limit = limit};

    if (!more)
        return -1;
    result->libraries = more;
    one.name = strdup(name);
    one.release = strdup("");
    if (!one.name || !one.release) {
        free(one.name);
        free(one.release);
        return -1;
    }
    more[result->library_count++] = one;
    return 0;
}

struct result_measurement *result_add_measurement(struct result *result,
                                                  const struct result_measurement *like)
{
    struct result_measurement *more =
        realloc(result->measurements, ((size_t)result->measurement_count + 1) * sizeof(*more));
    struct result_time *times = calloc((size_t)result->library_count, sizeof(*times));

    if (more)
        result->measurements = more;
    if (!more || !times) {
        free(times);
        return NULL;
    }
    more += result->measurement_count++;
    *more = *like;
    more->times = times;
    return more;
}

double result_algorithm_bandwidth(const struct result_measurement *measurement, double time)
{
    double messages =
        measurement->window * (strcmp(measurement->collective, "bibw") == 0 ? 2.0 : 1.0);

    return time > 0 ? (double)measurement->bytes * messages / time : 0;
}

/* Uses the factors of nccl-tests: (n - 1) / n if a rank keeps one of n blocks. */
double result_bus_bandwidth(const struct result_measurement *measurement, int ranks, double time)
{
    static const char *const blocks[] = {"all_gather", "reduce_scatter", "gather", "scatter",
                                         "all_to_all"};
    double algorithm = result_algorithm_bandwidth(measurement, time);

    if (strncmp(measurement->collective, "all_reduce", 10) == 0)
        return algorithm * 2 * (ranks - 1) / ranks;
    for (size_t i = 0; i < sizeof(blocks) / sizeof(blocks[0]); i++) {
        if (strncmp(measurement->collective, blocks[i], strlen(blocks[i])) == 0)
            return algorithm * (ranks - 1) / ranks;
    }
    return algorithm;
}

static int result_order(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

double result_quantile(double *values, size_t count, double q)
{
    double at = q * (double)(count ? count - 1 : 0);
    size_t below = (size_t)at;

    if (count == 0)
        return 0;
    qsort(values, count, sizeof(double), result_order);
    if (below + 1 >= count)
        return values[count - 1];
    return values[below] + (at - (double)below) * (values[below + 1] - values[below]);
}

/* Comparison of a run with an earlier one. */

#ifdef HAVE_JANSSON

#include <jansson.h>
#include <string.h>

/* Returns the saved time of that library at that measurement, in ns; -1: none. */
static double baseline_time(const json_t *saved, const struct result_measurement *measurement,
                            const char *library)
{
    json_t *same, *time;
    const char *name;
    double us;
    size_t p, t;

    json_array_foreach(json_object_get(saved, "results"), p, same)
    {
        int root, in_place = 0, buffers = measurement->buffers;
        const char *collective, *dtype, *op, *timing = "row";
        json_int_t bytes;
        if (!(json_unpack(same, "{s:s, s:s, s:s, s:I, s:i, s?i, s?b, s?s}", "collective",
                          &collective, "type", &dtype, "redop", &op, "size", &bytes, "root", &root,
                          "buffers", &buffers, "in_place", &in_place, "timing", &timing) == 0 &&
              strcmp(timing, measurement->apart ? "osu" : "row") == 0 &&
              strcmp(collective, measurement->collective) == 0 &&
              strcmp(dtype, measurement->dtype) == 0 &&
              strcmp(op, measurement->op ? measurement->op : "none") == 0 &&
              bytes == (json_int_t)measurement->bytes && root == measurement->root &&
              buffers == measurement->buffers && (bool)in_place == measurement->in_place))
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

static int baseline_lines(FILE *to, const struct result *result, const json_t *saved,
                          double tolerance)
{
    const char *date = json_string_value(json_object_get(saved, "date"));
    int compared = 0, slower = 0;

    fprintf(to, "\n# against the baseline of %s, times in us\n#%-19s %12s %-16s %12s %12s %7s\n",
            date ? date : "?", "collective", "bytes", "contestant", "baseline", "now", "ratio");
    for (int p = 0; p < result->measurement_count; p++) {
        for (int c = 0; c < result->library_count; c++) {
            const struct result_measurement *measurement = &result->measurements[p];
            const struct result_time *time = &measurement->times[c];
            const char *library = result->libraries[c].name;
            double before = time->measured ? baseline_time(saved, measurement, library) : -1;
            bool is_slower = time->median > before * (1 + tolerance / 100);

            if (before <= 0)
                continue;
            fprintf(to, "%-20s %12zu %-16s %12.2f %12.2f %7.2f%s\n", measurement->collective,
                    measurement->bytes, library, before / 1e3, time->median / 1e3,
                    time->median / before, is_slower ? "  SLOWER" : "");
            compared++;
            slower += is_slower;
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
        fprintf(stderr, "dist_bench: --baseline: %s\n", error.text); /* names the file */
    else if (!saved)
        fprintf(stderr, "dist_bench: --baseline %s: line %d: %s\n", file, error.line, error.text);
    else if (json_unpack_ex(saved, &error, 0, "{s:i, s:i}", "dist_bench", &format, "ranks",
                            &ranks) != 0 ||
             format != 1)
        fprintf(stderr,
                "dist_bench: --baseline %s: not written by --save: create it with --save FILE\n",
                file);
    else if (ranks != result->ranks)
        fprintf(stderr, "dist_bench: --baseline %s: it was saved with %d ranks, this run has %d\n",
                file, ranks, result->ranks);
    else if ((slower = baseline_lines(quiet_stdout ? stderr : stdout, result, saved, tolerance)) <
             0)
        fprintf(stderr,
                "dist_bench: --baseline %s: no measurement in common with this run: measure the "
                "same collectives and sizes\n",
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
