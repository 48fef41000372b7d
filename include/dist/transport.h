/* SPDX-License-Identifier: BSD-3-Clause */
/* libdist: the contract of a transport, which moves messages between two ranks. */
#ifndef DIST_TRANSPORT_H
#define DIST_TRANSPORT_H

#include <dist/dist.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Changes whenever anything in transport.h or backend.h changes its meaning. */
#define DIST_ABI 5

/* A transport's address is at most this many bytes. */
#define DIST_ADDRESS_MAX 256

/* What an operation that the program made is (dist_op_create, dist_op_create_premul_sum). */
struct dist_reduction {
    dist_reduce_fn fn; /* USER */
    void *arg;
    double factor; /* PREMUL_SUM: this rank's */
};

/*
 * Where a received message goes. src NULL: the bytes are copied to dst. Otherwise
 * dst = op(src, received), element by element, src == dst allowed; and if finish_ranks
 * is not 0 the result is complete and op's end is applied (AVG divides by finish_ranks).
 * The memory is the engine's and stays valid until the request has ended.
 */
struct dist_sink {
    void *dst;
    const void *src;
    size_t bytes;
    dist_dtype dtype;
    dist_op op;
    int finish_ranks;
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
    uint64_t bytes;
};

/*
 * One send or receive. The engine fills peer, envelope and data or sink, sets status to
 * DIST_IN_PROGRESS and gives it to the transport, which owns it until it sets status to
 * anything else: DIST_OK; DIST_ERR_PEER_LOST; DIST_ERR_MISMATCH (arrived then holds what
 * the peer sent instead); or another error. The status is set last.
 */
struct dist_request {
    dist_status status;
    int peer;
    struct dist_envelope envelope;
    const void *data;             /* send: envelope.bytes bytes, unchanged until it ends */
    struct dist_sink sink;        /* receive */
    struct dist_envelope arrived; /* receive: set on DIST_ERR_MISMATCH */
    struct dist_request *next;    /* from here on: the transport's */
    struct dist_request *prev;
    size_t moved;
    uintptr_t own[4];
};

/* How well a peer can be reached: the engine takes the transport with the least cost. */
struct dist_reach {
    double latency_ns;
    double bytes_per_second;
};

/* What a transport is told when it is opened; the strings live as long as it is open. */
struct dist_transport_config {
    size_t size; /* sizeof(struct dist_transport_config) */
    int rank;
    int world_size;
    int timeout_ms;
    const char *job;       /* the same on every rank, unlike any other job's */
    const char *bind_host; /* numeric address of the interface that reaches the other ranks */
    int local_ranks;       /* ranks on this machine, at least 1 */
    const struct dist_host *host; /* the library's services (backend.h) */
    void *context;         /* what the backend handed on (an MPI communicator, say); may be NULL */
    const uint8_t *secret; /* the job's secret, secret_bytes long; NULL while a job has none */
    size_t secret_bytes;
};

/*
 * A transport. Constant, one for all; the state of one instance is state_size zeroed
 * bytes that the engine allocates. Calls on one instance never overlap; no slot may
 * block unless it says so.
 */
struct dist_transport {
    uint32_t abi;  /* DIST_ABI */
    uint32_t size; /* sizeof(struct dist_transport) */
    const char *name;
    const char *summary;
    size_t state_size;

    /*
     * Can it run in this process? On failure writes the reason ("CMA is refused: ...") to
     * reason[reason_size] and returns ERR_UNSUPPORTED. Touches no peer.
     */
    dist_status (*probe)(char *reason, size_t reason_size);

    /* Makes listeners and memory. On failure leaves a state that close accepts. */
    dist_status (*open)(void *state, const struct dist_transport_config *config);

    /* Writes what peers need to reach this rank to blob[DIST_ADDRESS_MAX]; *size_p <= that. */
    dist_status (*address)(void *state, void *blob, size_t *size_p);

    /*
     * Could the rank with that address be reached, and how well? ERR_UNSUPPORTED: no.
     * Symmetric: both ends of a pair must come to the same answer.
     */
    dist_status (*reach)(void *state, const void *blob, size_t size, struct dist_reach *reach_p);

    /*
     * This peer will be reached here: keep its address (copied). Called once a peer, for
     * the peers that are the transport's, before any send or recv. Need not connect yet.
     */
    dist_status (*connect)(void *state, int peer, const void *blob, size_t size);

    /*
     * Start. Never block, may complete at once. A send may complete before the receive is
     * posted, a receive may be posted before or after the message arrives. Zero bytes are a
     * message too.
     */
    void (*send)(void *state, struct dist_request *request);
    void (*recv)(void *state, struct dist_request *request);

    /*
     * Move what can be moved, without waiting. Returns how much happened (0: nothing) or a
     * negative dist_status if the whole transport is broken. A lost peer is not that: it ends the
     * requests with this peer in DIST_ERR_PEER_LOST.
     */
    int (*progress)(void *state);

    /*
     * The peer of an unmatched message with this tag that waits for its receive; -1: none. A
     * message may still be arriving. Of several peers preferably the one whose message has waited
     * longest, at least none that goes hungry. Does not move anything and changes nothing, so
     * progress is to be called between two looks. A message may be stuck behind others of its peer
     * that wait for their receives too, where the transport keeps only so much (tcp:
     * DIST_TCP_EARLY_LIMIT); it is not found until those are received.
     */
    int (*probe_tag)(void *state, uint64_t tag);

    /*
     * Prepare to sleep: returns a file descriptor that becomes readable when progress has
     * something to do; -1: there is none, poll; -2: something is there already, don't sleep.
     * After waking (whatever the reason) disarm is called before anything else.
     */
    int (*arm)(void *state);
    void (*disarm)(void *state);

    /*
     * Ends it: local, bounded, accepts a half-open state. Requests not ended are dropped
     * and never touched again.
     */
    void (*close)(void *state);

    /* Optional (may be NULL): one line about this peer for the log and for reports. */
    void (*describe)(void *state, int peer, char *text, size_t size);

    /*
     * Optional: the peer of a message that nobody has received, whose tag is this one but for the
     * low 16 bits, and whose fingerprint is another; -1: there is none. So is found what no receive
     * would ever meet. *envelope_p becomes the message's. Changes nothing.
     */
    int (*probe_stray)(void *state, uint64_t tag, uint64_t fingerprint,
                       struct dist_envelope *envelope_p);
};

#ifdef __cplusplus
}
#endif
#endif
