/* SPDX-License-Identifier: BSD-3-Clause */
/* What a peer may send before its receives are posted, and the short frames that tell of it. */
#ifndef DISTI_TRANSPORTS_TCP_CREDIT_H
#define DISTI_TRANSPORTS_TCP_CREDIT_H

#include "transports/tcp/wire.h"

struct tcp_peer;
struct tcp_state;

/*
 * What nobody receives yet is kept, so it must be bounded; and it must not be in the way of what is
 * received, so the reading never stops. Each rank grants its peer credit for that:
 *
 *     sender                                   receiver
 *       message, or announcement ------------->  is matched, or kept until it is
 *                              <--------------- credit, when a quarter of all is to be given back
 *     without credit:
 *       offer -------------------------------->  takes its place in the order of messages
 *                              <--------------- ask, when it is matched
 *       stripes ------------------------------>  into their place
 *
 * Credit and asks go on the first connection, before any message that is not begun.
 */
struct tcp_credit {
    uint64_t granted; /* to us in all, and what is left of it */
    uint64_t left;
    uint64_t limit; /* to the peer in all, and what it has not used */
    uint64_t unused;
    uint64_t owed; /* used, and to be given back to the peer */
};

/* The receiver's answer to an offer, on its way. */
struct tcp_ask {
    struct tcp_ask *next;
    uint64_t number;
    bool refused;
};

#define TCP_CONTROL_FRAMES 16

/* Frames that are being sent: bytes[begin .. end). Asks that found no room wait in the list. */
struct tcp_control {
    unsigned char bytes[TCP_CONTROL_FRAMES * DISTI_TCP_FRAME_BYTES];
    size_t begin, end;
    struct tcp_ask *head, *tail;
    /* Of messages of no bytes, which end when the asks have gone: who has nothing left to receive
     * may not come back to send them. */
    struct dist_request *receives;
};

/* Is there credit for this message? */
static inline bool disti_tcp_affords(uint64_t credit, const struct dist_envelope *envelope)
{
    return credit >= DISTI_TCP_MESSAGE_COST && envelope->bytes <= credit - DISTI_TCP_MESSAGE_COST;
}

/* A message of so many bytes, which had cost credit, is matched and, if it was kept, freed. */
static inline void disti_tcp_give_back(struct tcp_credit *credit, uint64_t bytes)
{
    credit->owed += bytes + DISTI_TCP_MESSAGE_COST;
}

/* Reads the setting: what each peer is granted. */
dist_status disti_tcp_credit_setting(struct tcp_state *state);
/* The connection is up: the peer's hello has granted so much. */
void disti_tcp_credit_open(const struct tcp_state *state, struct tcp_peer *peer, uint64_t granted);
/* The peer gives so much back. False: more than we have used. */
bool disti_tcp_credit_came(struct tcp_peer *peer, uint64_t bytes);
/* Asks for an offered message. ERR_NO_MEMORY is not reported. */
dist_status disti_tcp_ask(struct tcp_peer *peer, uint64_t number, bool refused);
/* Credit or asks wait to be sent. */
bool disti_tcp_control_waits(const struct tcp_peer *peer);
/* They do, and the first connection has room and nothing begun that must go before them. */
bool disti_tcp_can_control(const struct tcp_peer *peer);
/* Sends them, as far as there is room. True: something went. */
bool disti_tcp_control(struct tcp_state *state, struct tcp_peer *peer);
void disti_tcp_control_clear(struct tcp_peer *peer);
/* Ends the receives of no bytes. */
void disti_tcp_control_end(struct tcp_peer *peer, dist_status status);

#endif
