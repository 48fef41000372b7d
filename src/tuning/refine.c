/* SPDX-License-Identifier: BSD-3-Clause */
/* A choice that is refined while the program runs: who tries what, and when all know the best. */
#include "tuning/refine.h"

#include <stdlib.h>
#include <string.h>

/* ---- what is tried ---- */

static bool refine_has(const struct disti_refine *refine, const struct disti_candidate *candidate)
{
    for (int i = 0; i < refine->count; i++) {
        if (refine->candidates[i].algorithm == candidate->algorithm)
            return true;
    }
    return false;
}

/* The fastest that is not there yet and not too slow; NULL: there is none. */
static const struct disti_candidate *refine_next(const struct disti_chosen *chosen,
                                                 const struct disti_refine *refine)
{
    const struct disti_candidate *next = NULL;

    for (int i = 0; i < chosen->count; i++) {
        const struct disti_candidate *candidate = &chosen->candidates[i];

        if (candidate->seconds >= 0 &&
            candidate->seconds <= DISTI_CHOOSE_NEAR * chosen->best.seconds &&
            (!next || candidate->seconds < next->seconds) && !refine_has(refine, candidate))
            next = candidate;
    }
    return next;
}

void disti_refine_init(const struct disti_chosen *chosen, struct disti_refine *refine_p)
{
    const struct disti_candidate *next = &chosen->best;

    memset(refine_p, 0, sizeof(*refine_p));
    if (chosen->reason != DISTI_REASON_PREDICTED && chosen->reason != DISTI_REASON_RULE_NEAR)
        return;
    while (next && refine_p->count < DISTI_REFINE_MOST) {
        refine_p->candidates[refine_p->count++] = *next;
        next = refine_next(chosen, refine_p);
    }
}

/* ---- turns ---- */

static uint32_t refine_trials(const struct disti_refine *refine)
{
    return refine->count < 2 ? 0
                             : (uint32_t)(refine->count * DISTI_REFINE_RUN * DISTI_REFINE_ROUNDS);
}

struct disti_refine_turn disti_refine_post(struct disti_refine *refine)
{
    struct disti_refine_turn turn = {.refine = refine, .tries = -1};
    uint32_t number = refine->posted, trials = refine_trials(refine);

    if (!trials)
        return (struct disti_refine_turn){.refine = NULL};
    if (number < trials) {
        turn.tries = (int)(number / DISTI_REFINE_RUN) % refine->count;
        turn.counts = number % DISTI_REFINE_RUN != 0;
    }
    turn.decides = number == trials;
    refine->posted += number <= trials;
    return turn;
}

bool disti_refine_knows(const struct disti_refine_turn *turn)
{
    return !turn->refine || turn->tries >= 0 || turn->refine->agreed;
}

int disti_refine_candidate(const struct disti_refine_turn *turn)
{
    return turn->tries >= 0 ? turn->tries : turn->refine->best;
}

/* ---- times ---- */

void disti_refine_ended(const struct disti_refine_turn *turn, double seconds)
{
    struct disti_refine *refine = turn->refine;

    if (!refine || turn->tries < 0)
        return;
    refine->ended++;
    if (turn->counts)
        refine->times[turn->tries][refine->counted[turn->tries]++] = seconds;
}

static int refine_compare(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;

    return (a > b) - (a < b);
}

bool disti_refine_ready(const struct disti_refine *refine)
{
    return refine->ended >= refine_trials(refine);
}

void disti_refine_sum(struct disti_refine *refine)
{
    for (int i = 0; i < refine->count; i++) {
        qsort(refine->times[i], DISTI_REFINE_TIMES, sizeof(double), refine_compare);
        refine->medians[i] = refine->times[i][DISTI_REFINE_TIMES / 2];
    }
}

void disti_refine_agree(struct disti_refine *refine)
{
    refine->best = 0;
    for (int i = 1; i < refine->count; i++) {
        if (refine->medians[i] < refine->medians[refine->best])
            refine->best = i;
    }
    refine->agreed = true;
}
