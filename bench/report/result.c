/* SPDX-License-Identifier: BSD-3-Clause */
/* The results of a run: their memory, and what is computed from them. */
#include "result.h"

#include <dist/dist.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

/* The words with blanks between; those with blanks or quotes of their own are quoted. */
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

static char *result_date(void)
{
    time_t now = time(NULL);
    struct tm local;
    char text[64] = "";

    if (localtime_r(&now, &local))
        strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S%z", &local);
    return strdup(text);
}

/* "model name : ..." of the first CPU; "" where the kernel does not say. */
static char *result_cpu(void)
{
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
    return model ? model : strdup("");
}

static int result_cpus(void)
{
    cpu_set_t set;

    return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set)
                                                        : (int)sysconf(_SC_NPROCESSORS_ONLN);
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
    result->cpus = result_cpus();
    result->command = result_command(argc, argv);
    result->version = strdup(dist_version());
    result->date = result_date();
    result->host = strdup(system.nodename);
    result->system = strdup(kernel);
    result->cpu = result_cpu();
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

const char *result_timing(const struct result_measurement *measurement)
{
    return measurement->apart ? "osu" : "row";
}

double result_algorithm_bandwidth(const struct result_measurement *measurement, double time)
{
    double messages =
        measurement->window * (strcmp(measurement->collective, "bibw") == 0 ? 2.0 : 1.0);

    return time > 0 ? (double)measurement->bytes * messages / time : 0;
}

/* What nccl-tests multiplies with: (n - 1) / n where a rank keeps one of n blocks. */
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
