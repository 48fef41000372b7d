/* SPDX-License-Identifier: BSD-3-Clause */
/* Flow control: how much a rank may send before it is received. Shared by the transports. */
#ifndef DISTI_TRANSPORTS_MATCH_CREDIT_H
#define DISTI_TRANSPORTS_MATCH_CREDIT_H

#include <dist/transport.h>

/*
 * Each direction of a pair has a credit, the same number on both sides. A message that is sent
 * unasked costs its bytes and DISTI_CREDIT_MESSAGE; the receiver gives that back when it has
 * delivered the message or thrown it away. What the credit does not cover is only announced, and
 * sent when the receiver asks for it:
 *
 *      sender                                receiver
 *        message ------------------------->    kept, until its receive is posted
 *        announcement -------------------->    a note, until its receive is posted
 *                        <------------------   asked for
 *        data ---------------------------->    to where they belong
 *
 * So a receiver keeps `limit` bytes for each peer at most, and a note for each message that its
 * sender has not ended. Nobody ever waits for credit, and a receive waits for nothing that stands
 * before its message: notes always get through, and no data come that have no place.
 *
 * What was given back is told by a number that only grows, once a quarter of the limit.
 */
#define DISTI_CREDIT_MESSAGE 128u

/* The sender's end. */
struct disti_credit_out {
    uint64_t limit, spent, returned; /* returned: as last heard */
};

/* The receiver's end. */
struct disti_credit_in {
    uint64_t limit, spent, returned, told;
};

static inline bool disti_credit_covers(const struct disti_credit_out *out, uint64_t bytes)
{
    uint64_t ahead = out->spent - out->returned;

    return bytes <= out->limit && ahead + bytes + DISTI_CREDIT_MESSAGE <= out->limit;
}

static inline void disti_credit_spend(struct disti_credit_out *out, uint64_t bytes)
{
    out->spent += bytes + DISTI_CREDIT_MESSAGE;
}

/* The receiver has returned so much, in all. False: that is more than was spent. */
static inline bool disti_credit_heard(struct disti_credit_out *out, uint64_t returned)
{
    if (returned - out->returned > out->spent - out->returned)
        return false;
    out->returned = returned;
    return true;
}

/* A message came unasked. False: the sender had no credit for it; the peer breaks the protocol. */
static inline bool disti_credit_came(struct disti_credit_in *in, uint64_t bytes)
{
    if (bytes > in->limit || in->spent - in->returned + bytes + DISTI_CREDIT_MESSAGE > in->limit)
        return false;
    in->spent += bytes + DISTI_CREDIT_MESSAGE;
    return true;
}

/* The message is no longer kept. True: send in->told to the sender now. */
static inline bool disti_credit_return(struct disti_credit_in *in, uint64_t bytes)
{
    in->returned += bytes + DISTI_CREDIT_MESSAGE;
    if (in->returned - in->told < in->limit / 4)
        return false;
    in->told = in->returned;
    return true;
}

#endif
