/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * FIFOs, connections, loans and addresses of the shm transport; private to this directory. A loan
 * is a long message that the receiver reads directly from the sender's memory (CMA).
 */
#ifndef DISTI_TRANSPORTS_SHM_STATE_H
#define DISTI_TRANSPORTS_SHM_STATE_H

#include "transports/match/match.h"

#include <dist/transport.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

/* The memory shared by two ranks: its layout, creation and mapping. */

/*
 * A pair of ranks shares one memfd, created by the rank that calls the other (side 0):
 *
 *      | side 0 | side 1 | FIFO written by side 0 | FIFO written by side 1 |
 *
 * Seals forbid shrinking and growing it, and its pages are allocated before it is used, so no
 * access can raise SIGBUS.
 */
#define SHM_LINE 64
/* Fields written by different ranks are aligned to this, since CPUs prefetch two adjacent lines. */
#define SHM_ALIGN 128
#define SHM_FIFO_MIN ((size_t)16 << 10)
#define SHM_FIFO_MAX ((size_t)256 << 10)
#define SHM_LENT_MAX 64

/* Whether one rank can read the memory of the other. */
enum shm_verdict { SHM_CMA_UNKNOWN, SHM_CMA_WORKS, SHM_CMA_REFUSED };

/* Written by one side and read by the other (`asleep`: written by both). */
struct shm_side {
    alignas(SHM_ALIGN) _Atomic uint64_t consumed; /* bytes consumed of the peer's FIFO */
    alignas(SHM_ALIGN) _Atomic uint32_t asleep;   /* sleeps or is about to: needs its doorbell */
    _Atomic uint32_t verdict;  /* whether it can read the other side's memory (enum shm_verdict) */
    _Atomic uint32_t closed;   /* this side has closed: its loans are invalid */
    _Atomic uint64_t revoked;  /* bit i: loan i of this side is revoked */
    _Atomic uint64_t returned; /* total credit returned to the other side */
    /*
     * Acknowledgements of the other side's loans. Number n is stored at index n % SHM_LENT_MAX as
     * lap << 8 | id.
     */
    alignas(SHM_ALIGN) _Atomic uint64_t acks[SHM_LENT_MAX];
};

struct shm_pair {
    struct shm_side side[2];
    alignas(SHM_ALIGN) unsigned char fifos[];
};

/* Returns the size of a pair's memory. fifo_bytes is a power of two. */
static inline size_t disti_shm_pair_bytes(size_t fifo_bytes)
{
    return sizeof(struct shm_pair) + 2 * fifo_bytes;
}

/*
 * Creates and maps a pair's memory. The caller owns *fd_p and *pair_p. Fails with ERR_NO_MEMORY if
 * there is not enough memory, otherwise with ERR_SYSTEM. Returns IN_PROGRESS, without reporting an
 * error, if no file descriptor is available.
 */
dist_status disti_shm_memory_make(size_t fifo_bytes, int *fd_p, struct shm_pair **pair_p);

/*
 * Maps memory that a peer created. The caller keeps fd. Rejects a memfd that is not sealed or has
 * another size.
 */
dist_status disti_shm_memory_map(int fd, size_t fifo_bytes, struct shm_pair **pair_p);

/* Unmaps a pair's memory. Accepts NULL. */
void disti_shm_memory_unmap(struct shm_pair *pair, size_t fifo_bytes);

/*
 * A frame starts at a cache line and does not wrap (a PAD frame fills the end of the ring):
 *
 *      | stamp | bytes kind | tag fingerprint bytes | up to 24 bytes of payload |
 *      | or, if the payload is longer, the payload from the next line on ...    |
 *
 * The stamp marks the frame as complete. It is the sum of the pair's random key and the frame's
 * position in the stream. The consumer polls the same cache line that contains a small message, so
 * such a message costs the transfer of one line between cores. Data from earlier laps of the ring
 * have other stamps, and payload cannot imitate a stamp without guessing 64 bits.
 *
 * The consumer updates `consumed` not after each frame but after each quarter of the ring. So the
 * producer can use at least three quarters of an idle ring. A frame takes at most one quarter, and
 * a PAD frame is shorter than the frame that follows it, so a frame always fits after the consumer
 * has caught up.
 *
 * Memory order. The producer stores the stamp last and the consumer loads it first: a consumer that
 * sees the stamp sees the whole frame (release, acquire). The same holds for `consumed` and the
 * reuse of ring space. A store that the other side may be waiting for is seq_cst, and so is the
 * load of `asleep` that follows it. A rank that goes to sleep stores `asleep` and then checks for
 * messages with seq_cst loads. So at least one of the two ranks sees the other's store, and no
 * wake-up is lost.
 */
