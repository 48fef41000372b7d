/* SPDX-License-Identifier: BSD-3-Clause */
/* Which cases there are: every collective with every dtype and op, and with counts of all sizes. */
#include "battery.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct operation *const sweep_kinds[] = {
    &operation_all_reduce, &operation_all_reduce_coalesced,
    &operation_reduce,     &operation_reduce_scatter,
    &operation_broadcast,  &operation_reduce_scatter_v,
    &operation_all_gather, &operation_all_gather_v,
    &operation_gather,     &operation_gather_v,
    &operation_scatter,    &operation_scatter_v,
    &operation_all_to_all, &operation_all_to_all_v,
    &operation_exchange,   &operation_any_source,
    &operation_barrier,    NULL,
};

bool selftest_case(const char *word)
{
    for (int k = 0; sweep_kinds[k]; k++) {
        if (strcmp(word, sweep_kinds[k]->name) == 0)
            return true;
    }
    return false;
}

static bool sweep_skips(const struct battery *b, const struct operation *operation)
{
    return b->only && strcmp(b->only, operation->name) != 0;
}

/* ---- what the backend says that it supports ---- */

/* A line of `dist_info backends --format csv` that says yes. */
static bool sweep_listed(const char *table, const char *backend, dist_collective collective,
                         dist_dtype dtype, dist_op op)
{
    char line[160], wanted[160];
    FILE *file = fopen(table, "r");
    bool found = false;

    snprintf(wanted, sizeof(wanted), "%s,%s,%s,%s,yes\n", backend,
             dist_collective_string(collective), dist_dtype_string(dtype),
             dist_collective_reduces(collective) ? dist_op_string(op) : "-");
    while (file && !found && fgets(line, sizeof(line), file))
        found = strcmp(line, wanted) == 0;
    if (file)
        fclose(file);
    return found;
}

static bool sweep_supported(struct battery *b, const char *table, const struct operation *operation,
                            dist_dtype dtype, dist_op op)
{
    bool asked = dist_backend_query(b->backend, operation->collective, dtype, op) == DIST_OK;
    bool sensible = !(operation->flags & OPERATION_REDUCES) || data_fits(dtype, op);

    b->checks++;
    if (table && asked != sweep_listed(table, b->backend, operation->collective, dtype, op))
        battery_fault(b, "%s says something else of %s %s %s than the backend", table,
                      operation->name, dist_dtype_string(dtype), dist_op_string(op));
    if (b->complete && sensible && !asked)
        battery_fault(b, "%s %s %s makes sense and is not supported", operation->name,
                      dist_dtype_string(dtype), dist_op_string(op));
    if (!sensible && asked)
        battery_fault(b, "%s %s %s is said to be supported and makes no sense", operation->name,
                      dist_dtype_string(dtype), dist_op_string(op));
    return asked;
}

/* After a refusal the next call works as if nothing had been. */
static void sweep_refused(struct battery *b, const struct operation *operation,
                          const struct variant *variant)
{
    const struct variant sound = {.dtype = DIST_INT32, .op = DIST_SUM, .count = 3};

    battery_refused(b, operation, variant);
    battery_run(b, &operation_all_reduce, &sound);
}

static int sweep_places(const struct operation *operation)
{
    return operation->flags & OPERATION_IN_PLACE ? PLACE_COUNT : 1;
}

/* In place, apart, each layout, each root in turn: over all dtypes and ops each meets each. */
static void sweep_one(struct battery *b, const struct operation *operation, dist_dtype dtype,
                      dist_op op)
{
    struct variant variant = {.dtype = dtype, .op = op};
    int variants = operation->flags & OPERATION_IN_PLACE ? 2 : 1;

    for (int i = 0; i < variants; i++) {
        variant.place = i == 0 ? PLACE_APART : b->seed % 4 < 2 ? PLACE_IN : PLACE_IN_ON_ODD_RANKS;
        variant.root = (int)(b->seed % (uint64_t)b->ranks);
        variant.layout =
            operation->flags & OPERATION_LAYOUTS ? (int)(b->seed % LAYOUT_COUNT) : LAYOUT_EVEN;
        variant.count = i == 0 ? 37 : 1031;
        battery_run(b, operation, &variant);
    }
}

