/* SPDX-License-Identifier: BSD-3-Clause */
/* Prints as OSU's programs and NCCL's tests do. */
#include "print.h"

#include "tools/common/output.h"

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

static bool osu_is_bandwidth(const struct result_measurement *measurement)
{
    return measurement->window > 1 || strcmp(measurement->collective, "bw") == 0 ||
           strcmp(measurement->collective, "bibw") == 0;
}

static void osu_head(const struct options *options, const struct result *result,
                     const struct result_measurement *measurement)
{
    const struct operation *operation = operation_find(measurement->collective);
    bool messages = operation->layout == LAYOUT_MESSAGES;

    printf("\n# libdist %s Test v%s\n", operation->title, result->version);
    if (operation->layout != LAYOUT_NOTHING)
        printf("# Datatype: %s.\n%-10s", measurement->dtype, "# Size");
    else
        printf("# ");
    printf("%*s", operation->layout == LAYOUT_NOTHING ? 18 : 20,
           osu_is_bandwidth(measurement) ? "Bandwidth (MB/s)"
           : messages                    ? "Latency (us)"
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
                      const struct result_measurement *a, const struct result_measurement *b)
{
    const struct result_measurement *measurement = a ? a : b;
    const struct result_time *time = &measurement->times[0];
    bool messages = operation_find(measurement->collective)->layout == LAYOUT_MESSAGES;
    bool checks = options->check && !options->no_check;

    (void)result;
    if (!time->measured && !time->wrong)
        return;
    if (operation_find(measurement->collective)->layout != LAYOUT_NOTHING)
        printf("%-10zu", measurement->block);
    if (osu_is_bandwidth(measurement))
        printf("%20.2f", result_algorithm_bandwidth(measurement, time->mean) * 1e3);
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
    output_flush();
}

const struct print_format print_osu = {.name = "osu", .head = osu_head, .measurement = osu_point};

/* ---- nccl-tests ---- */

static void nccl_head(const struct options *options, const struct result *result,
                      const struct result_measurement *measurement)
{
    (void)options;
    printf("# libdist %s: %s, %d ranks\n#\n", result->version, measurement->collective,
           result->ranks);
    printf("#%55s %39s\n", "out-of-place", "in-place");
    printf("#%11s %13s %9s %7s %7s %7s %7s %7s %6s %8s %7s %7s %6s\n", "size", "count", "type",
           "redop", "root", "time", "algbw", "busbw", "#wrong", "time", "algbw", "busbw", "#wrong");
    printf("#%11s %13s %9s %7s %7s %7s %7s %7s %6s %8s %7s %7s %6s\n", "(B)", "(elements)", "", "",
           "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)", "(GB/s)", "");
}

static void nccl_side(const struct options *options, const struct result *result,
                      const struct result_measurement *measurement)
{
    const struct result_time *time = measurement ? &measurement->times[0] : NULL;
    bool checks = options->check && !options->no_check;

    if (!time || !time->measured)
        printf("%9s %7s %7s %6s", "N/A", "N/A", "N/A", time && time->wrong ? "1" : "N/A");
    else
        printf("%9.2f %7.2f %7.2f %6s", time->median / 1e3,
               result_algorithm_bandwidth(measurement, time->median),
               result_bus_bandwidth(measurement, result->ranks, time->median),
               checks ? "0" : "N/A");
}

static void nccl_point(const struct options *options, const struct result *result,
                       const struct result_measurement *a, const struct result_measurement *b)
{
    const struct result_measurement *measurement = a ? a : b;

    printf("%12zu %13zu %9s %7s %7d", measurement->bytes,
           measurement->element ? measurement->block / measurement->element : 0, measurement->dtype,
           measurement->op ? measurement->op : "none", measurement->root);
    nccl_side(options, result, a);
    nccl_side(options, result, b);
    printf("\n");
    output_flush();
}

static void nccl_end(const struct options *options, const struct result *result)
{
    double sum = 0;
    int count = 0, wrong = 0;

    (void)options;
    for (int p = 0; p < result->measurement_count; p++) {
        const struct result_time *time = &result->measurements[p].times[0];

        wrong += time->wrong;
        count += time->measured;
        if (time->measured)
            sum += result_bus_bandwidth(&result->measurements[p], result->ranks, time->median);
    }
    printf("# Out of bounds values : %d %s\n", wrong, wrong ? "FAILED" : "OK");
    printf("# Avg bus bandwidth    : %g\n#\n", count ? sum / count : 0);
}

const struct print_format print_nccl = {
    .name = "nccl", .pairs = true, .head = nccl_head, .measurement = nccl_point, .end = nccl_end};
