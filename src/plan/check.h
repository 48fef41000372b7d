/* SPDX-License-Identifier: BSD-3-Clause */
/* What builder and verifier share: is one plan, taken alone, well formed? */
#ifndef DISTI_PLAN_CHECK_H
#define DISTI_PLAN_CHECK_H

#include "plan/plan.h"

/* Chunks of IN or OUT. */
static inline uint32_t disti_plan_chunks(const struct disti_plan *plan, uint8_t space)
{
    return disti_plan_blocks(plan, space) * plan->chunks;
}

/* Chunks of the data. They can be numbered, or there is no plan. */
static inline uint32_t disti_plan_data_chunks(const struct disti_plan *plan)
{
    return (uint32_t)disti_plan_data_blocks(plan) * plan->chunks;
}

/* Does the step exchange a message with its peer? */
static inline bool disti_step_talks(const struct disti_step *step)
{
    return step->kind <= DISTI_RECV_REDUCE;
}

/*
 * Kinds, peers, ranges, waits, lanes of messages. ERR_NO_MEMORY; ERR_INTERNAL and what is wrong
 * in text[size].
 */
dist_status disti_plan_check(const struct disti_plan *plan, char *text, size_t size);

#endif
