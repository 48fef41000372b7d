/* SPDX-License-Identifier: BSD-3-Clause */
/* Matching of arriving messages with posted receives, shared by the transports. */
#ifndef DISTI_TRANSPORTS_MATCH_MATCH_H
#define DISTI_TRANSPORTS_MATCH_MATCH_H

#include <dist/transport.h>

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

/* What is looked for among unexpected messages: as in the transport's slot `unexpected`. */
struct disti_look {
    uint64_t tag, mask;
    int most;
    dist_unexpected_fn see;
    void *arg;
};

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
void disti_match_show(struct disti_match_set *set, const struct disti_look *look);

/* Takes a posted receive off the list; it is the caller's. */
void disti_match_unpost(struct disti_match *match, struct dist_request *request);

/* Takes an unexpected message off the list and frees it. */
void disti_match_release(struct disti_match *match, struct disti_unexpected *unexpected);

/* The same for all whose payload is still with the sender, which is lost: it will never come. */
void disti_match_release_descriptors(struct disti_match *match);

/* Ends every posted receive with `status`. */
void disti_match_fail(struct disti_match *match, dist_status status);

/* Frees what is held, without touching a request. */
void disti_match_clear(struct disti_match *match);

#endif
