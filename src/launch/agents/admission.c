/* SPDX-License-Identifier: BSD-3-Clause */
/* Admission: who comes proves that it has the secret, and is looked at for what it wants. */
#include "launch/agents/server.h"

#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

static bool admission_hello(struct agents_server *server, struct agents_peer *peer)
{
    const unsigned char *value = disti_wire_value(&peer->link.in);
    struct agents_transcript *t = &peer->transcript;
    char job[AGENTS_JOB];

    if (peer->link.in.head.op != AGENTS_HELLO ||
        peer->link.in.head.value_bytes != AGENTS_NONCE + AGENTS_JOB ||
        !disti_agents_get_text(value + AGENTS_NONCE, AGENTS_JOB, job))
        return false;
    if (strcmp(job, server->config->job) != 0) {
        disti_agents_refuse(
            server, peer,
            "here meet the agents of the job \"%s\", not those of \"%s\": give each job a "
            "port of its own (--rdzv-endpoint), and all its agents the same --rdzv-id",
            server->config->job, job);
        return true;
    }
    memcpy(t->agent_nonce, value, AGENTS_NONCE);
    t->binding_bytes = disti_tls_binding(peer->link.in.tls, t->binding);
    memcpy(t->job, job, AGENTS_JOB);
    t->secret = server->config->secret;
    t->secret_bytes = server->config->secret_bytes;
    if (getrandom(t->server_nonce, AGENTS_NONCE, 0) != AGENTS_NONCE)
        return false;
    disti_agents_link_send(&peer->link, AGENTS_CHALLENGE, t->server_nonce, AGENTS_NONCE);
    peer->state = AGENTS_ASKED;
    return true;
}

static void admission_welcome(struct agents_server *server, struct agents_peer *peer)
{
    const struct disti_agents_config *config = server->config;
    unsigned char value[DISTI_HMAC_BYTES + AGENTS_WELCOME_BYTES];
    struct agents_welcome welcome = {.pid = (uint32_t)getpid(),
                                     .interval_ms = (uint32_t)config->keep_alive_interval_ms,
                                     .silence_ms = (uint32_t)config->keep_alive_interval_ms *
                                                   (uint32_t)config->keep_alive_max_attempt};

    snprintf(welcome.host, sizeof(welcome.host), "%s", server->host);
    disti_agents_put_welcome(value + DISTI_HMAC_BYTES, &welcome);
    disti_agents_prove(&peer->transcript, "server", value + DISTI_HMAC_BYTES, AGENTS_WELCOME_BYTES,
                       value);
    disti_agents_link_send(&peer->link, AGENTS_WELCOME, value, sizeof(value));
    peer->state = AGENTS_PEER_READY;
    peer->link.in.limit = AGENTS_LIMIT_AGENT;
    disti_tls_trust(peer->link.in.tls);
    server->strangers--;
}

