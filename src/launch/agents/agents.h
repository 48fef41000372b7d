/* SPDX-License-Identifier: BSD-3-Clause */
/* Agents: one a node. They meet before workers start, and tell each other how the workers fare. */
#ifndef DISTI_LAUNCH_AGENTS_AGENTS_H
#define DISTI_LAUNCH_AGENTS_AGENTS_H

#include "base/net.h"

/*
 * The agents of a job meet at an endpoint, where one of them serves. They go through rounds: in
 * each the workers run once, with ranks of that round.
 *
 *     open --> meeting --ROUND--> workers run ---RESTART---> workers are stopped --ready--.
 *                 ^                   |                                                    |
 *                 '-------------------|----------------------------------------------------'
 *                                     |--FINISHED, GIVEN_UP----> over
 *              at any time            '--BROKEN----------------> over
 *
 * All functions are for one thread, and none blocks, except for `open` and `next_event` while they
 * look up a host name, and for `close`. Nothing here starts a thread or a process. An agent that
 * calls `next_event` for less than every 5 s is taken for lost by the others (keep_alive).
 */
struct disti_agents;

#define DISTI_AGENTS_TEXT 1024
#define DISTI_AGENTS_NODES_MAX 16384
#define DISTI_AGENTS_WORKERS_MAX 65536 /* of one node */

enum disti_agents_serve {
    DISTI_AGENTS_SERVE_IF_OWN, /* who has the endpoint's address and gets its port serves */
    DISTI_AGENTS_SERVE,        /* this agent serves, or `open` fails (--node-rank 0) */
    DISTI_AGENTS_SERVE_NEVER   /* another one does (--node-rank above 0) */
};

struct disti_agents_config {
    const char *endpoint_host; /* a name or a numeric address */
    int endpoint_port;         /* 0: any free one, for a server that is told of by other means */
    enum disti_agents_serve serve;
    const char *job;     /* --rdzv-id, 1 to 127 printable characters */
    const void *secret;  /* all agents of a job prove that they have it; NULL: none is asked for */
    size_t secret_bytes; /* at most 256 */
    const char *host;    /* this node's name in messages; NULL: the machine's */
    const char *address; /* by which other nodes reach this one (--local-addr); NULL: that of the
                            interface by which it reaches the endpoint */
    int master_port;     /* offered if this node is the first one; 0: any free one */
    int node_rank;       /* wished for, below max_nodes; -1: any */
    int min_nodes, max_nodes;
    int workers;       /* of this node, 1 to DISTI_AGENTS_WORKERS_MAX */
    bool same_workers; /* all nodes must have as many */
    int max_restarts;  /* failures that are followed by another round; a node that is lost is one */
    /* After a failure the other workers go on. The round ends when all workers of all nodes have
     * ended, or at once if node 0 is lost, which holds the store. All nodes must say the same. */
    bool goes_on;
    /* By --rdzv-conf, as torch names them; milliseconds. */
    int join_timeout_ms;        /* to reach the endpoint, and for enough nodes to come */
    int last_call_timeout_ms;   /* how long the first round waits for more nodes than min_nodes */
    int keep_alive_interval_ms; /* between signs of life */
    int keep_alive_max_attempt; /* so many without a sign, and an agent is lost */
    bool join_now; /* a node that comes late ends the round; else it waits for the next failure */
};

/* torch's: 1:1 nodes, 1 worker, no restarts, 600 s, 30 s, 5 s, 3; no endpoint and no job. */
void disti_agents_defaults(struct disti_agents_config *config);

/*
 * Sets what --rdzv-conf says: "join_timeout=60,last_call_timeout=5,join=now"; seconds, with
 * decimals. `timeout` is join_timeout, `is_host` sets `serve`, `join` is now or restart, `rank` is
 * node_rank. What torch has besides (close_timeout, read_timeout, heartbeat_timeout, use_libuv) is
 * accepted and does nothing. ERR_INVALID_ARGUMENT names what it does not understand.
 */
dist_status disti_agents_configure(struct disti_agents_config *config, const char *conf);

/* What is wrong with it: ERR_INVALID_ARGUMENT, ERR_UNSUPPORTED. */
dist_status disti_agents_config_check(const struct disti_agents_config *config);

/* Copies the strings; false: no memory. And frees them. */
bool disti_agents_config_copy(struct disti_agents_config *copy_p,
                              const struct disti_agents_config *config);
void disti_agents_config_free(struct disti_agents_config *config);

/* A round, as this node sees it. Valid until the next call of next_event or close. */
struct disti_agents_round {
    int round;    /* 0, 1, ...: each meeting has its own */
    int restarts; /* how many of max_restarts are used up: TORCHELASTIC_RESTART_COUNT */
    int node_rank, nodes;
    int first_rank, world_size; /* this node's workers have the ranks from first_rank on */
    const int *workers;         /* of each node, by node rank */
    /* Where the first node can listen: its rank 0 at one port, its agent's store at the other. Its
     * agent kept the ports from others until now. */
    char master_address[256];
    int master_port, store_port;
    char store_secret[33]; /* what that store asks for: 32 hexadecimal digits, new in each round */
    const char *job;
};

