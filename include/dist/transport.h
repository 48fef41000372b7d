/* SPDX-License-Identifier: BSD-3-Clause */
/* libdist: the contract of a transport, which moves messages between two ranks. */
#ifndef DIST_TRANSPORT_H
#define DIST_TRANSPORT_H

#include <dist/dist.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Changes whenever anything in transport.h or backend.h changes its layout or meaning. A module
 * states the one that it was built for; the library takes no other, nor a table that is smaller
 * than its own (ERR_ABI, before anything in it is called).
 */
#define DIST_ABI 7

/* A transport's address has 1 to this many bytes. */
#define DIST_ADDRESS_MAX 2048

/* What an operation that the program made is (dist_op_create, dist_op_create_premul_sum). */
struct dist_reduction {
    dist_reduce_fn fn; /* USER */
    void *arg;         /* the program's, handed to fn */
    double factor;     /* PREMUL_SUM: this rank's; IN is scaled before it is sent */
};

/*
 * Where a received message goes. src NULL: the bytes are copied to dst. Otherwise
 * dst = op(src, received), element by element, src == dst allowed; and if finish_ranks
 * is not 0 the result is complete and op's end is applied (AVG divides by finish_ranks).
 * The memory is the engine's and stays valid until the request has ended. A transport hands each
 * byte of the message to host->sink_apply once, in pieces of whole elements and in any order; where
 * src is NULL it may also write to dst itself. dst may hold anything if the request then fails.
 */
struct dist_sink {
    void *dst;        /* host memory */
    const void *src;  /* as many bytes */
    size_t bytes;     /* of the message, envelope.bytes; 0: nothing is touched */
    dist_dtype dtype; /* where src is not NULL */
    dist_op op;
    int finish_ranks;                       /* 0: no end yet */
    const struct dist_reduction *reduction; /* op USER: what it is; else NULL */
};

/*
 * What travels in front of every message. `tag` says which message of the pair this is
 * (group, operation, channel); messages of one (sender, receiver, tag) stay in order.
 * `fingerprint` describes the call (collective, dtype, op, root, count); sender and
 * receiver must agree on it. Transports treat both as opaque numbers.
 */
struct dist_envelope {
    uint64_t tag;
    uint64_t fingerprint;
    uint64_t bytes; /* of data; 0 is a message too. The receiver must expect as many */
};

/*
 * One send or receive. The engine fills peer, envelope and data or sink, sets status to
 * DIST_IN_PROGRESS and gives it to the transport, which owns it until it sets status to
 * anything else. The status is set last: from then on the transport touches neither the request
 * nor its memory. With
 *
 *   OK             a send: data may be changed; the message comes, even if this rank closes at once
 *   ERR_PEER_LOST  (reported) the group ends; the core asks the store who went first, to name it
 *   ERR_MISMATCH   a receive: fingerprint or bytes differ; `arrived` holds what the peer sent. Not
 *                  reported: the engine spells out both calls. The pair goes on to work
 *   others         (reported) the group ends, with this status and text
 *
 * Reported: by host->fail, in the very call of a slot in which the request ends, else in the last
 * one before: the text is that thread's.
 */
struct dist_request {
    dist_status status;
    int peer; /* rank in the group, never this one */
    struct dist_envelope envelope;
    const void *data;             /* send: envelope.bytes bytes, unchanged until it ends */
    struct dist_sink sink;        /* receive */
    struct dist_envelope arrived; /* receive: set on DIST_ERR_MISMATCH */
    struct dist_request *next;    /* from here on: the transport's; NULL at first */
    struct dist_request *prev;    /* NULL at first */
    size_t moved;                 /* 0 at first */
    uintptr_t own[4];             /* anything at first */
};

/* Looks at a message that came before its receive, see `unexpected`. True: drop it. */
typedef bool (*dist_unexpected_fn)(void *arg, int peer, const struct dist_envelope *envelope);

/* How well a peer can be reached: the engine takes the transport that takes the least time for a
 * message of 64 KiB, of several the one that the backend names first. */
