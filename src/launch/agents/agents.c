/* SPDX-License-Identifier: BSD-3-Clause */
/* An agent: opening, its way to the server, what it hears there, telling, closing. */
#include "launch/agents/agents.h"
#include "base/ascii.h"
#include "base/clock.h"
#include "base/descriptor.h"
#include "base/log.h"
#include "base/process.h"
#include "launch/agents/message.h"
#include "launch/agents/server.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/timerfd.h>
#include <unistd.h>

/*
 *        .<---- refused, hung up, no answer: again, until join_timeout ----.
 *        v                 |                        |                      |
 *     SEEKING --connect--> CALLING --hello sent--> GREETING --join sent--> PROVING
 *                                                                           | welcome, proved
 *            ROUND                RESTART                  ready            v
 *     READY ------> RUNNING ---------------> STOPPING ---------------> READY
 *
 *     READY, RUNNING, STOPPING ---- FINISHED, GIVEN_UP ----> OVER
 *     any ---- BROKEN: refused; a member hears no more of the server ----> OVER
 */
enum agents_client_state {
    AGENTS_SEEKING,
    AGENTS_CALLING,
    AGENTS_GREETING,
    AGENTS_PROVING,
    /* a member: */
    AGENTS_CLIENT_READY,
    AGENTS_CLIENT_RUNNING,
    AGENTS_CLIENT_STOPPING,
    AGENTS_CLIENT_OVER
};

struct agents_port {
    int fd; /* -1: it is not kept */
    int number;
};

struct agents_client {
    enum agents_client_state state;
    struct agents_link link;
    struct addrinfo *addresses, *at; /* of the endpoint, and the one that is tried */
    int64_t join_by_ns, try_by_ns, again_ns, note_ns;
    int delay_ms;
    char tried[DISTI_AGENTS_TEXT / 2]; /* why the latest attempt failed */
    struct agents_transcript transcript;
    struct agents_welcome server;
    struct agents_port master_port, store_port; /* kept free, if this is the first node */
};

/* All of an agent. */
struct disti_agents {
    struct disti_agents_config config; /* its strings are the agent's own */
    int epoll_fd, timer_fd;
    bool everywhere;              /* the endpoint's name says nothing of use on this machine */
    struct agents_server *server; /* NULL: another agent serves */
    struct agents_client client;
    char where[DISTI_HOST_SIZE + 40]; /* "10.0.0.1 port 29400" */
    int workers[DISTI_AGENTS_NODES_MAX];
};

static void agents_client_drop_ports(struct agents_client *client)
{
    struct agents_port *const ports[] = {&client->master_port, &client->store_port};

    for (int i = 0; i < 2; i++) {
        if (ports[i]->fd >= 0)
            disti_descriptor_close(ports[i]->fd);
        ports[i]->fd = -1;
    }
}

static void reach_forget(struct agents_client *client)
{
    disti_agents_link_close(&client->link);
    if (client->addresses)
        freeaddrinfo(client->addresses);
    client->addresses = client->at = NULL;
    client->state = AGENTS_SEEKING;
}

static void agents_client_end(struct disti_agents *agents)
{
    reach_forget(&agents->client);
    agents_client_drop_ports(&agents->client);
    agents->client.state = AGENTS_CLIENT_OVER;
}

/* The end: BROKEN, with the text. Returns true. */
__attribute__((format(printf, 3, 4))) static bool
agents_client_break(struct disti_agents *agents, struct disti_agents_event *event_p,
                    const char *format, ...)
{
    va_list args;

    *event_p = (struct disti_agents_event){.type = DISTI_AGENTS_BROKEN};
    va_start(args, format);
    vsnprintf(event_p->text, sizeof(event_p->text), format, args);
    va_end(args);
    agents_client_end(agents);
    return true;
}

