/* SPDX-License-Identifier: BSD-3-Clause */
/* Which interfaces a pair's sockets join, and how a message is cut for them. Pure. */
#ifndef DISTI_TRANSPORTS_TCP_PATHS_WAYS_H
#define DISTI_TRANSPORTS_TCP_PATHS_WAYS_H

#include "transports/tcp/wire.h"

/*
 * From so many bytes on a message goes in stripes where a pair has several sockets. Pipelined
 * algorithms cut long vectors into messages of 64 to 128 KiB: these are the ones to be spread.
 */
#define DISTI_TCP_STRIPED_LEAST ((uint64_t)64 << 10)
/* Stripes: a header and a system call each, against one slow socket holding up the last of them. */
#define DISTI_TCP_STRIPE_LEAST ((uint64_t)64 << 10)
#define DISTI_TCP_STRIPE_MOST ((uint64_t)512 << 10)
/* Where all stripes but the last of a message begin and end: elements of every type are whole. */
#define DISTI_TCP_STRIPE_ALIGN 64

/* Bytes of the stripe that begins at `offset` of a message, offset < bytes. */
uint64_t disti_tcp_stripe_bytes(uint64_t bytes, int sockets, uint64_t offset);

/* Is there such a stripe of a message of `bytes` bytes? */
bool disti_tcp_stripe_fits(uint64_t bytes, uint64_t offset, uint64_t stripe);

/* One of this rank's interfaces. */
struct disti_tcp_local {
    struct disti_tcp_endpoint endpoint;
    int prefix;    /* bits that all addresses of its network share */
    char name[16]; /* "" if it is not known */
};

/* By the own interface `local` to the peer's interface `remote`. */
struct disti_tcp_way {
    int local, remote;
};

/* Is the address in the interface's own network? */
bool disti_tcp_in_network(const struct disti_tcp_local *local,
                          const struct disti_tcp_endpoint *remote);

/*
 * Ways to a peer, the first to its first interface, as without any of this. Each interface is on
 * one way if it can be: with one of the peer's in its own network; or, if `routed`, with any that
 * is left over. Where one side has more, those of the other are used again. A peer on the same
 * machine has one way. Returns how many, 1 to DISTI_TCP_INTERFACES; interfaces that are on none
 * cannot reach the peer.
 */
int disti_tcp_ways(const struct disti_tcp_local *local, int locals,
                   const struct disti_tcp_address *remote, bool routed,
                   struct disti_tcp_way ways_p[DISTI_TCP_INTERFACES]);

/* How many sockets a pair has: what each wants, 0 for as many as there are ways; the smaller. */
int disti_tcp_sockets(int own, int remote, int ways);

#endif
