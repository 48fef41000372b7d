/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Prints results in the formats of OSU's programs and NCCL's tests, as a table, CSV and JSON; reads
 * CSV.
 */
#include "bench/measure.h"
#include "bench/report.h"
#include "tools/common/output.h"
#include "tools/common/text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    if (options->check)
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
    if (options->check)
        printf("%20s", time->wrong ? "Fail" : "Pass");
    if (options->full)
        printf("%20.2f%20.2f", time->p50 / 1e3, time->p99 / 1e3);
    printf("\n");
    output_flush();
}

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

    if (!time || !time->measured)
        printf("%9s %7s %7s %6s", "N/A", "N/A", "N/A", time && time->wrong ? "1" : "N/A");
    else
        printf("%9.2f %7.2f %7.2f %6s", time->median / 1e3,
               result_algorithm_bandwidth(measurement, time->median),
               result_bus_bandwidth(measurement, result->ranks, time->median),
               options->check ? "0" : "N/A");
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

/* Several libraries side by side, and CSV. */

/* ---- table ---- */

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
        printf("; ratio: relative to %s", result->libraries[0].name);
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
               one->reason && *one->release ? ". " : "", one->reason ? "EXCLUDED: " : "",
               one->reason ? one->reason : "");
    }
}

/* ---- CSV ---- */

static void csv_begin(const struct options *options, const struct result *result)
{
    (void)options, (void)result;
    printf("collective,size,block,dtype,op,root,in_place,ranks,contestant,time_us,min_us,avg_us,"
           "max_us,p50_us,p99_us,algbw,busbw,iterations,buffers,timing,status\n");
}

static void csv_point(const struct options *options, const struct result *result,
                      const struct result_measurement *a, const struct result_measurement *b)
{
    const struct result_measurement *measurement = a ? a : b;

    for (int c = 0; c < result->library_count; c++) {
        const struct result_time *time = &measurement->times[c];

        printf("%s,%zu,%zu,%s,%s,%d,%d,%d,%s,", measurement->collective, measurement->bytes,
               measurement->block, measurement->dtype, measurement->op ? measurement->op : "-",
               measurement->root, measurement->in_place, result->ranks, result->libraries[c].name);
        if (time->measured)
            printf("%.3f,%.3f,%.3f,%.3f,%.3f,%.3f,%.4f,%.4f,%ld", time->median / 1e3,
                   time->min / 1e3, time->mean / 1e3, time->max / 1e3, time->p50 / 1e3,
                   time->p99 / 1e3, result_algorithm_bandwidth(measurement, time->median),
                   result_bus_bandwidth(measurement, result->ranks, time->median),
                   time->samples * time->batch);
        else
            printf(",,,,,,,,");
        printf(",%d,%s,%s\n", measurement->buffers, measurement->apart ? "osu" : "row",
               time->wrong       ? "wrong"
               : !time->measured ? "missing"
               : options->check  ? "right"
                                 : "unchecked");
    }
    output_flush();
}

/*
 * The results as JSON, for --format json and --save. Keys have the names of nccl-tests where one
 * exists.
 */

static void json_text(FILE *to, const char *text)
{
    if (!text) {
        fputs("null", to);
        return;
    }
    json_quoted(text, to);
}

