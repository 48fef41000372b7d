/* SPDX-License-Identifier: BSD-3-Clause */
/* What a member hears of the server, as events. */
#include "launch/agents/client.h"

#include "base/clock.h"
#include "base/descriptor.h"
#include "base/log.h"
#include "base/net.h"
#include "base/process.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool disti_agents_client_break(struct disti_agents *agents, struct disti_agents_event *event_p,
                               const char *format, ...)
{
    va_list args;

    *event_p = (struct disti_agents_event){.type = DISTI_AGENTS_BROKEN};
    va_start(args, format);
    vsnprintf(event_p->text, sizeof(event_p->text), format, args);
    va_end(args);
    disti_agents_client_end(agents);
    return true;
}

static void hear_drop(struct agents_port *port)
{
    if (port->fd >= 0)
        disti_descriptor_close(port->fd);
    port->fd = -1;
}

void disti_agents_client_drop_ports(struct agents_client *client)
{
    hear_drop(&client->master_port);
    hear_drop(&client->store_port);
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

void disti_agents_client_keep_ports(struct disti_agents *agents)
{
    struct agents_client *client = &agents->client;

    disti_agents_client_drop_ports(client);
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
    disti_agents_client_drop_ports(client);
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
        return *sense_p && disti_agents_client_break(agents, event_p, "%s", text);
    default:
        return *sense_p = false;
    }
}

static bool hear_lost(struct disti_agents *agents, struct disti_agents_event *event_p,
                      const char *why)
{
    const struct agents_welcome *server = &agents->client.server;

    return disti_agents_client_break(agents, event_p,
                                     "the agent where all others meet is lost (%s, pid %u, %s): %s",
                                     server->host, server->pid, agents->where, why);
}

void disti_agents_client_rest(struct agents_client *client)
{
    enum disti_wire_event event = DISTI_WIRE_MORE;

    disti_agents_link_flush(&client->link);
    while (client->link.fd >= 0 &&
           (event = disti_agents_link_read(&client->link)) == DISTI_WIRE_FRAME)
        disti_wire_next(&client->link.in);
    if (event != DISTI_WIRE_MORE || client->link.is_broken)
        disti_agents_link_close(&client->link);
}

bool disti_agents_client_hear(struct disti_agents *agents, struct disti_agents_event *event_p,
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
        return hear_lost(agents, event_p, "it sent what no agent sends");
    if (event == DISTI_WIRE_NO_TLS)
        return hear_lost(agents, event_p, disti_tls_why(client->link.in.tls));
    if (event == DISTI_WIRE_CLOSED || client->link.is_broken)
        return hear_lost(agents, event_p, "its connection broke");
    disti_agents_link_beat(&client->link, client->server.interval_ms, when_p);
    if (!disti_agents_link_is_silent(&client->link, client->server.silence_ms, when_p))
        return false;
    snprintf(why, sizeof(why), "it gave no sign of life for %.1f s",
             client->server.silence_ms / 1e3);
    return hear_lost(agents, event_p, why);
}
