/* SPDX-License-Identifier: BSD-3-Clause */
/* Looks at peers that change nothing: whose message waits for its receive, what can be said. */
#include "transports/tcp/state.h"

#include <stdio.h>

/* When the oldest waiting message with this tag came (disti_match_order); 0: there is none. */
static uint64_t probe_peer(const struct tcp_peer *peer, uint64_t tag)
{
    const struct disti_unexpected *unexpected = disti_match_waiting(&peer->match, tag);

    return unexpected ? unexpected->order : 0;
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

void disti_tcp_unexpected(void *instance, uint64_t tag, uint64_t mask, int most,
                          dist_unexpected_fn see, void *arg)
{
    const struct tcp_state *state = instance;
    const struct disti_look look = {tag, mask, most, see, arg};

    for (int rank = 0; state->unexpected_count && rank < state->world_size; rank++) {
        if (state->peers[rank])
            disti_match_show(&state->peers[rank]->match, rank, &look);
    }
}

void disti_tcp_describe(void *instance, int rank, char *text, size_t size)
{
    static const char *const states[] = {
        [TCP_CONN_IDLE] = "not connected", [TCP_CONN_CALLING] = "calling",
        [TCP_CONN_GREETING] = "greeting",  [TCP_CONN_UP] = "connected",
        [TCP_CONN_WAITING] = "connected",  [TCP_CONN_RESUMING] = "connected",
        [TCP_CONN_LEAVING] = "connected",  [TCP_CONN_DRAINING] = "connected",
        [TCP_CONN_LEFT] = "lost",          [TCP_CONN_LOST] = "lost"};
    struct tcp_state *state = instance;
    const struct tcp_peer *peer = NULL;
    char address[TCP_TEXT];

    if (rank >= 0 && rank < state->world_size && state->peers)
        peer = state->peers[rank];
    if (!peer) {
        snprintf(text, size, "tcp: no peer");
        return;
    }
    disti_tcp_endpoint_text(&peer->conn->endpoint, address, sizeof(address));
    snprintf(text, size, "tcp %s, %s, %llu bytes sent, %llu received, %zu held early, %d sockets",
             address, states[peer->conn->state], (unsigned long long)peer->sent_bytes,
             (unsigned long long)peer->received_bytes, peer->match.held_bytes, peer->further + 1);
}
