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
 * states the ABI that it was built for. The library accepts no other, and no table smaller than its
 * own: it returns ERR_ABI before it calls anything in the table.
 */
#define DIST_ABI 8

/* A transport's address has 1 to this many bytes. */
#define DIST_ADDRESS_MAX 2048

/* A created operation: dist_op_create, dist_op_create_premul_sum. */
struct dist_reduction {
    dist_reduce_fn fn; /* USER */
    void *arg;         /* the program's, handed to fn */
    double factor;     /* PREMUL_SUM: this rank's; IN is scaled before it is sent */
};

/*
 * The destination of a received message.
 *
 * With src NULL the bytes are copied to dst. Otherwise dst = op(src, received), element by element;
 * src may be dst. If finish_ranks is not 0 the result is then complete, and op is finished: AVG
 * divides by finish_ranks.
 *
 * The engine owns the memory, which stays valid until the request has ended. The transport passes
 * each byte of the message to host->sink_apply once, in pieces of whole elements and in any order.
 * With src NULL it may also write to dst itself. If the request fails, dst may hold anything.
 */
struct dist_sink {
    void *dst;        /* host memory */
    const void *src;  /* as many bytes */
    size_t bytes;     /* of the message, envelope.bytes; with 0 nothing is touched */
    dist_dtype dtype; /* if src is not NULL */
    dist_op op;
    int finish_ranks;                       /* 0: more contributions follow */
    const struct dist_reduction *reduction; /* op USER: the operation; else NULL */
};

/*
 * Travels in front of every message. Transports treat tag and fingerprint as opaque numbers.
 *
 * `tag` says which message of the pair this is (group, operation, channel). Messages of one sender,
 * receiver and tag stay in order. `fingerprint` describes the call (collective, dtype, op, root,
 * count); it must be the same at sender and receiver.
 */
struct dist_envelope {
    uint64_t tag;
    uint64_t fingerprint;
    uint64_t bytes; /* of data, the same at sender and receiver; 0 is a message too */
};

/*
 * One send or receive.
 *
 * The engine fills peer, envelope and data or sink, sets status to DIST_IN_PROGRESS and gives the
 * request to the transport. The transport owns it until it sets status to anything else. It sets
 * status last, and touches neither the request nor its memory afterwards. A request ends with
 *
 *   OK             a send: data may change; the message arrives even if this rank closes at once
 *   ERR_PEER_LOST  (reported) the group ends; the core asks the store which rank went first
 *   ERR_MISMATCH   a receive: fingerprint or bytes differ; `arrived` holds what the peer sent. Not
 *                  reported: the engine spells out both calls. The pair stays usable
 *   others         (reported) the group ends, with this status and text
 *
 * Reported means: by host->fail, in the same slot call in which the request ends, or else in the
 * last slot call before it. Error texts belong to threads.
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

/* Examines a message that came before its receive, see `unexpected`. Returns true to drop it. */
typedef bool (*dist_unexpected_fn)(void *arg, int peer, const struct dist_envelope *envelope);

/*
 * How well a peer can be reached. The engine chooses the transport with the least time for a
 * message of 64 KiB; of equal ones, the one that the backend names first.
 */
struct dist_reach {
    double latency_ns;       /* above 0, one way */
    double bytes_per_second; /* above 0 */
};

/*
 * A transport's configuration. All of it lives as long as the transport is open. timeout_ms grows,
 * between two slot calls, when a group whose calls may take longer comes to share the instance.
 */
struct dist_transport_config {
    size_t size;           /* sizeof(struct dist_transport_config) */
    int rank;              /* in the group, 0 .. world_size - 1 */
    int world_size;        /* at least 2: for one rank nothing is opened */
    int timeout_ms;        /* of a call of the program's, above 0 */
    const char *job;       /* the same on every rank, unlike any other job's */
    const char *bind_host; /* numeric address of the interface that reaches the other ranks */
    int local_ranks;       /* ranks on this machine, at least 1 */
    const struct dist_host *host; /* the library's services (backend.h) */
    void *context;                /* from the backend to its own transport (an MPI communicator,
                                     say), or NULL; NULL for an instance that groups share, see
                                     cancel */
    const uint8_t *secret; /* the key that the ranks of this world share, secret_bytes long; NULL:
                              none */
    size_t secret_bytes;
};

/*
 * A transport: a constant table.
 *
 * The state of one instance is state_size zeroed bytes, aligned for any type, which the engine
 * allocates and frees after close. A group has an instance of its own, or all groups of a world
 * share one; see cancel.
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
 * Threads. Calls on one instance never overlap. They come from any thread that drives the group:
 * the program's, or one of the library's. Other instances may be called at the same time, so the
 * transport guards what they share. The caller holds a lock: a slot may call the library through
 * config.host only.
 *
 * Blocking. No slot blocks; each returns within microseconds, or the time that it takes to copy
 * what it moves. Only open and close may take some milliseconds. A message to a peer that makes no
 * calls waits, and delays no other peer's.
 *
 * Errors. A slot that fails reports the reason by host->fail and returns its status. A failure of
 * open, address or connect ends the opening of the group; one of progress ends the group.
 *
 * All slots are mandatory except those called optional, which may be NULL.
 */
struct dist_transport {
    uint32_t abi;        /* DIST_ABI */
    uint32_t size;       /* sizeof(struct dist_transport) */
    const char *name;    /* for DIST_TRANSPORT: not empty, no commas or blanks */
    const char *summary; /* one line */
    size_t state_size;   /* bytes */

    /*
     * Optional. Reports whether the transport can run in this process. On failure writes the reason
     * ("CMA is refused: ...") to reason[reason_size], reports nothing and returns ERR_UNSUPPORTED:
     * this rank then lacks the transport, and others reach it by another. Contacts no peer. Any
     * thread may call it, at any time.
     */
    dist_status (*probe)(char *reason, size_t reason_size);

