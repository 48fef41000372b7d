/* SPDX-License-Identifier: BSD-3-Clause */
/* The results as JSON: for --format json and --save. Keys are nccl-tests' where it has them. */
#include "print.h"

#include "tools/common/json.h"

static void json_text(FILE *to, const char *text)
{
    if (!text) {
        fputs("null", to);
        return;
    }
    json_string(text, to);
}

static void json_line(FILE *to, const char *name, const char *text)
{
    fprintf(to, "  \"%s\": ", name);
    json_text(to, text);
    fprintf(to, ",\n");
}

static void json_libraries(FILE *to, const struct result *result)
{
    fprintf(to, "  \"contestants\": [");
    for (int c = 0; c < result->library_count; c++) {
        fprintf(to, "%s\n    {\"name\": ", c ? "," : "");
        json_text(to, result->libraries[c].name);
        fprintf(to, ", \"library\": ");
        json_text(to, result->libraries[c].release);
        fprintf(to, ", \"limit\": %s, \"reason\": ", result->libraries[c].limit ? "true" : "false");
        json_text(to, result->libraries[c].reason);
        fprintf(to, "}");
    }
    fprintf(to, "\n  ],\n");
}

static void json_times(FILE *to, const struct result *result,
                       const struct result_measurement *measurement, const struct result_time *time)
{
    fprintf(to,
            "\"time\": %.4f, \"min_us\": %.4f, \"avg_us\": %.4f, \"max_us\": %.4f, "
            "\"p50_us\": %.4f, \"p99_us\": %.4f, \"alg_bw\": %.5f, \"bus_bw\": %.5f, "
            "\"nwrong\": 0, \"samples\": %ld, \"batch\": %ld, \"rounds_us\": [",
            time->median / 1e3, time->min / 1e3, time->mean / 1e3, time->max / 1e3, time->p50 / 1e3,
            time->p99 / 1e3, result_algorithm_bandwidth(measurement, time->median),
            result_bus_bandwidth(measurement, result->ranks, time->median), time->samples,
            time->batch);
    for (int r = 0; r < time->round_count; r++)
        fprintf(to, "%s%.4f", r ? ", " : "", time->rounds[r] / 1e3);
    fprintf(to, "]");
}

static void json_point(FILE *to, const struct result *result,
                       const struct result_measurement *measurement)
{
    fprintf(to,
            "    {\"collective\": \"%s\", \"size\": %zu, \"block\": %zu, \"count\": %zu, "
            "\"type\": \"%s\", \"redop\": \"%s\", \"root\": %d, \"in_place\": %s, \"buffers\": %d, "
            "\"timing\": \"%s\", \"times\": [",
            measurement->collective, measurement->bytes, measurement->block,
            measurement->element ? measurement->block / measurement->element : 0,
            measurement->dtype, measurement->op ? measurement->op : "none", measurement->root,
            measurement->in_place ? "true" : "false", measurement->buffers,
            result_timing(measurement));
    for (int c = 0; c < result->library_count; c++) {
        const struct result_time *time = &measurement->times[c];

        fprintf(to, "%s\n      {\"contestant\": ", c ? "," : "");
        json_text(to, result->libraries[c].name);
        fprintf(to, ", ");
        if (time->measured) {
            json_times(to, result, measurement, time);
        } else {
            fprintf(to, "\"nwrong\": %d, \"reason\": ", time->wrong);
            json_text(to, time->reason);
        }
        fprintf(to, "}");
    }
    fprintf(to, "]}");
}

int print_json_file(const struct result *result, FILE *to)
{
    fprintf(to, "{\n  \"dist_bench\": 1,\n");
    json_line(to, "version", result->version);
    json_line(to, "command", result->command);
    json_line(to, "date", result->date);
    json_line(to, "host", result->host);
    json_line(to, "system", result->system);
    json_line(to, "cpu", result->cpu);
    fprintf(to, "  \"cpus\": %d,\n  \"ranks\": %d,\n  \"rounds\": %d,\n", result->cpus,
            result->ranks, result->rounds);
    json_libraries(to, result);
    fprintf(to, "  \"results\": [");
    for (int p = 0; p < result->measurement_count; p++) {
        fprintf(to, "%s\n", p ? "," : "");
        json_point(to, result, &result->measurements[p]);
    }
    fprintf(to, "\n  ]\n}\n");
    return ferror(to) ? -1 : 0;
}

static void json_end(const struct options *options, const struct result *result)
{
    (void)options;
    print_json_file(result, stdout);
}

const struct print_format print_json = {.name = "json", .end = json_end};
