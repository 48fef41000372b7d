/* SPDX-License-Identifier: BSD-3-Clause */
/* An agent's way to the server: every address of the endpoint, again and again, and the proofs. */
#include "launch/agents/client.h"

#include "base/clock.h"
#include "base/descriptor.h"
#include "base/log.h"
#include "base/net.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define TRY_MS 5000 /* for one address: a machine that does not answer */
#define ANSWER_MS 30000
#define UNKNOWN_MS 30000 /* a name that nobody knows; a cluster's name may come late */
#define NOTE_MS 5000
#define DELAY_FIRST_MS 20
#define DELAY_MAX_MS 500

void disti_agents_client_begin(struct disti_agents *agents)
{
    struct agents_client *client = &agents->client;

    client->state = AGENTS_SEEKING;
    client->link.fd = client->master_port.fd = client->store_port.fd = -1;
    client->join_by_ns = disti_deadline_ms(agents->config.join_timeout_ms);
    client->note_ns = disti_deadline_ms(NOTE_MS);
    client->delay_ms = DELAY_FIRST_MS;
}

static void reach_forget(struct agents_client *client)
{
    disti_agents_link_close(&client->link);
    if (client->addresses)
        freeaddrinfo(client->addresses);
    client->addresses = client->at = NULL;
    client->state = AGENTS_SEEKING;
}

void disti_agents_client_end(struct disti_agents *agents)
{
    reach_forget(&agents->client);
    disti_agents_client_drop_ports(&agents->client);
    agents->client.state = AGENTS_CLIENT_OVER;
}

