/* SPDX-License-Identifier: BSD-3-Clause */
/* The choice of an algorithm and its segments by predicted time. */
#include "tuning/choose.h"

#include "base/kernels/environment.h"
#include "base/log.h"
#include "topology/topology.h"

#include <float.h>

/* Steps of all ranks together that one choice may simulate: some milliseconds. */
#define CHOOSE_STEPS 100000
/* A plan that is longer than that would leave nothing for its rivals. */
#define CHOOSE_STEPS_EACH (CHOOSE_STEPS / 2)
/* Segments go no shorter, nor are there more. */
#define CHOOSE_SEGMENT_LEAST 4096
#define CHOOSE_SEGMENTS_MAX 64
/* So much of the rules' time must be left over, or their choice stays. */
#define CHOOSE_GAIN 0.9

/* What one choice is about, the steps that it may still simulate, and the best so far. */
struct choose {
    const struct disti_choice *choice;
    const struct disti_tuning *tuning;
    const struct disti_topology *topology;
    dist_collective collective;
    size_t bytes;
    uint64_t steps;
    double best;        /* seconds */
    dist_status status; /* ERR_NO_MEMORY: other ranks, which have it, may choose otherwise */
};

/* Is it known? A plan that there is not is no failure. */
static bool choose_knows(struct choose *choose, dist_status status)
{
    if (status == DIST_ERR_NO_MEMORY)
        choose->status = status;
    return status == DIST_OK;
}

const char *disti_reason_string(enum disti_reason reason)
{
    switch (reason) {
#define REASON_CASE(name, text)                                                                    \
    case DISTI_REASON_##name:                                                                      \
        return text;
        DISTI_REASON_MAP(REASON_CASE)
#undef REASON_CASE
    }
    return "";
}

/* What rank 0 alone has to do for its plan: the whole takes no less. Seconds. */
static double choose_least(const struct choose *choose, const struct disti_plan *plan)
{
    const struct disti_cost *cost = &choose->tuning->cost;
    double numa = cost->links[DISTI_SAME_NUMA].overhead_s;
    double inside = cost->links[DISTI_SAME_NODE].overhead_s;
    double outside = cost->links[DISTI_OTHER_NODE].overhead_s, least;
    int node = disti_node_of(choose->topology, 0);

    inside = numa < inside ? numa : inside;
    least = cost->step_s * plan->step_count;
    for (uint32_t i = 0; i < plan->step_count; i++) {
        const struct disti_step *step = &plan->steps[i];

        if (step->kind == DISTI_SEND || step->kind == DISTI_RECV || step->kind == DISTI_RECV_REDUCE)
            least += disti_node_of(choose->topology, step->peer) == node ? inside : outside;
    }
    return least;
}

/*
 * Is it worth to be simulated? Sets the least that it takes. The steps of all ranks are about so
 * many times those of rank 0.
 */
static bool choose_worth(struct choose *choose, const struct disti_shape *shape,
                         const struct disti_algorithm *algorithm, double *least_p)
{
    struct disti_plan *plan;
    uint64_t steps;

    if (!choose_knows(choose, disti_plan_write(algorithm, shape, &plan)))
        return false;
    steps = (uint64_t)plan->step_count * (uint64_t)choose->topology->ranks;
    *least_p = choose_least(choose, plan);
    disti_plan_free(plan);
    if (*least_p >= choose->best || steps > CHOOSE_STEPS_EACH || steps > choose->steps)
        return false;
    choose->steps -= steps;
    return true;
}

/* Fills the candidate's times. False: there is no such plan, or it is not worth the work. */
static bool choose_predict(struct choose *choose, struct disti_candidate *candidate)
{
    const struct disti_shape shape = {.collective = choose->collective,
                                      .ranks = choose->topology->ranks,
                                      .segments = candidate->segments,
                                      .topology = choose->topology};
    double seconds;

    candidate->seconds = candidate->least = -1;
    if (!choose_worth(choose, &shape, candidate->algorithm, &candidate->least) ||
        !choose_knows(choose, disti_simulate(candidate->algorithm, &shape, choose->bytes,
                                             &choose->tuning->cost, &seconds)) ||
        !(seconds >= 0))
        return false;
    candidate->seconds = seconds;
    choose->best = seconds < choose->best ? seconds : choose->best;
    return true;
}