struct dist_reach {
    double latency_ns;       /* above 0, one way */
    double bytes_per_second; /* above 0 */
};

/* What a transport is told when it is opened; all of it lives as long as it is open. */
struct dist_transport_config {
    size_t size;           /* sizeof(struct dist_transport_config) */
    int rank;              /* in the group, 0 .. world_size - 1 */
    int world_size;        /* at least 2: for one rank nothing is opened */
    int timeout_ms;        /* of a call of the program's, above 0 */
    const char *job;       /* the same on every rank, unlike any other job's */
    const char *bind_host; /* numeric address of the interface that reaches the other ranks */
    int local_ranks;       /* ranks on this machine, at least 1 */
    const struct dist_host *host; /* the library's services (backend.h) */
    void *context;                /* the backend's for its own (an MPI communicator, say), or NULL;
                                     always NULL for an instance that groups share, see cancel */
    const uint8_t *secret; /* the job's secret, secret_bytes long; NULL while a job has none */
    size_t secret_bytes;
};

/*
 * A transport. Constant, one for all; the state of one instance is state_size zeroed
 * bytes that the engine allocates, aligned for any type, and frees after close. A group has an
 * instance of its own, or all groups of a world share one; see cancel.
 *
 *   probe --> open --> address --> reach, of all peers --> connect, to those that it is chosen for
 *     |         |                                              |
 *     |         |              .-------------------------------'
 *     |         |              v
 *     |         |     send, recv, progress, probe_tag, unexpected <-----.
 *     |         |              |                                        |
 *     |         |              '--> arm --> (sleep without it) --> disarm
 *     v         v
 *  left out   no group: close          close comes last, at any time after open has been called
 *
 * Threads: calls on one instance never overlap, but come from any thread that moves the group
 * along: the program's, or one of the library's. Other instances may be called meanwhile, so what
 * they share is the transport's to guard. A lock is held: no slot may call the library but through
 * config.host.
 *
 * No slot may block; each returns within microseconds, or the time that it takes to copy what it
 * moves. Only open and close may take some milliseconds. A message to a peer that makes no calls at
 * the moment waits, and holds up nobody else's.
 *
 * Errors: a slot that fails has said why by host->fail and returns its status. Of open, address and
 * connect it ends the opening of the group; of progress, the group.
 *
 * All must be there but those that are called optional.
 */
struct dist_transport {
    uint32_t abi;        /* DIST_ABI */
    uint32_t size;       /* sizeof(struct dist_transport) */
    const char *name;    /* as in DIST_TRANSPORT: without commas and blanks, not empty */
    const char *summary; /* one line */
    size_t state_size;   /* bytes */

    /*
     * Optional (may be NULL): can it run in this process? On failure writes the reason ("CMA is
     * refused: ...") to reason[reason_size], reports nothing and returns ERR_UNSUPPORTED: then this
     * rank has no such transport, and others reach it by another. Touches no peer. Any thread may
     * call it, at any time.
     */
    dist_status (*probe)(char *reason, size_t reason_size);

    /*
     * Makes listeners and memory. On failure leaves a state that close accepts, and no rank can
     * open the group: what may be missing is for probe to find. Other ranks may be open already, or
     * not come at all.
     */
    dist_status (*open)(void *state, const struct dist_transport_config *config);

    /*
     * Writes what peers need to reach this rank to blob[DIST_ADDRESS_MAX], which is the engine's;
     * *size_p is 1 to that. Once, after open.
     */
    dist_status (*address)(void *state, void *blob, size_t *size_p);

    /*
     * Could the rank with that address be reached, and how well? ERR_UNSUPPORTED, of which nothing
     * is reported: no. Symmetric: both ends of a pair must come to the same answer, or they would
     * choose different transports and wait for each other. So it judges by the address alone; the
     * peer may be gone by now, or the address be nonsense, and lie
     * anywhere.
     */
    dist_status (*reach)(void *state, const void *blob, size_t size, struct dist_reach *reach_p);