/* Why a round ends before its time. */
enum disti_agents_cause {
    DISTI_AGENTS_WORKER_FAILED = 1,
    DISTI_AGENTS_NODE_LOST, /* its connection broke, it was silent, or it left (`text` says why) */
    DISTI_AGENTS_NODE_JOINS /* with join=now */
};

/* The first failure of a round. Of a node's loss: cause, host, node_rank, its agent's pid, time and
 * text. */
struct disti_agents_failure {
    enum disti_agents_cause cause;
    char host[DISTI_HOST_SIZE];
    int node_rank, rank, local_rank, pid; /* -1: none; a scheduler is a process without a rank */
    int exit_code;                        /* if no signal ended it */
    int signal;                           /* 0: none */
    int64_t time_ms;                      /* since 1970, on its host's clock */
    /* Set by who reports it: the worker ended since another one was lost. If the report of another
     * failure comes within a second, that one was first. */
    bool is_consequence;
    bool is_out_of_memory;        /* the kernel's out-of-memory killer ended it */
    bool is_final;                /* no restart helps: the program is not there */
    char text[DISTI_AGENTS_TEXT]; /* the last collective, or why the node was lost; or "" */
};

enum disti_agents_event_type {
    DISTI_AGENTS_ROUND,    /* the nodes have met: start the workers; `round` is set */
    DISTI_AGENTS_RESTART,  /* stop them, then call disti_agents_ready; `failure` says why */
    DISTI_AGENTS_FINISHED, /* all nodes' workers have succeeded */
    DISTI_AGENTS_GIVEN_UP, /* the restarts are used up: stop the workers; `failure` says why */
    DISTI_AGENTS_BROKEN, /* no agents meet any more: stop the workers; `text` names host and reason
                          */
    DISTI_AGENTS_NOTE    /* `text` is worth a line: a node waits to join, a node has left early */
};

struct disti_agents_event {
    enum disti_agents_event_type type;
    struct disti_agents_round round;
    struct disti_agents_failure failure; /* of RESTART, GIVEN_UP */
    char text[DISTI_AGENTS_TEXT];        /* a sentence for people, of every type but ROUND */
};

/*
 * Begins to serve, if it is this agent's turn, and to reach the endpoint. The strings are copied.
 * ERR_INVALID_ARGUMENT names a wrong value; ERR_ADDRESS_IN_USE, ERR_RENDEZVOUS if it has to serve
 * and cannot; ERR_SYSTEM. All else comes as an event.
 */
dist_status disti_agents_open(const struct disti_agents_config *config,
                              struct disti_agents **agents_p);

/* Readable when `next_event` has something to do: for poll(2). */
int disti_agents_fd(const struct disti_agents *agents);

/*
 * Moves everything along, and gives the next event: false if there is none now. Call it until it
 * says so whenever the descriptor is readable. After FINISHED, GIVEN_UP or BROKEN there is none.
 */
bool disti_agents_next_event(struct disti_agents *agents, struct disti_agents_event *event_p);

/* The server's port, where this agent serves; else the endpoint's. */
int disti_agents_port(const struct disti_agents *agents);

/* Does this agent serve? */
bool disti_agents_is_server(const struct disti_agents *agents);

/* After RESTART: the workers of this node are gone, so it joins the next round. */
void disti_agents_ready(struct disti_agents *agents);

/*
 * While workers run: all of this node's have ended, `succeeded` of them with 0. FINISHED comes when
 * all nodes have said so and none has reported a failure.
 */
void disti_agents_ended(struct disti_agents *agents, int succeeded);

/*
 * While workers run: one of this node's has failed. RESTART or GIVEN_UP follows, on all nodes; with
 * goes_on a NOTE does, and the order when all workers have ended: RESTART if none has succeeded and
 * a restart is left. Of *failure, cause, host and node_rank are not looked at.
 */
void disti_agents_failed(struct disti_agents *agents, const struct disti_agents_failure *failure);

/* "rank 2 (host node1, pid 812) was ended by signal 9: barrier, call 3 of group 0" */
void disti_agents_describe(const struct disti_agents_failure *failure, char *text, size_t size);

/*
 * Leaves: a sentence why ("interrupted by SIGINT") for the other nodes, to whom it is a node's
 * loss, or after FINISHED and GIVEN_UP nothing; NULL is accepted there. Waits at most linger_ms
 * until the others have heard it and, at the serving agent, have gone. Frees. NULL agents are
 * accepted.
 */
void disti_agents_close(struct disti_agents *agents, const char *why, int linger_ms);

#endif
