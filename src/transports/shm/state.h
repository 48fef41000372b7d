/* SPDX-License-Identifier: BSD-3-Clause */
/* FIFOs, connections, lent memory and machine files of the shm transport; private to it. */
#ifndef DISTI_TRANSPORTS_SHM_STATE_H
#define DISTI_TRANSPORTS_SHM_STATE_H

#include "transports/match/match.h"

#include <dist/transport.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

/* The memory that two ranks share: what lies where, and how it is made and mapped. */

/*
 * A pair of ranks shares one memfd, made by the side that called the other (side 0):
 *
 *      | side 0 | side 1 | FIFO that side 0 fills | FIFO that side 1 fills |
 *
 * Nobody may shrink or grow it (seals), and its pages exist before it is used, so that
 * no access can end in SIGBUS.
 */
#define SHM_LINE 64
#define SHM_SEPARATION                                                                             \
    128 /* CPUs fetch lines in pairs: what different ranks write lies this far apart */
#define SHM_FIFO_MIN ((size_t)16 << 10)
#define SHM_FIFO_MAX ((size_t)256 << 10)
#define SHM_LENT_MAX 64

enum shm_verdict { SHM_CMA_UNKNOWN, SHM_CMA_WORKS, SHM_CMA_REFUSED };

/* What one side writes and the other reads (asleep: both write). */
struct shm_side {
    alignas(SHM_SEPARATION) _Atomic uint64_t consumed; /* bytes given back of the other's FIFO */
    alignas(SHM_SEPARATION) _Atomic uint32_t asleep; /* sleeps, or is about to: ring its doorbell */
    _Atomic uint32_t verdict;                        /* can this side read the other's memory? */
    _Atomic uint32_t closed;   /* this side has closed: what it lent is gone */
    _Atomic uint64_t revoked;  /* bit i: what this side has lent as i is not to be used */
    _Atomic uint64_t returned; /* of the other's credit, in all */
    /* Of what the other lent: acknowledgement n stands at n % SHM_LENT_MAX as lap << 8 | id. */
    alignas(SHM_SEPARATION) _Atomic uint64_t acks[SHM_LENT_MAX];
};

struct shm_pair {
    struct shm_side side[2];
    alignas(SHM_SEPARATION) unsigned char fifos[];
};

/* The bytes of a pair's memory; fifo_bytes is a power of two. */
static inline size_t disti_shm_pair_bytes(size_t fifo_bytes)
{
    return sizeof(struct shm_pair) + 2 * fifo_bytes;
}

/*
 * Makes a pair's memory: *fd_p and *pair_p are the caller's. ERR_NO_MEMORY if the
 * machine has not that much, ERR_SYSTEM; IN_PROGRESS, and nothing is reported, if there is no file
 * descriptor now.
 */
dist_status disti_shm_memory_make(size_t fifo_bytes, int *fd_p, struct shm_pair **pair_p);

/* Maps what a peer made. fd stays the caller's. Refuses what could still shrink. */
dist_status disti_shm_memory_map(int fd, size_t fifo_bytes, struct shm_pair **pair_p);

/* NULL is accepted. */
void disti_shm_memory_unmap(struct shm_pair *pair, size_t fifo_bytes);

/*
 * A frame starts on a line and does not wrap (a PAD fills the end of the ring):
 *
 *      | stamp | bytes kind | tag fingerprint bytes | up to 24 bytes of payload |
 *      | or, if it is more, the payload from the next line on ...               |
 *
 * The stamp says that the frame is complete: it is the pair's random key plus the frame's
 * place in the stream. The consumer polls the very line that brings a small message, so a
 * message costs one line's travel from core to core. What lies in the ring from earlier
 * laps has another stamp; payload cannot pass for one, as it would have to guess 64 bits.
 *
 * `consumed` comes back the other way, not for each frame but for each quarter of the ring.
 * So of an idle ring at least three quarters are free to the producer. A frame takes at
 * most one quarter, and a pad is shorter than the frame behind it: a frame always fits in
 * the end.
 *
 * Memory order. The producer stores the stamp last, the consumer loads it first: whoever
 * sees the stamp sees the frame (release, acquire). The same holds for `consumed` and the
 * reuse of the bytes. Stores after which the other side may have to be woken are seq_cst,
 * as is the load of its `asleep`; who falls asleep stores `asleep` and then looks for work
 * with seq_cst loads. So at least one of the two sees the other's store: no wake-up is lost.
 */
enum shm_kind {
    SHM_WHOLE = 1,
    SHM_FIRST,
    SHM_MORE,
    SHM_LENT,
    SHM_RTS,     /* payload: a name, 4 bytes, by which the message is asked for */
    SHM_CTS,     /* send it; payload: the name */
    SHM_DISCARD, /* forget it; payload: the name */
    SHM_DATA,    /* the first frame of a message that was asked for; envelope.tag: the name */
    SHM_PAD
};

