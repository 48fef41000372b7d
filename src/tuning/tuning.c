/* SPDX-License-Identifier: BSD-3-Clause */
/* Costs and fixed choices: their ranges, and which one fits. */
#include "tuning/tuning.h"

#include "tuning/terms.h"

#include <string.h>

#define NS 1e-9
#define SECOND_NS 1000000000ull
#define TERABYTE 1000000000000ull

#define TERM(word, field, unit, least, most)                                                       \
    {                                                                                              \
        word, offsetof(struct disti_cost, field), unit, least, most                                \
    }
#define LINK(word, distance)                                                                       \
    TERM(word "_latency_ns", links[distance].latency_s, NS, 1, SECOND_NS),                         \
        TERM(word "_overhead_ns", links[distance].overhead_s, NS, 0, SECOND_NS),                   \
        TERM(word "_bytes_per_second", links[distance].bytes_per_second, 1, 1000, 100 * TERABYTE)

const struct tuning_term disti_tuning_terms[] = {
    LINK("same_numa", DISTI_SAME_NUMA),
    LINK("same_node", DISTI_SAME_NODE),
    LINK("other_node", DISTI_OTHER_NODE),
    LINK("other_rack", DISTI_OTHER_RACK),
    TERM("copy_bytes_per_second", copy_bytes_per_second, 1, 1000000, 100 * TERABYTE),
    TERM("reduce_bytes_per_second", reduce_bytes_per_second, 1, 1000000, 100 * TERABYTE),
    TERM("node_bytes_per_second", node_bytes_per_second, 1, 1000000, 100 * TERABYTE),
    TERM("network_bytes_per_second", network_bytes_per_second, 1, 1000000, 100 * TERABYTE),
    TERM("step_ns", step_s, NS, 1, SECOND_NS),
    TERM("switch_ns", switch_s, NS, 1, SECOND_NS),
    {NULL, 0, 0, 0, 0},
};

static double *tuning_value(struct disti_cost *cost, const struct tuning_term *term)
{
    return (double *)((char *)cost + term->offset);
}

uint64_t disti_term_get(const struct disti_cost *cost, const struct tuning_term *term)
{
    double units = *(const double *)((const char *)cost + term->offset) / term->unit + 0.5;

    if (!(units > (double)term->least)) /* not a number, too */
        return term->least;
    return units >= (double)term->most ? term->most : (uint64_t)units;
}

void disti_term_set(struct disti_cost *cost, const struct tuning_term *term, uint64_t value)
{
    *tuning_value(cost, term) = (double)value * term->unit;
}

void disti_tuning_usual(struct disti_tuning *tuning_p)
{
    memset(tuning_p, 0, sizeof(*tuning_p));
    memcpy(&tuning_p->cost, &disti_cost_usual, sizeof(tuning_p->cost));
    tuning_p->predict = 1;
    strcpy(tuning_p->source, "usual values, nothing measured");
}

void disti_tuning_round(struct disti_tuning *tuning)
{
    for (const struct tuning_term *term = disti_tuning_terms; term->word; term++)
        disti_term_set(&tuning->cost, term, disti_term_get(&tuning->cost, term));
}

/* Rounding leaves what is within its range, but for half a unit. */
static bool tuning_in_range(const struct disti_cost *cost, const struct tuning_term *term)
{
    double units = *(const double *)((const char *)cost + term->offset) / term->unit;

    return units >= (double)term->least - 0.5 && units <= (double)term->most * 1.000001;
}

static bool tuning_fixed_sane(const struct disti_fixed *fixed)
{
    int rows = 0;

    while (disti_algorithms[rows].name)
        rows++;
    return fixed->algorithm >= 0 && fixed->algorithm < rows && fixed->collective >= 0 &&
           disti_algorithms[fixed->algorithm].collective == (dist_collective)fixed->collective &&
           fixed->segments <= DISTI_SEGMENTS_MOST;
}

bool disti_tuning_sane(const struct disti_tuning *tuning)
{
    bool sane = tuning->predict <= 1 && tuning->fixed_count <= DISTI_FIXED_MAX &&
                memchr(tuning->source, '\0', sizeof(tuning->source));

    for (const struct tuning_term *term = disti_tuning_terms; sane && term->word; term++)
        sane = tuning_in_range(&tuning->cost, term);
    for (uint32_t i = 0; sane && i < tuning->fixed_count; i++)
        sane = tuning_fixed_sane(&tuning->fixed[i]);
    return sane;
}

const struct disti_fixed *disti_tuning_fixed(const struct disti_tuning *tuning,
                                             dist_collective collective, size_t bytes, int ranks)
{
    for (uint32_t i = 0; i < tuning->fixed_count; i++) {
        const struct disti_fixed *fixed = &tuning->fixed[i];

        if (fixed->collective == (int32_t)collective && bytes <= fixed->bytes &&
            ranks <= fixed->ranks)
            return fixed;
    }
    return NULL;
}
