/* SPDX-License-Identifier: BSD-3-Clause */
/* The meeting before a round: when enough are there, and which ranks they get. */
#include "launch/agents/server.h"

#include "base/clock.h"
#include "base/net.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void disti_agents_meeting_begin(struct agents_server *server)
{
    server->phase = AGENTS_MEETING;
    server->meet_by_ns = disti_deadline_ms(server->config->join_timeout_ms);
    server->last_call_ns = 0;
    server->decide_ns = 0;
    server->succeeded = false;
}

/* Wishes first, where there is such a place; the others fill what is left, in their order. */
void disti_agents_places(const int *wishes, int n, int *nodes_p)
{
    int free_place = 0;

    for (int i = 0; i < n; i++)
        nodes_p[i] = -1;
    for (int i = 0; i < n; i++) {
        if (wishes[i] >= 0 && wishes[i] < n && nodes_p[wishes[i]] < 0)
            nodes_p[wishes[i]] = i;
    }
    for (int i = 0; i < n; i++) {
        if (wishes[i] >= 0 && wishes[i] < n && nodes_p[wishes[i]] == i)
            continue;
        while (nodes_p[free_place] >= 0)
            free_place++;
        nodes_p[free_place] = i;
    }
}

/* The serving agent, then those of the latest round, then as they came. */
static int64_t meeting_order(const struct agents_peer *peer)
{
    return peer->member.serves ? -1 : peer->node_rank >= 0 ? peer->node_rank : INT_MAX;
}

/* The peers that are READY, in order; the caller frees. NULL: no memory. */
static struct agents_peer **meeting_peers(const struct agents_server *server, int n)
{
    struct agents_peer **peers = calloc((size_t)n, sizeof(struct agents_peer *));
    int count = 0;

    for (struct agents_peer *p = server->peers; peers && p; p = p->next) {
        int at = count;

        if (p->state != AGENTS_PEER_READY)
            continue;
        for (; at > 0 && meeting_order(peers[at - 1]) > meeting_order(p); at--)
            peers[at] = peers[at - 1];
        peers[at] = p;
        count++;
    }
    return peers;
}

/* Of two that came for the same node rank the later goes. True: one did. */
static bool meeting_refuse_clash(struct agents_server *server)
{
    for (struct agents_peer *p = server->peers; p; p = p->next) {
        for (struct agents_peer *q = p->next; q; q = q->next) {
            if (p->state != AGENTS_PEER_READY || q->state != AGENTS_PEER_READY ||
                p->member.node_rank < 0 || p->member.node_rank != q->member.node_rank)
                continue;
            disti_agents_refuse(server, q, "the agent on %s has --node-rank %d already",
                                p->member.host, p->member.node_rank);
            return true;
        }
    }
    return false;
}

static void meeting_tell(struct agents_server *server, struct agents_peer **nodes,
                         const struct disti_agents_round *common)
{
    size_t bytes = AGENTS_ROUND_BYTES + 4 * (size_t)common->nodes;
    unsigned char *value = malloc(bytes);
    struct disti_agents_round round = *common;

    if (!value) {
        disti_agents_break(server, "no memory on %s to begin a round: free some", server->host);
        return;
    }
    server->phase = AGENTS_RUNNING;
    server->is_patient = false;
    for (int i = 0; i < round.nodes; i++) {
        round.node_rank = i;
        disti_agents_put_round(value, &round);
        nodes[i]->node_rank = i;
        nodes[i]->state = AGENTS_PEER_RUNNING;
        disti_agents_link_send(&nodes[i]->link, AGENTS_ROUND, value, bytes);
    }
    free(value);
}

