/* SPDX-License-Identifier: BSD-3-Clause */
/* A choice that is refined while the program runs: who tries what, and when all know the best. */
#ifndef DISTI_TUNING_REFINE_H
#define DISTI_TUNING_REFINE_H

#include "tuning/choose.h"

/*
 * The first calls of a collective in a size class try the best few candidates, in runs:
 *
 *   call   0 1 2 3 | 4 5 6 7 | 8 9 10 11 | 12 ...        | 36   | 37 ...
 *          a a a a | b b b b | c c c  c  | a  ... c      | D    | the best
 *          ^ not counted: what came before is still on its way, and connections are made
 *
 * What a call tries follows from its number alone, so all ranks agree without a word. At D they
 * agree on the times: each rank has a median of each candidate, and the one whose slowest rank was
 * fastest is the best. That takes a little all-reduce, which begins when the calls that try have
 * ended on this rank. D and the calls behind it may be posted before that: they wait for it.
 */
#define DISTI_REFINE_MOST 3
#define DISTI_REFINE_RUN 4
#define DISTI_REFINE_ROUNDS 3
#define DISTI_REFINE_TIMES (DISTI_REFINE_ROUNDS * (DISTI_REFINE_RUN - 1))
/* Of one collective and size class of a group. One thread at a time. */
struct disti_refine {
    int count; /* candidates; below 2: there is nothing to try, the choice stays */
    struct disti_candidate candidates[DISTI_REFINE_MOST]; /* the predicted choice is the first */
    uint32_t posted, ended;                               /* calls that try */
    int counted[DISTI_REFINE_MOST];
    double times[DISTI_REFINE_MOST][DISTI_REFINE_TIMES]; /* this rank's, in seconds */
    double medians[DISTI_REFINE_MOST]; /* this rank's; once all agree, the slowest rank's */
    bool agreed;
    int best; /* 0 until all agree */
};

/* Which calls of the class this is. */
struct disti_refine_turn {
    struct disti_refine *refine; /* NULL: the choice is not refined */
    int tries;                   /* this candidate; below 0: the best, once that is known */
    bool counts;                 /* its time does */
    bool decides;                /* it is D */
};

/* What there is to try, of a choice that was predicted. */
void disti_refine_init(const struct disti_chosen *chosen, struct disti_refine *refine_p);

/* The next call of the class, in the order in which all ranks post them. */
struct disti_refine_turn disti_refine_post(struct disti_refine *refine);

/* A call that tries has ended on this rank, and took so long. */
void disti_refine_ended(const struct disti_refine_turn *turn, double seconds);

/* Have all calls that try ended on this rank? */
bool disti_refine_ready(const struct disti_refine *refine);

/* Then: sets the medians, of which all ranks' greatest are to be found. */
void disti_refine_sum(struct disti_refine *refine);

/* The medians are those of the slowest ranks now: which candidate is the best. */
void disti_refine_agree(struct disti_refine *refine);

/* Can a call that has this turn begin? One that does not try must know the best. */
bool disti_refine_knows(const struct disti_refine_turn *turn);

/* The candidate for such a call; until the best is known the first stands for it. */
int disti_refine_candidate(const struct disti_refine_turn *turn);

#endif
