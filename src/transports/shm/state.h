/* SPDX-License-Identifier: BSD-3-Clause */
/* The state of one shm transport and of its connections to peers; private to this folder. */
#ifndef DISTI_TRANSPORTS_SHM_STATE_H
#define DISTI_TRANSPORTS_SHM_STATE_H

#include "transports/match/announced.h"
#include "transports/match/credit.h"
#include "transports/match/match.h"
#include "transports/match/standin.h"
#include "transports/shm/fifo.h"
#include "transports/shm/hello.h"
#include "transports/shm/machine.h"

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
    SHM_SEND_UNASKED,
    SHM_SEND_ASKED,     /* as SHM_ASKED frames; own[1]: the name */
    SHM_SEND_GONE,      /* its group has ended: an empty SHM_ASKED frame is sent */
    SHM_SEND_UNREADABLE /* its memory cannot be read: the same, and the request fails */
};

/* What was answered to announcements, while the ring had no room for it. */
struct shm_answer {
    uint32_t name;
    bool wanted;
};

struct shm_answers {
    struct shm_answer *entries;
    size_t room, count, sent;
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
    struct disti_announced announced;
    struct shm_answers answers;
    struct dist_request *asked_head, *asked_tail; /* receives of announced messages, in order */

    struct shm_pair *pair;
    size_t fifo_bytes;
    int memory, socket, doorbell, process; /* file descriptors, -1: none */
    int pid;
    uint64_t key;
    int64_t call_ns;
    bool called_in_vain; /* not before call_ns again */
};

/* A caller that has not introduced itself. */
struct shm_pending {
    int socket; /* -1: free */
    int pid;
    int64_t deadline_ns;
};

struct shm_state {
    bool opened, armed, look; /* look: something outside the rings may have happened */
    bool cma;                 /* unless DIST_SHM_CMA=0 */
    int wanting;              /* peers that are NEEDED or CALLING */
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
    int pending_room;
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

/* The request has ended; nothing of it is touched after this. */
static inline void disti_shm_end(struct dist_request *request, dist_status status)
{
    request->status = status;
}

/* Singly linked lists of requests, through `next`. */
static inline void disti_shm_append(struct dist_request **head, struct dist_request **tail,
                                    struct dist_request *request)
{
    request->next = NULL;
    if (*head)
        (*tail)->next = request;
    else
        *head = request;
    *tail = request;
}

static inline struct dist_request *disti_shm_pop(struct dist_request **head)
{
    struct dist_request *request = *head;

    *head = request->next;
    return request;
}

/* cancel.c: the slot of this name. */
void disti_shm_cancel(void *opaque, uint64_t tag, uint64_t mask);

/* connection.c, watch.c: making and ending connections, listening. None of these blocks. */

/*
 * The only way to another phase. ERR_INTERNAL, which is reported: the drawing has no such arrow,
 * and the phase stays.
 */
dist_status disti_shm_connection_go(struct shm_state *state, struct shm_peer *peer,
                                    enum shm_phase to);
/* Makes the listener, the doorbell and the epoll. */
dist_status disti_shm_connection_open(struct shm_state *state);
void disti_shm_connection_close(struct shm_state *state);
/* The peer with that rank, made if need be; NULL: no memory. */
struct shm_peer *disti_shm_connection_peer(struct shm_state *state, int rank);
/* Looks at the sockets. Returns how much happened. */
int disti_shm_connection_look(struct shm_state *state);
/* The peer cannot be reached (any more): its requests end in `status`. */
void disti_shm_connection_lose(struct shm_state *state, struct shm_peer *peer, dist_status status);

/* A request came for a peer that is lost: reports that, returns what it ends with. */
dist_status disti_shm_lost(const struct shm_peer *peer);

/* call.c: the caller's half. */

/* A request for a peer that is not connected: see that it becomes so. */
void disti_shm_call_want(struct shm_state *state, struct shm_peer *peer);
/* Calls all that are wanted and not called, now. False: some could not be called yet. */
bool disti_shm_call_all(struct shm_state *state);

/* announce.c: messages for which there is no credit. */

/* The head of the send queue: announces it. False: the ring is full. */
bool disti_shm_announce(struct shm_peer *peer, struct dist_request *request);
/* The receiver wants the message with that name, or never will. False: there is none. */
bool disti_shm_announce_answered(struct shm_peer *peer, uint32_t name, bool wanted);
void disti_shm_announce_fail(struct shm_peer *peer, dist_status status);
/* Asks for an announced message, or refuses it: now, or when the ring has room. */
dist_status disti_shm_answer(struct shm_peer *peer, uint32_t name, bool wanted);
/* Sends the answers that wait. False: some still do. */
bool disti_shm_answers_flush(struct shm_peer *peer);
/* Frees what announcing took, without touching a request. */
void disti_shm_announce_free(struct shm_peer *peer);

/* loan.c: messages that lie in the sender's memory. */

/* What the note says of a message that came before its receive. [1]: its name. */
enum shm_note { SHM_NOTE_LENT, SHM_NOTE_ANNOUNCED };

/* A loan was offered; its note[2] is the address. Negative: the peer breaks the rules. */
int disti_shm_loan_came(struct shm_peer *peer, const struct dist_envelope *envelope,
                        const unsigned char *payload, size_t bytes);
/* A receive takes a loan: it will be read. */
void disti_shm_loan_take(struct shm_peer *peer, struct dist_request *request,
                         const struct shm_loan *loan);
/* The lender may use its memory again. */
void disti_shm_loan_return(struct shm_peer *peer, uint64_t id);
/* The peer cannot read the loan: queues the message to be copied. False: there is no such loan. */
bool disti_shm_loan_declined(struct shm_peer *peer, uint32_t id);
/* Completes the oldest receive that waits for a copied message: the message is not available. */
void disti_shm_loan_gone(struct shm_peer *peer);
/* Reads from what the peer lent, at most one turn's worth. Negative: the peer is lost. */
int disti_shm_loan_pull(struct shm_state *state, struct shm_peer *peer);

/* send.c: outgoing messages. */

/* Puts one frame into the ring. False: no room for now. */
bool disti_shm_send_frame(struct shm_peer *peer, enum shm_kind kind,
                          const struct dist_envelope *envelope, const void *payload, size_t bytes);
void disti_shm_send_start(struct shm_peer *peer, struct dist_request *request);
/* Fills the ring from the queue. Returns how much happened. */
int disti_shm_send_turn(struct shm_peer *peer);
/* Ends the sends whose loans came back. */
int disti_shm_send_acks(struct shm_peer *peer);
/* Could send_turn do something? */
bool disti_shm_send_ready(struct shm_peer *peer);
bool disti_shm_acks_ready(struct shm_peer *peer);
void disti_shm_send_fail(struct shm_peer *peer, dist_status status);

/* receive.c: incoming messages. Those that return int return how much happened. */
void disti_shm_receive_start(struct shm_peer *peer, struct dist_request *request);
/* Handles frames, at most about one turn's worth. Negative: the peer breaks the rules. */
int disti_shm_receive_turn(struct shm_peer *peer);
/* The peer breaks the rules: says so. Negative. */
int disti_shm_corrupt(struct shm_peer *peer, const char *what);
/* Nobody will receive this message, which has come or is coming. */
void disti_shm_receive_refuse(struct shm_peer *peer, struct disti_unexpected *unexpected);
/* Everything that has come completely stays; what waits ends in `status`. */
void disti_shm_receive_fail(struct shm_peer *peer, dist_status status);

#endif
