/* SPDX-License-Identifier: BSD-3-Clause */
/* Looks at peers that change nothing: whose message waits for its receive, what can be said. */
#include "transports/tcp/state.h"

#include <stdio.h>

int disti_tcp_probe_tag(void *instance, uint64_t tag)
{
    const struct tcp_state *state = instance;

    return disti_match_probe(&state->unexpected, tag);
}

void disti_tcp_unexpected(void *instance, uint64_t tag, uint64_t mask, int most,
                          dist_unexpected_fn see, void *arg)
{
    struct tcp_state *state = instance;

    disti_match_show(&state->unexpected, &(struct disti_look){tag, mask, most, see, arg});
}

/* Writes "; " and why messages to the peer do not get through, or "". */
static void probe_trouble(const struct tcp_peer *peer, const char *address, char *text, size_t size)
{
    struct tcp_stuck stuck;

    text[0] = '\0';
    if (peer->conn->state == TCP_CONN_CALLING)
        snprintf(text, size,
                 "; %s has not answered the connection request: see whether a firewall drops it",
                 address);
    else if (peer->conn->state == TCP_CONN_GREETING)
        snprintf(text, size,
                 "; that process has not accepted the connection to %s: see whether it computes "
                 "outside libdist, or is stopped",
                 address);
    for (int number = 0; !text[0] && number < peer->conns; number++) {
        if (!disti_tcp_silence_stuck(&peer->conn[number], &stuck))
            continue;
        snprintf(text, size,
                 "; packets of up to %u bytes to %s were sent again and not acknowledged for "
                 "%.1f s (%llu bytes were before, %u bytes wait): if ping reaches that machine, "
                 "something on the way drops packets of this size, so compare the MTU of all "
                 "interfaces (ping -M do -s %u)",
                 stuck.packet_bytes, address, stuck.silent_ms * 1e-3, stuck.acked_bytes,
                 stuck.waiting_bytes, stuck.packet_bytes);
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
    char address[TCP_TEXT], trouble[400];

    if (rank >= 0 && rank < state->world_size && state->addresses && state->addresses[rank])
        peer = disti_tcp_peer(state, rank);
    if (!peer) {
        snprintf(text, size, "tcp: no peer");
        return;
    }
    disti_tcp_endpoint_text(&peer->conn->endpoint, address, sizeof(address));
    probe_trouble(peer, address, trouble, sizeof(trouble));
    snprintf(text, size,
             "%stcp %s, %s, %llu bytes sent, %llu received, %zu held early, %d sockets%s",
             disti_tcp_silence_shows(peer->conn) ? "unreachable: " : "", address,
             states[peer->conn->state], (unsigned long long)peer->sent_bytes,
             (unsigned long long)peer->received_bytes, peer->match.held_bytes, peer->further + 1,
             trouble);
}
