/* SPDX-License-Identifier: BSD-3-Clause */
/* The serving agent's side: connections, admission, meetings, and what happens in a round. */
#include "launch/agents/server.h"
#include "base/clock.h"
#include "base/descriptor.h"
#include "base/log.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#define PROVE_MS 30000     /* for a stranger to prove itself */
#define GOING_MS 2000      /* for a peer to hang up once it is told to go */
#define STRANGERS_MAX 4096 /* the oldest goes when another one comes */
#define STRANGERS_TLS 256  /* those who may cost a session as well */
#define ACCEPT_AGAIN_MS 100
#define STAY_MS 1000      /* that a stranger has where no descriptor is left for others */
#define STRANGER_FRAMES 8 /* of one that is no member: more than it takes */
#define LOOKS 4           /* in the time between two signs of life */
#define EVENTS 64         /* at a time */

/*
 * An agent, as the server knows it:
 *
 *                hello        join, proved         round begins         all its workers succeeded
 *      STRANGER -------> ASKED ----------> READY --------------> RUNNING ------------------> DONE
 *                                            ^                     |                          |
 *                                            |                     '------- the round ends ---'
 *                                            |   its workers         v
 *                                            '---- are gone ---- STOPPING
 *
 *      any ---- refused, told the end ----> GOING ---- it hangs up, or 2 s ----> freed
 *      any ---- hung up, silent, senseless ----> freed; of READY and later ones the job hears
 */
enum agents_peer_state {
    AGENTS_STRANGER,
    AGENTS_ASKED,
    AGENTS_GOING,
    /* members of the job: */
    AGENTS_PEER_READY,
    AGENTS_PEER_RUNNING,
    AGENTS_PEER_DONE,
    AGENTS_PEER_STOPPING
};

struct agents_peer {
    struct agents_peer *next; /* in the order of arrival */
    struct agents_link link;
    enum agents_peer_state state;
    int frames;       /* so many has it sent while it was no member */
    int64_t until_ns; /* no member: by then it has proved itself, or is gone */
    struct agents_transcript transcript;
    struct agents_member member;
    int node_rank; /* in the latest round it was in, or -1 */
};

static bool agents_is_member(const struct agents_peer *peer)
{
    return peer->state >= AGENTS_PEER_READY;
}

static int agents_count(const struct agents_server *server, enum agents_peer_state state)
{
    int count = 0;

    for (const struct agents_peer *p = server->peers; p; p = p->next)
        count += p->state == state;
    return count;
}

int disti_agents_server_count(const struct agents_server *server)
{
    int count = 0;

    for (const struct agents_peer *p = server->peers; p; p = p->next)
        count++;
    return count;
}

__attribute__((format(printf, 2, 3))) static void agents_note(struct agents_server *server,
                                                              const char *format, ...)
{
    char text[DISTI_AGENTS_TEXT];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    for (struct agents_peer *p = server->peers; p; p = p->next) {
        if (agents_is_member(p))
            disti_agents_link_send_text(&p->link, AGENTS_NOTE, text);
    }
}

static void server_let_go(struct agents_server *server, struct agents_peer *peer, const char *text)
{
    if (agents_is_member(peer))
        server->strangers++;
    peer->state = AGENTS_GOING;
    peer->until_ns = disti_deadline_ms(GOING_MS);
    disti_agents_link_send_text(&peer->link, AGENTS_REFUSED, text);
}

/* Says why, and lets the peer go; the job does not hear of it. */
__attribute__((format(printf, 3, 4))) static void
agents_refuse(struct agents_server *server, struct agents_peer *peer, const char *format, ...)
{
    char text[DISTI_AGENTS_TEXT];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    server_let_go(server, peer, text);
}

void disti_agents_break(struct agents_server *server, const char *format, ...)
{
    char text[DISTI_AGENTS_TEXT];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    server->phase = AGENTS_OVER;
    for (struct agents_peer *p = server->peers; p; p = p->next) {
        if (agents_is_member(p))
            server_let_go(server, p, text);
    }
}

