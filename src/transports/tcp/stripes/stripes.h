/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages whose payload goes in stripes: announced ones, and those that were offered. */
#ifndef DISTI_TRANSPORTS_TCP_STRIPES_STRIPES_H
#define DISTI_TRANSPORTS_TCP_STRIPES_STRIPES_H

#include "transports/match/match.h"
#include "transports/tcp/paths/ways.h"
#include "transports/tcp/queue.h"

struct tcp_conn;
struct tcp_peer;
struct tcp_state;

/*
 * The first connection has all messages in their order; some it only announces
 * or offers. Their payload is cut into stripes, which a connection takes whenever it has room:
 *
 *      first          [message][announce 0][stripe of 0][announce 1][stripe of 1][message] ...
 *      second         [stripe of 0][stripe of 0][stripe of 0][stripe of 1] ...
 */

/* A message of which stripes are still to come. */
struct tcp_assembly {
    struct tcp_assembly *next;
    uint64_t number;
    uint64_t bytes;
    uint64_t unseen, left; /* bytes of stripes that have not begun; that are not in place */
    bool costs;            /* its credit is given back at its end */
    struct dist_request *request;
    struct disti_unexpected *unexpected; /* both NULL: it is thrown away */
};

/*
 *      send queue --announcement sent--------------> ready --its last stripe taken--> sent
 *               \---offer sent--> offered ---asked-----^
 */
struct tcp_stripes {
    struct tcp_queue ready, offers;
    int offered;       /* in `offers` */
    uint64_t numbered; /* messages announced or offered */
    int sending;       /* announced or asked for, and not all sent */
    uint64_t arrived;  /* announcements and offers that have come */
    struct tcp_assembly *assemblies;
};

/* send.c */
/* Its announcement has been sent: its stripes may go. */
void disti_tcp_announced(struct tcp_peer *peer, struct dist_request *request);
/* Its offer has been sent. */
void disti_tcp_offered(struct tcp_peer *peer, struct dist_request *request);
/* The peer has asked for an offered message, or refused it. False: there is none. */
bool disti_tcp_asked(struct tcp_peer *peer, uint64_t number, bool refused);
/* Sends stripes on all connections that have room. */
int disti_tcp_stripes_flush(struct tcp_state *state, struct tcp_peer *peer);
bool disti_tcp_stripes_can_send(const struct tcp_peer *peer);
void disti_tcp_stripes_fail(struct tcp_peer *peer, dist_status status);

/* receive.c */
/*
 * A message is announced or asked for, and the caller has decided where it goes: to the request, to
 * the unexpected message, or nowhere. False: no memory.
 */
bool disti_tcp_assemble(struct tcp_peer *peer, uint64_t number, uint64_t bytes,
                        struct dist_request *request, struct disti_unexpected *unexpected);
/* A stripe's frame: points `in` at its place. WAIT: its message is not announced yet. */
enum tcp_stripe_answer { TCP_STRIPE_OK, TCP_STRIPE_WAIT, TCP_STRIPE_BAD };
enum tcp_stripe_answer disti_tcp_stripe_begin(struct tcp_conn *conn,
                                              const struct dist_envelope *frame);
/* The stripe is in its place; perhaps its message is whole. */
void disti_tcp_stripe_end(struct tcp_conn *conn);
/* Messages that a receive waits for are being put together. */
bool disti_tcp_assembles(const struct tcp_peer *peer);
/* Is this unexpected message being put together? */
bool disti_tcp_assembling(const struct tcp_peer *peer, const struct disti_unexpected *unexpected);
/* Nothing that is arriving is written to this message any more. */
void disti_tcp_forget(struct tcp_peer *peer, const struct disti_unexpected *unexpected);
/* Frees an unexpected message that was refused while it came; the rest is thrown away. False: none.
 */
bool disti_tcp_assembly_refused(struct tcp_peer *peer);
void disti_tcp_assemblies_fail(struct tcp_peer *peer, dist_status status);
/* Frees them, without touching a request. */
void disti_tcp_assemblies_clear(struct tcp_peer *peer);

#endif