#define SHM_FRAME_INLINE 24

struct shm_frame {
    _Atomic uint64_t stamp;
    uint32_t bytes; /* payload in this frame; PAD: bytes to skip, from the stamp on */
    uint32_t kind;
    struct dist_envelope envelope;
    unsigned char payload[SHM_FRAME_INLINE];
};

/*
 * SHM_WANTED with a loan's id in place of the name: the receiver cannot read the loan, so the
 * sender copies the message through the ring, in SHM_ASKED frames with this name. An empty
 * SHM_ASKED frame says that the message is not available any more.
 */
#define SHM_NAME_LOAN UINT32_C(0x80000000)

/* SHM_LENT's payload: where the sender keeps the message, and the name of the loan. */
struct shm_loan {
    uint64_t address;
    uint64_t id;
};

/* The producer's end. */
struct shm_out {
    unsigned char *ring;
    size_t size;
    uint64_t key;
    uint64_t produced;
    uint64_t consumed; /* as last seen */
    const _Atomic uint64_t *consumed_now;
    bool corrupt;
};

/* The consumer's end. */
struct shm_in {
    unsigned char *ring;
    size_t size;
    uint64_t key;
    uint64_t taken;
    uint64_t reported;
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

/* The most payload that a frame of this ring may have: whole lines. */
static inline size_t disti_shm_frame_max(size_t ring_size)
{
    return ring_size / 4 - SHM_LINE;
}

/* Looks again how far the consumer is. A value that cannot be is the peer's fault. */
static inline void disti_shm_fifo_refresh(struct shm_out *out)
{
    uint64_t consumed = atomic_load_explicit(out->consumed_now, memory_order_acquire);

    if (consumed < out->consumed || consumed > out->produced)
        out->corrupt = true;
    else
        out->consumed = consumed;
}

static inline bool disti_shm_fifo_has_room(struct shm_out *out, size_t bytes)
{
    if (out->produced + bytes - out->consumed <= out->size)
        return true;
    disti_shm_fifo_refresh(out);
    return !out->corrupt && out->produced + bytes - out->consumed <= out->size;
}

/* A place for a frame with `payload` bytes; NULL: the ring is full for now (or corrupt). */
static inline struct shm_frame *disti_shm_fifo_reserve(struct shm_out *out, size_t payload)
{
    size_t bytes = disti_shm_frame_bytes(payload);
    size_t offset = (size_t)(out->produced & (out->size - 1));
    size_t to_end = out->size - offset;
    struct shm_frame *frame = (void *)(out->ring + offset);

    if (bytes <= to_end)
        return disti_shm_fifo_has_room(out, bytes) ? frame : NULL;
    if (!disti_shm_fifo_has_room(out, to_end + bytes))
        return NULL;
    frame->kind = SHM_PAD;
    frame->bytes = (uint32_t)to_end;
    atomic_store_explicit(&frame->stamp, out->key + out->produced, memory_order_release);
    out->produced += to_end;
    return (void *)out->ring;
}

/* The frame that reserve gave is complete. The caller rings the doorbell if need be. */
static inline void disti_shm_fifo_publish(struct shm_out *out, struct shm_frame *frame,
                                          size_t payload)
{
    atomic_store_explicit(&frame->stamp, out->key + out->produced, memory_order_seq_cst);
    out->produced += disti_shm_frame_bytes(payload);
}

/* The next frame, or NULL. Its fields are the peer's: copy them, then check them. */
static inline struct shm_frame *disti_shm_fifo_peek(const struct shm_in *in)
{
    struct shm_frame *frame = (void *)(in->ring + (in->taken & (in->size - 1)));

    if (atomic_load_explicit(&frame->stamp, memory_order_seq_cst) != in->key + in->taken)
        return NULL;
    return frame;
}

/* Bytes from the next frame's stamp to the end of the ring. */
static inline size_t disti_shm_fifo_to_end(const struct shm_in *in)
{
    return in->size - (size_t)(in->taken & (in->size - 1));
}

/* Gives `bytes` bytes back. True: the producer was told, so ring its doorbell if it sleeps. */
static inline bool disti_shm_fifo_take(struct shm_in *in, size_t bytes)
{
    in->taken += bytes;
    if (in->taken - in->reported < in->size / 4)
        return false;
    in->reported = in->taken;
    atomic_store_explicit(in->consumed, in->reported, memory_order_seq_cst);
    return true;
}

/* What two ranks say to each other before they share memory. */

/*
 * One packet each way, over a SOCK_SEQPACKET socket that stays open afterwards: its end
 * is the peer's.
 *
 *      caller                          called
 *        CALL, memory and doorbell  ------>
 *                               <------ ACCEPT, doorbell
 *                                    or DEFER: both call at once, the lower rank's call counts
 *                                    or REFUSE, with a status
 */
enum shm_hello_kind { SHM_CALL = 1, SHM_ACCEPT, SHM_DEFER, SHM_REFUSE };

#define SHM_HELLO_FDS 2

struct shm_hello {
    uint64_t magic;
    uint32_t version;
    uint32_t kind;
    int32_t from, to; /* ranks */
    int32_t status;   /* REFUSE: why */
    uint32_t pad;
    uint64_t job;
    uint64_t key;                  /* CALL: the stamps' */
    uint64_t fifo_bytes;           /* CALL */
    uint64_t probe_address, probe; /* a word in the speaker's memory, and its value */
};

/* Fills what every hello has. */
void disti_shm_hello_init(struct shm_hello *hello, enum shm_hello_kind kind, int from, int to,
                          uint64_t job);

/* Never blocks. False: it could not be sent (errno). */
bool disti_shm_hello_send(int socket, const struct shm_hello *hello, const int *fds, int count);

/*
 * Never blocks. 1: *hello and fds (-1 where there is none; the caller's to close) are
 * filled; 0: nothing there yet, or, with errno EMFILE or ENFILE, no descriptors for what is there;
 * -1: the peer has gone, or what it sent is no hello.
 */
int disti_shm_hello_receive(int socket, struct shm_hello *hello, int fds[SHM_HELLO_FDS]);

/* Which machine this is, and how its ranks find each other's listeners. */

#define SHM_NAME_BYTES 16
#define SHM_BOOT_BYTES 40

#define SHM_MACHINE_MAGIC 0x6d687364u

/* A rank's address, as it goes to the peers. `name` is that of its listener. */
struct shm_address {
    uint32_t magic;
    uint32_t abi;
    uint32_t uid;
    uint32_t pid;
    uint64_t network_device, network_inode; /* the network namespace: abstract names live in it */
    char boot[SHM_BOOT_BYTES];              /* the kernel's boot id, text */
    uint8_t name[SHM_NAME_BYTES];
};

/*
 * Fills *address for this process, with a new random name. On failure writes the reason
 * (reason may be NULL) and returns ERR_UNSUPPORTED.
 */
dist_status disti_shm_machine_self(struct shm_address *address, char *reason, size_t reason_size);

/* The abstract socket address of a listener; returns its length. */
socklen_t disti_shm_machine_socket(const struct shm_address *address, struct sockaddr_un *name);

/*
 * Copies `bytes` bytes at `address` in process `pid` to `data`. 0, or the errno: ESRCH, the
 * process has ended; EPERM, it may not be read; EFAULT, there is not that much memory.
 */
int disti_shm_machine_read(int pid, void *data, uint64_t address, size_t bytes);

bool disti_shm_machine_random(void *data, size_t bytes);

/* The state of one shm transport and of its connections to peers; private to this folder. */

/* Messages of more bytes are lent to a peer that can read our memory (see whole_max). */
#define SHM_COPY_MAX ((size_t)8 << 10)
/* A long message is reduced in pieces of so much, through a buffer that stays in the L2 cache. */
#define SHM_PULL_PIECE ((size_t)64 << 10)
/* One call of progress moves about this much for each peer. */
#define SHM_TURN_BYTES ((size_t)256 << 10)
#define SHM_TURN_FRAMES 64
/* What a rank keeps of messages that a peer sends before their receives: so many rings full. */
#define SHM_CREDIT_FIFOS 4

/*
 * A connection's life. The lower rank calls the higher as soon as either has a request for the
 * other; the higher calls only if it has waited a while for that:
 *
 *            a request           a call is sent           it is accepted
 *      IDLE ----------> NEEDED ----------------> CALLING ----------------> CONNECTED
 *                         ^-----------------------'                            |
 *                          the call was in vain, or the peer's own counts      v
 *                                                                            LOST
 *
 * A call of the peer connects from IDLE, NEEDED and CALLING; each of these can be LOST too.
 */
enum shm_phase { SHM_IDLE, SHM_NEEDED, SHM_CALLING, SHM_CONNECTED, SHM_LOST };

/* What of the message that is arriving in pieces has come, and where it goes. */
struct shm_arrival {
    bool active;
    struct dist_request *request;        /* or */
    struct disti_unexpected *unexpected; /* or neither: it is thrown away */
    size_t bytes, arrived;
    size_t skip; /* leading bytes that the sink already has, read from a loan */
};

/* How a queued send continues; in own[0]. */
enum shm_send {
    SHM_SEND_EAGER,
    SHM_SEND_DATA,      /* as SHM_ASKED frames; own[1]: the name */
    SHM_SEND_CANCELED,  /* its group has ended: an empty SHM_ASKED frame is sent */
    SHM_SEND_UNREADABLE /* its memory cannot be read: the same, and the request fails */
};

/* What was answered to announcements, while the ring had no room for it. */
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
    dist_status status; /* in phase LOST: what requests end with */
    bool corrupt;       /* it broke the rules: nothing of it is read any more */