/* The meeting before a round: when enough are there, and which ranks they get. */

static void agents_meeting_begin(struct agents_server *server)
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
            agents_refuse(server, q, "the agent on %s has --node-rank %d already", p->member.host,
                          p->member.node_rank);
            return true;
        }
    }
    return false;
}

/* Of n peers that are READY, those that come first take part. */
static void meeting_close(struct agents_server *server, int n)
{
    int count = n < server->config->max_nodes ? n : server->config->max_nodes;
    struct agents_peer **peers = meeting_peers(server, n);
    struct agents_peer **nodes = calloc((size_t)n, sizeof(struct agents_peer *));
    int *numbers = calloc(2 * (size_t)n, sizeof(*numbers)), *order = numbers ? numbers + n : NULL;
    size_t bytes = AGENTS_ROUND_BYTES + 4 * (size_t)count;
    unsigned char *value = malloc(bytes);
    struct disti_agents_round round = {
        .round = server->round, .restarts = server->restarts, .nodes = count, .workers = numbers};

    if (!peers || !nodes || !numbers || !value) {
        disti_agents_break(server, "no memory on %s to begin a round: free memory there",
                           server->host);
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
    if (disti_random_id(round.store_secret) != DIST_OK) {
        disti_agents_break(server, "on %s: %s", server->host, dist_last_error());
        goto out;
    }
    if (!disti_agents_round_count(&round)) {
        disti_agents_break(server, "%d nodes have too many workers in total", count);
        goto out;
    }
    server->phase = AGENTS_RUNNING;
    server->is_patient = false;
    for (int i = 0; i < count; i++) {
        round.node_rank = i;
        disti_agents_put_round(value, &round);
        nodes[i]->node_rank = i;
        nodes[i]->state = AGENTS_PEER_RUNNING;
        disti_agents_link_send(&nodes[i]->link, AGENTS_ROUND, value, bytes);
    }
out:
    free(value);
    free(numbers);
    free(nodes);
    free(peers);
}

static void agents_meeting_look(struct agents_server *server, int64_t *when_p)
{
    int ready = agents_count(server, AGENTS_PEER_READY);
    int stopping = agents_count(server, AGENTS_PEER_STOPPING);
    bool late = disti_expired(server->meet_by_ns);

    if (server->phase != AGENTS_MEETING)
        return;
    agents_sooner(when_p, server->meet_by_ns);
    if (ready < server->config->min_nodes) {
        server->last_call_ns = 0;
        if (!stopping && !server->is_patient)
            agents_note(server,
                        "only %d of at least %d nodes are left: waiting up to %.0f s for "
                        "other nodes to join",
                        ready, server->config->min_nodes, disti_left_ms(server->meet_by_ns) / 1e3);
        if (!stopping) /* some must come anew, so others may too */
            server->is_patient = true;
        if (late) {
            char text[DISTI_AGENTS_TEXT / 2] = "";

            /* "2 of at least 3 nodes came within 600 s: node1 (10.0.0.1), node2 (10.0.0.2)". */
            for (const struct agents_peer *p = server->peers; p; p = p->next) {
                size_t at = strlen(text);

                if (p->state == AGENTS_PEER_READY)
                    snprintf(text + at, sizeof(text) - at, "%s%s (%.64s)", at ? ", " : "",
                             p->member.host, p->member.address);
            }
            disti_agents_break(
                server, "only %d of at least %d nodes joined at %s port %d within %.1f s: %s",
                ready, server->config->min_nodes, server->config->endpoint_host, server->port,
                server->config->join_timeout_ms / 1e3, text);
        }
        return;
    }
    if (!late && stopping)
        return;
    /* The last call, for more nodes than are needed. */
    if (!late && server->is_patient && ready < server->config->max_nodes) {
        if (!server->last_call_ns)
            server->last_call_ns = disti_deadline_ms(server->config->last_call_timeout_ms);
        agents_sooner(when_p, server->last_call_ns);
        if (!disti_expired(server->last_call_ns))
            return;
    }
    /* Who still stops its workers at the deadline is left behind. */
    for (struct agents_peer *p = server->peers; p; p = p->next) {
        if (p->state == AGENTS_PEER_STOPPING)
            agents_refuse(server, p, "the agent on %s has not stopped its workers within %.1f s",
                          p->member.host, server->config->join_timeout_ms / 1e3);
    }
    if (meeting_refuse_clash(server))
        *when_p = 0;
    else
        meeting_close(server, ready);
}

/* The course of a round: successes, failures, losses, and what follows from them. */

#define CAUSE_MS 1000 /* for the cause of what is called a consequence */

static int64_t course_time_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void course_tell_failure(struct agents_server *server, uint8_t op)
{
    unsigned char value[AGENTS_FAILURE_BYTES];

    disti_agents_put_failure(value, &server->failure);
    for (struct agents_peer *p = server->peers; p; p = p->next) {
        bool concerned =
            agents_is_member(p) && (op == AGENTS_GIVEN_UP || p->state != AGENTS_PEER_READY);

        if (concerned)
            disti_agents_link_send(&p->link, op, value, sizeof(value));
    }
}

/* True if the remaining workers go on after this failure: with --on-failure continue, unless the
 * process that holds the store has failed (node 0's agent, or the scheduler), or it is final. */
static bool course_goes_on(const struct agents_server *server,
                           const struct disti_agents_failure *failure)
{
    if (!server->config->goes_on || failure->is_final)
        return false;
    return failure->cause == DISTI_AGENTS_WORKER_FAILED
               ? failure->rank >= 0
               : failure->cause == DISTI_AGENTS_NODE_LOST && failure->node_rank != 0;
}

/* The round ends: another one, unless the restarts are used up, or workers went on and succeeded.
 */
static void course_decide(struct agents_server *server)
{
    bool is_failure = server->failure.cause != DISTI_AGENTS_NODE_JOINS;

    if (is_failure &&
        (server->failure.is_final || server->restarts >= server->config->max_restarts ||
         (course_goes_on(server, &server->failure) && server->succeeded))) {
        server->phase = AGENTS_OVER;
        course_tell_failure(server, AGENTS_GIVEN_UP);
        return;
    }
    server->restarts += is_failure;
    server->round++;
    agents_meeting_begin(server);
    course_tell_failure(server, AGENTS_RESTART);
    for (struct agents_peer *p = server->peers; p; p = p->next) {
        if (p->state == AGENTS_PEER_RUNNING || p->state == AGENTS_PEER_DONE)
            p->state = AGENTS_PEER_STOPPING;
    }
}

/* The first failure of a round counts, unless it was a consequence of one that comes soon, or the
 * later one ends the round and the first does not. */
static void course_fail(struct agents_server *server, const struct disti_agents_failure *failure)
{
    const bool goes_on = course_goes_on(server, failure);
    const bool first_goes_on = course_goes_on(server, &server->failure);
    bool replaces = server->failure.is_consequence && !failure->is_consequence;
    char text[DISTI_AGENTS_TEXT];

    if (server->phase != AGENTS_RUNNING)
        return;
    if (first_goes_on != goes_on)
        replaces = first_goes_on;
    if (goes_on) {
        disti_agents_describe(failure, text, sizeof(text));
        agents_note(server, "%s; the other workers go on", text);
    }
    if (server->decide_ns && !replaces)
        return;
    server->failure = *failure;
    server->decide_ns = disti_deadline_ms(failure->is_consequence ? CAUSE_MS : 0);
}

static void agents_course_joined(struct agents_server *server, struct agents_peer *peer)
{
    int running = agents_count(server, AGENTS_PEER_RUNNING);
    struct disti_agents_failure join = {.cause = DISTI_AGENTS_NODE_JOINS,
                                        .node_rank = -1,
                                        .rank = -1,
                                        .local_rank = -1,
                                        .pid = -1,
                                        .time_ms = course_time_ms()};

    if (server->phase != AGENTS_RUNNING)
        return;
    memcpy(join.host, peer->member.host, sizeof(join.host));
    if (server->config->join_now && running < server->config->max_nodes &&
        !agents_count(server, AGENTS_PEER_DONE) && !server->decide_ns)
        course_fail(server, &join);
    else
        agents_note(server, "the node %s (%.64s) waits for the next restart to join",
                    peer->member.host, peer->member.address);
}

static void course_finish(struct agents_server *server)
{
    if (server->phase != AGENTS_RUNNING || server->decide_ns ||
        agents_count(server, AGENTS_PEER_RUNNING) || !agents_count(server, AGENTS_PEER_DONE))
        return;
    server->phase = AGENTS_OVER;
    for (struct agents_peer *p = server->peers; p; p = p->next) {
        if (agents_is_member(p))
            disti_agents_link_send(&p->link, AGENTS_FINISHED, NULL, 0);
    }
}

/* Admission: who comes proves that it has the secret, and is looked at for what it wants. */

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
        agents_refuse(server, peer,
                      "this agent serves the job \"%s\", not \"%s\": use a different port for each "
                      "job (--rdzv-endpoint), and the same --rdzv-id for all agents of a job",
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

/* What clashes before the first round is nobody's fault more than another's: all end. */
static void admission_join(struct agents_server *server, struct agents_peer *peer)
{
    const struct disti_agents_config *config = server->config;
    int nodes = agents_count(server, AGENTS_PEER_RUNNING) + agents_count(server, AGENTS_PEER_DONE);
    const struct agents_member *m = &peer->member;
    char text[DISTI_AGENTS_TEXT] = ""; /* what is wrong between this agent and those there */
    bool clashes;

    if ((int)m->min_nodes != config->min_nodes || (int)m->max_nodes != config->max_nodes ||
        (int)m->max_restarts != config->max_restarts ||
        (m->same_workers != 0) != config->same_workers) {
        snprintf(text, DISTI_AGENTS_TEXT,
                 "the agent on %s (%s) has --nnodes %u:%u and --max-restarts %u, but the agent on "
                 "%s has %d:%d and %d: use the same values for all agents of a job",
                 m->host, m->address, m->min_nodes, m->max_nodes, m->max_restarts, server->host,
                 config->min_nodes, config->max_nodes, config->max_restarts);
    } else if ((m->goes_on != 0) != config->goes_on) {
        snprintf(text, DISTI_AGENTS_TEXT,
                 "the agent on %s (%s) has --on-failure %s, but the agent on %s has %s: use the "
                 "same value for all agents of a job",
                 m->host, m->address, m->goes_on ? "continue" : "stop", server->host,
                 config->goes_on ? "continue" : "stop");
    } else if (config->same_workers && (int)m->workers != config->workers) {
        snprintf(text, DISTI_AGENTS_TEXT,
                 "the agent on %s (%s) starts %u processes, but the agent on %s starts %d: use the "
                 "same --nproc-per-node for all agents",
                 m->host, m->address, m->workers, server->host, config->workers);
    }
    for (const struct agents_peer *p = server->peers; p && !text[0]; p = p->next) {
        if (server->round == 0 && server->phase == AGENTS_MEETING && agents_is_member(p) &&
            m->node_rank >= 0 && p->member.node_rank == m->node_rank) {
            snprintf(text, DISTI_AGENTS_TEXT,
                     "two agents have --node-rank %d, on %s (%s) and on %s (%s): use a different "
                     "rank for each node",
                     m->node_rank, p->member.host, p->member.address, m->host, m->address);
        }
    }
    clashes = text[0];
    if (clashes && server->round == 0 && server->phase == AGENTS_MEETING) {
        admission_welcome(server, peer);
        disti_agents_break(server, "%s", text);
    } else if (clashes) {
        agents_refuse(server, peer, "%s", text);
    } else if (server->phase == AGENTS_OVER) {
        agents_refuse(server, peer, "the job \"%s\" is over", config->job);
    } else if (server->phase != AGENTS_MEETING && server->restarts >= config->max_restarts &&
               (!config->join_now || nodes >= config->max_nodes)) {
        agents_refuse(
            server, peer,
            "the job \"%s\" runs on %d of at most %d nodes, but has no restart left at which "
            "another node could join: see --nnodes, --max-restarts, --rdzv-conf join=now",
            config->job, nodes, config->max_nodes);
    } else {
        admission_welcome(server, peer);
        agents_course_joined(server, peer);
    }
}

/* Frames of who is no member yet. False: senseless. */
static bool agents_admit(struct agents_server *server, struct agents_peer *peer)
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
        agents_refuse(server, peer,
                      "the agent on %s serves a job \"%s\" with another secret, so this is a "
                      "different job: use another port for it (--rdzv-endpoint)",
                      server->host, server->config->job);
        return true;
    }
    if (!disti_agents_get_member(value + DISTI_HMAC_BYTES, &peer->member))
        return false;
    admission_join(server, peer);
    return true;
}

