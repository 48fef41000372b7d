/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds the likely reason that the oldest call waits, for the error of its timeout. */
#include "engine/state.h"

#include <limits.h>
#include <stdio.h>

/* The messages of point to point that no receive has taken: of any tag, announcements included. */
#define HINT_MASK (DISTI_TAG_GROUP_MASK | UINT64_C(3) << 42 | UINT64_C(3) << 31)

/* A search for a message of a sender, and the oldest one found. */
struct hint_look {
    int from; /* the sender, or DIST_ANY_SOURCE */
    bool found;
    int peer;
    struct dist_envelope envelope;
};

static bool hint_see(void *arg, int peer, const struct dist_envelope *envelope)
{
    struct hint_look *look = arg;

    if (look->found || (look->from != DIST_ANY_SOURCE && look->from != peer))
        return false;
    look->found = true;
    look->peer = peer;
    look->envelope = *envelope;
    return false;
}

/* Only the endpoint's lock and what the visit of a transport changes are not const. */
static bool hint_find(const struct dist_engine *engine, struct hint_look *look)
{
    const uint64_t tag = disti_tag_p2p(engine->config->group, 0, 0);

    for (int i = 0; i < engine->link_count && !look->found; i++) {
        struct engine_attachment *link = (struct engine_attachment *)&engine->links[i];

        if (link->peers)
            disti_attachment_unexpected(link, tag, HINT_MASK, INT_MAX, hint_see, look);
    }
    return look->found;
}

void disti_engine_hint(const struct dist_engine *engine, const struct engine_task *task,
                       const struct engine_p2p *p2p, char *text, size_t size)
{
    if (!size)
        return;
    text[0] = '\0';
    if (!task && !p2p)
        return;
    /*
     * Writes the transport's text on the first peer that messages do not reach: one that is waited
     * for, or else any. A send ends before its message has arrived, so this rank may not wait for
     * its receiver.
     */
    const int ranks = engine->route ? engine->config->world_size : 0;
    for (int waits = 1; waits >= 0; waits--) {
        for (int peer = 0; peer < ranks && !text[0]; peer++) {
            if (peer != engine->config->rank && (task ? disti_task_waits_for(engine, task, peer)
                                                      : p2p->call.root == peer) == (bool)waits)
                disti_attachment_trouble(&engine->links[engine->route[peer]], peer, text, size);
        }
    }
    if (!text[0] && p2p) {
        /* A partner on this rank is missing, or the other rank is in the same kind of call. */
        const bool sends = p2p->call.collective == DIST_COLL_SEND;
        const int peer = p2p->call.root;
        struct hint_look look = {.from = peer};
        size_t used;
        if (p2p->state == P2P_HELD)
            return;
        if (peer == engine->config->rank) {
            snprintf(text, size,
                     "; a message from a rank to itself needs a send and a receive, but this rank "
                     "has posted no %s with tag %d: start one of the two with %s, or put both "
                     "between dist_group_start and dist_group_end",
                     sends ? "receive" : "send", p2p->call.tag,
                     sends ? "dist_irecv" : "dist_isend");
            return;
        }
        if (!hint_find(engine, &look)) {
            if (sends)
                snprintf(text, size,
                         "; this send completes when its receive is posted: check that rank %d "
                         "calls dist_recv with tag %d",
                         peer, p2p->call.tag);
            return;
        }
        used = (size_t)snprintf(text, size,
                                "; a message with tag %u from rank %d (%llu bytes) has arrived, "
                                "but no receive matches it",
                                (unsigned)(look.envelope.tag & DIST_TAG_MAX), look.peer,
                                disti_message_bytes(&look.envelope));
        if (used >= size)
            return;
        if (sends)
            snprintf(
                text + used, size - used,
                ": both ranks send first, and neither receives. Send with dist_isend, or put send "
                "and receive between dist_group_start and dist_group_end");
        else
            snprintf(text + used, size - used,
                     ": this rank waits for tag %d. Use the same tag on both ranks", p2p->call.tag);
    }
}
