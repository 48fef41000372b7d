/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Message matching, credit, pending rendezvous sends and detached requests, shared by the
 * transports.
 */
#ifndef DISTI_TRANSPORTS_MATCH_MATCH_H
#define DISTI_TRANSPORTS_MATCH_MATCH_H

#include <dist/transport.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

/*
 * The matching state of one peer. It starts as all zero except `rank` and `set`. Posted receives
 * wait in `posted`; messages that arrive before their receive wait in `unexpected`, in order of
 * arrival:
 *
 *      recv ------> posted:       [tag 7] [tag 9]
 *                                     ^ matched by tag, oldest first
 *      arrival ---> unexpected:   [tag 8, 4 KiB of payload] [tag 8, a descriptor]
 *
 * The list of unexpected messages can be long, and receives may match them in any order. So each
 * unexpected message is also in a hash chain of its tag, in order of arrival.
 */
struct disti_unexpected;

#define DISTI_MATCH_CHAINS 64

struct disti_match {
    struct dist_request *posted_head, *posted_tail;
    struct disti_unexpected *unexpected_head, *unexpected_tail;
    struct disti_unexpected *chain_head[DISTI_MATCH_CHAINS], *chain_tail[DISTI_MATCH_CHAINS];
    size_t held_bytes;             /* payload bytes buffered in `unexpected` */
    int rank;                      /* the peer's rank */
    struct disti_match_set *set;   /* the transport's set, or NULL */
    LIST_ENTRY(disti_match) entry; /* linked into `set` while `unexpected` is not empty */
};

/* The peers of a transport that have unexpected messages. Starts as all zero. */
LIST_HEAD(disti_match_set, disti_match);

/*
 * A message that arrived before its receive was posted. The payload is buffered here, or `note`
 * describes where it is.
 */
struct disti_unexpected {
    struct disti_unexpected *next, *prev;
    struct disti_unexpected *chain_next, *chain_prev;
    struct dist_envelope envelope;
    uint64_t order;               /* increases with each message that arrives, from any peer */
    size_t arrived;               /* payload bytes received so far */
    struct dist_request *claimed; /* the receive that matched it; NULL: none */
    uint64_t note[4];             /* private to the transport, such as a rendezvous descriptor */
    bool descriptor;              /* has no payload: `note` describes where it is */
    bool refused; /* the receive failed with ERR_MISMATCH or was canceled: discard the payload */
    unsigned char payload[];
};

/*
 * Called when a message begins to arrive. Removes the oldest posted receive with the message's tag
 * from the list and returns it, or returns NULL if there is none. If the fingerprint or the size
 * differs, sets *mismatch_p, stores the envelope in the receive's `arrived` and completes the
 * receive with ERR_MISMATCH; the caller must then discard the payload.
 */
struct dist_request *disti_match_arrival(struct disti_match *match,
                                         const struct dist_envelope *envelope, bool *mismatch_p);

/*
 * Appends a message that has no posted receive to `unexpected`. Allocates envelope->bytes for the
 * payload, or 0 bytes if `descriptor` is true. The caller copies the payload and updates `arrived`.
 * Returns NULL if out of memory.
 */
struct disti_unexpected *disti_match_hold(struct disti_match *match,
                                          const struct dist_envelope *envelope, bool descriptor);

/*
 * Posts a receive. Returns NULL if no unexpected message has its tag; the receive then waits in
 * `posted`. Otherwise returns the oldest such message with one of these fields set:
 *
 * - `claimed`: the message matches. When its payload is complete, the caller applies it to the
 *   receive's sink.
 * - `refused`: the receive has failed with ERR_MISMATCH. The caller discards the payload when it is
 *   complete.
 *
 * In both cases the caller then calls disti_match_release.
 */
struct disti_unexpected *disti_match_post(struct disti_match *match, struct dist_request *request);

/* True if the whole payload has arrived or the message is a descriptor. */
static inline bool disti_match_is_whole(const struct disti_unexpected *unexpected)
{
    return unexpected->descriptor || unexpected->arrived == unexpected->envelope.bytes;
}

/*
 * Returns the oldest unexpected message with this tag that is neither claimed nor refused, or NULL.
 */
struct disti_unexpected *disti_match_waiting(const struct disti_match *match, uint64_t tag);

/* Implement the functions probe_tag and unexpected of struct dist_transport. */
int disti_match_probe(const struct disti_match_set *set, uint64_t tag);
void disti_match_show(struct disti_match_set *set, uint64_t tag, uint64_t mask, int most,
                      dist_unexpected_fn see, void *arg);

/* Removes an unexpected message from the list and frees it. */
void disti_match_release(struct disti_match *match, struct disti_unexpected *unexpected);

/*
 * Releases all unexpected messages that are descriptors. Called after the peer was lost, since
 * their payload can no longer arrive.
 */
void disti_match_release_descriptors(struct disti_match *match);

/* Removes all posted receives from the list and completes them with `status`. */
void disti_match_fail(struct disti_match *match, dist_status status);

/* Frees all unexpected messages and empties the list of posted receives without completing them. */
void disti_match_clear(struct disti_match *match);

