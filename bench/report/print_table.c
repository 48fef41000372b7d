/* SPDX-License-Identifier: BSD-3-Clause */
/* Prints several libraries side by side, and as CSV. */
#include "print.h"

#include "tools/common/output.h"

#include <string.h>

/* ---- side by side ---- */

static int table_width(const struct result *result, int c)
{
    int width = (int)strlen(result->libraries[c].name) + 2;

    return width < 12 ? 12 : width;
}

static void table_head(const struct options *options, const struct result *result,
                       const struct result_measurement *measurement)
{
    printf("\n# %s %s%s%s%s, %d ranks. Median time in us%s", measurement->collective,
           measurement->dtype, measurement->op ? " " : "", measurement->op ? measurement->op : "",
           measurement->in_place ? ", in place" : "", result->ranks,
           measurement->apart ? ", timed as OSU's programs do" : "");
    if (result->library_count > 1)
        printf("; ratio: that time over %s's", result->libraries[0].name);
    printf("\n#%11s", "bytes");
    for (int c = 0; c < result->library_count; c++) {
        printf(" %*s", table_width(result, c), result->libraries[c].name);
        if (options->full)
            printf(" %10s", "min");
        if (c > 0)
            printf(" %7s", "ratio");
    }
    printf("\n");
}

static void table_point(const struct options *options, const struct result *result,
                        const struct result_measurement *a, const struct result_measurement *b)
{
    const struct result_measurement *measurement = a ? a : b;
    const struct result_time *first = &measurement->times[0];

    printf("%12zu", measurement->bytes);
    for (int c = 0; c < result->library_count; c++) {
        const struct result_time *time = &measurement->times[c];
        int width = table_width(result, c);

        if (time->measured)
            printf(" %*.*f", width, time->median < 1e6 ? 2 : 1, time->median / 1e3);
        else
            printf(" %*s", width, time->wrong ? "wrong" : "-");
        if (options->full)
            printf(" %10.2f", time->min / 1e3);
        if (c > 0 && time->measured && first->measured)
            printf(" %7.2f", time->median / first->median);
        else if (c > 0)
            printf(" %7s", "-");
    }
    printf("\n");
    output_flush();
}

static void table_end(const struct options *options, const struct result *result)
{
    (void)options;
    printf("\n");
    for (int c = 0; c < result->library_count; c++) {
        const struct result_library *one = &result->libraries[c];

        printf("# %s: %s%s%s%s\n", one->name, one->release,
               one->reason && *one->release ? ". " : "", one->reason ? "LEFT OUT: " : "",
               one->reason ? one->reason : "");
    }
}

const struct print_format print_table = {
    .name = "table", .head = table_head, .measurement = table_point, .end = table_end};

/* ---- CSV ---- */

static void csv_begin(const struct options *options, const struct result *result)
{
    (void)options, (void)result;
    printf("collective,size,block,dtype,op,root,in_place,ranks,contestant,time_us,min_us,avg_us,"
           "max_us,p50_us,p99_us,algbw,busbw,iterations,buffers,timing,status\n");
}

static const char *csv_status(const struct options *options, const struct result_time *time)
{
    if (time->wrong)
        return "wrong";
    if (!time->measured)
        return "missing";
    return options->check && !options->no_check ? "right" : "unchecked";
}

static void csv_row(const struct options *options, const struct result *result,
                    const struct result_measurement *measurement, int c)
{
    const struct result_time *time = &measurement->times[c];

    printf("%s,%zu,%zu,%s,%s,%d,%d,%d,%s,", measurement->collective, measurement->bytes,
           measurement->block, measurement->dtype, measurement->op ? measurement->op : "-",
           measurement->root, measurement->in_place, result->ranks, result->libraries[c].name);
    if (time->measured)
        printf("%.3f,%.3f,%.3f,%.3f,%.3f,%.3f,%.4f,%.4f,%ld", time->median / 1e3, time->min / 1e3,
               time->mean / 1e3, time->max / 1e3, time->p50 / 1e3, time->p99 / 1e3,
               result_algorithm_bandwidth(measurement, time->median),
               result_bus_bandwidth(measurement, result->ranks, time->median),
               time->samples * time->batch);
    else
        printf(",,,,,,,,");
    printf(",%d,%s,%s\n", measurement->buffers, result_timing(measurement),
           csv_status(options, time));
}

static void csv_point(const struct options *options, const struct result *result,
                      const struct result_measurement *a, const struct result_measurement *b)
{
    const struct result_measurement *measurement = a ? a : b;

    for (int c = 0; c < result->library_count; c++)
        csv_row(options, result, measurement, c);
    output_flush();
}

const struct print_format print_csv = {.name = "csv", .begin = csv_begin, .measurement = csv_point};