/* May it be cut into so many segments? */
static bool choose_may_cut(const struct choose *choose, const struct disti_algorithm *algorithm,
                           uint32_t segments)
{
    size_t pieces =
        (size_t)(algorithm->pieces == DISTI_RANKS ? choose->topology->ranks : algorithm->pieces);

    return segments >= 1 && segments <= CHOOSE_SEGMENTS_MAX &&
           (segments == 1 || choose->bytes / pieces / segments >= CHOOSE_SEGMENT_LEAST);
}

/* Goes on from candidate->segments, doubling or halving, as long as that gains. True: it did. */
static bool choose_climb(struct choose *choose, bool up, struct disti_candidate *candidate)
{
    bool gained = false;

    for (;;) {
        struct disti_candidate next = *candidate;

        next.segments = up ? candidate->segments * 2 : candidate->segments / 2;
        if (!choose_may_cut(choose, next.algorithm, next.segments) ||
            !choose_predict(choose, &next) || next.seconds >= candidate->seconds)
            return gained;
        *candidate = next;
        gained = true;
    }
}

/* The algorithm as the rules would cut it. */
static struct disti_candidate choose_rule_cut(struct choose *choose,
                                              const struct disti_algorithm *algorithm)
{
    struct disti_candidate candidate = {
        .algorithm = algorithm,
        .segments =
            disti_select_segments(choose->choice, algorithm, choose->bytes, choose->topology)};

    choose_predict(choose, &candidate);
    return candidate;
}

/* And at its best. */
static void choose_best_cut(struct choose *choose, struct disti_candidate *candidate)
{
    if (candidate->seconds < 0 || !candidate->algorithm->pieces || choose->choice->forced_segments)
        return;
    if (!choose_climb(choose, true, candidate))
        choose_climb(choose, false, candidate);
}

/* The rules' choice first, so that there is something to compare with. */
static void choose_candidates(struct choose *choose, struct disti_chosen *chosen)
{
    bool ordered = choose->choice->reproducible && disti_algorithm_reduces(choose->collective);
    const struct disti_algorithm *forced = choose->choice->forced[choose->collective];

    chosen->rule = choose_rule_cut(choose, chosen->rule.algorithm);
    chosen->candidates[chosen->count] = chosen->rule;
    choose_best_cut(choose, &chosen->candidates[chosen->count++]);
    for (const struct disti_algorithm *a = disti_algorithms; a->name; a++) {
        struct disti_candidate *candidate = &chosen->candidates[chosen->count];

        if (a->collective != choose->collective || a == chosen->rule.algorithm ||
            (ordered && !a->ordered) || (forced && a != forced) ||
            chosen->count == DISTI_CANDIDATES_MAX)
            continue;
        *candidate = choose_rule_cut(choose, a);
        choose_best_cut(choose, candidate);
        chosen->count++;
    }
}

/* Why nothing is to be simulated; PREDICTED: it is. */
static enum disti_reason choose_hindrance(const struct choose *choose)
{
    const struct disti_topology *topology = choose->topology;

    if (topology->ranks == 1)
        return DISTI_REASON_RULE_SINGLE;
    if (!choose->tuning->predict)
        return DISTI_REASON_RULE_OFF;
    if (disti_select_blind(choose->collective))
        return DISTI_REASON_RULE_BLIND;
    if (topology->ranks > DISTI_CHOOSE_RANKS)
        return DISTI_REASON_RULE_RANKS;
    /* Ordered plans are written on a flat topology, which has this one's distances only if the
     * ranks stand in this order on the nodes too. */
    for (int i = 0; choose->choice->reproducible && i < topology->ranks; i++) {
        if (topology->order[i] != i)
            return DISTI_REASON_RULE_ORDER;
    }
    return DISTI_REASON_PREDICTED;
}

static void choose_best(struct disti_chosen *chosen)
{
    chosen->reason = DISTI_REASON_RULE_STEPS;
    if (chosen->rule.seconds < 0)
        return;
    chosen->reason = DISTI_REASON_RULE_NEAR;
    for (int i = 0; i < chosen->count; i++) {
        const struct disti_candidate *candidate = &chosen->candidates[i];

        if (candidate->seconds < 0 || candidate->seconds >= chosen->best.seconds)
            continue;
        if (candidate->seconds < CHOOSE_GAIN * chosen->rule.seconds) {
            chosen->best = *candidate;
            chosen->reason = DISTI_REASON_PREDICTED;
        }
    }
}