enum shm_kind {
    SHM_WHOLE = 1, /* an eager message that fits in one frame */
    SHM_FIRST,     /* the first frame of a longer eager message */
    SHM_MORE,      /* the next frame of the message that FIRST or DATA began */
    SHM_LENT,      /* a loan; payload: struct shm_loan */
    SHM_RTS,       /* payload: the name of the send, 4 bytes, which CTS and DISCARD repeat */
    SHM_CTS,       /* asks for the message; payload: the name */
    SHM_DISCARD,   /* no receive will take the message; payload: the name */
    SHM_DATA,      /* the first frame after a CTS; envelope.tag: the name */
    SHM_PAD
};

#define SHM_FRAME_INLINE 24

struct shm_frame {
    _Atomic uint64_t stamp;
    uint32_t bytes; /* payload bytes in this frame; PAD: bytes to skip, including the header */
    uint32_t kind;
    struct dist_envelope envelope;
    unsigned char payload[SHM_FRAME_INLINE];
};

/*
 * A CTS with SHM_NAME_LOAN | id as the name means that the receiver cannot read loan `id`. The
 * sender then copies the message through the ring, in a SHM_DATA frame with this name and SHM_MORE
 * frames. An empty SHM_DATA frame means that the message is no longer available.
 */
#define SHM_NAME_LOAN UINT32_C(0x80000000)

/* The payload of SHM_LENT: the address of the message in the sender's memory, and the loan's id. */
struct shm_loan {
    uint64_t address;
    uint64_t id;
};

/* The producer's state of a FIFO. */
struct shm_out {
    unsigned char *ring;
    size_t size;
    uint64_t key;
    uint64_t produced;
    uint64_t consumed; /* as last read from consumed_now */
    const _Atomic uint64_t *consumed_now;
    bool corrupt;
};

/* The consumer's state of a FIFO. */
struct shm_in {
    unsigned char *ring;
    size_t size;
    uint64_t key;
    uint64_t taken;    /* bytes consumed */
    uint64_t reported; /* `taken` as last stored in *consumed */
    _Atomic uint64_t *consumed;
};

static inline size_t disti_shm_frame_bytes(size_t payload)
{
    size_t beyond = (payload + SHM_LINE - 1) & ~(size_t)(SHM_LINE - 1);

    return payload <= SHM_FRAME_INLINE ? SHM_LINE : SHM_LINE + beyond;
}

static inline unsigned char *disti_shm_frame_payload(struct shm_frame *frame, size_t payload)
{
    return payload <= SHM_FRAME_INLINE ? frame->payload : (unsigned char *)frame + SHM_LINE;
}

/* Returns the maximum payload of a frame, a multiple of the cache line size. */
static inline size_t disti_shm_frame_max(size_t ring_size)
{
    return ring_size / 4 - SHM_LINE;
}

/* Reads the consumer's position again. An impossible value means that the peer is faulty. */
static inline void disti_shm_fifo_refresh(struct shm_out *out)
{
    uint64_t consumed = atomic_load_explicit(out->consumed_now, memory_order_acquire);

    if (consumed < out->consumed || consumed > out->produced)
        out->corrupt = true;
    else
        out->consumed = consumed;
}

static inline bool disti_shm_fifo_has_space(struct shm_out *out, size_t bytes)
{
    if (out->produced + bytes - out->consumed <= out->size)
        return true;
    disti_shm_fifo_refresh(out);
    return !out->corrupt && out->produced + bytes - out->consumed <= out->size;
}

/* Returns space for a frame with `payload` bytes, or NULL if the ring is full or corrupt. */
static inline struct shm_frame *disti_shm_fifo_reserve(struct shm_out *out, size_t payload)
{
    size_t bytes = disti_shm_frame_bytes(payload);
    size_t offset = (size_t)(out->produced & (out->size - 1));
    size_t to_end = out->size - offset;
    struct shm_frame *frame = (void *)(out->ring + offset);

    if (bytes <= to_end)
        return disti_shm_fifo_has_space(out, bytes) ? frame : NULL;
    if (!disti_shm_fifo_has_space(out, to_end + bytes))
        return NULL;
    frame->kind = SHM_PAD;
    frame->bytes = (uint32_t)to_end;
    atomic_store_explicit(&frame->stamp, out->key + out->produced, memory_order_release);
    out->produced += to_end;
    return (void *)out->ring;
}

