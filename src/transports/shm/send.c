/* SPDX-License-Identifier: BSD-3-Clause */
/* Outgoing messages: copied into the ring, or lent to the peer where they lie. */
#include "base/log.h"
#include "transports/shm/state.h"

#include <string.h>

bool disti_shm_send_frame(struct shm_peer *peer, enum shm_kind kind,
                          const struct dist_envelope *envelope, const void *payload, size_t bytes)
{
    struct shm_frame *frame = disti_shm_fifo_reserve(&peer->out, bytes);

    if (!frame)
        return false;
    frame->bytes = (uint32_t)bytes;
    frame->kind = kind;
    frame->envelope = *envelope;
    if (bytes)
        memcpy(disti_shm_frame_payload(frame, bytes), payload, bytes);
    disti_shm_fifo_publish(&peer->out, frame, bytes);
    disti_shm_ring(peer);
    return true;
}

/*
 * The peer's verdict on reading our memory, asked until it is there. A long message waits
 * for it: it comes right after the connection does.
 */
static enum shm_verdict send_verdict(struct shm_peer *peer)
{
    if (peer->lend == SHM_CMA_UNKNOWN)
        peer->lend = atomic_load_explicit(&peer->theirs->verdict, memory_order_seq_cst);
    return peer->lend;
}

/* With all ids lent, messages are announced: the receiver may want the last one first. */
static bool send_may_lend(struct shm_peer *peer, size_t bytes)
{
    return bytes > peer->whole_max && peer->lend == SHM_CMA_WORKS && peer->lent_free;
}

static bool send_lend(struct shm_peer *peer, struct dist_request *request)
{
    uint64_t id = (uint64_t)__builtin_ctzll(peer->lent_free);
    struct shm_loan loan = {.address = (uint64_t)(uintptr_t)request->data, .id = id};

    if (!disti_shm_send_frame(peer, SHM_LENT, &request->envelope, &loan, sizeof(loan)))
        return false;
    peer->lent_free &= peer->lent_free - 1;
    peer->lent[id] = request;
    return true;
}

/* May the message be sent unasked? */
static bool send_has_credit(struct shm_peer *peer, uint64_t bytes)
{
    uint64_t returned;

    if (disti_credit_covers(&peer->credit, bytes))
        return true;
    returned = atomic_load_explicit(&peer->theirs->returned, memory_order_relaxed);
    if (!disti_credit_heard(&peer->credit, returned))
        peer->out.corrupt = true;
    return disti_credit_covers(&peer->credit, bytes);
}

/* The first frame of a copied message. */
static bool send_first(struct shm_peer *peer, const struct dist_request *request, size_t piece)
{
    struct dist_envelope envelope = request->envelope;
    bool asked = request->own[0];
    enum shm_kind kind = asked ? SHM_ASKED : piece == envelope.bytes ? SHM_WHOLE : SHM_FIRST;

    if (asked)
        envelope.tag = request->own[1];
    if (!disti_shm_send_frame(peer, kind, &envelope, request->data, piece))
        return false;
    if (!asked)
        disti_credit_spend(&peer->credit, envelope.bytes);
    return true;
}

/*
 * Copies as much of a message as there is room for; request->moved says how far it is.
 * True: all of it. *copied_p grows by the bytes copied.
 */
static bool send_copy(struct shm_peer *peer, struct dist_request *request, size_t *copied_p)
{
    size_t total = request->own[0] < SHM_SEND_GONE ? (size_t)request->envelope.bytes : 0;
    size_t most = disti_shm_frame_max(peer->out.size);

    do {
        size_t left = total - request->moved;
        size_t piece = left < most ? left : most;
        const char *data = request->data;

        if (!request->moved ? !send_first(peer, request, piece)
                            : !disti_shm_send_frame(peer, SHM_MORE, &request->envelope,
                                                    data + request->moved, piece))
            return false;
        request->moved += piece;
        *copied_p += piece;
    } while (request->moved < total && *copied_p < SHM_TURN_BYTES);
    return request->moved == total;
}

static dist_status send_status(const struct shm_peer *peer, const struct dist_request *request)
{
    if (request->own[0] != SHM_SEND_UNREADABLE)
        return DIST_OK;
    return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                      "shm: a message to rank %d cannot be read: no readable memory is mapped at "
                      "%p for %llu bytes. Pass a valid buffer.",
                      peer->rank, request->data, (unsigned long long)request->envelope.bytes);
}