    struct shm_in in;
    struct shm_out out;
    struct shm_side *mine, *theirs;
    struct shm_arrival arrival;
    struct disti_match match;
    struct dist_request *send_head, *send_tail; /* not yet in the ring, in order */
    bool send_blocked;                          /* by a full ring or an unknown verdict */
    size_t whole_max;                           /* messages up to this go in one frame */
    struct dist_request *pull_head, *pull_tail; /* matched with a loan, in order */
    uint64_t lent_free;                         /* bit i: id i is free */
    uint64_t acks_seen, acks_given;
    enum shm_verdict lend; /* can the peer read our memory? */
    struct dist_request *lent[SHM_LENT_MAX];
    bool declined; /* a loan of the peer could not be read, and the log has said so */
    struct disti_credit_out credit;
    struct disti_credit_in debit;
    struct disti_rts_table rts_sends;
    struct shm_answers answers;
    struct dist_request *cts_head, *cts_tail; /* receives of announced messages, in order */

    struct shm_pair *pair;
    size_t fifo_bytes;
    int memory, socket, doorbell, process; /* file descriptors, -1: none */
    int pid;
    uint64_t key;
    int64_t call_ns;
    bool is_backing_off; /* not before call_ns again */
};

/* A caller that has not introduced itself. */
struct shm_pending {
    int socket; /* -1: free */
    int pid;
    int64_t deadline_ns;
};