/*
 * Marks the frame that disti_shm_fifo_reserve returned as complete. The caller then calls
 * disti_shm_ring.
 */
static inline void disti_shm_fifo_publish(struct shm_out *out, struct shm_frame *frame,
                                          size_t payload)
{
    atomic_store_explicit(&frame->stamp, out->key + out->produced, memory_order_seq_cst);
    out->produced += disti_shm_frame_bytes(payload);
}

/*
 * Returns the next frame, or NULL. The peer can change its fields at any time: copy them, then
 * check the copies.
 */
static inline struct shm_frame *disti_shm_fifo_peek(const struct shm_in *in)
{
    struct shm_frame *frame = (void *)(in->ring + (in->taken & (in->size - 1)));

    if (atomic_load_explicit(&frame->stamp, memory_order_seq_cst) != in->key + in->taken)
        return NULL;
    return frame;
}

/* Returns the bytes from the next frame's stamp to the end of the ring. */
static inline size_t disti_shm_fifo_to_end(const struct shm_in *in)
{
    return in->size - (size_t)(in->taken & (in->size - 1));
}

/*
 * Frees `bytes` bytes of the ring. Returns true if it updated `consumed`; the caller then calls
 * disti_shm_ring.
 */
static inline bool disti_shm_fifo_take(struct shm_in *in, size_t bytes)
{
    in->taken += bytes;
    if (in->taken - in->reported < in->size / 4)
        return false;
    in->reported = in->taken;
    atomic_store_explicit(in->consumed, in->reported, memory_order_seq_cst);
    return true;
}

/* The handshake of two ranks before they share memory. */

/*
 * One packet in each direction over a SOCK_SEQPACKET socket. The socket then stays open: when it is
 * closed, the peer has exited or closed the connection.
 *
 *      caller                              called
 *        CALL, memory and doorbell  ------>
 *                                  <------ ACCEPT, doorbell
 *                                       or DEFER: the lower rank, which was called, has also
 *                                          called, and its call is used
 *                                       or REFUSE, with a status
 */
enum shm_hello_kind { SHM_CALL = 1, SHM_ACCEPT, SHM_DEFER, SHM_REFUSE };

#define SHM_HELLO_FDS 2

struct shm_hello {
    uint64_t magic;
    uint32_t version;
    uint32_t kind;
    int32_t from, to; /* ranks */
    int32_t status;   /* REFUSE: the reason */
    uint32_t pad;
    uint64_t job;        /* a hash of config.job */
    uint64_t key;        /* CALL: the key of the stamps */
    uint64_t fifo_bytes; /* CALL */
    /* The address and value of a word in the sender's memory. The receiver reads it to test CMA. */
    uint64_t probe_address, probe;
};

/* Initializes the fields that all hellos have in common. */
void disti_shm_hello_init(struct shm_hello *hello, enum shm_hello_kind kind, int from, int to,
                          uint64_t job);

/* Sends a hello with `count` descriptors. Never blocks. Returns false and sets errno on failure. */
bool disti_shm_hello_send(int socket, const struct shm_hello *hello, const int *fds, int count);

/*
 * Receives a hello. Never blocks. Returns:
 *
 * - 1: *hello and fds are filled. The caller closes the descriptors in fds; unused entries are -1.
 * - 0: nothing has arrived (errno EAGAIN), or there are no file descriptors left to receive the
 *   packet's (errno EMFILE or ENFILE).
 * - -1: the peer has closed the socket, or the packet is not a hello.
 */
int disti_shm_hello_receive(int socket, struct shm_hello *hello, int fds[SHM_HELLO_FDS]);

/* The identity of the node, and the addresses of its ranks' listeners. */

#define SHM_NAME_BYTES 16
#define SHM_BOOT_BYTES 40

#define SHM_MACHINE_MAGIC 0x6d687364u

/* A rank's address, which its peers receive. `name` is the name of its listener. */
struct shm_address {
    uint32_t magic;
    uint32_t abi;
    uint32_t uid;
    uint32_t pid;
    uint64_t network_device, network_inode; /* the network namespace */
    char boot[SHM_BOOT_BYTES];              /* the kernel's boot id, as text */
    uint8_t name[SHM_NAME_BYTES];
};

/*
 * Fills *address for this process, with a new random name. On failure writes the reason to `reason`
 * (which may be NULL) and returns ERR_UNSUPPORTED.
 */