/* What is wrong between this agent and those that are there; false: nothing. */
static bool admission_clashes(const struct agents_server *server, const struct agents_peer *peer,
                              char text[DISTI_AGENTS_TEXT])
{
    const struct disti_agents_config *config = server->config;
    const struct agents_member *m = &peer->member;

    if ((int)m->min_nodes != config->min_nodes || (int)m->max_nodes != config->max_nodes ||
        (int)m->max_restarts != config->max_restarts ||
        (m->same_workers != 0) != config->same_workers) {
        snprintf(text, DISTI_AGENTS_TEXT,
                 "the agent on %s (%s) has --nnodes %u:%u and --max-restarts %u, that on %s has "
                 "%d:%d and %d: start all agents of a job alike",
                 m->host, m->address, m->min_nodes, m->max_nodes, m->max_restarts, server->host,
                 config->min_nodes, config->max_nodes, config->max_restarts);
        return true;
    }
    if ((m->goes_on != 0) != config->goes_on) {
        snprintf(text, DISTI_AGENTS_TEXT,
                 "the agent on %s (%s) has --on-failure %s, that on %s has %s: start all agents of "
                 "a job alike",
                 m->host, m->address, m->goes_on ? "continue" : "stop", server->host,
                 config->goes_on ? "continue" : "stop");
        return true;
    }
    if (config->same_workers && (int)m->workers != config->workers) {
        snprintf(text, DISTI_AGENTS_TEXT,
                 "the agent on %s (%s) starts %u processes, that on %s starts %d: give all the "
                 "same --nproc-per-node",
                 m->host, m->address, m->workers, server->host, config->workers);
        return true;
    }
    for (const struct agents_peer *p = server->peers; p; p = p->next) {
        if (server->round == 0 && server->phase == AGENTS_MEETING && agents_is_member(p) &&
            m->node_rank >= 0 && p->member.node_rank == m->node_rank) {
            snprintf(text, DISTI_AGENTS_TEXT,
                     "two agents have --node-rank %d, those on %s (%s) and %s (%s): give each "
                     "node a rank of its own",
                     m->node_rank, p->member.host, p->member.address, m->host, m->address);
            return true;
        }
    }
    return false;
}

/* Will there be a round that could take one more? */
static bool admission_has_place(const struct agents_server *server)
{
    int nodes = disti_agents_count(server, AGENTS_PEER_RUNNING) +
                disti_agents_count(server, AGENTS_PEER_DONE);

    return server->phase == AGENTS_MEETING || server->restarts < server->config->max_restarts ||
           (server->config->join_now && nodes < server->config->max_nodes);
}

/* What clashes before the first round is nobody's fault more than another's: all end. */
static void admission_join(struct agents_server *server, struct agents_peer *peer)
{
    char text[DISTI_AGENTS_TEXT];
    bool clashes = admission_clashes(server, peer, text);

    if (clashes && server->round == 0 && server->phase == AGENTS_MEETING) {
        admission_welcome(server, peer);
        disti_agents_break(server, "%s", text);
    } else if (clashes) {
        disti_agents_refuse(server, peer, "%s", text);
    } else if (server->phase == AGENTS_OVER) {
        disti_agents_refuse(server, peer, "the job \"%s\" is over", server->config->job);
    } else if (!admission_has_place(server)) {
        disti_agents_refuse(
            server, peer,
            "the job \"%s\" runs on %d of at most %d nodes, and no restart is left at "
            "which another could join: see --nnodes, --max-restarts, --rdzv-conf "
            "join=now",
            server->config->job,
            disti_agents_count(server, AGENTS_PEER_RUNNING) +
                disti_agents_count(server, AGENTS_PEER_DONE),
            server->config->max_nodes);
    } else {
        admission_welcome(server, peer);
        disti_agents_course_joined(server, peer);
    }
}

bool disti_agents_admit(struct agents_server *server, struct agents_peer *peer)
{
    const unsigned char *value = disti_wire_value(&peer->link.in);
    unsigned char proof[DISTI_HMAC_BYTES];

    if (peer->state == AGENTS_STRANGER)
        return admission_hello(server, peer);
    if (peer->link.in.head.op != AGENTS_JOIN ||
        peer->link.in.head.value_bytes != DISTI_HMAC_BYTES + AGENTS_MEMBER_BYTES)
        return false;
    disti_agents_prove(&peer->transcript, "agent", value + DISTI_HMAC_BYTES, AGENTS_MEMBER_BYTES,
                       proof);
    if (!disti_hmac_same(proof, value)) {
        disti_agents_refuse(
            server, peer,
            "the agent on %s serves a job \"%s\" with another secret: this is another "
            "job, so give it another port (--rdzv-endpoint)",
            server->host, server->config->job);
        return true;
    }
    if (!disti_agents_get_member(value + DISTI_HMAC_BYTES, &peer->member))
        return false;
    admission_join(server, peer);
    return true;
}