/*
 * Flow control, which limits the bytes that a rank may send eagerly. Each direction between two
 * ranks has a credit limit, which is equal on both sides. An eager message spends its bytes plus
 * DISTI_CREDIT_MESSAGE of the sender's credit; the receiver returns this credit when it has
 * delivered or discarded the message. If the credit does not suffice, the sender sends only an RTS,
 * and sends the data after the receiver's CTS:
 *
 *      sender                                receiver
 *        eager message -------------------->   buffered until its receive is posted
 *        RTS ------------------------------>   recorded until its receive is posted
 *                        <------------------   CTS
 *        data ----------------------------->   to its destination
 *
 * So a receiver buffers at most `limit` bytes for each peer, plus one record for each RTS whose
 * send has not completed. A send never waits for credit, since an RTS needs none, and a receive
 * never waits for an earlier message, since data follow an RTS only after their receive is posted.
 *
 * Both sides count credit from the start of the connection, so the counts only grow. The receiver
 * reports its total of returned credit whenever it has grown by a quarter of the limit.
 */
#define DISTI_CREDIT_MESSAGE 128u

/* The sender's side. */
struct disti_credit_out {
    uint64_t limit, spent, returned; /* returned: as last reported by the receiver */
};

/* The receiver's side. */
struct disti_credit_in {
    uint64_t limit, spent, returned, reported; /* reported: `returned` as last sent to the sender */
};

/* Returns true if an eager message of `bytes` bytes may be sent. */
static inline bool disti_credit_covers(const struct disti_credit_out *out, uint64_t bytes)
{
    uint64_t ahead = out->spent - out->returned;

    return bytes <= out->limit && ahead + bytes + DISTI_CREDIT_MESSAGE <= out->limit;
}

static inline void disti_credit_spend(struct disti_credit_out *out, uint64_t bytes)
{
    out->spent += bytes + DISTI_CREDIT_MESSAGE;
}

/* Stores the total that the receiver reported. Returns false if it is impossible. */
static inline bool disti_credit_update(struct disti_credit_out *out, uint64_t returned)
{
    if (returned - out->returned > out->spent - out->returned)
        return false;
    out->returned = returned;
    return true;
}

/*
 * Accounts for an eager message that arrived. Returns false if the sender had no credit for it,
 * which violates the protocol.
 */
static inline bool disti_credit_receive(struct disti_credit_in *in, uint64_t bytes)
{
    if (bytes > in->limit || in->spent - in->returned + bytes + DISTI_CREDIT_MESSAGE > in->limit)
        return false;
    in->spent += bytes + DISTI_CREDIT_MESSAGE;
    return true;
}

/*
 * Returns the credit of a message that is no longer buffered. Returns true if the caller must send
 * in->reported to the sender.
 */
static inline bool disti_credit_return(struct disti_credit_in *in, uint64_t bytes)
{
    in->returned += bytes + DISTI_CREDIT_MESSAGE;
    if (in->returned - in->reported < in->limit / 4)
        return false;
    in->reported = in->returned;
    return true;
}

/*
 * A table of the rendezvous sends that wait for CTS. Starts as all zero. RTS and CTS identify a
 * send by its index in the table, called its name.
 */
struct disti_rts_table {
    struct disti_rts_slot *slots;
    uint32_t capacity, count, free;
};

/* Stores `send` under a new name. Returns false if out of memory. */
bool disti_rts_add(struct disti_rts_table *table, void *send, uint32_t *name_p);

/* Removes and returns the send with that name; returns NULL if there is none. */
void *disti_rts_take(struct disti_rts_table *table, uint64_t name);

/*
 * Removes and returns the first send at or after *cursor and moves *cursor past it; returns NULL if
 * there is none. *cursor starts at 0.
 */
void *disti_rts_take_next(struct disti_rts_table *table, uint32_t *cursor);

/*
 * Returns the address of the table's pointer to the send with that name, so that the caller can
 * replace the send; NULL if there is none.
 */
void **disti_rts_slot(struct disti_rts_table *table, uint64_t name);

/* Frees the table but not the sends, which belong to the caller. */
void disti_rts_clear(struct disti_rts_table *table);

/*
 * Detached requests. The memory of a request is freed when its group is closed, but a message that
 * is partly transferred must still be completed, since other messages follow it in the stream. So
 * when the engine cancels such a request, the transport replaces it by a detached request: for a
 * send, one with a copy of the data that are still to be sent; for a receive, one that discards the
 * data. No thread waits for a detached request.
 */
struct disti_standin;

/* The detached requests of one transport. Starts as all zero. */
struct disti_standins {
    struct disti_standin *head;
};

/* Returns true if the request's tag equals `tag` in the bits of `mask`. */
static inline bool disti_standin_is_for(const struct dist_request *request, uint64_t tag,
                                        uint64_t mask)
{
    return (request->envelope.tag & mask) == tag;
}

/*
 * Return a new detached request, which the caller stores in place of `request`; NULL if out of
 * memory. A detached send has a copy of the data from byte `from` on. disti_standins_sweep and
 * disti_standins_free free detached requests.
 */
struct dist_request *disti_standin_send(struct disti_standins *standins,
                                        const struct dist_request *request, size_t from);
struct dist_request *disti_standin_receive(struct disti_standins *standins,
                                           const struct dist_request *request);

/* Removes the posted receives whose tag equals `tag` in the bits of `mask` from the list. */
void disti_standin_unpost(struct disti_match *match, uint64_t tag, uint64_t mask);

/* Returns true if `request` is one of these detached requests. */
bool disti_standins_have(const struct disti_standins *standins, const struct dist_request *request);

/* Frees the detached requests that have completed. */
void disti_standins_sweep(struct disti_standins *standins);
/* Frees all detached requests. The transport must not use any of them afterwards. */
void disti_standins_free(struct disti_standins *standins);

#endif