    /*
     * Makes listeners and memory. On failure leaves a state that close accepts, and no rank can
     * open the group; so probe, not open, checks for what a machine may lack. Other ranks may be
     * open already, or not come at all.
     */
    dist_status (*open)(void *state, const struct dist_transport_config *config);

    /*
     * Writes what peers need to reach this rank to blob[DIST_ADDRESS_MAX], which the engine owns,
     * and sets *size_p to its bytes, 1 to DIST_ADDRESS_MAX. Called once, after open.
     */
    dist_status (*address)(void *state, void *blob, size_t *size_p);

    /*
     * Reports whether the rank with that address can be reached, and at what cost. Returns
     * ERR_UNSUPPORTED, and reports nothing, if it cannot. Both ends of a pair must reach the same
     * answer, or they choose different transports and wait for each other. So it judges by the
     * address alone. The peer may have ended by now; the blob may be nonsense, and unaligned.
     */
    dist_status (*reach)(void *state, const void *blob, size_t size, struct dist_reach *reach_p);

    /*
     * Copies the address of a peer that this transport will reach. Called once for each such peer,
     * before any send or recv; need not connect yet. The peer may have called already, and sent. If
     * it has ended it is lost, which is not a failure of this call.
     */
    dist_status (*connect)(void *state, int peer, const void *blob, size_t size);

    /*
     * Start a send or a receive. Never block, may complete at once. A send may complete before its
     * receive is posted; a receive may be posted before or after its message arrives. Zero bytes
     * are a message too. Any number may be pending, in both directions and with one peer and tag
     * too: the oldest receive gets the oldest message, and messages of other tags pass them. All
     * failures appear in the request.
     */
    void (*send)(void *state, struct dist_request *request);
    void (*recv)(void *state, struct dist_request *request);

    /*
     * Moves what can be moved, without waiting. Returns how much happened: with 0 the caller may
     * rest, otherwise it calls again first. Returns a negative dist_status if the whole transport
     * is broken; only close is called then. A lost peer is not such a failure: within a second of
     * the end of its process, its requests end with DIST_ERR_PEER_LOST, and so do later ones,
     * except receives of messages that had arrived. Called only if this transport reaches some
     * peer.
     */
    int (*progress)(void *state);

    /*
     * Returns the sender of an unexpected message with this tag, or -1 if there is none. The
     * message may still be arriving. Of several peers it prefers the one whose message has waited
     * longest, and starves none. It moves and changes nothing, so the engine calls progress between
     * two probes; it then posts a receive from that peer with that tag. A transport that keeps a
     * limited number of messages may find one only when those before it have been received.
     */
    int (*probe_tag)(void *state, uint64_t tag);

    /*
     * Prepares to sleep. Returns a file descriptor that becomes readable when progress has
     * something to do; -1 if there is none, and the caller naps for up to 20 ms; -2 if there is
     * something to do already, and the caller does not sleep. disarm is the next call after waking,
     * for every result of arm. The transport owns the descriptor and keeps it open until then. A
     * thread without the group's lock polls it, for at most 100 ms at a time. An event between arm
     * and the sleep must make it readable too.
     */
    int (*arm)(void *state);
    void (*disarm)(void *state);

    /*
     * Closes the transport: local, bounded (some 100 ms), called once. Accepts a half-open state.
     * Drops requests that have not ended, and never touches them or their memory again. Messages of
     * sends that ended well still arrive. No thread, descriptor, file or memory remains.
     * Peers may find this rank lost from now on.
     */
    void (*close)(void *state);

    /*
     * Optional. Writes one line about this peer, for the log and for reports, to text[size], always
     * terminated. It begins with "unreachable" if the peer's machine answers nothing at this
     * moment, which the error of a call that waits for the peer then says. If messages to the peer
     * do not get through, the line ends with "; " and the likely reason, which that error says too.
     * Changes nothing.
     */
    void (*describe)(void *state, int peer, char *text, size_t size);

    /*
     * Optional. Shows to `see` the messages that no receive has taken yet and whose tag equals
     * `tag` in the bits of `mask`: peer by peer, the oldest first, at most the oldest `most`
     * messages of each peer. The transport drops a message for which `see` returns true; such a
     * message has no bytes. `see` calls no slot. Without this slot, ranks whose calls differ, and
     * of which no two messages meet, find out at their deadline only.
     */
    void (*unexpected)(void *state, uint64_t tag, uint64_t mask, int most, dist_unexpected_fn see,
                       void *arg);

    /*
     * Optional. Forgets all messages whose tag equals `tag` in the bits of mask, in both
     * directions. Drops requests that have not ended, and never touches them or their memory again.
     * Discards messages that nobody has received, and those that a peer is still sending. All other
     * messages continue, also those of the same peers. Bounded like close.
     *
     * A transport with this slot is opened once for all groups of a world. The ranks in config, in
     * requests and of peers are then ranks of the world, the tags tell the groups apart, and
     * context is NULL. Without this slot each group opens an instance of its own.
     */
    void (*cancel)(void *state, uint64_t tag, uint64_t mask);

    /*
     * True if the transport reaches ranks of its own node only, by shared memory. A backend runs
     * collectives in node memory if it lists such a transport, DIST_TRANSPORT allows it, and all
     * ranks have opened it.
     */
    bool shares_memory;

    /*
     * Optional. Returns the number of file descriptors that a connected peer uses; a transport
     * without this slot uses 1. The engine adds them up, and warns if the limit of open files is
     * lower. Any thread may call it.
     */
    int (*files)(void);
};

#ifdef __cplusplus
}
#endif
#endif
