/* SPDX-License-Identifier: BSD-3-Clause */
/* What the two files of dist_minimal.so share. */
#ifndef MINIMAL_H
#define MINIMAL_H

#include <dist/backend.h>

#define MINIMAL_NONE (-1) /* as a peer's descriptor: it has not called yet */
#define MINIMAL_GONE (-2) /* it is lost */

/* Ranks whose addresses are the same up to the name reach each other. */
struct minimal_address {
    char boot[40], network[40]; /* the machine, and the namespace of its sockets' names */
    uint64_t user, name;        /* who may call; what to call, a random number */
};

struct minimal_peer {
    int fd;                        /* this rank's own: the listener */
    struct dist_request *arriving; /* the message that is being read */
};

/* The state of one instance. Lists have the requests, and messages, of all peers. */
struct minimal {
    const struct dist_host *host;
    int rank, ranks, epoll;
    struct minimal_peer *peers;
    struct minimal_address address;
    struct dist_request *sends, *receives; /* what has not ended */
    struct dist_request *early;            /* messages that came before their receive */
};

/* minimal_peers.c: who the others are. The first five are slots of the transport. */
dist_status minimal_probe(char *reason, size_t reason_size);
dist_status minimal_open(void *state, const struct dist_transport_config *config);
dist_status minimal_address(void *state, void *blob, size_t *size_p);
dist_status minimal_reach(void *state, const void *blob, size_t size, struct dist_reach *reach_p);
dist_status minimal_connect(void *state, int rank, const void *blob, size_t size);
/* Takes a call, if it is one of a lower rank of this job and user. Returns 1, 0 or a status. */
int minimal_accept(struct minimal *m);

#endif
