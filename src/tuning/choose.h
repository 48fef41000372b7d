/* SPDX-License-Identifier: BSD-3-Clause */
/* Selects the algorithm of a call and its number of segments, by rules and by predicted time. */
#ifndef DISTI_TUNING_CHOOSE_H
#define DISTI_TUNING_CHOOSE_H

#include "plan/plan.h"
#include "tuning/tuning.h"

/* The user's choices: DIST_ALGO="all_reduce:ring,broadcast:chain", DIST_SEGMENTS,
 * DIST_REPRODUCIBLE. */
struct disti_choice {
    const struct disti_algorithm *forced[DIST_COLL_COUNT];
    uint32_t forced_segments; /* 0: not forced */
    bool reproducible;        /* reductions use only ordered algorithms */
};

/*
 * Parses the value of DIST_ALGO (NULL or empty: nothing is forced) and reads DIST_SEGMENTS. With
 * `reproducible`, only ordered algorithms may be forced for reductions. ERR_INVALID_ARGUMENT; the
 * error lists the algorithms that may be forced.
 */
dist_status disti_choice_parse(const char *text, bool reproducible, struct disti_choice *choice_p);

/*
 * Selects by the rules, for blocks of `bytes` bytes (in a _V form: the mean block, rounded down).
 * All ranks must get the same result, so it depends only on what all ranks know: for GATHER_V,
 * SCATTER_V and ALL_TO_ALL_V the bytes are ignored. Never fails.
 *
 * If choice->reproducible and disti_algorithm_reduces(collective), the caller must write the plan
 * on a flat topology (disti_topology_flat), so that additions are in the order of ranks.
 */
void disti_select(const struct disti_choice *choice, dist_collective collective, size_t bytes,
                  const struct disti_topology *topology, const struct disti_algorithm **algorithm_p,
                  uint32_t *segments_p);

/* True if each rank knows only its own counts, so the selection must not depend on the bytes. */
bool disti_counts_are_private(dist_collective collective);

/* ---- selection by predicted time ---- */

/* With more ranks nothing is simulated, and the rules decide. */
#define DISTI_CHOOSE_RANKS 64
#define DISTI_CANDIDATES_MAX 64

/* Reasons for a choice: X(name, text) */
#define DISTI_REASON_MAP(X)                                                                        \
    X(PREDICTED, "it has the shortest predicted time")                                             \
    X(RULE_NEAR, "the rules select it, and no algorithm is predicted to be 10 % faster")           \
    X(FORCED, "DIST_ALGO or DIST_SEGMENTS forces it")                                              \
    X(FIXED, "the tuning file sets it")                                                            \
    X(RULE_OFF, "the rules select it; predictions are turned off")                                 \
    X(RULE_SINGLE, "a single rank sends no messages")                                              \
    X(RULE_BLIND, "the rules select it; the ranks do not know each other's counts")                \
    X(RULE_RANKS, "the rules select it; there are too many ranks to simulate at a call")           \
    X(RULE_ORDER,                                                                                  \
      "the rules select it; results are reproducible, and ranks are not in node order")            \
    X(RULE_STEPS, "the rules select it; its plan is too long to simulate at a call")

enum disti_reason {
#define DISTI_REASON_ENUM(name, text) DISTI_REASON_##name,
    DISTI_REASON_MAP(DISTI_REASON_ENUM)
#undef DISTI_REASON_ENUM
};

const char *disti_reason_string(enum disti_reason reason);

struct disti_candidate {
    const struct disti_algorithm *algorithm;
    uint32_t segments;
    double seconds; /* predicted time; negative: not predicted */
    double least;   /* lower bound on the time; if it exceeds the best time so far, the candidate is
                       not simulated */
};

struct disti_chosen {
    /* the selected candidate; the one that the rules would select */
    struct disti_candidate best, rule;
    enum disti_reason reason;
    int count;
    /* each algorithm with its best number of segments */
    struct disti_candidate candidates[DISTI_CANDIDATES_MAX];
};

/*
 * Selects for blocks of `bytes` bytes (as in disti_select). If predictions are possible, simulates
 * each algorithm with several numbers of segments. The fastest wins if it is 10 % faster than the
 * choice of the rules. It simulates at most some ten thousand steps. The result depends only on the
 * arguments, so ranks with equal arguments get equal results; if something cannot be simulated, the
 * rules decide. ERR_NO_MEMORY: *chosen_p is not usable, since a rank with memory might have
 * selected another algorithm.
 */
dist_status disti_choose(const struct disti_choice *choice, const struct disti_tuning *tuning,
                         const struct disti_topology *topology, dist_collective collective,
                         size_t bytes, struct disti_chosen *chosen_p);

/* Size classes: powers of two, (2^(k - 1), 2^k], and 0. disti_size_class_max() returns the largest
 * size of a class. */
#define DISTI_SIZE_CLASSES 66
int disti_size_class(size_t bytes);
size_t disti_size_class_max(int size_class);

/* A cache of choices by size class. Not thread-safe. */
struct disti_chooser {
    const struct disti_choice *choice;
    const struct disti_tuning *tuning;
    const struct disti_topology *topology;
    struct {
        const struct disti_algorithm *algorithm; /* NULL: not selected yet */
        uint32_t segments;
    } known[DIST_COLL_COUNT][DISTI_SIZE_CLASSES];
};

/* Returns the cached choice. The first call for a class uses disti_choose() with the class's
 * largest size. ERR_NO_MEMORY. */
dist_status disti_chooser_pick(struct disti_chooser *chooser, dist_collective collective,
                               size_t bytes, const struct disti_algorithm **algorithm_p,
                               uint32_t *segments_p);

#endif
