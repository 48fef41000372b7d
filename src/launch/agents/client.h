/* SPDX-License-Identifier: BSD-3-Clause */
/* An agent's own side: its way to the server, and what it hears there. */
#ifndef DISTI_LAUNCH_AGENTS_CLIENT_H
#define DISTI_LAUNCH_AGENTS_CLIENT_H

#include "launch/agents/message.h"

struct addrinfo;
struct agents_server;

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

/* Serves if it may and can; DIST_OK too if another does. */
dist_status disti_agents_serve(struct disti_agents *agents);

/* config.c: copies the strings; false: no memory. And frees them. */
bool disti_agents_config_copy(struct disti_agents_config *copy_p,
                              const struct disti_agents_config *config);
void disti_agents_config_free(struct disti_agents_config *config);
dist_status disti_agents_config_check(const struct disti_agents_config *config);

#endif
