/* SPDX-License-Identifier: BSD-3-Clause */
/* The conformance battery: what every backend must do, checked from outside. */
#ifndef TESTS_CONFORMANCE_BATTERY_H
#define TESTS_CONFORMANCE_BATTERY_H

#include <dist/dist.h>

/* Faults found and checks made by this rank. */
struct battery {
    dist_group *group;
    int rank, ranks;
    bool brief; /* fewer counts */
    uint64_t seed;
    long checks, faults;
};

/* Prints "rank R: FAULT ..." (the first few) and counts it. */
void battery_fault(struct battery *b, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- data.c: the numbers, and the results computed another way ---- */

/* What rank contributes at element i, within what the type can hold and the op can stand. */
double data_value(uint64_t seed, int rank, size_t i, dist_dtype dtype, dist_op op);

/* Writes rank's count elements to memory. */
void data_fill(void *memory, uint64_t seed, int rank, size_t count, dist_dtype dtype, dist_op op);

/*
 * Is memory[i] the reduction of all ranks' values? Computed rank by rank in float64, or in
 * 64-bit integers for integer types; floats within the rounding of ranks additions.
 */
bool data_reduced(const void *memory, uint64_t seed, int ranks, size_t i, dist_dtype dtype,
                  dist_op op, double *expected_p, double *found_p);

/* Is memory[i] exactly what rank contributes? */
bool data_same(const void *memory, uint64_t seed, int rank, size_t i, size_t at, dist_dtype dtype,
               dist_op op);

/* ---- cases.c ---- */
void cases_all_reduce(struct battery *b, size_t count, dist_dtype dtype, dist_op op);
void cases_broadcast(struct battery *b, size_t count, dist_dtype dtype);
void cases_all_gather(struct battery *b, size_t count, dist_dtype dtype);
void cases_barrier(struct battery *b);
void cases_async(struct battery *b);
void cases_arguments(struct battery *b);
void cases_special_values(struct battery *b);

#endif
