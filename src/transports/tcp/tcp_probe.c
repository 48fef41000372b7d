/* SPDX-License-Identifier: BSD-3-Clause */
/* Looks at peers that change nothing: whose message waits for its receive, what can be said. */
#include "transports/tcp/tcp_state.h"

#include <stdio.h>

/* Has the reading stopped at a message with this tag? Then its header lies in the stash. */
static bool probe_stopped_at(const struct tcp_peer *peer, uint64_t tag)
{
    struct dist_envelope envelope;
    enum disti_tcp_kind kind;

    return peer->stopped && peer->in.stash_bytes >= DISTI_TCP_FRAME_BYTES &&
           disti_tcp_frame_decode(peer->in.stash, &kind, &envelope) &&
           (kind == DISTI_TCP_MESSAGE || kind == DISTI_TCP_ANNOUNCED) && envelope.tag == tag;
}

/* When the oldest waiting message with this tag came (disti_match_order); 0: there is none. */
static uint64_t probe_peer(const struct tcp_peer *peer, uint64_t tag)
{
    const struct disti_early *early = disti_match_waiting(&peer->match, tag);

    if (early)
        return early->order;
    return probe_stopped_at(peer, tag) ? peer->stopped_order : 0;
}

int disti_tcp_probe_tag(void *instance, uint64_t tag)
{
    const struct tcp_state *state = instance;
    uint64_t oldest = UINT64_MAX;
    int found = -1;

    for (int rank = 0; rank < state->world_size; rank++) {
        uint64_t order = state->peers[rank] ? probe_peer(state->peers[rank], tag) : 0;

        if (order && order < oldest) {
            oldest = order;
            found = rank;
        }
    }
    return found;
}

int disti_tcp_probe_stray(void *instance, uint64_t tag, uint64_t fingerprint,
                          struct dist_envelope *envelope_p)
{
    const struct tcp_state *state = instance;

    for (int rank = 0; rank < state->world_size; rank++) {
        const struct tcp_peer *peer = state->peers[rank];
        const struct disti_early *early =
            peer ? disti_match_stray(&peer->match, tag, fingerprint) : NULL;

        if (early) {
            *envelope_p = early->envelope;
            return rank;
        }
    }
    return -1;
}

void disti_tcp_describe(void *instance, int rank, char *text, size_t size)
{
    static const char *const phases[] = {"not connected", "calling", "greeting", "connected",
                                         "lost"};
    struct tcp_state *state = instance;
    const struct tcp_peer *peer = NULL;
    char address[TCP_TEXT];

    if (rank >= 0 && rank < state->world_size && state->peers)
        peer = state->peers[rank];
    if (!peer) {
        snprintf(text, size, "tcp: no peer");
        return;
    }
    disti_tcp_endpoint_text(&peer->endpoint, address, sizeof(address));
    snprintf(text, size, "tcp %s, %s, %llu bytes sent, %llu received, %zu held early, %d sockets%s",
             address, phases[peer->phase], (unsigned long long)peer->sent_bytes,
             (unsigned long long)peer->received_bytes, peer->match.held_bytes,
             peer->rails ? peer->rails->up + 1 : 1,
             peer->stopped ? ", not read until receives are posted" : "");
}