/* Of n peers that are READY, those that come first take part. */
static void meeting_close(struct agents_server *server, int n)
{
    int count = n < server->config->max_nodes ? n : server->config->max_nodes;
    struct agents_peer **peers = meeting_peers(server, n);
    struct agents_peer **nodes = calloc((size_t)n, sizeof(struct agents_peer *));
    int *numbers = calloc(2 * (size_t)n, sizeof(*numbers)), *order = numbers ? numbers + n : NULL;
    struct disti_agents_round round = {
        .round = server->round, .restarts = server->restarts, .nodes = count, .workers = numbers};

    if (!peers || !nodes || !numbers) {
        disti_agents_break(server, "no memory on %s to begin a round: free some", server->host);
        goto out;
    }
    for (int i = 0; i < count; i++)
        numbers[i] = peers[i]->member.node_rank;
    disti_agents_places(numbers, count, order);
    for (int i = 0; i < count; i++)
        nodes[i] = peers[order[i]];
    for (int i = 0; i < count; i++)
        numbers[i] = (int)nodes[i]->member.workers;
    round.master_port = (int)nodes[0]->member.master_port;
    round.store_port = (int)nodes[0]->member.store_port;
    memcpy(round.master_address, nodes[0]->member.address, sizeof(round.master_address));
    if (disti_random_id(round.store_secret) != DIST_OK)
        disti_agents_break(server, "on %s: %s", server->host, dist_last_error());
    else if (disti_agents_round_count(&round))
        meeting_tell(server, nodes, &round);
    else
        disti_agents_break(server, "%d nodes have more workers together than can be counted",
                           count);
out:
    free(numbers);
    free(nodes);
    free(peers);
}

/* "2 of at least 3 nodes came within 600 s: node1 (10.0.0.1), node2 (10.0.0.2)". */
static void meeting_too_few(struct agents_server *server, int ready)
{
    char text[DISTI_AGENTS_TEXT / 2] = "";

    for (const struct agents_peer *p = server->peers; p; p = p->next) {
        size_t at = strlen(text);

        if (p->state == AGENTS_PEER_READY)
            snprintf(text + at, sizeof(text) - at, "%s%s (%.64s)", at ? ", " : "", p->member.host,
                     p->member.address);
    }
    disti_agents_break(server, "only %d of at least %d nodes met at %s port %d within %.1f s: %s",
                       ready, server->config->min_nodes, server->config->endpoint_host,
                       server->port, server->config->join_timeout_ms / 1e3, text);
}

/* Who still stops its workers at the deadline is left behind. */
static void meeting_leave_behind(struct agents_server *server)
{
    for (struct agents_peer *p = server->peers; p; p = p->next) {
        if (p->state == AGENTS_PEER_STOPPING)
            disti_agents_refuse(server, p,
                                "the agent on %s has not stopped its workers within %.1f s",
                                p->member.host, server->config->join_timeout_ms / 1e3);
    }
}

/* Is the last call over, for more nodes than are needed? */
static bool meeting_has_called(struct agents_server *server, int64_t *when_p)
{
    if (!server->last_call_ns)
        server->last_call_ns = disti_deadline_ms(server->config->last_call_timeout_ms);
    agents_sooner(when_p, server->last_call_ns);
    return disti_expired(server->last_call_ns);
}

/* Some must come anew, so others may too. */
static void meeting_wait(struct agents_server *server, int ready)
{
    if (!server->is_patient)
        disti_agents_note(server,
                          "only %d of at least %d nodes are left: waiting up to %.0f s for "
                          "others to join",
                          ready, server->config->min_nodes,
                          disti_left_ms(server->meet_by_ns) / 1e3);
    server->is_patient = true;
}

void disti_agents_meeting_look(struct agents_server *server, int64_t *when_p)
{
    int ready = disti_agents_count(server, AGENTS_PEER_READY);
    int stopping = disti_agents_count(server, AGENTS_PEER_STOPPING);
    bool late = disti_expired(server->meet_by_ns);

    if (server->phase != AGENTS_MEETING)
        return;
    agents_sooner(when_p, server->meet_by_ns);
    if (ready < server->config->min_nodes) {
        server->last_call_ns = 0;
        if (!stopping)
            meeting_wait(server, ready);
        if (late)
            meeting_too_few(server, ready);
        return;
    }
    if (!late && (stopping || (server->is_patient && ready < server->config->max_nodes &&
                               !meeting_has_called(server, when_p))))
        return;
    meeting_leave_behind(server);
    if (meeting_refuse_clash(server))
        *when_p = 0;
    else
        meeting_close(server, ready);
}