    /*
     * This peer will be reached here: keep its address (copied). Called once a peer, for
     * the peers that are the transport's, before any send or recv. Need not connect yet. The peer
     * may have called already, and sent; it may have gone: then it is lost, which is no failure of
     * this call.
     */
    dist_status (*connect)(void *state, int peer, const void *blob, size_t size);

    /*
     * Start. Never block, may complete at once. A send may complete before the receive is
     * posted, a receive may be posted before or after the message arrives. Zero bytes are a
     * message too. Any number may be under way, in both directions, of one peer and tag too: the
     * oldest receive gets the oldest message. Messages of other tags pass them. All failures show
     * in the request.
     */
    void (*send)(void *state, struct dist_request *request);
    void (*recv)(void *state, struct dist_request *request);

    /*
     * Move what can be moved, without waiting. Returns how much happened (0: nothing, else the
     * caller looks again before it rests) or a negative dist_status if the whole transport is
     * broken; then it is called no more but for close. A lost peer is not that: it ends the
     * requests with this peer in DIST_ERR_PEER_LOST within a second of the end of its process, and
     * those to come, but for receives of what had arrived. Called only if some peer is reached
     * here.
     */
    int (*progress)(void *state);

    /*
     * The peer of an unmatched message with this tag that waits for its receive; -1: none. A
     * message may still be arriving. Of several peers preferably the one whose message has waited
     * longest, at least none that goes hungry. Does not move anything and changes nothing, so
     * progress is to be called between two looks. The engine then posts a receive from that peer
     * with that tag. A message may be stuck behind others of its peer that wait for their receives
     * too, where the transport keeps only so much; it is not found until those are received.
     */
    int (*probe_tag)(void *state, uint64_t tag);

    /*
     * Prepare to sleep: returns a file descriptor that becomes readable when progress has
     * something to do; -1: there is none, poll; -2: something is there already, don't sleep.
     * After waking (whatever the reason, and whatever arm returned) disarm is called before
     * anything else. The descriptor is the transport's, stays open until then, and is polled by a
     * thread that does not hold the group's lock, for at most 100 ms at a time. What happens
     * between arm and the sleep must make it readable too. With -1 the caller naps, up to 20 ms
     * long.
     */
    int (*arm)(void *state);
    void (*disarm)(void *state);

    /*
     * Ends it: local, bounded (some 100 ms), accepts a half-open state. Requests not ended are
     * dropped and never touched again, nor is their memory. What sends that ended well have sent
     * still arrives. Leaves no thread, descriptor, file or memory behind. Peers may find this rank
     * lost from now on. Once.
     */
    void (*close)(void *state);

    /* Optional (may be NULL): one line about this peer for the log and for reports, to
     * text[size], always terminated. Changes nothing. */
    void (*describe)(void *state, int peer, char *text, size_t size);

    /*
     * Optional (may be NULL): shows the messages that no receive has taken yet and whose tag is
     * `tag` in the bits of `mask`, peer by peer, of each the oldest first; of each peer it looks at
     * the oldest `most` messages only. `see` returns true for one that is to be dropped, which has
     * no bytes. It calls no slot. NULL: ranks whose calls do not match and of which no two messages
     * meet find out at their deadline only.
     */
    void (*unexpected)(void *state, uint64_t tag, uint64_t mask, int most, dist_unexpected_fn see,
                       void *arg);

    /*
     * Optional: forgets all messages whose tag is this one in the bits of mask, in both directions.
     * Requests that have not ended are dropped and never touched again, nor is their memory; what
     * nobody has received is thrown away, and so is what a peer is still sending. All else goes on,
     * with the same peers too. Bounded as close.
     *
     * A transport that has it is opened once for all groups of a world: the ranks of config, of
     * requests and of peers are those of the world then, and the tags tell the groups apart; there
     * is no context, which is one group's own. NULL: each group opens an instance of its own.
     */
    void (*cancel)(void *state, uint64_t tag, uint64_t mask);
};

#ifdef __cplusplus
}
#endif
#endif