struct shm_state {
    bool opened, armed, poll_now; /* look: something outside the rings may have happened */
    bool cma;                     /* unless DIST_SHM_CMA=0 */
    int connecting;               /* peers that are NEEDED or CALLING */
    struct disti_match_set unexpected;
    unsigned calls;           /* of progress since sockets were last looked at */
    struct shm_peer **active; /* the connected peers */
    int active_count;
    struct shm_peer **peers;       /* by rank; NULL: no message, either way, so far */
    struct shm_address *addresses; /* by rank; magic 0: not known */
    unsigned char *bounce;         /* SHM_PULL_PIECE bytes */
    size_t fifo_bytes;
    int listener, doorbell, poll; /* poll: epoll over everything below */
    uint64_t job, probe;
    struct dist_transport_config config;
    struct shm_address address;
    struct disti_standins standins;
    struct shm_pending *pending;
    int pending_capacity;
    int64_t resume_ns;         /* sockets are not listened to until then; 0: they are */
    bool reported_descriptors; /* that there are none */
};

/* Wakes the peer if it sleeps. After every seq_cst store that it may be waiting for. */
void disti_shm_ring_slow(struct shm_peer *peer);
static inline void disti_shm_ring(struct shm_peer *peer)
{
    if (atomic_load_explicit(&peer->theirs->asleep, memory_order_seq_cst))
        disti_shm_ring_slow(peer);
}

/* Singly linked lists of requests, through `next`. */
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

/* connection.c: making and ending connections, listening. None of these blocks. */

/*
 * The only way to another phase. ERR_INTERNAL, which is reported: the drawing has no such arrow,
 * and the phase stays.
 */
dist_status disti_shm_connection_set_phase(struct shm_state *state, struct shm_peer *peer,
                                           enum shm_phase to);
/* Makes the listener, the doorbell and the epoll. */
dist_status disti_shm_connection_open(struct shm_state *state);
void disti_shm_connection_close(struct shm_state *state);
/* The peer with that rank, made if need be; NULL: no memory. */
struct shm_peer *disti_shm_connection_peer(struct shm_state *state, int rank);
/* Looks at the sockets. Returns how much happened. */
int disti_shm_connection_poll(struct shm_state *state);
/* The peer cannot be reached (any more): its requests end in `status`. */
void disti_shm_connection_lose(struct shm_state *state, struct shm_peer *peer, dist_status status);

/* A request came for a peer that is lost: reports that, returns what it ends with. */
dist_status disti_shm_report_lost(const struct shm_peer *peer);

/* A request for a peer that is not connected: see that it becomes so. */
void disti_shm_call_request(struct shm_state *state, struct shm_peer *peer);
/* Calls all that are wanted and not called, now. False: some could not be called yet. */
bool disti_shm_call_all(struct shm_state *state);

/* What the note says of a message that came before its receive. [1]: its name. */
enum shm_note { SHM_NOTE_LENT, SHM_NOTE_RTS };

/* shm.c */

/* The peer has ended: takes what it had sent completely, which still counts. */
void disti_shm_drain(struct shm_peer *peer);
/* Everything that has come completely stays; what waits ends in `status`. */
void disti_shm_fail(struct shm_peer *peer, dist_status status);

#endif