int disti_shm_send_turn(struct shm_peer *peer)
{
    size_t copied = 0;
    int moved = 0;

    peer->send_blocked = !disti_shm_answers_flush(peer);
    while (!peer->send_blocked && peer->send_head && copied < SHM_TURN_BYTES) {
        struct dist_request *request = peer->send_head;
        size_t bytes = (size_t)request->envelope.bytes, before = copied;

        if (bytes > peer->whole_max && send_verdict(peer) == SHM_CMA_UNKNOWN) {
            peer->send_blocked = true;
            break;
        }
        if (!request->moved && !request->own[0] && send_may_lend(peer, bytes)) {
            peer->send_blocked = !send_lend(peer, request);
            if (peer->send_blocked)
                break;
            disti_shm_pop(&peer->send_head);
        } else if (!request->moved && !request->own[0] && !send_has_credit(peer, bytes)) {
            peer->send_blocked = !disti_shm_announce(peer, request);
            if (peer->send_blocked)
                break;
        } else if (send_copy(peer, request, &copied)) {
            disti_shm_pop(&peer->send_head);
            disti_shm_end(request, send_status(peer, request));
        } else {
            moved += copied > before;
            peer->send_blocked = copied < SHM_TURN_BYTES;
            break;
        }
        moved++;
    }
    return moved;
}

void disti_shm_send_start(struct shm_peer *peer, struct dist_request *request)
{
    size_t bytes = (size_t)request->envelope.bytes;

    request->moved = 0;
    request->own[0] = SHM_SEND_UNASKED;
    if (peer->phase == SHM_CONNECTED && !peer->send_head && bytes <= peer->whole_max &&
        send_has_credit(peer, bytes) && send_first(peer, request, bytes)) {
        disti_shm_end(request, DIST_OK);
        return;
    }
    disti_shm_append(&peer->send_head, &peer->send_tail, request);
    if (peer->phase == SHM_CONNECTED && peer->send_head == request)
        disti_shm_send_turn(peer);
}

bool disti_shm_send_ready(struct shm_peer *peer)
{
    if (!peer->send_head && !peer->answers.count)
        return false;
    return !peer->send_blocked || peer->out.corrupt ||
           atomic_load_explicit(peer->out.consumed_now, memory_order_seq_cst) !=
               peer->out.consumed ||
           (peer->lend == SHM_CMA_UNKNOWN && send_verdict(peer) != SHM_CMA_UNKNOWN);
}

/* The next acknowledgement: lap << 8 | id, or 0 while it has not come. */
static uint64_t send_next_ack(struct shm_peer *peer)
{
    uint64_t lap = peer->acks_seen / SHM_LENT_MAX + 1;
    uint64_t ack = atomic_load_explicit(&peer->theirs->acks[peer->acks_seen % SHM_LENT_MAX],
                                        memory_order_seq_cst);

    return ack >> 8 == lap ? ack : 0;
}

bool disti_shm_acks_ready(struct shm_peer *peer)
{
    return ~peer->lent_free && send_next_ack(peer);
}

int disti_shm_send_acks(struct shm_peer *peer)
{
    int moved = 0;

    while (~peer->lent_free) {
        uint64_t ack = send_next_ack(peer);
        size_t id = ack & 0xff;
        struct dist_request *request;

        if (!ack)
            break;
        if (id >= SHM_LENT_MAX || !peer->lent[id]) {
            peer->out.corrupt = true;
            break;
        }
        request = peer->lent[id];
        peer->lent[id] = NULL;
        peer->lent_free |= UINT64_C(1) << id;
        peer->acks_seen++;
        if (atomic_load_explicit(&peer->mine->taken_back, memory_order_relaxed))
            atomic_fetch_and(&peer->mine->taken_back, ~(UINT64_C(1) << id));
        disti_shm_end(request, DIST_OK);
        moved++;
    }
    return moved;
}

void disti_shm_send_fail(struct shm_peer *peer, dist_status status)
{
    while (peer->send_head)
        disti_shm_end(disti_shm_pop(&peer->send_head), status);
    disti_shm_announce_fail(peer, status);
    for (int id = 0; id < SHM_LENT_MAX; id++) {
        if (peer->lent[id])
            disti_shm_end(peer->lent[id], status);
        peer->lent[id] = NULL;
    }
    peer->lent_free = ~UINT64_C(0);
}
