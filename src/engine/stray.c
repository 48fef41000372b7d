/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages that no receive will ever meet. Ranks that were called with different counts or roots
 * may follow plans that never send each other anything that is expected. What does arrive is the
 * proof: a message of the call with another fingerprint, which nobody receives.
 */
#include "engine/state.h"

static bool stray_find(struct dist_engine *engine, struct engine_task *task)
{
    uint64_t tag = disti_tag_collective(engine->config->group, task->call.sequence, 0);
    struct dist_request found = {.envelope.fingerprint = task->fingerprint, .peer = -1};

    for (int i = 0; i < engine->link_count && found.peer < 0; i++) {
        const struct engine_link *link = &engine->links[i];

        if (link->peers && link->transport->probe_stray)
            found.peer =
                link->transport->probe_stray(link->state, tag, task->fingerprint, &found.arrived);
    }
    if (found.peer < 0)
        return false;
    task->stray = found;
    return true;
}

bool disti_stray_look(struct dist_engine *engine)
{
    bool found = false;

    for (struct engine_task *task = engine->head; task; task = task->next) {
        if ((task->running || task->turn.refine) && !task->agrees && !task->on_node)
            found |= stray_find(engine, task);
    }
    return found;
}
