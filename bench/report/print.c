/* SPDX-License-Identifier: BSD-3-Clause */
/* Prints as OSU's programs and NCCL's tests do. */
#include "print.h"

#include <string.h>

const struct print_format *print_find(const char *name)
{
    static const struct print_format *const formats[] = {&print_osu, &print_nccl, &print_table,
                                                         &print_csv, &print_json};

    for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
        if (strcmp(formats[i]->name, name) == 0)
            return formats[i];
    }
    return NULL;
}

/* ---- OSU 7.4 ---- */

static bool osu_is_bandwidth(const struct result_point *point)
{
    return point->window > 1 || strcmp(point->collective, "bw") == 0 ||
           strcmp(point->collective, "bibw") == 0;
}

static void osu_head(const struct options *options, const struct result *result,
                     const struct result_point *point)
{
    const struct operation *operation = operation_find(point->collective);
    bool messages = operation->layout == LAYOUT_MESSAGES;

    printf("\n# libdist %s Test v%s\n", operation->title, result->version);
    if (operation->layout != LAYOUT_NOTHING)
        printf("# Datatype: %s.\n%-10s", point->dtype, "# Size");
    else
        printf("# ");
    printf("%*s", operation->layout == LAYOUT_NOTHING ? 18 : 20,
           osu_is_bandwidth(point) ? "Bandwidth (MB/s)"
           : messages              ? "Latency (us)"
                                   : "Avg Latency(us)");
    if (options->full && !messages)
        printf("%20s%20s", "Min Latency(us)", "Max Latency(us)");
    if (options->full)
        printf("%12s", "Iterations");
    if (options->check && !options->no_check)
        printf("%20s", "Validation");
    if (options->full)
        printf("%20s%20s", "P50 Latency(us)", "P99 Latency(us)");
    printf("\n");
}

static void osu_point(const struct options *options, const struct result *result,
                      const struct result_point *a, const struct result_point *b)
{
    const struct result_point *point = a ? a : b;
    const struct result_time *time = &point->times[0];
    bool messages = operation_find(point->collective)->layout == LAYOUT_MESSAGES;
    bool checks = options->check && !options->no_check;

    (void)result;
    if (!time->measured && !time->wrong)
        return;
    if (operation_find(point->collective)->layout != LAYOUT_NOTHING)
        printf("%-10zu", point->block);
    if (osu_is_bandwidth(point))
        printf("%20.2f", result_algorithm_bandwidth(point, time->mean) * 1e3);
    else
        printf("%20.2f", (messages ? time->mean : time->rank_avg) / 1e3);
    if (options->full && !messages)
        printf("%20.2f%20.2f", time->rank_min / 1e3, time->rank_max / 1e3);
    if (options->full)
        printf("%12ld", time->samples * time->batch);
    if (checks)
        printf("%20s", time->wrong ? "Fail" : "Pass");
    if (options->full)
        printf("%20.2f%20.2f", time->p50 / 1e3, time->p99 / 1e3);
    printf("\n");
    fflush(stdout);
}

const struct print_format print_osu = {.name = "osu", .head = osu_head, .point = osu_point};

/* ---- nccl-tests ---- */

static void nccl_head(const struct options *options, const struct result *result,
                      const struct result_point *point)
{
    (void)options;
    printf("# libdist %s: %s, %d ranks\n#\n", result->version, point->collective, result->ranks);
    printf("#%55s %39s\n", "out-of-place", "in-place");
    printf("#%11s %13s %9s %7s %7s %7s %7s %7s %6s %8s %7s %7s %6s\n", "size", "count", "type",
           "redop", "root", "time", "algbw", "busbw", "#wrong", "time", "algbw", "busbw", "#wrong");
    printf("#%11s %13s %9s %7s %7s %7s %7s %7s %6s %8s %7s %7s %6s\n", "(B)", "(elements)", "", "",
           "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)", "(GB/s)", "");
}

static void nccl_side(const struct options *options, const struct result *result,
                      const struct result_point *point)
{
    const struct result_time *time = point ? &point->times[0] : NULL;
    bool checks = options->check && !options->no_check;

    if (!time || !time->measured)
        printf("%9s %7s %7s %6s", "N/A", "N/A", "N/A", time && time->wrong ? "1" : "N/A");
    else
        printf("%9.2f %7.2f %7.2f %6s", time->median / 1e3,
               result_algorithm_bandwidth(point, time->median),
               result_bus_bandwidth(point, result->ranks, time->median), checks ? "0" : "N/A");
}

static void nccl_point(const struct options *options, const struct result *result,
                       const struct result_point *a, const struct result_point *b)
{
    const struct result_point *point = a ? a : b;

    printf("%12zu %13zu %9s %7s %7d", point->bytes,
           point->element ? point->block / point->element : 0, point->dtype,
           point->op ? point->op : "none", point->root);
    nccl_side(options, result, a);
    nccl_side(options, result, b);
    printf("\n");
    fflush(stdout);
}

static void nccl_end(const struct options *options, const struct result *result)
{
    double sum = 0;
    int count = 0, wrong = 0;

    (void)options;
    for (int p = 0; p < result->point_count; p++) {
        const struct result_time *time = &result->points[p].times[0];

        wrong += time->wrong;
        count += time->measured;
        if (time->measured)
            sum += result_bus_bandwidth(&result->points[p], result->ranks, time->median);
    }
    printf("# Out of bounds values : %d %s\n", wrong, wrong ? "FAILED" : "OK");
    printf("# Avg bus bandwidth    : %g\n#\n", count ? sum / count : 0);
}

const struct print_format print_nccl = {
    .name = "nccl", .pairs = true, .head = nccl_head, .point = nccl_point, .end = nccl_end};
