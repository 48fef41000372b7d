/* SPDX-License-Identifier: BSD-3-Clause */
/* Matching of messages, credit, announced sends, and a stand-in for a network; private to the
 * transports. */
#ifndef DISTI_TRANSPORTS_MATCH_MATCH_H
#define DISTI_TRANSPORTS_MATCH_MATCH_H

#include <dist/transport.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

/*
 * One for each peer, all zero at first but for `rank` and `set`. Posted receives wait in `posted`;
 * messages that came first wait in `unexpected`, in order of arrival:
 *
 *      recv ------> posted:  [tag 7] [tag 9]
 *                                ^ matched by tag, oldest first
 *      arrival ---> unexpected:   [tag 8, 4 KiB held] [tag 8, a descriptor]
 *
 * There may be very many unexpected ones, and they are received in any order: each is in the chain
 * of its tag's hash too, in order of arrival.
 */
struct disti_unexpected;

#define DISTI_MATCH_CHAINS 64

struct disti_match {
    struct dist_request *posted_head, *posted_tail;
    struct disti_unexpected *unexpected_head, *unexpected_tail;
    struct disti_unexpected *chain_head[DISTI_MATCH_CHAINS], *chain_tail[DISTI_MATCH_CHAINS];
    size_t held_bytes;             /* payload kept in `unexpected` */
    int rank;                      /* the peer's */
    struct disti_match_set *set;   /* of the transport; NULL: it is in none */
    LIST_ENTRY(disti_match) entry; /* in the set, while `unexpected` is not empty */
};

/* The peers of a transport that have unexpected messages. All zero at first. */
LIST_HEAD(disti_match_set, disti_match);

/* A message that came before its receive. Payload is held here, or described by note. */
struct disti_unexpected {
    struct disti_unexpected *next, *prev;
    struct disti_unexpected *chain_next, *chain_prev;
    struct dist_envelope envelope;
    uint64_t order;               /* less than that of any message that came later, of any peer */
    size_t arrived;               /* payload bytes held so far */
    struct dist_request *claimed; /* the receive that took it while it was still arriving */
    uint64_t note[4];             /* the transport's: a rendezvous descriptor, say */
    bool descriptor;              /* no payload comes: note says where it is */
    bool refused;                 /* its receive ended with ERR_MISMATCH: nobody takes it */
    unsigned char payload[];
};

/*
 * A message begins to arrive: the oldest posted receive with its tag is taken off the
 * list and returned, or NULL. If fingerprint or size differ the receive is ended with
 * ERR_MISMATCH (arrived set), returned all the same, and *mismatch_p is true: the payload
 * is to be thrown away.
 */
struct dist_request *disti_match_arrival(struct disti_match *match,
                                         const struct dist_envelope *envelope, bool *mismatch_p);

/*
 * Keep a message that no receive waits for. payload_bytes is 0 for a descriptor, else
 * envelope->bytes. NULL: out of memory. The caller fills payload and counts `arrived`.
 */
struct disti_unexpected *disti_match_hold(struct disti_match *match,
                                          const struct dist_envelope *envelope, bool descriptor);

/*
 * A receive is posted. NULL: it waits in `posted`. Otherwise an unexpected message has its tag, and
 * is returned. With `claimed` set, it is the receive's: once its payload is whole the caller gives
 * it to the sink. With `refused` set, the receive has ended with ERR_MISMATCH, and the payload,
 * once whole, is thrown away. Then, in both cases, the caller calls disti_match_release.
 */
struct disti_unexpected *disti_match_post(struct disti_match *match, struct dist_request *request);

/* Has all of its payload come, or is it a descriptor? */
static inline bool disti_match_is_whole(const struct disti_unexpected *unexpected)
{
    return unexpected->descriptor || unexpected->arrived == unexpected->envelope.bytes;
}

/* The oldest message with this tag that waits for its receive; NULL: none. Changes nothing. */
struct disti_unexpected *disti_match_waiting(const struct disti_match *match, uint64_t tag);

/* The slots probe_tag and unexpected of a transport. */
int disti_match_probe(const struct disti_match_set *set, uint64_t tag);
void disti_match_show(struct disti_match_set *set, uint64_t tag, uint64_t mask, int most,
                      dist_unexpected_fn see, void *arg);