/* This attempt has failed: the next address, or all again after a while. */
static void reach_failed(struct disti_agents *agents, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void reach_failed(struct disti_agents *agents, const char *format, ...)
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
        return;
    reach_forget(client);
    client->again_ns = disti_deadline_ms(client->delay_ms);
    client->delay_ms = client->delay_ms * 2 < DELAY_MAX_MS ? client->delay_ms * 2 : DELAY_MAX_MS;
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
    if (fd < 0) {
        reach_failed(agents, "no socket: %s", strerror(errno));
        return false;
    }
    disti_socket_tune(fd);
    if (connect(fd, address->ai_addr, address->ai_addrlen) && errno != EINPROGRESS) {
        const int error = errno;

        disti_descriptor_close(fd);
        if (client->addresses->ai_next || error == EADDRNOTAVAIL ||
            !disti_address_is_hopeless(address->ai_addr, error, why, sizeof(why))) {
            reach_failed(agents, "%s: %s", agents->where, strerror(error));
            return false;
        }
        return disti_agents_client_break(agents, event_p, "cannot reach \"%s\" port %d: %s",
                                         agents->config.endpoint_host, disti_agents_port(agents),
                                         why);
    }
    if (!disti_agents_link_open(&client->link, fd, agents->epoll_fd, NULL, AGENTS_LIMIT_STRANGER)) {
        reach_failed(agents, "cannot watch a socket: %s", strerror(errno));
        return false;
    }
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
        disti_agents_serve(agents);
        code = disti_resolve(config->endpoint_host, disti_agents_port(agents), client->join_by_ns,
                             &client->addresses);
    }
    if (!code) {
        client->at = client->at ? client->at : client->addresses;
        *when_p = 0;
        return reach_call(agents, event_p);
    }
    client->addresses = NULL;
    reach_failed(agents, "the name \"%s\": %s", config->endpoint_host, gai_strerror(code));
    if (code == EAI_NONAME &&
        disti_left_ms(client->join_by_ns) < config->join_timeout_ms - UNKNOWN_MS)
        return disti_agents_client_break(
            agents, event_p,
            "cannot find the address of \"%s\": %s. Give --rdzv-endpoint "
            "a name that this machine knows, or a numeric address",
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
        reach_failed(agents, "no random bytes: %s", strerror(errno));
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

/* Has the call been answered? */
static void reach_called(struct disti_agents *agents)
{
    struct agents_client *client = &agents->client;
    struct pollfd ready = {.fd = client->link.fd, .events = POLLOUT};
    socklen_t size = sizeof(int);
    int error = 0;

    if (poll(&ready, 1, 0) < 1)
        return;
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

/* The address by which the others find this node: what was given, else that of its connection. */
static void reach_address(const struct disti_agents *agents, char text[AGENTS_ADDRESS])
{
    const struct disti_agents_config *config = &agents->config;
    struct sockaddr_storage own;
    socklen_t size = sizeof(own);
    char host[DISTI_HOST_SIZE] = "";

    if (getsockname(agents->client.link.fd, (struct sockaddr *)&own, &size) == 0)
        disti_address_text((struct sockaddr *)&own, host);
    else
        snprintf(host, sizeof(host), "%s", disti_loopback());
    snprintf(text, AGENTS_ADDRESS, "%s",
             config->address      ? config->address
             : agents->everywhere ? config->endpoint_host
                                  : host);
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

    disti_agents_client_keep_ports(agents);
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
    if (in->head.op != AGENTS_CHALLENGE || in->head.value_bytes != AGENTS_NONCE)
        return false;
    memcpy(agents->client.transcript.server_nonce, disti_wire_value(in), AGENTS_NONCE);
    agents->client.transcript.binding_bytes =
        disti_tls_binding(agents->client.link.in.tls, agents->client.transcript.binding);
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

/* One frame of the server. True: an event. */
/* Who says that has proved nothing yet: nothing of it may act on a terminal. */
static void reach_printable(char *text)
{
    for (; *text; text++)
        *text = *text >= ' ' && *text <= '~' ? *text : '?';
}

static bool reach_frame(struct disti_agents *agents, struct disti_agents_event *event_p)
{
    struct agents_client *client = &agents->client;
    const struct disti_wire_reader *in = &client->link.in;
    char text[DISTI_AGENTS_TEXT];
    bool sense;

    if (in->head.op == AGENTS_REFUSED && disti_agents_get_sentence(in, text)) {
        reach_printable(text);
        return disti_agents_client_break(agents, event_p, "%s refused this node: %s", agents->where,
                                         text);
    }
    sense = client->state == AGENTS_GREETING ? reach_challenged(agents, in)
                                             : reach_welcomed(agents, in);
    if (!sense)
        return disti_agents_client_break(
            agents, event_p,
            client->state == AGENTS_GREETING
                ? "what listens on %s is no agent: another program has that port; choose another "
                  "one (--rdzv-endpoint)"
                : "what listens on %s does not have the job's secret: it is no agent of this job",
            agents->where);
    disti_wire_next(&client->link.in);
    return false;
}

static bool reach_answered(struct disti_agents *agents, struct disti_agents_event *event_p)
{
    struct agents_client *client = &agents->client;
    const char *why;

    switch (disti_agents_link_read(&client->link)) {
    case DISTI_WIRE_FRAME:
        return reach_frame(agents, event_p);
    case DISTI_WIRE_MORE:
        return false;
    case DISTI_WIRE_CLOSED:
        why = disti_tls_why(client->link.in.tls);
        reach_failed(agents, "%s: %s", agents->where, why[0] ? why : "it closed the connection");
        return false;
    case DISTI_WIRE_NO_TLS:
        return disti_agents_client_break(agents, event_p, "no TLS connection with %s: %s",
                                         agents->where, disti_tls_why(client->link.in.tls));
    default:
        return disti_agents_client_break(
            agents, event_p,
            disti_tls_looks_like(client->link.in.head_bytes)
                ? "the agent at %s speaks TLS: set DIST_TLS_CERT, DIST_TLS_KEY and DIST_TLS_CA on "
                  "all nodes, or on none"
                : "what listens on %s is no agent (it answers in another "
                  "protocol): another program has that port; choose another one "
                  "(--rdzv-endpoint)",
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
             "%s: no agent serves at %s port %d yet (%s); trying for %.0f s", agents->config.host,
             agents->config.endpoint_host, disti_agents_port(agents),
             client->tried[0] ? client->tried : "no answer",
             disti_left_ms(client->join_by_ns) / 1e3);
    return true;
}

bool disti_agents_client_reach(struct disti_agents *agents, struct disti_agents_event *event_p,
                               int64_t *when_p)
{
    struct agents_client *client = &agents->client;

    if (disti_expired(client->join_by_ns))
        return disti_agents_client_break(
            agents, event_p,
            "%s found no agent that serves at %s port %d within %.1f s: "
            "%s. Start the agent there, give all the same "
            "--rdzv-endpoint, or see --rdzv-conf join_timeout",
            agents->config.host, agents->config.endpoint_host, disti_agents_port(agents),
            agents->config.join_timeout_ms / 1e3, client->tried[0] ? client->tried : "no answer");
    agents_sooner(when_p, client->join_by_ns);
    if (client->state == AGENTS_SEEKING && reach_seek(agents, event_p, when_p))
        return true;
    if (client->state == AGENTS_CALLING)
        reach_called(agents);
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