/* ---- connections ---- */

static void server_free_peer(struct agents_server *server, struct agents_peer **at)
{
    struct agents_peer *peer = *at;

    if (!agents_is_member(peer))
        server->strangers--;
    *at = peer->next;
    disti_agents_link_close(&peer->link);
    free(peer);
}

void disti_agents_server_close(struct agents_server *server)
{
    if (!server)
        return;
    while (server->peers)
        server_free_peer(server, &server->peers);
    if (server->listen_fd >= 0)
        disti_descriptor_close(server->listen_fd);
    disti_tls_context_free(server->tls);
    free(server);
}

dist_status disti_agents_server_open(const struct disti_agents_config *config, int epoll_fd,
                                     bool everywhere, int64_t deadline,
                                     struct agents_server **server_p)
{
    struct agents_server *server = calloc(1, sizeof(*server));
    struct epoll_event event = {.events = EPOLLIN};
    dist_status status;

    if (!server)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory to serve the agents: free memory");
    server->config = config;
    server->epoll_fd = epoll_fd;
    server->listen_fd = -1;
    snprintf(server->host, sizeof(server->host), "%s", config->host);
    status = disti_tls_open(&server->tls);
    if (status == DIST_OK && everywhere)
        status = disti_listen_everywhere(config->endpoint_port, &server->listen_fd, &server->port);
    else if (status == DIST_OK)
        status = disti_listen(config->endpoint_host, config->endpoint_port, deadline,
                              &server->listen_fd, &server->port);
    if (status == DIST_OK && epoll_ctl(epoll_fd, EPOLL_CTL_ADD, server->listen_fd, &event))
        status = disti_fail_errno(DIST_ERR_SYSTEM, "cannot watch the endpoint's port");
    if (status != DIST_OK) {
        disti_agents_server_close(server);
        return status;
    }
    server->is_patient = true;
    agents_meeting_begin(server);
    *server_p = server;
    return DIST_OK;
}