dist_status disti_shm_machine_self(struct shm_address *address, char *reason, size_t reason_size);

/* Fills *name with the abstract socket address of a listener and returns its length. */
socklen_t disti_shm_machine_socket(const struct shm_address *address, struct sockaddr_un *name);

/*
 * Copies `bytes` bytes at `address` of process `pid` to `data`. Returns 0 or an errno: ESRCH if the
 * process has exited, EPERM if reading it is not permitted, EFAULT if the memory is not readable.
 */
int disti_shm_machine_read(int pid, void *data, uint64_t address, size_t bytes);

/* Fills `data` with random bytes. Returns false and sets errno on failure. */
bool disti_shm_machine_random(void *data, size_t bytes);

/* The state of one shm transport and of its connections to peers. */

/* Longer messages are sent as loans if the peer can read this process's memory (see whole_max). */
#define SHM_COPY_MAX ((size_t)8 << 10)
/* Long messages are reduced in pieces of this size, through a buffer that fits in the L2 cache. */
#define SHM_PULL_PIECE ((size_t)64 << 10)
/* One call of progress moves about this many bytes for each peer. */
#define SHM_TURN_BYTES ((size_t)256 << 10)
#define SHM_TURN_FRAMES 64
/* The credit limit of each peer, as a multiple of the FIFO size. */
#define SHM_CREDIT_FIFOS 4

/*
 * The phases of a connection. The lower rank calls the higher one as soon as it has a request for
 * it. The higher rank waits a short time for that call, and then calls the lower rank:
 *
 *            a request           a call is sent           it is accepted
 *      IDLE ----------> NEEDED ----------------> CALLING ----------------> CONNECTED
 *                         ^-----------------------'                            |
 *                          the call must be retried, or DEFER was received     v
 *                                                                            LOST
 *
 * A call from the peer leads from IDLE, NEEDED or CALLING to CONNECTED. Each of these phases can
 * also lead to LOST.
 */
enum shm_phase { SHM_IDLE, SHM_NEEDED, SHM_CALLING, SHM_CONNECTED, SHM_LOST };

/* The message that is arriving in several frames, and its destination. */
struct shm_arrival {
    bool active;
    struct dist_request *request;        /* the receive, or NULL */
    struct disti_unexpected *unexpected; /* the buffer, or NULL; both NULL: discard the data */
    size_t bytes, arrived;
    size_t skip; /* leading bytes that were already read from a loan */
};

/* How a queued send continues. Stored in own[0]. */
enum shm_send {
    SHM_SEND_EAGER,     /* as an eager message, a loan or an RTS */
    SHM_SEND_DATA,      /* after a CTS, with a SHM_DATA frame; own[1]: the name */
    SHM_SEND_CANCELED,  /* its group was closed: an empty SHM_DATA frame is sent */
    SHM_SEND_UNREADABLE /* its memory is unreadable: an empty SHM_DATA frame is sent, and the
                           request fails */
};

/* An answer to an RTS that waits for space in the ring: CTS if `accepted`, else DISCARD. */
struct shm_answer {
    uint32_t name;
    bool accepted;
};

struct shm_answers {
    struct shm_answer *entries;
    size_t capacity, count, sent;
};

struct shm_peer {
    int rank;
    enum shm_phase phase;
    dist_status status; /* in phase LOST: the status of its requests */
    bool corrupt;       /* the peer violated the protocol: nothing more is read from its FIFO */

    struct shm_in in;
    struct shm_out out;
    struct shm_side *mine, *theirs;
    struct shm_arrival arrival;
    struct disti_match match;
    struct dist_request *send_head, *send_tail; /* sends that are not yet in the ring, in order */
    bool send_blocked;                          /* the ring is full, or `lend` is not yet known */
    size_t whole_max;                           /* the longest message that is sent in one frame */
    struct dist_request *pull_head, *pull_tail; /* receives that matched a loan, in order */
    uint64_t lent_free;                         /* bit i: loan id i is free */
    uint64_t acks_seen, acks_sent;
    enum shm_verdict lend; /* whether the peer can read this process's memory */
    struct dist_request *lent[SHM_LENT_MAX];
    bool declined; /* the log message about an unreadable loan was written */
    struct disti_credit_out credit;
    struct disti_credit_in debit;
    struct disti_rts_table rts_sends;
    struct shm_answers answers;
    struct dist_request *cts_head, *cts_tail; /* receives that wait for data after CTS */

