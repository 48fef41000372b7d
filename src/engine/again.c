/* SPDX-License-Identifier: BSD-3-Clause */
/* A short call that comes again: begun as it was the last time, without a task. */
#include "base/collective.h"
#include "engine/state.h"

void disti_again_learn(struct dist_engine *engine, const struct dist_call *call,
                       const struct disti_node_op *op)
{
    struct engine_again *again = &engine->again[call->collective];

    if ((again->repeats && again->repeats == call->repeats) ||
        disti_collective_uneven(call->collective)) /* its lists may be gone by then */
        return;
    again->repeats = 0;
    if (!call->waits || !disti_node_can_start_again(engine->node, op))
        return;
    again->repeats = call->repeats;
    again->op = *op;
}

/* A v-form that is not the last one: whole, but without a task. Its lists are the core's, and stay
 * while calls have its number. */
__attribute__((noinline)) static dist_status
again_uneven(struct dist_engine *engine, const struct dist_call *call, struct engine_again *again)
{
    struct disti_node_op *op = &again->op;
    uint64_t fingerprint;
    dist_status status;

    if (!disti_collective_uneven(call->collective))
        return DIST_ERR_UNSUPPORTED;
    fingerprint = disti_fingerprint(call, engine->config->world_size);
    if (!disti_on_node_begin(engine, call, fingerprint, op, &status))
        return DIST_ERR_UNSUPPORTED;
    again->repeats = disti_node_can_start_again(engine->node, op) ? call->repeats : 0;
    engine->begun = status == DIST_OK ? NULL : op;
    return status;
}

/* The others are not there yet, or something is wrong: the post will see. */
__attribute__((cold, noinline)) static dist_status
again_left(struct dist_engine *engine, struct disti_node_op *op, dist_status status)
{
    if (status == DIST_ERR_UNSUPPORTED)
        disti_mismatch_uncalled(&engine->calls);
    else
        engine->begun = op;
    return status;
}

dist_status disti_engine_at_once(struct dist_engine *engine, const struct dist_call *call)
{
    struct engine_again *again = &engine->again[call->collective];
    uint64_t history;
    dist_status status;

    if (engine->calls.unpolled || engine->calls.next != call->sequence)
        return DIST_ERR_UNSUPPORTED;
    if (again->repeats != call->repeats)
        return again_uneven(engine, call, again);
    history = disti_mismatch_next(&engine->calls, call->sequence, again->op.fingerprint);
    status = disti_node_start_again(engine->node, call, history, &again->op);
    return status == DIST_OK ? DIST_OK : again_left(engine, &again->op, status);
}