void sweep_support(struct battery *b, const char *table)
{
    for (int k = 0; sweep_kinds[k]; k++) {
        const struct operation *operation = sweep_kinds[k];
        int ops = operation->flags & OPERATION_REDUCES ? DIST_OP_COUNT : 1;

        for (int i = 0; i < DIST_DTYPE_COUNT * ops && !sweep_skips(b, operation); i++) {
            const struct variant variant = {
                .dtype = (dist_dtype)(i / ops), .op = (dist_op)(i % ops), .count = 5};

            if (sweep_supported(b, table, operation, variant.dtype, variant.op))
                sweep_one(b, operation, variant.dtype, variant.op);
            else
                sweep_refused(b, operation, &variant);
        }
        battery_land(b);
    }
}

/* ---- counts ---- */

/* Around every boundary: nothing, one, odd, inline limits, pieces, segments, and beyond. */
static const size_t counts[] = {0,    1,    3,     17,    1023,   1024,   2048,
                                2049, 4099, 16385, 65537, 131073, 262147, 1048583};
static const size_t counts_brief[] = {0, 1, 17, 1024, 2048, 4099, 65537};
/* From here on, in elements of all blocks together, a count is large. */
#define SWEEP_LARGE 16385

/* All roots are too many: the ends and the middle. */
static int sweep_roots(const struct battery *b, const struct operation *operation, int roots[3])
{
    roots[0] = b->ranks - 1;
    roots[1] = 0;
    roots[2] = b->ranks / 2;
    if (!(operation->flags & OPERATION_ROOTED))
        return 1;
    return b->ranks < 3 ? b->ranks : 3;
}

static void sweep_variants(struct battery *b, const struct operation *operation,
                           struct variant variant)
{
    int roots[3], root_count = sweep_roots(b, operation, roots);
    int layouts = operation->flags & OPERATION_LAYOUTS ? LAYOUT_COUNT : 1;
    int places = sweep_places(operation), all = layouts * places * root_count;

    for (int i = 0; i < all; i++) {
        variant.layout = (enum layout)(i % layouts);
        variant.place = (enum place)(i / layouts % places);
        variant.root = roots[i / layouts / places];
        battery_run(b, operation, &variant);
    }
}

/* One of the variants, another one each time. */
static void sweep_some(struct battery *b, const struct operation *operation, struct variant variant)
{
    uint64_t turn = b->seed;

    variant.layout =
        operation->flags & OPERATION_LAYOUTS ? (enum layout)(turn % LAYOUT_COUNT) : LAYOUT_EVEN;
    variant.place = (enum place)(turn / LAYOUT_COUNT % (uint64_t)sweep_places(operation));
    variant.root = operation->flags & OPERATION_ROOTED ? (int)(turn % (uint64_t)b->ranks) : 0;
    battery_run(b, operation, &variant);
}

/* Long, and in place on some ranks only: MPIs choose their algorithms by both. */
static void sweep_long_in_some(struct battery *b)
{
    const struct variant variant = {
        .dtype = DIST_FLOAT32, .op = DIST_SUM, .count = 65537, .place = PLACE_IN_ON_ODD_RANKS};

    static const struct operation *const operations[] = {&operation_all_reduce,
                                                         &operation_all_gather};

    for (int i = 0; i < 2; i++) {
        if (!sweep_skips(b, operations[i]))
            battery_run(b, operations[i], &variant);
    }
    battery_land(b);
}

void sweep_counts(struct battery *b)
{
    static const dist_dtype dtypes[] = {DIST_FLOAT32, DIST_INT64, DIST_BFLOAT16, DIST_UINT8,
                                        DIST_FLOAT64};
    static const dist_op ops[] = {DIST_SUM, DIST_AVG, DIST_SUM, DIST_BXOR, DIST_USER};
    const size_t *list = b->brief ? counts_brief : counts;
    size_t n = b->brief ? sizeof(counts_brief) / sizeof(counts_brief[0])
                        : sizeof(counts) / sizeof(counts[0]);

    for (size_t i = 0; i < n; i++) {
        for (int k = 0; sweep_kinds[k]; k++) {
            size_t blocks = sweep_kinds[k]->flags & OPERATION_BLOCKS ? (size_t)b->ranks : 1;
            size_t turn = (i + (size_t)k) % (sizeof(dtypes) / sizeof(dtypes[0]));
            struct variant variant = {
                .dtype = dtypes[turn], .op = ops[turn], .count = (list[i] + blocks - 1) / blocks};
            bool few = b->brief && list[i] >= SWEEP_LARGE;

            if (sweep_skips(b, sweep_kinds[k]) ||
                dist_backend_query(b->backend, sweep_kinds[k]->collective, variant.dtype,
                                   variant.op) != DIST_OK)
                continue;
            (few ? sweep_some : sweep_variants)(b, sweep_kinds[k], variant);
        }
        battery_land(b);
    }
    sweep_long_in_some(b);
}