    struct shm_pair *pair;
    size_t fifo_bytes;
    int memory, socket, doorbell, process; /* file descriptors, -1: none */
    int pid;
    uint64_t key;
    int64_t call_ns;     /* in phase NEEDED: when to call the peer */
    bool is_backing_off; /* the last call must be retried, but not before call_ns */
};

/* A caller that has not sent its hello. */
struct shm_pending {
    int socket; /* -1: free */
    int pid;
    int64_t deadline_ns;
};

struct shm_state {
    bool opened, armed, poll_now; /* poll_now: poll the sockets in the next progress call */
    bool cma;                     /* false with DIST_SHM_CMA=0 */
    int connecting;               /* peers that are NEEDED or CALLING */
    struct disti_match_set unexpected;
    unsigned calls;           /* calls of progress since the sockets were last polled */
    struct shm_peer **active; /* the connected peers */
    int active_count;
    struct shm_peer **peers;       /* by rank; NULL: no message in either direction yet */
    struct shm_address *addresses; /* by rank; magic 0: unknown */
    unsigned char *bounce;         /* SHM_PULL_PIECE bytes */
    size_t fifo_bytes;
    int listener, doorbell, poll; /* poll: epoll over listener, doorbell, sockets and processes */
    uint64_t job, probe;
    struct dist_transport_config config;
    struct shm_address address;
    struct disti_standins standins;
    struct shm_pending *pending;
    int pending_capacity;
    int64_t resume_ns; /* when sockets that shm_back_off disabled are polled again; 0: none */
    bool reported_descriptors; /* the lack of file descriptors was logged */
};

/* Wakes the peer if it sleeps. Must follow each seq_cst store that the peer may wait for. */
void disti_shm_ring_slow(struct shm_peer *peer);
static inline void disti_shm_ring(struct shm_peer *peer)
{
    if (atomic_load_explicit(&peer->theirs->asleep, memory_order_seq_cst))
        disti_shm_ring_slow(peer);
}

/* Append to and pop from a list of requests that are linked through `next`. */
static inline void disti_shm_append(struct dist_request **head, struct dist_request **tail,
                                    struct dist_request *request)
{
    request->next = NULL;
    *(*head ? &(*tail)->next : head) = request;
    *tail = request;
}

static inline struct dist_request *disti_shm_pop(struct dist_request **head)
{
    struct dist_request *request = *head;

    *head = request->next;
    return request;
}

/* connection.c: opening and closing connections, listening. None of these functions blocks. */

/*
 * Changes a peer's phase; all changes go through this function. If the drawing has no such
 * transition, keeps the phase and fails with ERR_INTERNAL.
 */
dist_status disti_shm_connection_set_phase(struct shm_state *state, struct shm_peer *peer,
                                           enum shm_phase to);
/* Creates the listener, the doorbell and the epoll. */
dist_status disti_shm_connection_open(struct shm_state *state);
/* Closes all connections and frees the peers, without completing requests. */
void disti_shm_connection_close(struct shm_state *state);
/* Returns the peer with that rank, and creates it if needed. Returns NULL if out of memory. */
struct shm_peer *disti_shm_connection_peer(struct shm_state *state, int rank);
/* Polls the sockets. Returns the number of events handled. */
int disti_shm_connection_poll(struct shm_state *state);
/* Marks the peer as lost and completes its requests with `status`. */
void disti_shm_connection_lose(struct shm_state *state, struct shm_peer *peer, dist_status status);

/* Reports that a request was posted for a lost peer. Returns the request's status. */
dist_status disti_shm_report_lost(const struct shm_peer *peer);

/* Requests a connection to the peer, if it is IDLE. */
void disti_shm_call_request(struct shm_state *state, struct shm_peer *peer);
/*
 * Calls all peers in phase NEEDED at once, even before their call_ns, except those that are backing
 * off. Returns false if some could not be called yet.
 */
bool disti_shm_call_all(struct shm_state *state);

/*
 * note[0] of an unexpected message that is a descriptor. note[1] is the loan's id or the RTS's
 * name.
 */
enum shm_note { SHM_NOTE_LENT, SHM_NOTE_RTS };

/* shm.c */

/* Receives the messages that a lost peer had sent completely. */
void disti_shm_drain(struct shm_peer *peer);
/*
 * Completes the peer's pending requests with `status`. Unexpected messages that arrived completely
 * can still be received.
 */
void disti_shm_fail(struct shm_peer *peer, dist_status status);

#endif
