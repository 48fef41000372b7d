/* SPDX-License-Identifier: BSD-3-Clause */
/* The plans of all ranks of an algorithm, in which tests plant faults. */
#include "planted.h"

#include "topology/topology.h"

#include "../base/unit.h"

#include <string.h>

static struct planted planted_make(const struct disti_algorithm *algorithm, int ranks, int root,
                                   uint32_t segments)
{
    struct planted planted = {.ranks = ranks};
    struct disti_topology *topology = NULL;

    assert_int_equal(disti_topology_flat(ranks, &topology), DIST_OK);
    for (int rank = 0; rank < ranks; rank++) {
        const struct disti_shape shape = {
            algorithm->collective, ranks, rank, root, segments, topology};

        assert_int_equal(disti_plan_write(algorithm, &shape, &planted.plans[rank]), DIST_OK);
    }
    disti_topology_free(topology);
    return planted;
}

struct planted planted_write(dist_collective collective, const char *name, int ranks, int root,
                             uint32_t segments)
{
    const struct disti_algorithm *algorithm = disti_algorithm_find(collective, name);

    assert_non_null(algorithm);
    struct planted planted = planted_make(algorithm, ranks, root, segments);
    planted_right(&planted, false);
    planted_right(&planted, true);
    return planted;
}

struct planted planted_own(dist_collective collective, disti_algorithm_fn write, int ranks)
{
    const struct disti_algorithm algorithm = {
        .collective = collective, .name = "test", .write = write};

    return planted_make(&algorithm, ranks, 0, 1);
}

/* Users of a plan must not change it, but its memory is writable. */
static struct disti_step *planted_steps(const struct planted *planted, int rank)
{
    return (struct disti_step *)planted->plans[rank]->steps;
}

struct disti_step *planted_step(const struct planted *planted, int rank, uint32_t lane,
                                uint32_t step)
{
    const struct disti_plan *plan = planted->plans[rank];

    assert_true(lane < plan->lane_count && step < plan->lanes[lane].count);
    return planted_steps(planted, rank) + plan->lanes[lane].first + step;
}

struct disti_step *planted_find(const struct planted *planted, int rank, enum disti_step_kind kind,
                                int n)
{
    struct disti_step *steps = planted_steps(planted, rank);

    for (uint32_t i = 0; i < planted->plans[rank]->step_count; i++)
        if (steps[i].kind == kind && n-- == 0)
            return &steps[i];
    fail_msg("rank %d has no such step", rank);
    return NULL;
}

void planted_drop(const struct planted *planted, int rank, const struct disti_step *step)
{
    struct disti_plan *plan = planted->plans[rank];
    struct disti_lane *lanes = (struct disti_lane *)plan->lanes;
    struct disti_step *steps = planted_steps(planted, rank);
    uint32_t at = (uint32_t)(step - steps), lane = 0;

    while (at >= lanes[lane].first + lanes[lane].count)
        lane++;
    uint32_t within = at - lanes[lane].first;
    memmove(&steps[at], &steps[at + 1], (plan->step_count - at - 1) * sizeof(*steps));
    plan->step_count--;
    lanes[lane].count--;
    for (uint32_t l = lane + 1; l < plan->lane_count; l++)
        lanes[l].first--;
    for (uint32_t i = 0; i < plan->step_count; i++) {
        if (steps[i].wait_lane != lane || steps[i].wait_step < within)
            continue;
        if (steps[i].wait_step == 0)
            steps[i].wait_lane = DISTI_NO_LANE;
        else
            steps[i].wait_step--;
    }
}

void planted_right(const struct planted *planted, bool in_place)
{
    struct disti_verdict verdict;

    assert_int_equal(disti_verify(planted->plans, in_place, &verdict), DIST_OK);
    if (!verdict.ok)
        fail_msg("%s", verdict.text);
}

void planted_wrong(const struct planted *planted, bool in_place, const char *what)
{
    struct disti_verdict verdict;

    assert_int_equal(disti_verify(planted->plans, in_place, &verdict), DIST_OK);
    if (verdict.ok || !strstr(verdict.text, what))
        fail_msg("the verdict is '%s' and does not contain '%s'",
                 verdict.ok ? "right" : verdict.text, what);
}

void planted_free(struct planted *planted)
{
    for (int rank = 0; rank < planted->ranks; rank++)
        disti_plan_free(planted->plans[rank]);
}