/* Bound, so that nobody else gets it, but it does not listen. Without one the number is 0. */
static void hear_keep(const struct agents_client *client, struct agents_port *port)
{
    struct sockaddr_storage own = {0};
    socklen_t size = sizeof(own);

    port->number = 0;
    if (getsockname(client->link.fd, (struct sockaddr *)&own, &size))
        return;
    port->fd = disti_descriptor_own(socket(own.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (own.ss_family == AF_INET6)
        ((struct sockaddr_in6 *)(void *)&own)->sin6_port = 0;
    else
        ((struct sockaddr_in *)(void *)&own)->sin_port = 0;
    if (port->fd >= 0 && bind(port->fd, (struct sockaddr *)&own, size) == 0 &&
        getsockname(port->fd, (struct sockaddr *)&own, &size) == 0)
        port->number = disti_address_port((struct sockaddr *)&own);
}

/* Keeps the ports, and lets go of them. */
static void agents_client_keep_ports(struct disti_agents *agents)
{
    struct agents_client *client = &agents->client;

    agents_client_drop_ports(client);
    hear_keep(client, &client->store_port);
    if (agents->config.master_port)
        client->master_port.number = agents->config.master_port;
    else
        hear_keep(client, &client->master_port);
}

void disti_agents_describe(const struct disti_agents_failure *f, char *text, size_t size)
{
    char end[64], who[32] = "the scheduler";

    if (f->rank >= 0 || f->pid < 0)
        snprintf(who, sizeof(who), "rank %d", f->rank);
    if (f->signal)
        snprintf(end, sizeof(end), "was ended by signal %d", f->signal);
    else
        snprintf(end, sizeof(end), "ended with exit code %d", f->exit_code);
    if (f->cause == DISTI_AGENTS_WORKER_FAILED)
        disti_text(text, size, "%s (host %s, pid %d) %s%s%s%s", who, f->host, f->pid, end,
                   disti_process_oom_text(f->is_out_of_memory), f->text[0] ? ": " : "", f->text);
    else if (f->cause == DISTI_AGENTS_NODE_LOST)
        disti_text(text, size, "node %d (host %s) is lost: %s", f->node_rank, f->host, f->text);
    else
        disti_text(text, size, "the node %s joins", f->host);
}

static bool hear_failure(struct disti_agents *agents, struct disti_agents_event *event_p)
{
    struct agents_client *client = &agents->client;

    *event_p = (struct disti_agents_event){.type = DISTI_AGENTS_RESTART};
    if (!disti_agents_get_failure(&client->link.in, &event_p->failure))
        return false;
    if (client->link.in.head.op == AGENTS_GIVEN_UP) {
        event_p->type = DISTI_AGENTS_GIVEN_UP;
        client->state = AGENTS_CLIENT_OVER;
    } else if (client->state == AGENTS_CLIENT_RUNNING) {
        client->state = AGENTS_CLIENT_STOPPING;
    } else {
        return false;
    }
    disti_agents_describe(&event_p->failure, event_p->text, sizeof(event_p->text));
    return true;
}

/* The ports may be listened at from now on. */
static bool hear_round(struct disti_agents *agents, struct disti_agents_event *event_p)
{
    struct agents_client *client = &agents->client;

    *event_p = (struct disti_agents_event){.type = DISTI_AGENTS_ROUND};
    if (client->state != AGENTS_CLIENT_READY ||
        !disti_agents_get_round(&client->link.in, &event_p->round, agents->workers) ||
        event_p->round.workers[event_p->round.node_rank] != agents->config.workers)
        return false;
    disti_agents_store_word(&client->transcript, event_p->round.store_secret);
    event_p->round.job = agents->config.job;
    agents_client_drop_ports(client);
    client->state = AGENTS_CLIENT_RUNNING;
    return true;
}

/* True: an event, or *sense_p is false. */
static bool hear_frame(struct disti_agents *agents, struct disti_agents_event *event_p,
                       bool *sense_p)
{
    struct agents_client *client = &agents->client;
    const struct disti_wire_reader *in = &client->link.in;
    char text[DISTI_AGENTS_TEXT];

    switch (in->head.op) {
    case AGENTS_BEAT:
        return false;
    case AGENTS_ROUND:
        return *sense_p = hear_round(agents, event_p);
    case AGENTS_RESTART:
    case AGENTS_GIVEN_UP:
        return *sense_p = hear_failure(agents, event_p);
    case AGENTS_FINISHED:
        *event_p = (struct disti_agents_event){.type = DISTI_AGENTS_FINISHED};
        snprintf(event_p->text, sizeof(event_p->text), "all workers have succeeded");
        client->state = AGENTS_CLIENT_OVER;
        return true;
    case AGENTS_NOTE:
        *event_p = (struct disti_agents_event){.type = DISTI_AGENTS_NOTE};
        return *sense_p = disti_agents_get_sentence(in, event_p->text);
    case AGENTS_REFUSED:
        *sense_p = disti_agents_get_sentence(in, text);
        return *sense_p && agents_client_break(agents, event_p, "%s", text);
    default:
        return *sense_p = false;
    }
}

static bool hear_lost(struct disti_agents *agents, struct disti_agents_event *event_p,
                      const char *why)
{
    const struct agents_welcome *server = &agents->client.server;

    return agents_client_break(
        agents, event_p, "the agent that serves the rendezvous was lost (host %s, pid %u, %s): %s",
        server->host, server->pid, agents->where, why);
}

/* What a member hears. The same. */
static bool agents_client_hear(struct disti_agents *agents, struct disti_agents_event *event_p,
                               int64_t *when_p)
{
    struct agents_client *client = &agents->client;
    enum disti_wire_event event;
    bool sense = true;
    char why[64];

    disti_agents_link_flush(&client->link);
    while ((event = disti_agents_link_read(&client->link)) == DISTI_WIRE_FRAME) {
        bool is_event = hear_frame(agents, event_p, &sense);

        disti_wire_next(&client->link.in);
        if (!sense)
            break;
        if (is_event)
            return true;
    }
    if (!sense || event == DISTI_WIRE_STRANGE || event == DISTI_WIRE_TOO_LONG)
        return hear_lost(agents, event_p, "it sent an invalid message");
    if (event == DISTI_WIRE_NO_TLS)
        return hear_lost(agents, event_p, disti_tls_why(client->link.in.tls));
    if (event == DISTI_WIRE_CLOSED || client->link.is_broken)
        return hear_lost(agents, event_p, "its connection broke");
    disti_agents_link_beat(&client->link, client->server.interval_ms, when_p);
    if (!disti_agents_link_is_silent(&client->link, client->server.silence_ms, when_p))
        return false;
    snprintf(why, sizeof(why), "it sent nothing for %.1f s", client->server.silence_ms / 1e3);
    return hear_lost(agents, event_p, why);
}

/* An agent's way to the server: every address of the endpoint, again and again, and the proofs. */

#define TRY_MS 5000 /* for one address: a machine that does not answer */
#define ANSWER_MS 30000
#define UNKNOWN_MS 30000 /* a name that nobody knows; a cluster's name may come late */
#define NOTE_MS 5000
#define DELAY_FIRST_MS 20
#define DELAY_MAX_MS 500

/* This attempt has failed: the next address, or all again after a while. */
__attribute__((format(printf, 2, 3))) static bool reach_failed(struct disti_agents *agents,
                                                               const char *format, ...)
{
    struct agents_client *client = &agents->client;
    va_list args;

    va_start(args, format);
    vsnprintf(client->tried, sizeof(client->tried), format, args);
    va_end(args);
    disti_agents_link_close(&client->link);
    client->state = AGENTS_SEEKING;
    client->at = client->at ? client->at->ai_next : NULL;
    if (client->at)
        return false;
    reach_forget(client);
    client->again_ns = disti_deadline_ms(client->delay_ms);
    client->delay_ms = client->delay_ms * 2 < DELAY_MAX_MS ? client->delay_ms * 2 : DELAY_MAX_MS;
    return false;
}

/* A free local port can be the very port that is asked for: the socket then meets itself. */
static bool reach_met_itself(int fd)
{
    struct sockaddr_storage own = {0}, other = {0};
    socklen_t own_size = sizeof(own), other_size = sizeof(other);

    return getsockname(fd, (struct sockaddr *)&own, &own_size) == 0 &&
           getpeername(fd, (struct sockaddr *)&other, &other_size) == 0 && own_size == other_size &&
           memcmp(&own, &other, own_size) == 0;
}

/* Serves if it may and can; DIST_OK too if another does. */
static dist_status agents_serve(struct disti_agents *agents)
{
    const struct disti_agents_config *config = &agents->config;
    const int64_t by_ns = agents->client.join_by_ns;
    bool tried, must = config->serve == DISTI_AGENTS_SERVE;
    char why[DISTI_AGENTS_TEXT];
    dist_status status;

    if (agents->server || config->serve == DISTI_AGENTS_SERVE_NEVER)
        return DIST_OK;
    agents->everywhere =
        config->max_nodes > 1 && disti_host_is_hidden(config->endpoint_host, by_ns);
    tried = disti_log_trying(true);
    status = disti_agents_server_open(config, agents->epoll_fd, agents->everywhere, by_ns,
                                      &agents->server);
    disti_log_trying(tried);
    if (status == DIST_OK || !must)
        return DIST_OK;
    snprintf(why, sizeof(why), "%s", dist_last_error());
    return disti_fail(status,
                      "this agent must serve the rendezvous at %s port %d (--node-rank 0, or "
                      "is_host), but cannot: %s",
                      config->endpoint_host, config->endpoint_port, why);
}

/* True: an event, as the endpoint's only address is of no use here. */
static bool reach_call(struct disti_agents *agents, struct disti_agents_event *event_p)
{
    struct agents_client *client = &agents->client;
    const struct addrinfo *address = client->at;
    char host[DISTI_HOST_SIZE], why[256];
    int fd = disti_descriptor_own(
        socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));

    disti_address_text(address->ai_addr, host);
    snprintf(agents->where, sizeof(agents->where), "%s port %d", host,
             disti_address_port(address->ai_addr));
    if (fd < 0)
        return reach_failed(agents, "cannot create a socket: %s", strerror(errno));
    disti_socket_tune(fd);
    if (connect(fd, address->ai_addr, address->ai_addrlen) && errno != EINPROGRESS) {
        const int error = errno;

        disti_descriptor_close(fd);
        if (client->addresses->ai_next || error == EADDRNOTAVAIL ||
            !disti_address_is_hopeless(address->ai_addr, error, why, sizeof(why)))
            return reach_failed(agents, "%s: %s", agents->where, strerror(error));
        return agents_client_break(agents, event_p, "cannot reach \"%s\" port %d: %s",
                                   agents->config.endpoint_host, disti_agents_port(agents), why);
    }
    if (!disti_agents_link_open(&client->link, fd, agents->epoll_fd, NULL, AGENTS_LIMIT_STRANGER))
        return reach_failed(agents, "cannot watch a socket: %s", strerror(errno));
    client->state = AGENTS_CALLING;
    client->try_by_ns = disti_deadline_ms(TRY_MS);
    return false;
}

/* The endpoint's addresses, anew each time: they may change while a cluster starts. */
static bool reach_seek(struct disti_agents *agents, struct disti_agents_event *event_p,
                       int64_t *when_p)
{
    struct agents_client *client = &agents->client;
    const struct disti_agents_config *config = &agents->config;
    int code = 0;

    if (!disti_expired(client->again_ns)) {
        agents_sooner(when_p, client->again_ns);
        return false;
    }
    if (!client->at) {
        agents_serve(agents);
        code = disti_resolve(config->endpoint_host, disti_agents_port(agents), client->join_by_ns,
                             &client->addresses);
    }
    if (!code) {
        client->at = client->at ? client->at : client->addresses;
        *when_p = 0;
        return reach_call(agents, event_p);
    }
    client->addresses = NULL;
    reach_failed(agents, "cannot resolve \"%s\": %s", config->endpoint_host, gai_strerror(code));
    if (code == EAI_NONAME &&
        disti_left_ms(client->join_by_ns) < config->join_timeout_ms - UNKNOWN_MS)
        return agents_client_break(agents, event_p,
                                   "cannot find the address of \"%s\": %s. Set --rdzv-endpoint to "
                                   "a name that this machine can resolve, or to a numeric address",
                                   config->endpoint_host, gai_strerror(code));
    agents_sooner(when_p, client->again_ns);
    return false;
}

static void reach_hello(struct disti_agents *agents)
{
    struct agents_client *client = &agents->client;
    struct agents_transcript *t = &client->transcript;
    unsigned char value[AGENTS_NONCE + AGENTS_JOB];

    *t = (struct agents_transcript){.secret = agents->config.secret,
                                    .secret_bytes = agents->config.secret_bytes};
    snprintf(t->job, sizeof(t->job), "%s", agents->config.job);
    if (getrandom(t->agent_nonce, AGENTS_NONCE, 0) != AGENTS_NONCE) {
        reach_failed(agents, "cannot get random bytes: %s", strerror(errno));
        return;
    }
    memcpy(value, t->agent_nonce, AGENTS_NONCE);
    disti_agents_put_text(value + AGENTS_NONCE, t->job, AGENTS_JOB);
    disti_agents_link_send(&client->link, AGENTS_HELLO, value, sizeof(value));
    client->state = AGENTS_GREETING;
    client->try_by_ns = disti_deadline_ms(ANSWER_MS);
}

/* The session with who has a certificate of the endpoint's host. False: see the error. */
static bool reach_begin_tls(struct disti_agents *agents)
{
    struct agents_link *link = &agents->client.link;
    struct disti_tls_context *context;

    if (disti_tls_open(&context) != DIST_OK)
        return false;
    if (!context)
        return true;
    link->in.tls = disti_tls_call(context, link->fd, agents->config.endpoint_host);
    disti_tls_context_free(context);
    return link->in.tls || disti_fail(DIST_ERR_NO_MEMORY, "no memory for TLS") == DIST_OK;
}

/* The address by which the others find this node: what was given, else that of its connection. */
static void reach_address(const struct disti_agents *agents, char text[AGENTS_ADDRESS])
{
    struct sockaddr_storage own;
    socklen_t size = sizeof(own);
    char host[DISTI_HOST_SIZE] = "";
    const char *address = disti_loopback();

    if (getsockname(agents->client.link.fd, (struct sockaddr *)&own, &size) == 0) {
        disti_address_text((struct sockaddr *)&own, host);
        address = host;
    }
    if (agents->everywhere)
        address = agents->config.endpoint_host;
    if (agents->config.address)
        address = agents->config.address;
    snprintf(text, AGENTS_ADDRESS, "%s", address);
}

static void reach_join(struct disti_agents *agents)
{
    const struct disti_agents_config *config = &agents->config;
    struct agents_client *client = &agents->client;
    unsigned char value[DISTI_HMAC_BYTES + AGENTS_MEMBER_BYTES];
    struct agents_member member = {.pid = (uint32_t)getpid(),
                                   .node_rank = config->node_rank,
                                   .min_nodes = (uint32_t)config->min_nodes,
                                   .max_nodes = (uint32_t)config->max_nodes,
                                   .max_restarts = (uint32_t)config->max_restarts,
                                   .workers = (uint32_t)config->workers,
                                   .same_workers = config->same_workers,
                                   .join_now = config->join_now,
                                   .serves = agents->server != NULL,
                                   .goes_on = config->goes_on};

    agents_client_keep_ports(agents);
    member.master_port = (uint32_t)client->master_port.number;
    member.store_port = (uint32_t)client->store_port.number;
    snprintf(member.host, sizeof(member.host), "%s", config->host);
    reach_address(agents, member.address);
    disti_agents_put_member(value + DISTI_HMAC_BYTES, &member);
    disti_agents_prove(&client->transcript, "agent", value + DISTI_HMAC_BYTES, AGENTS_MEMBER_BYTES,
                       value);
    disti_agents_link_send(&client->link, AGENTS_JOIN, value, sizeof(value));
    client->state = AGENTS_PROVING;
}

/* False: senseless. */
static bool reach_challenged(struct disti_agents *agents, const struct disti_wire_reader *in)
{
    struct agents_transcript *t = &agents->client.transcript;

    if (in->head.op != AGENTS_CHALLENGE || in->head.value_bytes != AGENTS_NONCE)
        return false;
    memcpy(t->server_nonce, disti_wire_value(in), AGENTS_NONCE);
    t->binding_bytes = disti_tls_binding(in->tls, t->binding);
    reach_join(agents);
    return true;
}

static bool reach_welcomed(struct disti_agents *agents, const struct disti_wire_reader *in)
{
    const unsigned char *value = disti_wire_value(in);
    struct agents_client *client = &agents->client;
    unsigned char proof[DISTI_HMAC_BYTES];

    if (in->head.op != AGENTS_WELCOME ||
        in->head.value_bytes != DISTI_HMAC_BYTES + AGENTS_WELCOME_BYTES)
        return false;
    disti_agents_prove(&client->transcript, "server", value + DISTI_HMAC_BYTES,
                       AGENTS_WELCOME_BYTES, proof);
    if (!disti_hmac_same(proof, value) ||
        !disti_agents_get_welcome(value + DISTI_HMAC_BYTES, &client->server))
        return false;
    client->state = AGENTS_CLIENT_READY;
    client->link.in.limit = AGENTS_LIMIT_SERVER;
    disti_tls_trust(client->link.in.tls);
    return true;
}

/* The server's answer, if it has come. True: an event. */
static bool reach_answered(struct disti_agents *agents, struct disti_agents_event *event_p)
{
    struct agents_client *client = &agents->client;
    const struct disti_wire_reader *in = &client->link.in;
    char text[DISTI_AGENTS_TEXT];
    const char *why;
    bool sense;

    switch (disti_agents_link_read(&client->link)) {
    case DISTI_WIRE_FRAME:
        if (in->head.op == AGENTS_REFUSED && disti_agents_get_sentence(in, text)) {
            /* Who says that has proved nothing yet: nothing of it may act on a terminal. */
            for (char *c = text; *c; c++)
                *c = *c >= ' ' && *c <= '~' ? *c : '?';
            return agents_client_break(agents, event_p, "%s refused this node: %s", agents->where,
                                       text);
        }
        sense = client->state == AGENTS_GREETING ? reach_challenged(agents, in)
                                                 : reach_welcomed(agents, in);
        if (!sense)
            return agents_client_break(
                agents, event_p,
                client->state == AGENTS_GREETING
                    ? "the program that listens on %s is not an agent: choose another port "
                      "(--rdzv-endpoint)"
                    : "the program that listens on %s does not have the job's secret, so it is not "
                      "an agent of this job: choose another port (--rdzv-endpoint), or start all "
                      "agents with the same secret",
                agents->where);
        disti_wire_next(&client->link.in);
        return false;
    case DISTI_WIRE_MORE:
        return false;
    case DISTI_WIRE_CLOSED:
        why = disti_tls_why(client->link.in.tls);
        return reach_failed(agents, "%s: %s", agents->where,
                            why[0] ? why : "it closed the connection");
    case DISTI_WIRE_NO_TLS:
        return agents_client_break(agents, event_p, "cannot set up a TLS connection with %s: %s",
                                   agents->where, disti_tls_why(client->link.in.tls));
    default:
        return agents_client_break(agents, event_p,
                                   disti_tls_looks_like(client->link.in.head_bytes)
                                       ? "the agent at %s requires TLS: set DIST_TLS_CERT, "
                                         "DIST_TLS_KEY and DIST_TLS_CA on all nodes, or on none"
                                       : "the program that listens on %s is not an agent (it uses "
                                         "another protocol): choose another port (--rdzv-endpoint)",
                                   agents->where);
    }
}

/* Says once why it takes so long. */
static bool reach_note(struct disti_agents *agents, struct disti_agents_event *event_p,
                       int64_t *when_p)
{
    struct agents_client *client = &agents->client;

    if (!client->note_ns || !disti_expired(client->note_ns)) {
        if (client->note_ns)
            agents_sooner(when_p, client->note_ns);
        return false;
    }
    client->note_ns = 0;
    *event_p = (struct disti_agents_event){.type = DISTI_AGENTS_NOTE};
    snprintf(event_p->text, sizeof(event_p->text),
             "%s: no agent serves the rendezvous at %s port %d yet (%s); retrying for %.0f s",
             agents->config.host, agents->config.endpoint_host, disti_agents_port(agents),
             client->tried[0] ? client->tried : "no answer",
             disti_left_ms(client->join_by_ns) / 1e3);
    return true;
}

/* To the server, as far as its challenge's answer. The same. */
static bool agents_client_reach(struct disti_agents *agents, struct disti_agents_event *event_p,
                                int64_t *when_p)
{
    struct agents_client *client = &agents->client;

    if (disti_expired(client->join_by_ns))
        return agents_client_break(
            agents, event_p,
            "%s found no agent that serves the rendezvous at %s port %d within %.1f s: %s. Start "
            "the agent there, use the same --rdzv-endpoint for all agents, or raise --rdzv-conf "
            "join_timeout",
            agents->config.host, agents->config.endpoint_host, disti_agents_port(agents),
            agents->config.join_timeout_ms / 1e3, client->tried[0] ? client->tried : "no answer");
    agents_sooner(when_p, client->join_by_ns);
    if (client->state == AGENTS_SEEKING && reach_seek(agents, event_p, when_p))
        return true;
    if (client->state == AGENTS_CALLING) {
        struct pollfd ready = {.fd = client->link.fd, .events = POLLOUT};
        socklen_t size = sizeof(int);
        int error = 0;

        /* The call may have been answered. */
        if (poll(&ready, 1, 0) >= 1) {
            if (getsockopt(client->link.fd, SOL_SOCKET, SO_ERROR, &error, &size))
                error = errno;
            if (!error && reach_met_itself(client->link.fd))
                error = ECONNREFUSED;
            if (error)
                reach_failed(agents, "%s: %s", agents->where, strerror(error));
            else if (!reach_begin_tls(agents))
                reach_failed(agents, "%s", dist_last_error());
            else
                reach_hello(agents);
        }
    }
    if (client->state == AGENTS_GREETING || client->state == AGENTS_PROVING) {
        disti_agents_link_flush(&client->link);
        if (reach_answered(agents, event_p))
            return true;
    }
    if (client->state == AGENTS_SEEKING)
        agents_sooner(when_p, client->again_ns);
    else if (client->state < AGENTS_CLIENT_READY && disti_expired(client->try_by_ns))
        reach_failed(agents, "%s: no answer", agents->where);
    else if (client->state < AGENTS_CLIENT_READY)
        agents_sooner(when_p, client->try_by_ns);
    return client->state < AGENTS_CLIENT_READY && reach_note(agents, event_p, when_p);
}

/* An agent: opening, moving its two sides along, telling, closing. */

#define TURNS_MAX 16 /* of a server that is kept busy, before its own agent is asked again */
#define NS_PER_S 1000000000

static void agents_free(struct disti_agents *agents)
{
    agents_client_end(agents);
    disti_agents_server_close(agents->server);
    if (agents->timer_fd >= 0)
        disti_descriptor_close(agents->timer_fd);
    if (agents->epoll_fd >= 0)
        disti_descriptor_close(agents->epoll_fd);
    disti_agents_config_free(&agents->config);
    free(agents);
}

/* Wakes whoever polls at that point in time; now, if it is past. */
static void agents_arm(struct disti_agents *agents, int64_t when_ns)
{
    struct itimerspec when = {
        .it_value = {.tv_sec = when_ns / NS_PER_S, .tv_nsec = when_ns % NS_PER_S}};

    if (when_ns <= 0)
        when.it_value.tv_nsec = 1;
    if (when_ns == INT64_MAX)
        when.it_value = (struct timespec){0};
    timerfd_settime(agents->timer_fd, TFD_TIMER_ABSTIME, &when, NULL);
}

dist_status disti_agents_open(const struct disti_agents_config *config,
                              struct disti_agents **agents_p)
{
    struct epoll_event event = {.events = EPOLLIN};
    struct disti_agents *agents;
    struct disti_tls_context *tls = NULL;
    dist_status status = disti_agents_config_check(config);
    struct agents_client *client;

    if (status == DIST_OK)
        status = disti_tls_open(&tls); /* what is wrong with it is said before any wait */
    disti_tls_context_free(tls);
    if (status != DIST_OK)
        return status;
    agents = calloc(1, sizeof(*agents));
    if (!agents)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for an agent: free memory");
    agents->epoll_fd = disti_descriptor_own(epoll_create1(EPOLL_CLOEXEC));
    agents->timer_fd =
        disti_descriptor_own(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
    if (agents->epoll_fd < 0 || agents->timer_fd < 0 ||
        epoll_ctl(agents->epoll_fd, EPOLL_CTL_ADD, agents->timer_fd, &event) != 0)
        status = disti_fail_errno(DIST_ERR_SYSTEM, "cannot open an agent's descriptors");
    if (!disti_agents_config_copy(&agents->config, config) && status == DIST_OK)
        status = disti_fail(DIST_ERR_NO_MEMORY, "no memory for an agent: free memory");
    client = &agents->client;
    client->state = AGENTS_SEEKING;
    client->link.fd = client->master_port.fd = client->store_port.fd = -1;
    client->join_by_ns = disti_deadline_ms(agents->config.join_timeout_ms);
    client->note_ns = disti_deadline_ms(NOTE_MS);
    client->delay_ms = DELAY_FIRST_MS;
    if (status == DIST_OK)
        status = agents_serve(agents);
    if (status != DIST_OK) {
        agents_free(agents);
        return status;
    }
    agents_arm(agents, 0);
    *agents_p = agents;
    return DIST_OK;
}

int disti_agents_fd(const struct disti_agents *agents)
{
    return agents->epoll_fd;
}

int disti_agents_port(const struct disti_agents *agents)
{
    return agents->server ? agents->server->port : agents->config.endpoint_port;
}

bool disti_agents_is_server(const struct disti_agents *agents)
{
    return agents->server != NULL;
}

bool disti_agents_next_event(struct disti_agents *agents, struct disti_agents_event *event_p)
{
    const enum agents_client_state *state = &agents->client.state;
    bool is_event, again;
    int64_t when;

    for (int turn = 0; turn < TURNS_MAX; turn++) {
        when = INT64_MAX;
        again = agents->server && disti_agents_server_move(agents->server, &when);
        is_event = *state < AGENTS_CLIENT_READY && agents_client_reach(agents, event_p, &when);
        if (!is_event && *state == AGENTS_CLIENT_OVER) {
            struct agents_client *client = &agents->client;
            enum disti_wire_event event = DISTI_WIRE_MORE;

            /* All is over; what comes yet is read, lest it wake anybody again and again. */
            disti_agents_link_flush(&client->link);
            while (client->link.fd >= 0 &&
                   (event = disti_agents_link_read(&client->link)) == DISTI_WIRE_FRAME)
                disti_wire_next(&client->link.in);
            if (event != DISTI_WIRE_MORE || client->link.is_broken)
                disti_agents_link_close(&client->link);
        } else if (!is_event && *state >= AGENTS_CLIENT_READY) {
            is_event = agents_client_hear(agents, event_p, &when);
        }
        if (is_event || !again)
            break;
    }
    agents_arm(agents, is_event ? 0 : when);
    return is_event;
}

void disti_agents_ready(struct disti_agents *agents)
{
    unsigned char value[AGENTS_READY_BYTES];

    if (agents->client.state != AGENTS_CLIENT_STOPPING)
        return;
    agents_client_keep_ports(agents);
    disti_wire_put32(value, (uint32_t)agents->client.master_port.number);
    disti_wire_put32(value + 4, (uint32_t)agents->client.store_port.number);
    agents->client.state = AGENTS_CLIENT_READY;
    disti_agents_link_send(&agents->client.link, AGENTS_READY, value, sizeof(value));
}

void disti_agents_ended(struct disti_agents *agents, int succeeded)
{
    unsigned char value[4];

    disti_wire_put32(value, (uint32_t)succeeded);
    if (agents->client.state == AGENTS_CLIENT_RUNNING)
        disti_agents_link_send(&agents->client.link, AGENTS_ENDED, value, sizeof(value));
}

void disti_agents_failed(struct disti_agents *agents, const struct disti_agents_failure *failure)
{
    unsigned char value[AGENTS_FAILURE_BYTES];
    struct disti_agents_failure told = *failure;

    if (agents->client.state != AGENTS_CLIENT_RUNNING)
        return;
    told.cause = DISTI_AGENTS_WORKER_FAILED;
    told.node_rank = -1;
    told.host[0] = 0;
    disti_agents_put_failure(value, &told);
    disti_agents_link_send(&agents->client.link, AGENTS_FAILED, value, sizeof(value));
}

void disti_agents_close(struct disti_agents *agents, const char *why, int linger_ms)
{
    const int64_t deadline = disti_deadline_ms(linger_ms);
    struct pollfd ready = {.events = POLLIN};

    if (!agents)
        return;
    if (agents->client.state < AGENTS_CLIENT_READY)
        agents_client_end(agents);
    if (agents->client.link.fd >= 0)
        disti_agents_link_send_text(&agents->client.link, AGENTS_LEAVE, why ? why : "it has left");
    if (agents->server && agents->server->phase != AGENTS_OVER)
        disti_agents_break(agents->server,
                           "the agent on %s, which served the rendezvous, has left: %s",
                           agents->config.host, why ? why : "no reason given");
    /* Until all that was to be told is sent, and those who are served have gone. */
    while (!disti_expired(deadline)) {
        int64_t when = deadline;

        if (agents->server && disti_agents_server_move(agents->server, &when))
            continue;
        disti_agents_link_flush(&agents->client.link);
        if (agents->client.link.fd >= 0 && !agents->client.link.out_bytes)
            disti_agents_link_close(&agents->client.link);
        if (agents->client.link.fd < 0 &&
            (!agents->server || disti_agents_server_count(agents->server) == 0))
            break;
        agents_arm(agents, when);
        ready.fd = agents->epoll_fd;
        poll(&ready, 1, disti_left_ms(deadline));
    }
    agents_free(agents);
}

/* What an agent is told: defaults, --rdzv-conf, and what is wrong with it. */

#define SECRET_MAX 256

void disti_agents_defaults(struct disti_agents_config *config)
{
    *config = (struct disti_agents_config){.node_rank = -1,
                                           .min_nodes = 1,
                                           .max_nodes = 1,
                                           .workers = 1,
                                           .join_timeout_ms = 600000,
                                           .last_call_timeout_ms = 30000,
                                           .keep_alive_interval_ms = 5000,
                                           .keep_alive_max_attempt = 3};
}

static bool config_milliseconds(const char *text, int *ms_p)
{
    char *end;
    double seconds = disti_ascii_real(text, &end);

    if (!*text || *end || !isfinite(seconds) || seconds < 0 || seconds > 1e6)
        return false;
    *ms_p = (int)(seconds * 1e3 + 0.5);
    return true;
}

static bool config_whole(const char *text, int *number_p)
{
    char *end;
    long number = strtol(text, &end, 10);

    if (!*text || *end || number < 0 || number > INT_MAX)
        return false;
    *number_p = (int)number;
    return true;
}

static bool config_truth(const char *text, bool *is_true_p)
{
    static const char *const words[2][4] = {{"0", "false", "f", "no"}, {"1", "true", "t", "yes"}};

    for (int i = 0; i < 8; i++) {
        if (disti_ascii_same(text, words[i / 4][i % 4])) {
            *is_true_p = i >= 4;
            return true;
        }
    }
    return false;
}

/* False: the value is none for that key. *known_p: is there such a key? */
static bool config_set(struct disti_agents_config *config, const char *key, const char *value,
                       bool *known_p)
{
    static const char *const unused[] = {"close_timeout", "read_timeout", "heartbeat_timeout",
                                         "use_libuv", "store_type"};
    bool is_host;

    *known_p = true;
    if (strcmp(key, "join_timeout") == 0 || strcmp(key, "timeout") == 0)
        return config_milliseconds(value, &config->join_timeout_ms);
    if (strcmp(key, "last_call_timeout") == 0)
        return config_milliseconds(value, &config->last_call_timeout_ms);
    if (strcmp(key, "keep_alive_interval") == 0)
        return config_milliseconds(value, &config->keep_alive_interval_ms);
    if (strcmp(key, "keep_alive_max_attempt") == 0)
        return config_whole(value, &config->keep_alive_max_attempt);
    if (strcmp(key, "rank") == 0)
        return config_whole(value, &config->node_rank);
    if (strcmp(key, "is_host") == 0) {
        if (!config_truth(value, &is_host))
            return false;
        config->serve = is_host ? DISTI_AGENTS_SERVE : DISTI_AGENTS_SERVE_NEVER;
        return true;
    }
    if (strcmp(key, "join") == 0) {
        config->join_now = strcmp(value, "now") == 0;
        return config->join_now || strcmp(value, "restart") == 0;
    }
    for (size_t i = 0; i < sizeof(unused) / sizeof(unused[0]); i++) {
        if (strcmp(key, unused[i]) == 0)
            return true;
    }
    return *known_p = false;
}

dist_status disti_agents_configure(struct disti_agents_config *config, const char *conf)
{
    char *copy = strdup(conf), *rest = NULL, *entry, *value;
    dist_status status = DIST_OK;
    bool known;

    if (!copy)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for --rdzv-conf: free memory");
    for (entry = strtok_r(copy, ",", &rest); entry && status == DIST_OK;
         entry = strtok_r(NULL, ",", &rest)) {
        value = strchr(entry, '=');
        if (!value) {
            status = disti_fail(DIST_ERR_INVALID_ARGUMENT,
                                "--rdzv-conf: \"%s\" is not of the form KEY=VALUE", entry);
            break;
        }
        *value++ = 0;
        if (config_set(config, entry, value, &known))
            continue;
        if (known)
            status = disti_fail(DIST_ERR_INVALID_ARGUMENT,
                                "--rdzv-conf: \"%s\" is not a valid value of %s", value, entry);
        else
            status = disti_fail(
                DIST_ERR_INVALID_ARGUMENT,
                "unknown --rdzv-conf key \"%s\" (valid keys: join_timeout, last_call_timeout, "
                "keep_alive_interval, keep_alive_max_attempt, is_host, rank, join)",
                entry);
    }
    free(copy);
    return status;
}

/* Printable, so that others can show it. */
static bool config_is_text(const char *text, size_t size)
{
    for (const char *c = text; *c; c++) {
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            return false;
    }
    return text[0] && strlen(text) < size;
}

dist_status disti_agents_config_check(const struct disti_agents_config *config)
{
    if (config->min_nodes < 1 || config->max_nodes < config->min_nodes ||
        config->max_nodes > DISTI_AGENTS_NODES_MAX)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "--nnodes %d:%d: it must be MIN:MAX with 1 <= MIN <= MAX <= %d",
                          config->min_nodes, config->max_nodes, DISTI_AGENTS_NODES_MAX);
    if (config->node_rank < -1 || config->node_rank >= config->max_nodes)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "--node-rank %d: with --nnodes %d it must be from 0 to %d",
                          config->node_rank, config->max_nodes, config->max_nodes - 1);
    if (config->workers < 1 || config->workers > DISTI_AGENTS_WORKERS_MAX)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "--nproc-per-node %d: it must be from 1 to %d",
                          config->workers, DISTI_AGENTS_WORKERS_MAX);
    if (config->max_restarts < 0 || config->master_port < 0 || config->master_port > 65535)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "--max-restarts %d, --master-port %d: out of range", config->max_restarts,
                          config->master_port);
    if (!config->endpoint_host || !config->endpoint_host[0] || config->endpoint_port < 0 ||
        config->endpoint_port > 65535)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "--rdzv-endpoint must be HOST:PORT with a port from 0 to 65535");
    if (!config->job || !config_is_text(config->job, AGENTS_JOB))
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "--rdzv-id must have 1 to %d printable characters", AGENTS_JOB - 1);
    if (config->secret_bytes > SECRET_MAX || (config->secret_bytes && !config->secret))
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "the job's secret is too long: it may have at most %d bytes", SECRET_MAX);
    if (config->secret_bytes && !disti_hmac_exists())
        return disti_fail(DIST_ERR_UNSUPPORTED,
                          "this distrun was built without OpenSSL, which is required to prove that "
                          "it has the job's secret: install libssl-dev and build it again");
    if (config->address && !config_is_text(config->address, AGENTS_ADDRESS))
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "--local-addr must be an address of printable characters");
    if (config->join_timeout_ms < 1 || config->last_call_timeout_ms < 0 ||
        config->keep_alive_interval_ms < 1)
        return disti_fail(
            DIST_ERR_INVALID_ARGUMENT,
            "--rdzv-conf: join_timeout and keep_alive_interval must be greater than 0");
    if (config->keep_alive_max_attempt < 1 ||
        config->keep_alive_max_attempt > INT_MAX / config->keep_alive_interval_ms)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "--rdzv-conf: keep_alive_max_attempt=%d is out of range",
                          config->keep_alive_max_attempt);
    return DIST_OK;
}

bool disti_agents_config_copy(struct disti_agents_config *copy_p,
                              const struct disti_agents_config *config)
{
    char host[DISTI_HOST_SIZE], *address = config->address ? strdup(config->address) : NULL;
    void *secret = calloc(1, config->secret_bytes + 1);

    disti_host_name(host);
    *copy_p = *config;
    copy_p->endpoint_host = strdup(config->endpoint_host);
    copy_p->job = strdup(config->job);
    copy_p->host = strdup(config->host && config->host[0] ? config->host : host);
    if (address)
        disti_host_normalize(address);
    copy_p->address = address;
    if (secret && config->secret_bytes)
        memcpy(secret, config->secret, config->secret_bytes);
    copy_p->secret = secret;
    return secret && copy_p->endpoint_host && copy_p->job && copy_p->host &&
           (copy_p->address || !config->address);
}

void disti_agents_config_free(struct disti_agents_config *config)
{
    free((char *)config->endpoint_host);
    free((char *)config->job);
    free((char *)config->host);
    free((char *)config->address);
    if (config->secret)
        explicit_bzero((void *)config->secret, config->secret_bytes);
    free((void *)config->secret);
}