static struct agents_peer *server_oldest_stranger(const struct agents_server *server)
{
    struct agents_peer *p = server->peers;

    while (p && (agents_is_member(p) || p->link.is_broken))
        p = p->next;
    return p;
}

/* The oldest who is not welcome yet hangs up for one more, if there are too many. */
static void server_add(struct agents_server *server, int fd)
{
    int most = disti_descriptor_for_strangers(server->tls ? STRANGERS_TLS : STRANGERS_MAX);
    struct agents_peer *oldest, **at = &server->peers, *peer = calloc(1, sizeof(*peer));

    disti_socket_tune(fd);
    if (!peer) {
        disti_descriptor_close(fd);
        return;
    }
    if (!disti_agents_link_open(&peer->link, fd, server->epoll_fd, peer, AGENTS_LIMIT_STRANGER)) {
        free(peer);
        return;
    }
    if (server->tls)
        peer->link.in.tls = disti_tls_accept(server->tls, fd);
    peer->link.is_broken = server->tls && !peer->link.in.tls;
    peer->until_ns = disti_deadline_ms(PROVE_MS);
    peer->node_rank = -1;
    while (*at)
        at = &(*at)->next;
    *at = peer;
    server->strangers++;
    oldest = server_oldest_stranger(server);
    if (server->strangers > most && oldest)
        oldest->link.is_broken = true;
}