/* Takes an unexpected message off the list and frees it. */
void disti_match_release(struct disti_match *match, struct disti_unexpected *unexpected);

/* The same for all whose payload is still with the sender, which is lost: it will never come. */
void disti_match_release_descriptors(struct disti_match *match);

/* Ends every posted receive with `status`. */
void disti_match_fail(struct disti_match *match, dist_status status);

/* Frees what is held, without touching a request. */
void disti_match_clear(struct disti_match *match);

/* Flow control: how much a rank may send before it is received. Shared by the transports. */

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
    uint64_t limit, spent, returned, reported;
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
static inline bool disti_credit_update(struct disti_credit_out *out, uint64_t returned)
{
    if (returned - out->returned > out->spent - out->returned)
        return false;
    out->returned = returned;
    return true;
}

/* A message came unasked. False: the sender had no credit for it; the peer breaks the protocol. */
static inline bool disti_credit_receive(struct disti_credit_in *in, uint64_t bytes)
{
    if (bytes > in->limit || in->spent - in->returned + bytes + DISTI_CREDIT_MESSAGE > in->limit)
        return false;
    in->spent += bytes + DISTI_CREDIT_MESSAGE;
    return true;
}

/* The message is no longer kept. True: send in->reported to the sender now. */
static inline bool disti_credit_return(struct disti_credit_in *in, uint64_t bytes)
{
    in->returned += bytes + DISTI_CREDIT_MESSAGE;
    if (in->returned - in->reported < in->limit / 4)
        return false;
    in->reported = in->returned;
    return true;
}

/* Sends that are announced and not yet asked for, shared by the transports. */

/* A table, all zero at first: each send has a name, a small number by which the peer asks for it.
 */
struct disti_rts_table {
    struct disti_rts_slot *slots;
    uint32_t capacity, count, free;
};

/* Keeps `send` under a new name. False: out of memory. */
bool disti_rts_add(struct disti_rts_table *table, void *send, uint32_t *name_p);

/* Takes out the send with that name; NULL: there is none. */
void *disti_rts_take(struct disti_rts_table *table, uint64_t name);

/* Takes out the first send from *cursor on, 0 at first, and moves it behind that; NULL: no more. */
void *disti_rts_take_next(struct disti_rts_table *table, uint32_t *cursor);

/* Where the send with that name stands; NULL: there is none. */
void **disti_rts_slot(struct disti_rts_table *table, uint64_t name);

/* Frees the table. The sends are the caller's. */
void disti_rts_clear(struct disti_rts_table *table);

/* Requests that take the place of forgotten ones, shared by the transports. */

/*
 * A group that ends takes its memory with it, but the message that is halfway through a stream has
 * to go on to its end, since others follow it. So a request that the engine wants forgotten is
 * replaced wherever the transport keeps it: a send by one with a copy of what is still to be sent,
 * a receive by one that throws away what comes. Nobody waits for such a stand-in.
 */
struct disti_standin;

/* The stand-ins of one transport. All zero at first. */
struct disti_standins {
    struct disti_standin *head;
};

static inline bool disti_standin_is_for(const struct dist_request *request, uint64_t tag,
                                        uint64_t mask)
{
    return (request->envelope.tag & mask) == tag;
}

/*
 * The stand-in of a request; the caller puts it in its place. Of a send, data from byte `from` on
 * are copied. NULL: out of memory.
 */
struct dist_request *disti_standin_send(struct disti_standins *standins,
                                        const struct dist_request *request, size_t from);
struct dist_request *disti_standin_receive(struct disti_standins *standins,
                                           const struct dist_request *request);

/* Takes the posted receives whose tag is `tag` in the bits of `mask` off the list. */
void disti_standin_unpost(struct disti_match *match, uint64_t tag, uint64_t mask);

bool disti_standins_have(const struct disti_standins *standins, const struct dist_request *request);

/* sweep frees the stand-ins that have ended; free frees all, once nobody touches them any more. */
void disti_standins_sweep(struct disti_standins *standins);
void disti_standins_free(struct disti_standins *standins);

#endif