/* What somebody has said comes before what is predicted. */
static void choose_said(const struct choose *choose, struct disti_chosen *chosen)
{
    const struct disti_choice *choice = choose->choice;
    const struct disti_fixed *fixed = disti_tuning_fixed(choose->tuning, choose->collective,
                                                         choose->bytes, choose->topology->ranks);
    const struct disti_algorithm *algorithm = fixed ? &disti_algorithms[fixed->algorithm] : NULL;

    if (choice->forced[choose->collective]) {
        if (chosen->reason != DISTI_REASON_PREDICTED)
            chosen->best = chosen->rule;
        chosen->reason = DISTI_REASON_FORCED;
        return;
    }
    if (!fixed || (choice->reproducible && disti_algorithm_reduces(choose->collective) &&
                   !algorithm->ordered))
        return;
    chosen->reason = DISTI_REASON_FIXED;
    chosen->best = (struct disti_candidate){
        .algorithm = algorithm,
        .segments = fixed->segments && !choice->forced_segments
                        ? fixed->segments
                        : disti_select_segments(choice, algorithm, choose->bytes, choose->topology),
        .seconds = -1};
}

dist_status disti_choose(const struct disti_choice *choice, const struct disti_tuning *tuning,
                         const struct disti_topology *topology, dist_collective collective,
                         size_t bytes, struct disti_chosen *chosen_p)
{
    struct choose choose = {.choice = choice,
                            .tuning = tuning,
                            .topology = topology,
                            .collective = collective,
                            .bytes = bytes,
                            .steps = CHOOSE_STEPS,
                            .best = DBL_MAX};
    /* The choice must be the same on all ranks. */
    const disti_environment saved = disti_environment_enter();

    chosen_p->count = 0;
    chosen_p->rule.seconds = chosen_p->rule.least = -1;
    disti_select(choice, collective, bytes, topology, &chosen_p->rule.algorithm,
                 &chosen_p->rule.segments);
    chosen_p->reason = choose_hindrance(&choose);
    chosen_p->best = chosen_p->rule;
    if (chosen_p->reason == DISTI_REASON_PREDICTED) {
        choose_candidates(&choose, chosen_p);
        chosen_p->best = chosen_p->rule;
        choose_best(chosen_p);
    }
    choose_said(&choose, chosen_p);
    disti_environment_leave(saved);
    return choose.status;
}

/* ---- remembered ---- */

int disti_size_class(size_t bytes)
{
    return bytes <= 1 ? (int)bytes : 65 - __builtin_clzll((unsigned long long)(bytes - 1));
}

size_t disti_size_class_most(int size_class)
{
    if (size_class == 0)
        return 0;
    return size_class > 64 ? SIZE_MAX : (size_t)1 << (size_class - 1);
}

static dist_status chooser_learn(struct disti_chooser *chooser, dist_collective collective,
                                 int size_class)
{
    size_t most = disti_size_class_most(size_class);
    struct disti_chosen chosen;
    dist_status status = disti_choose(chooser->choice, chooser->tuning, chooser->topology,
                                      collective, most, &chosen);

    if (status != DIST_OK)
        return status;
    chooser->known[collective][size_class].algorithm = chosen.best.algorithm;
    chooser->known[collective][size_class].segments = chosen.best.segments;
    disti_info("%s of up to %zu bytes a block: %s, %u segments, since %s",
               dist_collective_string(collective), most, chosen.best.algorithm->name,
               chosen.best.segments, disti_reason_string(chosen.reason));
    return DIST_OK;
}

dist_status disti_chooser_pick(struct disti_chooser *chooser, dist_collective collective,
                               size_t bytes, const struct disti_algorithm **algorithm_p,
                               uint32_t *segments_p)
{
    int size_class = disti_size_class(bytes);
    dist_status status = DIST_OK;

    if (!chooser->known[collective][size_class].algorithm)
        status = chooser_learn(chooser, collective, size_class);
    if (status != DIST_OK)
        return status;
    *algorithm_p = chooser->known[collective][size_class].algorithm;
    *segments_p = chooser->known[collective][size_class].segments;
    return DIST_OK;
}
