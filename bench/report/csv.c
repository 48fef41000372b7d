/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads what --format csv writes, twice: libraries come before the first measurement. */
#include "csv.h"

#include "bench/measure/operation.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The columns that are read; others may stand between them. Older files lack the last. */
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
    int place[COLUMNS];          /* of each column, from 0 */
    const char *fields[COLUMNS]; /* of the line, in text */
};

static char csv_failure[512];

static int csv_wrong(const struct csv *csv, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static int csv_wrong(const struct csv *csv, const char *format, ...)
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

/* The next line, without its end; false: there is none. */
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
            return csv_wrong(csv, "there is no column %s", csv_names[c]);
    return 0;
}

/* 1: the fields of the next line are there, 0: the end, -1: it lacks one. */
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
            return csv_wrong(csv, "there is no field %s", csv_names[c]);
    return 1;
}

static int csv_library(const struct result *result, const char *name)
{
    int c = 0;

    while (c < result->library_count && strcmp(result->libraries[c].name, name) != 0)
        c++;
    return c;
}

/* One line of the first reading. */
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

static int csv_point(const struct csv *csv, struct result_measurement *measurement_p)
{
    const struct operation *operation = operation_find(csv->fields[COLLECTIVE]);
    int dtype = operation_dtype(csv->fields[DTYPE]), op = operation_op(csv->fields[OP]);
    char *end;

    *measurement_p = (struct result_measurement){.root = atoi(csv->fields[ROOT]),
                                                 .in_place = csv->fields[IN_PLACE][0] == '1',
                                                 .apart = strcmp(csv->fields[TIMING], "osu") == 0,
                                                 .bytes = strtoul(csv->fields[SIZE], &end, 10),
                                                 .window = 1};
    if (!operation || dtype < 0 || end == csv->fields[SIZE] || *end)
        return csv_wrong(csv, "'%s', '%s', '%s' are not a collective, a size and a dtype",
                         csv->fields[COLLECTIVE], csv->fields[SIZE], csv->fields[DTYPE]);
    measurement_p->collective = operation->name;
    measurement_p->dtype = dist_dtype_string((dist_dtype)dtype);
    measurement_p->op = op < 0 ? NULL : dist_op_string((dist_op)op);
    return 0;
}

/* One line of the second reading. The lines of a measurement stand together. */
static int csv_add_time(const struct csv *csv, struct result *result)
{
    struct result_measurement read,
        *measurement =
            result->measurement_count ? &result->measurements[result->measurement_count - 1] : NULL;
    int c = csv_library(result, csv->fields[CONTESTANT]);

    if (csv_point(csv, &read) != 0)
        return -1;
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