/* Where there is no descriptor left the port is not watched for a while: it would not rest. */
static bool server_accept(struct agents_server *server, int64_t *when_p)
{
    struct epoll_event event = {.events = EPOLLIN};
    struct agents_peer *oldest;
    bool some = false;
    int fd;

    if (server->accept_ns && !disti_expired(server->accept_ns)) {
        agents_sooner(when_p, server->accept_ns);
        return false;
    }
    if (server->accept_ns)
        epoll_ctl(server->epoll_fd, EPOLL_CTL_MOD, server->listen_fd, &event);
    server->accept_ns = 0;
    for (int i = 0; i < EVENTS; i++, some = true) {
        fd = disti_descriptor_own(
            accept4(server->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (fd < 0)
            break;
        server_add(server, fd);
    }
    if (fd < 0 && (errno == EMFILE || errno == ENFILE) &&
        (oldest = server_oldest_stranger(server)) &&
        disti_left_ms(oldest->until_ns) <= PROVE_MS - STAY_MS) {
        /* It has been here for long enough to prove what it is. */
        oldest->link.is_broken = true;
        return true; /* and is called again once the sweep has closed it */
    }
    if (fd < 0 && errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
        event.events = 0;
        epoll_ctl(server->epoll_fd, EPOLL_CTL_MOD, server->listen_fd, &event);
        server->accept_ns = disti_deadline_ms(ACCEPT_AGAIN_MS);
        agents_sooner(when_p, server->accept_ns);
    }
    return some;
}

/* No member hears of it any more; the job does. A member whose workers have succeeded may go; one
 * whose workers have not takes the round along. */
static void server_lose(struct agents_server *server, struct agents_peer *peer, const char *why)
{
    const bool was_running = peer->state == AGENTS_PEER_RUNNING;
    struct disti_agents_failure loss = {.cause = DISTI_AGENTS_NODE_LOST,
                                        .node_rank = peer->node_rank,
                                        .rank = -1,
                                        .local_rank = -1,
                                        .pid = (int)peer->member.pid,
                                        .time_ms = course_time_ms()};

    if (!agents_is_member(peer)) {
        peer->link.is_broken = true;
        return;
    }
    server_let_go(server, peer, why);
    if (server->phase == AGENTS_OVER)
        return;
    memcpy(loss.host, peer->member.host, sizeof(loss.host));
    snprintf(loss.text, sizeof(loss.text), "%s", why);
    if (was_running)
        course_fail(server, &loss);
    else
        agents_note(server, "the node %s (%.64s) was lost: %.512s", peer->member.host,
                    peer->member.address, why);
}

/* False: senseless. */
static bool server_hear(struct agents_server *server, struct agents_peer *peer)
{
    const struct disti_wire_reader *in = &peer->link.in;
    const unsigned char *value = disti_wire_value(in);
    struct disti_agents_failure failure;
    char why[DISTI_AGENTS_TEXT];

    switch (in->head.op) {
    case AGENTS_BEAT:
        return in->head.value_bytes == 0;
    case AGENTS_READY:
        if (peer->state != AGENTS_PEER_STOPPING || in->head.value_bytes != AGENTS_READY_BYTES ||
            disti_wire_get32(value) > 65535 || disti_wire_get32(value + 4) > 65535)
            return false;
        peer->member.master_port = disti_wire_get32(value);
        peer->member.store_port = disti_wire_get32(value + 4);
        peer->state = AGENTS_PEER_READY;
        return true;
    case AGENTS_ENDED:
        if (in->head.value_bytes != 4)
            return false;
        if (peer->state == AGENTS_PEER_RUNNING) {
            peer->state = AGENTS_PEER_DONE;
            server->succeeded |= disti_wire_get32(value) > 0;
            course_finish(server);
        }
        return true;
    case AGENTS_FAILED:
        if (!disti_agents_get_failure(in, &failure))
            return false;
        if (peer->state == AGENTS_PEER_RUNNING) {
            failure.cause = DISTI_AGENTS_WORKER_FAILED;
            failure.node_rank = peer->node_rank;
            memcpy(failure.host, peer->member.host, sizeof(failure.host));
            course_fail(server, &failure);
        }
        return true;
    case AGENTS_LEAVE:
        if (!disti_agents_get_sentence(in, why))
            return false;
        server_lose(server, peer, why);
        return true;
    default:
        return false;
    }
}

static void server_read(struct agents_server *server, struct agents_peer *peer)
{
    enum disti_wire_event event = DISTI_WIRE_MORE;
    bool sense;

    for (int i = 0; i < EVENTS && !peer->link.is_broken; i++) {
        event = disti_agents_link_read(&peer->link);
        if (event != DISTI_WIRE_FRAME)
            break;
        sense = agents_is_member(peer) ? server_hear(server, peer)
                                       : peer->state == AGENTS_GOING || agents_admit(server, peer);
        disti_wire_next(&peer->link.in);
        if (!sense)
            server_lose(server, peer, "it sent an invalid message");
        if (!agents_is_member(peer) && ++peer->frames >= STRANGER_FRAMES)
            peer->link.is_broken = true;
    }
    if (event == DISTI_WIRE_FRAME || event == DISTI_WIRE_MORE)
        return;
    server_lose(server, peer,
                event == DISTI_WIRE_CLOSED ? "its connection broke: it exited, or was killed"
                                           : "it sent an invalid message");
    peer->link.is_broken = true;
}

bool disti_agents_server_move(struct agents_server *server, int64_t *when_p)
{
    struct epoll_event events[EVENTS];
    bool some = server_accept(server, when_p);
    int n = epoll_wait(server->epoll_fd, events, EVENTS, 0);
    uint32_t interval, silence;
    char why[DISTI_AGENTS_TEXT];

    for (int i = 0; i < n; i++) {
        struct agents_peer *peer = events[i].data.ptr;

        if (!peer)
            continue;
        some = true;
        if (events[i].events & EPOLLOUT)
            disti_agents_link_flush(&peer->link);
        server_read(server, peer);
    }
    for (struct agents_peer **at = &server->peers; *at;) {
        if (!agents_is_member(*at) && ((*at)->link.is_broken || disti_expired((*at)->until_ns)))
            server_free_peer(server, at);
        else
            at = &(*at)->next;
    }
    /* There is more to read. Who seems silent may have spoken long ago, so that is read first, but
     * not for ever: strangers may always have something to say. */
    if (n == EVENTS && !server->look_by_ns)
        server->look_by_ns = disti_deadline_ms(server->config->keep_alive_interval_ms / LOOKS);
    if (n == EVENTS && !disti_expired(server->look_by_ns))
        return true;
    server->look_by_ns = 0;
    if (server->phase == AGENTS_RUNNING && server->decide_ns &&
        (!course_goes_on(server, &server->failure) ||
         agents_count(server, AGENTS_PEER_RUNNING) <= 0)) {
        if (disti_expired(server->decide_ns))
            course_decide(server);
        else
            agents_sooner(when_p, server->decide_ns);
    }
    /* Signs of life, to and from all. */
    interval = (uint32_t)server->config->keep_alive_interval_ms;
    silence = interval * (uint32_t)server->config->keep_alive_max_attempt;
    snprintf(why, sizeof(why), "it sent nothing for %.1f s", silence / 1e3);
    for (struct agents_peer *p = server->peers; p; p = p->next) {
        if (!agents_is_member(p)) {
            agents_sooner(when_p, p->until_ns);
            continue;
        }
        disti_agents_link_beat(&p->link, interval, when_p);
        if (p->link.is_broken)
            server_lose(server, p, "its connection broke");
        else if (disti_agents_link_is_silent(&p->link, silence, when_p))
            server_lose(server, p, why);
    }
    agents_meeting_look(server, when_p);
    return some;
}
