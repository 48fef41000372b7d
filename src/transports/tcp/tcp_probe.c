/* SPDX-License-Identifier: BSD-3-Clause */
/* Which peer's message waits for its receive. */
#include "transports/tcp/tcp_state.h"

/* Has the reading stopped at a message with this tag? Then its header lies in the stash. */
static bool probe_stopped_at(const struct tcp_peer *peer, uint64_t tag)
{
    struct dist_envelope envelope;
    enum disti_tcp_kind kind;

    return peer->stopped && peer->in.stash_bytes >= DISTI_TCP_FRAME_BYTES &&
           disti_tcp_frame_decode(peer->in.stash, &kind, &envelope) && kind == DISTI_TCP_MESSAGE &&
           envelope.tag == tag;
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
