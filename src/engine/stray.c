/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages that no receive will ever meet. Ranks that were called with different counts or roots
 * may follow plans that never send each other anything that is expected. What does arrive is the
 * proof: a message of the call with another fingerprint, which nobody receives.
 */
#include "engine/state.h"

#include <limits.h>

/* What is looked for: the first message of the call with another fingerprint. */
static bool stray_see(void *arg, int peer, const struct dist_envelope *envelope)
{
    struct dist_request *found = arg;

    if (found->peer < 0 && envelope->fingerprint != found->envelope.fingerprint) {
        found->peer = peer;
        found->arrived = *envelope;
    }
    return false;
}

static bool stray_find(struct dist_engine *engine, struct engine_task *task)
{
    uint64_t tag = disti_tag_collective(engine->config->group, task->call.sequence, 0);
    struct dist_request found = {.envelope.fingerprint = task->fingerprint, .peer = -1};

    for (int i = 0; i < engine->link_count && found.peer < 0; i++) {
        struct engine_link *link = &engine->links[i];

        if (link->peers && link->transport->unexpected)
            disti_link_unexpected(link, tag, ~UINT64_C(0xffff), INT_MAX, stray_see, &found);
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
