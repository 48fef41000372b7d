/* SPDX-License-Identifier: BSD-3-Clause */
/* conformance BACKEND [--spawn RANKS] [--brief] [--native]: runs the battery as one rank, or as
 * many. */
#include "battery.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct settings {
    const char *backend;
    int spawn;
    bool brief;
    bool native; /* MPI's own operations: their NaN rules are MPI's */
};

/* Around every boundary: nothing, one, odd, inline limits, pieces, segments, and beyond. */
static const size_t counts[] = {0,    1,     3,     17,     1023,   1024,   2049,
                                4099, 16385, 65537, 131073, 262147, 1048583};
static const size_t counts_brief[] = {0, 1, 3, 1023, 16385, 262147};

static void run_counts(struct battery *b)
{
    const size_t *list = b->brief ? counts_brief : counts;
    size_t n = b->brief ? sizeof(counts_brief) / sizeof(counts_brief[0])
                        : sizeof(counts) / sizeof(counts[0]);

    for (size_t c = 0; c < n; c++) {
        cases_all_reduce(b, list[c], DIST_FLOAT32, DIST_SUM);
        cases_all_reduce(b, list[c], DIST_INT64, DIST_AVG);
        cases_all_reduce(b, list[c], DIST_BFLOAT16, DIST_SUM);
        cases_broadcast(b, list[c], DIST_UINT8);
        cases_all_gather(b, list[c] / 4, DIST_FLOAT64);
    }
}

static void run_types(struct battery *b)
{
    for (int dtype = 0; dtype < DIST_DTYPE_COUNT; dtype++) {
        for (int op = 0; op <= DIST_MAX; op++) {
            if (dtype == DIST_BOOL)
                continue;
            cases_all_reduce(b, 5, (dist_dtype)dtype, (dist_op)op);
            cases_all_reduce(b, 2053, (dist_dtype)dtype, (dist_op)op);
            cases_all_reduce(b, 70001, (dist_dtype)dtype, (dist_op)op);
        }
        cases_broadcast(b, 4097, (dist_dtype)dtype);
        cases_all_gather(b, 1025, (dist_dtype)dtype);
    }
}

static int run(int rank, void *arg)
{
    const struct settings *settings = arg;
    struct dist_options options = DIST_OPTIONS_INIT;
    struct battery b = {.seed = 1, .brief = settings->brief};
    dist_status status;

    (void)rank;
    options.backend = settings->backend;
    options.timeout_ms = 60 * 1000;
    status = dist_init_process_group(&options, &b.group);
    if (status != DIST_OK) {
        fprintf(stderr, "init: %s: %s\n", dist_status_string(status), dist_last_error());
        return 1;
    }
    b.rank = dist_get_rank(b.group);
    b.ranks = dist_get_world_size(b.group);
    run_counts(&b);
    run_types(&b);
    cases_barrier(&b);
    cases_async(&b);
    cases_arguments(&b);
    if (!settings->native)
        cases_special_values(&b);
    status = dist_destroy_process_group(b.group);
    if (status != DIST_OK)
        battery_fault(&b, "destroy: %s", dist_last_error());
    if (b.rank == 0 && b.faults == 0)
        printf("conformance: backend %s, %d ranks, %ld checks, no fault\n", settings->backend,
               b.ranks, b.checks);
    return b.faults || !b.checks ? 1 : 0;
}

int main(int argc, char **argv)
{
    struct settings settings = {.backend = argc > 1 ? argv[1] : "gloo"};
    int code = 1;

    for (int i = 2; i < argc; i++) {
        if (strcmp(argv[i], "--brief") == 0)
            settings.brief = true;
        else if (strcmp(argv[i], "--native") == 0)
            settings.native = true;
        else if (strcmp(argv[i], "--spawn") == 0 && i + 1 < argc)
            settings.spawn = atoi(argv[++i]);
        else
            return 2;
    }
    if (!settings.spawn)
        return run(0, &settings);
    if (dist_spawn(settings.spawn, run, &settings, &code) != DIST_OK) {
        fprintf(stderr, "spawn: %s\n", dist_last_error());
        return 1;
    }
    return code;
}
