/* SPDX-License-Identifier: BSD-3-Clause */
/* Preload: what was served, what was handed on, and why. */
#include "preload/preload.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const report_names[DISTI_KINDS] = {
#define REPORT_NAME(KIND, name, ...) [DISTI_##KIND] = #name,
    DISTI_CALLS(REPORT_NAME, int, int)
#undef REPORT_NAME
};

static const char *const report_begun[DISTI_KINDS] = {
#define REPORT_NAME(KIND, name, begin, ...) [DISTI_##KIND] = #begin,
    DISTI_CALLS(REPORT_NAME, int, int)
#undef REPORT_NAME
};

static const char *const report_reasons[DISTI_WHY_COUNT] = {
#define REPORT_REASON(name, text) text,
    DISTI_REASONS(REPORT_REASON)
#undef REPORT_REASON
};

static atomic_llong report_counts[DISTI_KINDS][DISTI_FORMS][DISTI_WHY_COUNT];

void disti_report_count(enum disti_kind kind, enum disti_form form, enum disti_why reason)
{
    atomic_llong *count = &report_counts[kind][form][reason];

    if (disti_preload.turns)
        atomic_fetch_add_explicit(count, 1, memory_order_relaxed);
    else
        atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + 1,
                              memory_order_relaxed);
}

static void report_row(int kind, int form, const long long counts[DISTI_WHY_COUNT])
{
    static const char *const prefix = "MPI_";
    long long handed_on = 0;
    char name[64];

    for (int why = DISTI_WHY_SERVED + 1; why < DISTI_WHY_COUNT; why++)
        handed_on += counts[why];
    if (!counts[DISTI_WHY_SERVED] && !handed_on)
        return;
    snprintf(name, sizeof(name), "%s%s%s", prefix,
             form == DISTI_NONBLOCKING ? report_begun[kind] : report_names[kind],
             form == DISTI_PERSISTENT ? "_init" : "");
    fprintf(stderr, "libdist: %-30s %10lld %10lld\n", name, counts[DISTI_WHY_SERVED], handed_on);
}

static void report_table(long long counts[DISTI_KINDS][DISTI_FORMS][DISTI_WHY_COUNT])
{
    long long reasons[DISTI_WHY_COUNT] = {0};
    const char *backend = disti_preload.active ? dist_get_backend(disti_preload.world) : "none";

    fprintf(stderr, "libdist: calls of all %d ranks, backend %s\n", disti_preload.ranks, backend);
    fprintf(stderr, "libdist: %-30s %10s %10s\n", "call", "served", "handed on");
    for (int kind = 0; kind < DISTI_KINDS; kind++) {
        for (int form = 0; form < DISTI_FORMS; form++) {
            report_row(kind, form, counts[kind][form]);
            for (int why = 0; why < DISTI_WHY_COUNT; why++)
                reasons[why] += counts[kind][form][why];
        }
    }
    for (int why = DISTI_WHY_SERVED + 1; why < DISTI_WHY_COUNT; why++) {
        if (reasons[why])
            fprintf(stderr, "libdist: handed on %lld: %s\n", reasons[why], report_reasons[why]);
    }
}

bool disti_report_is_wanted(void)
{
    const char *asked = secure_getenv("DIST_MPI_REPORT");

    return asked && *asked && strcmp(asked, "0") != 0;
}

void disti_report_print(void)
{
    long long own[DISTI_KINDS][DISTI_FORMS][DISTI_WHY_COUNT];
    long long all[DISTI_KINDS][DISTI_FORMS][DISTI_WHY_COUNT] = {0};
    long long *from = &own[0][0][0];
    atomic_llong *to = &report_counts[0][0][0];
    int n = DISTI_KINDS * DISTI_FORMS * DISTI_WHY_COUNT;

    if (!(disti_preload.facts & DISTI_FACT_REPORTS))
        return;
    for (int i = 0; i < n; i++)
        from[i] = atomic_load(&to[i]);
    PMPI_Reduce(from, &all[0][0][0], n, MPI_LONG_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    if (disti_preload.rank == 0)
        report_table(all);
}
