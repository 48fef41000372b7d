/* SPDX-License-Identifier: BSD-3-Clause */
/* Which algorithm, and how many segments, for a call, as rules say that look at no costs. */
#ifndef DISTI_TUNING_CHOOSE_H
#define DISTI_TUNING_CHOOSE_H

#include "plan/plan.h"
#include "tuning/tuning.h"

/* What is forced, DIST_ALGO="all_reduce:ring,broadcast:chain" and DIST_SEGMENTS; 0: nothing. */
struct disti_choice {
    const struct disti_algorithm *forced[DIST_COLL_COUNT];
    uint32_t forced_segments; /* 0: not forced */
    bool reproducible;        /* of what reduces, only ordered algorithms */
};

/*
 * text: DIST_ALGO's, NULL or empty: no algorithm is forced. Reads DIST_SEGMENTS itself.
 * reproducible: what reduces may be forced to ordered algorithms only. ERR_INVALID_ARGUMENT; the
 * error lists the algorithms that may be forced.
 */
dist_status disti_choice_parse(const char *text, bool reproducible, struct disti_choice *choice_p);

/*
 * Chooses for blocks of `bytes` bytes (of a _V form: the mean block, rounded down). Every rank must
 * come to the same answer, so it depends on nothing but what all ranks know: of GATHER_V, SCATTER_V
 * and ALL_TO_ALL_V the bytes are not looked at. Never fails.
 *
 * Where choice->reproducible and disti_algorithm_reduces(collective), the plan must then be written
 * on a flat topology (disti_topology_flat): the order of additions is by rank, wherever ranks are.
 */
void disti_select(const struct disti_choice *choice, dist_collective collective, size_t bytes,
                  const struct disti_topology *topology, const struct disti_algorithm **algorithm_p,
                  uint32_t *segments_p);

/* Does each rank know its own counts only, so that the bytes must have no say? */
bool disti_select_blind(dist_collective collective);

/* The choice of an algorithm and its segments by predicted time. */

/* More ranks are not simulated: the rules choose. */
#define DISTI_CHOOSE_RANKS 64
#define DISTI_CANDIDATES_MAX 64

/* Why a choice is what it is. X(name, text) */
#define DISTI_REASON_MAP(X)                                                                        \
    X(PREDICTED, "it has the shortest predicted time")                                             \
    X(RULE_NEAR, "the rules say so, and no other is predicted to be a tenth faster")               \
    X(FORCED, "DIST_ALGO or DIST_SEGMENTS says so")                                                \
    X(FIXED, "the tuning file says so")                                                            \
    X(RULE_OFF, "the rules say so, and predictions are turned off")                                \
    X(RULE_SINGLE, "a single rank sends no messages")                                              \
    X(RULE_BLIND, "the rules say so: no rank knows the bytes of the others")                       \
    X(RULE_RANKS, "the rules say so: there are too many ranks to simulate at a call")              \
    X(RULE_ORDER, "the rules say so: results are reproducible, and ranks are not in node order")   \
    X(RULE_STEPS, "the rules say so: its plan is too long to simulate at a call")

enum disti_reason {
#define DISTI_REASON_ENUM(name, text) DISTI_REASON_##name,
    DISTI_REASON_MAP(DISTI_REASON_ENUM)
#undef DISTI_REASON_ENUM
};

const char *disti_reason_string(enum disti_reason reason);

struct disti_candidate {
    const struct disti_algorithm *algorithm;
    uint32_t segments;
    double seconds; /* predicted; below 0: it was not */
    double least; /* it takes no less, so it was not predicted if this is more than the best has */
};

struct disti_chosen {
    struct disti_candidate best, rule; /* what is chosen; what the rules would choose */
    enum disti_reason reason;
    int count;
    struct disti_candidate candidates[DISTI_CANDIDATES_MAX]; /* each algorithm at its best */
};

/*
 * Chooses for blocks of that many bytes, as disti_select does, which says what the rules are. Where
 * costs may be looked at, each algorithm is simulated with several numbers of segments, and the
 * shortest wins if it gains a tenth on the rules' choice. Bounded: at most some ten thousand steps
 * are simulated, whatever is asked. A pure function of its arguments, so that ranks with the same
 * ones choose alike: what cannot be simulated the rules choose. ERR_NO_MEMORY, and *chosen_p is of
 * no use: a rank with memory might have chosen otherwise.
 */
dist_status disti_choose(const struct disti_choice *choice, const struct disti_tuning *tuning,
                         const struct disti_topology *topology, dist_collective collective,
                         size_t bytes, struct disti_chosen *chosen_p);

/* Sizes are put into classes by powers of two, (2^(k - 1), 2^k], and 0. */
#define DISTI_SIZE_CLASSES 66
int disti_size_class(size_t bytes);
size_t disti_size_class_most(int size_class);

/* Choices that are remembered by class. One thread at a time. */
struct disti_chooser {
    const struct disti_choice *choice;
    const struct disti_tuning *tuning;
    const struct disti_topology *topology;
    struct {
        const struct disti_algorithm *algorithm; /* NULL: not asked for yet */
        uint32_t segments;
    } known[DIST_COLL_COUNT][DISTI_SIZE_CLASSES];
};

/* What is remembered; the first time disti_choose, for the most bytes of the class. ERR_NO_MEMORY.
 */
dist_status disti_chooser_pick(struct disti_chooser *chooser, dist_collective collective,
                               size_t bytes, const struct disti_algorithm **algorithm_p,
                               uint32_t *segments_p);

#endif