static void json_line(FILE *to, const char *name, const char *text)
{
    fprintf(to, "  \"%s\": ", name);
    json_text(to, text);
    fprintf(to, ",\n");
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
            measurement->apart ? "osu" : "row");
    for (int c = 0; c < result->library_count; c++) {
        const struct result_time *time = &measurement->times[c];

        fprintf(to, "%s\n      {\"contestant\": ", c ? "," : "");
        json_text(to, result->libraries[c].name);
        fprintf(to, ", ");
        if (time->measured) {
            fprintf(to,
                    "\"time\": %.4f, \"min_us\": %.4f, \"avg_us\": %.4f, \"max_us\": %.4f, "
                    "\"p50_us\": %.4f, \"p99_us\": %.4f, \"alg_bw\": %.5f, \"bus_bw\": %.5f, "
                    "\"nwrong\": 0, \"samples\": %ld, \"batch\": %ld, \"rounds_us\": [",
                    time->median / 1e3, time->min / 1e3, time->mean / 1e3, time->max / 1e3,
                    time->p50 / 1e3, time->p99 / 1e3,
                    result_algorithm_bandwidth(measurement, time->median),
                    result_bus_bandwidth(measurement, result->ranks, time->median), time->samples,
                    time->batch);
            for (int r = 0; r < time->round_count; r++)
                fprintf(to, "%s%.4f", r ? ", " : "", time->rounds[r] / 1e3);
            fprintf(to, "]");
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

static const struct print_format print_formats[] = {
    {.name = "osu", .head = osu_head, .measurement = osu_point},
    {.name = "nccl", .pairs = true, .head = nccl_head, .measurement = nccl_point, .end = nccl_end},
    {.name = "table", .head = table_head, .measurement = table_point, .end = table_end},
    {.name = "csv", .begin = csv_begin, .measurement = csv_point},
    {.name = "json", .end = json_end},
};

const struct print_format *print_find(const char *name)
{
    for (size_t i = 0; i < sizeof(print_formats) / sizeof(print_formats[0]); i++) {
        if (strcmp(print_formats[i].name, name) == 0)
            return &print_formats[i];
    }
    return NULL;
}

/*
 * Reads the output of --format csv in two passes, because all libraries must be added before the
 * first measurement.
 */

/* The columns that are read; other columns are ignored. Older files lack TIMING. */
enum csv_column {
    COLLECTIVE,
    SIZE,
    DTYPE,
    OP,
    ROOT,
    IN_PLACE,
    RANKS,
    CONTESTANT,
    TIME,
    TIMING,
    COLUMNS
};
static const char *const csv_names[COLUMNS] = {"collective", "size",     "dtype", "op",
                                               "root",       "in_place", "ranks", "contestant",
                                               "time_us",    "timing"};

struct csv {
    const char *name;
    FILE *file;
    int line;
    char text[1024];
    int place[COLUMNS];          /* index of each column, from 0 */
    const char *fields[COLUMNS]; /* of the current line; point into text */
};

static char csv_failure[512];

__attribute__((format(printf, 2, 3))) static int csv_wrong(const struct csv *csv,
                                                           const char *format, ...)
{
    char line[16] = "";
    va_list arguments;
    int length;

    if (csv->line)
        snprintf(line, sizeof(line), "%d:", csv->line);
    length = snprintf(csv_failure, sizeof(csv_failure), "%s:%s ", csv->name, line);
    if (length < 0 || (size_t)length >= sizeof(csv_failure))
        return -1;
    va_start(arguments, format);
    vsnprintf(csv_failure + length, sizeof(csv_failure) - (size_t)length, format, arguments);
    va_end(arguments);
    return -1;
}

/* Reads the next line, without its newline; false: end of file. */
static bool csv_line(struct csv *csv)
{
    csv->line++;
    if (!fgets(csv->text, sizeof(csv->text), csv->file))
        return false;
    csv->text[strcspn(csv->text, "\n")] = '\0';
    return true;
}

/* Finds the columns in the first line. */
static int csv_head(struct csv *csv)
{
    char *rest = csv->text, *name;
    int found = 1 << TIMING;

    csv->place[TIMING] = -1;

    if (!csv_line(csv))
        return csv_wrong(csv, "the file is empty");
    for (int place = 0; (name = strsep(&rest, ",")); place++) {
        for (int c = 0; c < COLUMNS; c++) {
            if (strcmp(name, csv_names[c]) == 0) {
                csv->place[c] = place;
                found |= 1 << c;
            }
        }
    }
    for (int c = 0; c < COLUMNS; c++)
        if (!(found & 1 << c))
            return csv_wrong(csv, "no column %s", csv_names[c]);
    return 0;
}

/* Reads the fields of the next line. Returns 1, 0 at the end, -1 if a field is missing. */
static int csv_next(struct csv *csv)
{
    char *rest = csv->text, *field;

    if (!csv_line(csv))
        return 0;
    memset(csv->fields, 0, sizeof(csv->fields));
    for (int place = 0; (field = strsep(&rest, ",")); place++)
        for (int c = 0; c < COLUMNS; c++)
            if (csv->place[c] == place)
                csv->fields[c] = field;
    if (csv->place[TIMING] < 0)
        csv->fields[TIMING] = "row";
    for (int c = 0; c < COLUMNS; c++)
        if (!csv->fields[c])
            return csv_wrong(csv, "no field %s", csv_names[c]);
    return 1;
}

static int csv_library(const struct result *result, const char *name)
{
    int c = 0;

    while (c < result->library_count && strcmp(result->libraries[c].name, name) != 0)
        c++;
    return c;
}

/* First pass: adds the library of a line. */
static int csv_add_library(const struct csv *csv, struct result *result)
{
    const char *name = csv->fields[CONTESTANT];

    result->ranks = atoi(csv->fields[RANKS]);
    if (result->ranks < 1)
        return csv_wrong(csv, "'%s' is not a number of ranks", csv->fields[RANKS]);
    if (csv_library(result, name) == result->library_count &&
        result_add_library(result, name, strcmp(name, "limit") == 0) != 0)
        return csv_wrong(csv, "out of memory");
    return 0;
}

/* Second pass: adds the time of a line. The lines of a measurement must be adjacent. */
static int csv_add_time(const struct csv *csv, struct result *result)
{
    const struct operation *operation = operation_find(csv->fields[COLLECTIVE]);
    int dtype = operation_dtype(csv->fields[DTYPE]), op = operation_op(csv->fields[OP]);
    int c = csv_library(result, csv->fields[CONTESTANT]), last = result->measurement_count - 1;
    struct result_measurement *measurement = last >= 0 ? &result->measurements[last] : NULL;
    char *end;
    struct result_measurement read = {.root = atoi(csv->fields[ROOT]),
                                      .in_place = csv->fields[IN_PLACE][0] == '1',
                                      .apart = strcmp(csv->fields[TIMING], "osu") == 0,
                                      .bytes = strtoul(csv->fields[SIZE], &end, 10),
                                      .window = 1};

    if (!operation || dtype < 0 || end == csv->fields[SIZE] || *end)
        return csv_wrong(csv, "invalid collective, size or dtype: '%s', '%s', '%s'",
                         csv->fields[COLLECTIVE], csv->fields[SIZE], csv->fields[DTYPE]);
    read.collective = operation->name;
    read.dtype = dist_dtype_string((dist_dtype)dtype);
    read.op = op < 0 ? NULL : dist_op_string((dist_op)op);
    if (!measurement || measurement->collective != read.collective ||
        measurement->bytes != read.bytes || measurement->dtype != read.dtype ||
        measurement->op != read.op || measurement->root != read.root ||
        measurement->in_place != read.in_place || measurement->apart != read.apart)
        measurement = result_add_measurement(result, &read);
    if (!measurement)
        return csv_wrong(csv, "out of memory");
    measurement->times[c].median = strtod(csv->fields[TIME], NULL) * 1e3;
    measurement->times[c].measured = measurement->times[c].median > 0;
    return 0;
}

static int csv_lines(struct csv *csv, struct result *result,
                     int (*add)(const struct csv *csv, struct result *result))
{
    int more;

    rewind(csv->file);
    csv->line = 0;
    if (csv_head(csv) != 0)
        return -1;
    while ((more = csv_next(csv)) > 0)
        if (add(csv, result) != 0)
            return -1;
    return more;
}

struct result *csv_read(const char *file, const char **failure_p)
{
    struct csv csv = {.name = file, .file = fopen(file, "re")};
    struct result *result = result_new(1, 0, NULL);

    *failure_p = csv_failure;
    if (!csv.file || !result)
        csv_wrong(&csv, "%s", strerror(csv.file ? ENOMEM : errno));
    if (!csv.file || !result || csv_lines(&csv, result, csv_add_library) != 0 ||
        csv_lines(&csv, result, csv_add_time) != 0) {
        result_free(result);
        result = NULL;
    }
    if (csv.file)
        fclose(csv.file);
    return result;
}
