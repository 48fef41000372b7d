/* SPDX-License-Identifier: BSD-3-Clause */
/* The serving agent's side: who has come, the rounds, and the news that go to all. */
#ifndef DISTI_LAUNCH_AGENTS_SERVER_H
#define DISTI_LAUNCH_AGENTS_SERVER_H

#include "launch/agents/message.h"

struct agents_peer;

/*
 * The job:
 *
 *               enough are READY, none is STOPPING        all are DONE
 *      MEETING ----------------------------------> RUNNING ----------> OVER
 *         ^                                           |                 ^
 *         '-- failure, loss, join=now: round + 1 -----'                 |
 *         |                                           '-- no restart ---+
 *         '-------- too few until the deadline, first agents clash -----'
 *
 * A failure that is called a consequence decides nothing for a second: another may have caused it.
 * With goes_on a failure decides nothing while an agent is RUNNING, unless no worker can go on.
 */
enum agents_phase { AGENTS_MEETING, AGENTS_RUNNING, AGENTS_OVER };

struct agents_server {
    const struct disti_agents_config *config;
    struct disti_tls_context *tls; /* with which all must come; NULL: none does */
    int epoll_fd, listen_fd, port;
    int64_t look_by_ns; /* though there is more to read; 0: there was not */
    int64_t accept_ns;  /* not before: there was no descriptor left */
    char host[DISTI_HOST_SIZE];
    struct agents_peer *peers;
    int strangers; /* of them: no members */

    enum agents_phase phase;
    int round, restarts;
    int64_t meet_by_ns, last_call_ns;    /* of MEETING; last_call_ns 0: too few yet */
    bool is_patient;                     /* this meeting waits for more than min_nodes */
    int64_t decide_ns;                   /* of RUNNING: when `failure` counts; 0: none yet */
    struct disti_agents_failure failure; /* the round's first */
    bool succeeded;                      /* a worker of the round did */
};

/* At every address of the machine if `everywhere`. *config is kept, and outlives the server. */
dist_status disti_agents_server_open(const struct disti_agents_config *config, int epoll_fd,
                                     bool everywhere, int64_t deadline,
                                     struct agents_server **server_p);
/* Serves what has come; *when_p is lowered to when it must be called again. True: call again. */
bool disti_agents_server_move(struct agents_server *server, int64_t *when_p);
/* How many agents are connected. */
int disti_agents_server_count(const struct agents_server *server);
void disti_agents_server_close(struct agents_server *server); /* NULL is accepted */

/* The end for all: nothing has come of the job. */
void disti_agents_break(struct agents_server *server, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Which of n nodes gets which place: nodes_p[place]. Their wishes are in order; -1: none. */
void disti_agents_places(const int *wishes, int n, int *nodes_p);

#endif
