/* SPDX-License-Identifier: BSD-3-Clause */
/* Prints results, measurement by measurement as they come. */
#ifndef BENCH_PRINT_H
#define BENCH_PRINT_H

#include "bench/options.h"
#include "result.h"

/* One way of printing. Any function may be NULL. */
struct print_format {
    const char *name;
    bool pairs; /* wants each size out of place and in place */
    void (*begin)(const struct options *options, const struct result *result);
    void (*head)(const struct options *options, const struct result *result,
                 const struct result_measurement
                     *measurement); /* before the first measurement of a collective */
    /* a: out of place, or the only one; b: in place. Either may be NULL. */
    void (*measurement)(const struct options *options, const struct result *result,
                        const struct result_measurement *a, const struct result_measurement *b);
    void (*end)(const struct options *options, const struct result *result);
};

extern const struct print_format print_osu, print_nccl, print_table, print_csv, print_json;

const struct print_format *print_find(const char *name);

/* The results as JSON; returns 0, or -1 if writing failed. */
int print_json_file(const struct result *result, FILE *to);

#endif
