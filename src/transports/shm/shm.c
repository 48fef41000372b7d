/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The shm transport: sends and receives messages, which are copied through the ring, read from the
 * sender's memory (loans) or sent after RTS and CTS. Implements struct dist_transport.
 */
#include "transports/shm/shm.h"
#include "base/descriptor.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/kernels/sink.h"
#include "base/log.h"
#include "base/process.h"
#include "base/settings/config.h"
#include "transports/shm/state.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* The number of pages that one system call checks. */
#define PAGES_BATCH 64

/*
 * Returns true if this process can read the memory or, if `writes` is true, can write it. Tests one
 * byte of each page, by copying it from or to this process with process_vm_writev or
 * process_vm_readv; a test for writing sets the tested bytes to 0. Pages of a device pass, although
 * process_vm_readv from another process fails with EFAULT for them. If the kernel denies the call,
 * the memory counts as usable.
 */
static bool pages_pass(const void *memory, size_t bytes, bool writes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uintptr_t at = (uintptr_t)memory;
    const uintptr_t end = at + bytes;
    unsigned char own[PAGES_BATCH] = {0};
    struct iovec here[PAGES_BATCH], there = {.iov_base = own};

    while (at < end) {
        size_t count = 0;
        ssize_t copied;

        for (; at < end && count < PAGES_BATCH; at += page - at % page)
            here[count++] = (struct iovec){.iov_base = (void *)at, .iov_len = 1};
        there.iov_len = count;
        copied = writes ? process_vm_readv(getpid(), here, count, &there, 1, 0)
                        : process_vm_writev(getpid(), here, count, &there, 1, 0);
        if (copied < 0 ? errno == EFAULT : (size_t)copied < count)
            return false;
    }
    return true;
}

/* Incoming messages: frames from the ring are applied to sinks. */

/* Reports that the peer violated the protocol. Returns a negative status. */
static int shm_corrupt(struct shm_peer *peer, const char *what)
{
    peer->corrupt = true;
    return disti_fail(DIST_ERR_PEER_LOST,
                      "shm: rank %d (pid %d) sent an invalid message (%s): give all ranks the same "
                      "version of libdist",
                      peer->rank, peer->pid, what);
}

/* Writes one frame to the ring and wakes the peer. Returns false if the ring has no space. */
static bool shm_send_frame(struct shm_peer *peer, enum shm_kind kind,
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

#define ANSWERS_CAPACITY 64 /* initial capacity of the queue of answers */

static bool answer_put(struct shm_peer *peer, struct shm_answer answer)
{
    const struct dist_envelope nothing = {0};

    return shm_send_frame(peer, answer.accepted ? SHM_CTS : SHM_DISCARD, &nothing, &answer.name,
                          sizeof(answer.name));
}

/* Answers an RTS with CTS or DISCARD. Queues the answer if the ring has no space. */
static dist_status shm_answer(struct shm_peer *peer, uint32_t name, bool accepted)
{
    struct shm_answers *answers = &peer->answers;
    const struct shm_answer answer = {.name = name, .accepted = accepted};

    if (!answers->count && answer_put(peer, answer))
        return DIST_OK;
    if (answers->count == answers->capacity) {
        size_t capacity = answers->capacity ? answers->capacity * 2 : ANSWERS_CAPACITY;
        struct shm_answer *entries = realloc(answers->entries, capacity * sizeof(*entries));

        if (!entries)
            return disti_fail(DIST_ERR_NO_MEMORY, "shm: out of memory for a receive from rank %d",
                              peer->rank);
        answers->entries = entries;
        answers->capacity = capacity;
    }
    answers->entries[answers->count++] = answer;
    return DIST_OK;
}

/*
 * Sends CTS for a message that matched `request`. On failure completes the request with the status.
 */
static dist_status receive_send_cts(struct shm_peer *peer, struct dist_request *request,
                                    uint32_t name)
{
    dist_status status = shm_answer(peer, name, true);

    request->own[1] = name;
    request->moved = 0;
    if (status == DIST_OK)
        disti_shm_append(&peer->cts_head, &peer->cts_tail, request);
    else
        request->status = status;
    return status;
}

/*
 * Reads the name from the payload of an RTS, CTS or DISCARD. Returns false if the length is wrong.
 */
static bool receive_name(const unsigned char *payload, size_t bytes, uint32_t *name_p)
{
    if (bytes != sizeof(*name_p))
        return false;
    memcpy(name_p, payload, sizeof(*name_p));
    return true;
}

static int receive_rts(struct shm_peer *peer, const struct dist_envelope *envelope,
                       const unsigned char *payload, size_t bytes)
{
    struct dist_request *request;
    struct disti_unexpected *unexpected;
    bool mismatch = false;
    uint32_t name;

    if (!receive_name(payload, bytes, &name))
        return shm_corrupt(peer, "RTS");
    request = disti_match_arrival(&peer->match, envelope, &mismatch);
    if (mismatch)
        return shm_answer(peer, name, false);
    if (request)
        return receive_send_cts(peer, request, name);
    unexpected = disti_match_hold(&peer->match, envelope, true);
    if (!unexpected)
        return disti_fail(DIST_ERR_NO_MEMORY, "shm: out of memory for a message");
    unexpected->note[0] = SHM_NOTE_RTS;
    unexpected->note[1] = name;
    return 0;
}

/*
 * Handles the peer's answer that it cannot read loan `id`: queues the message to be copied through
 * the ring. Returns false if there is no such loan.
 */
static bool shm_loan_declined(struct shm_peer *peer, uint32_t id)
{
    struct dist_request *request = id < SHM_LENT_MAX ? peer->lent[id] : NULL;
    const uint64_t bit = UINT64_C(1) << id % SHM_LENT_MAX;
    bool is_canceled;

    if (!request)
        return false;
    peer->lent[id] = NULL;
    peer->lent_free |= bit;
    peer->lend = atomic_load_explicit(&peer->theirs->verdict, memory_order_seq_cst);
    is_canceled = atomic_fetch_and(&peer->mine->revoked, ~bit) & bit;
    request->own[0] = is_canceled ? SHM_SEND_CANCELED : SHM_SEND_DATA;
    if (!is_canceled && !pages_pass(request->data, (size_t)request->envelope.bytes, false))
        request->own[0] = SHM_SEND_UNREADABLE;
    request->own[1] = SHM_NAME_LOAN | id;
    disti_shm_append(&peer->send_head, &peer->send_tail, request);
    return true;
}

/* Handles a CTS or DISCARD. Returns false if there is no send with that name. */
static bool shm_receive_answer(struct shm_peer *peer, uint32_t name, bool accepted)
{
    struct dist_request *request;

    if (name & SHM_NAME_LOAN)
        return accepted && shm_loan_declined(peer, name & ~SHM_NAME_LOAN);
    request = disti_rts_take(&peer->rts_sends, name);
    if (!request)
        return false;
    request->own[0] = accepted ? SHM_SEND_DATA : SHM_SEND_EAGER;
    request->own[1] = name;
    if (accepted)
        disti_shm_append(&peer->send_head, &peer->send_tail, request);
    else
        request->status = DIST_OK;
    return true;
}

/* Gives the credit of an eager message back to the peer. */
static void receive_return(struct shm_peer *peer, uint64_t bytes)
{
    if (disti_credit_return(&peer->debit, bytes) && peer->mine)
        atomic_store_explicit(&peer->mine->returned, peer->debit.reported, memory_order_release);
}

static void receive_release(struct shm_peer *peer, struct disti_unexpected *unexpected)
{
    receive_return(peer, unexpected->envelope.bytes);
    disti_match_release(&peer->match, unexpected);
}

/* Completes the message in peer->arrival after all its bytes have arrived. */
static void receive_finish(struct shm_peer *peer)
{
    struct shm_arrival arrival = peer->arrival;
    struct dist_request *claimed;

    memset(&peer->arrival, 0, sizeof(peer->arrival));
    if (arrival.request) {
        arrival.request->status = DIST_OK;
    } else if (arrival.unexpected && arrival.unexpected->refused) {
        receive_release(peer, arrival.unexpected);
    } else if (arrival.unexpected && arrival.unexpected->claimed) {
        claimed = arrival.unexpected->claimed;
        disti_sink_apply(&claimed->sink, 0, arrival.unexpected->payload, arrival.bytes);
        receive_release(peer, arrival.unexpected);
        claimed->status = DIST_OK;
    }
}

/* Handles the next bytes of the message in peer->arrival. `src` points into the ring. */
static void receive_piece(struct shm_peer *peer, const unsigned char *src, size_t bytes)
{
    struct shm_arrival *arrival = &peer->arrival;
    size_t skip = arrival->skip > arrival->arrived ? arrival->skip - arrival->arrived : 0;

    if (arrival->request && skip < bytes) {
        disti_sink_apply(&arrival->request->sink, arrival->arrived + skip, src + skip,
                         bytes - skip);
    } else if (arrival->unexpected) {
        memcpy(arrival->unexpected->payload + arrival->arrived, src, bytes);
        arrival->unexpected->arrived += bytes;
    }
    arrival->arrived += bytes;
    if (arrival->arrived == arrival->bytes)
        receive_finish(peer);
}

/* Handles the first or only frame of an eager message. */
static int receive_first(struct shm_peer *peer, const struct dist_envelope *envelope,
                         const unsigned char *payload, size_t bytes, bool whole)
{
    bool mismatch = false;
    struct dist_request *request;
    struct disti_unexpected *unexpected = NULL;

    if (peer->arrival.active || (whole ? bytes != envelope->bytes : bytes >= envelope->bytes))
        return shm_corrupt(peer, "first frame");
    if (!disti_credit_receive(&peer->debit, envelope->bytes))
        return shm_corrupt(peer, "message without credit");
    request = disti_match_arrival(&peer->match, envelope, &mismatch);
    if (request)
        receive_return(peer, envelope->bytes);
    if (whole && request && !mismatch) {
        disti_sink_apply(&request->sink, 0, payload, bytes);
        request->status = DIST_OK;
        return 0;
    }
    if (mismatch) {
        request = NULL;
    } else if (!request) {
        unexpected = disti_match_hold(&peer->match, envelope, false);
        if (!unexpected)
            return disti_fail(
                DIST_ERR_NO_MEMORY,
                "shm: out of memory for an unexpected message of %llu bytes from rank %d",
                (unsigned long long)envelope->bytes, peer->rank);
    }
    peer->arrival = (struct shm_arrival){.active = true,
                                         .request = request,
                                         .unexpected = unexpected,
                                         .bytes = (size_t)envelope->bytes};
    receive_piece(peer, payload, bytes);
    return 0;
}

static dist_status loan_lost(const struct shm_peer *peer)
{
    return disti_fail(DIST_ERR_PEER_LOST,
                      "shm: rank %d was sending to this rank when it closed the group: see the "
                      "output of that rank",
                      peer->rank);
}

/* Handles the first or only frame of a message after CTS. */
static int receive_data(struct shm_peer *peer, const struct dist_envelope *envelope,
                        const unsigned char *payload, size_t bytes)
{
    struct dist_request *request = peer->cts_head;

    if (peer->arrival.active || !request || request->own[1] != envelope->tag ||
        bytes > request->envelope.bytes)
        return shm_corrupt(peer, "data without CTS");
    if (!bytes && envelope->tag & SHM_NAME_LOAN) {
        disti_shm_pop(&peer->cts_head)->status = loan_lost(peer);
        return 0;
    }
    if (!bytes && request->envelope.bytes)
        return shm_corrupt(peer, "data without CTS");
    disti_shm_pop(&peer->cts_head);
    peer->arrival = (struct shm_arrival){.active = true,
                                         .request = request,
                                         .bytes = (size_t)request->envelope.bytes,
                                         .skip = request->moved};
    receive_piece(peer, payload, bytes);
    return 0;
}

/*
 * Acknowledges a loan, so that the sender may reuse the message's memory. The array of
 * acknowledgements cannot overflow, since it has as many entries as there are loan ids.
 */
static void shm_loan_return(struct shm_peer *peer, uint64_t id)
{
    uint64_t lap = peer->acks_sent / SHM_LENT_MAX + 1;

    atomic_store_explicit(&peer->mine->acks[peer->acks_sent % SHM_LENT_MAX], lap << 8 | id,
                          memory_order_seq_cst);
    peer->acks_sent++;
    disti_shm_ring(peer);
}

/* Queues a receive that matched a loan. */
static void shm_loan_take(struct shm_peer *peer, struct dist_request *request,
                          const struct shm_loan *loan)
{
    request->moved = 0;
    request->own[0] = (uintptr_t)loan->address;
    request->own[1] = (uintptr_t)loan->id;
    disti_shm_append(&peer->pull_head, &peer->pull_tail, request);
}

/* Handles a loan from the peer. */
static int receive_loan(struct shm_peer *peer, const struct dist_envelope *envelope,
                        const unsigned char *payload, size_t bytes)
{
    struct shm_loan loan;
    struct dist_request *request;
    struct disti_unexpected *unexpected;
    bool mismatch = false;

    if (bytes != sizeof(loan))
        return shm_corrupt(peer, "loan");
    memcpy(&loan, payload, sizeof(loan));
    if (loan.id >= SHM_LENT_MAX)
        return shm_corrupt(peer, "loan id");
    request = disti_match_arrival(&peer->match, envelope, &mismatch);
    if (mismatch) {
        shm_loan_return(peer, loan.id);
    } else if (request) {
        shm_loan_take(peer, request, &loan);
    } else {
        unexpected = disti_match_hold(&peer->match, envelope, true);
        if (!unexpected)
            return disti_fail(DIST_ERR_NO_MEMORY, "shm: out of memory for a message");
        unexpected->note[0] = SHM_NOTE_LENT;
        unexpected->note[1] = loan.id;
        unexpected->note[2] = loan.address;
    }
    return 0;
}

/* Handles one frame. Stores its size in the ring in *taken_p. */
static int receive_frame(struct shm_peer *peer, struct shm_frame *frame, size_t *taken_p)
{
    size_t bytes = frame->bytes, to_end = disti_shm_fifo_to_end(&peer->in);
    uint32_t kind = frame->kind;
    struct dist_envelope envelope;
    const unsigned char *payload;
    uint32_t name;

    if (kind == SHM_PAD) {
        *taken_p = to_end;
        return bytes == to_end ? 0 : shm_corrupt(peer, "padding");
    }
    if (bytes > disti_shm_frame_max(peer->in.size) || disti_shm_frame_bytes(bytes) > to_end)
        return shm_corrupt(peer, "frame length");
    *taken_p = disti_shm_frame_bytes(bytes);
    envelope = frame->envelope;
    payload = disti_shm_frame_payload(frame, bytes);
    switch (kind) {
    case SHM_WHOLE:
    case SHM_FIRST:
        return receive_first(peer, &envelope, payload, bytes, kind == SHM_WHOLE);
    case SHM_MORE:
        if (!peer->arrival.active || bytes == 0 ||
            bytes > peer->arrival.bytes - peer->arrival.arrived ||
            (bytes % SHM_LINE && bytes != peer->arrival.bytes - peer->arrival.arrived))
            return shm_corrupt(peer, "continuation frame");
        receive_piece(peer, payload, bytes);
        return 0;
    case SHM_LENT:
        return receive_loan(peer, &envelope, payload, bytes);
    case SHM_RTS:
        return receive_rts(peer, &envelope, payload, bytes);
    case SHM_CTS:
    case SHM_DISCARD:
        if (!receive_name(payload, bytes, &name) ||
            !shm_receive_answer(peer, name, kind == SHM_CTS))
            return shm_corrupt(peer, "answer to an RTS");
        return 0;
    case SHM_DATA:
        return receive_data(peer, &envelope, payload, bytes);
    default:
        return shm_corrupt(peer, "frame kind");
    }
}

/*
 * Handles frames from the peer, up to the limits of one turn. Returns the number of frames, or a
 * negative status if the peer violated the protocol or memory is lacking.
 */
static int shm_receive_turn(struct shm_peer *peer)
{
    size_t done = 0;
    int frames = 0;

    while (frames < SHM_TURN_FRAMES && done < SHM_TURN_BYTES) {
        struct shm_frame *frame = disti_shm_fifo_peek(&peer->in);
        size_t taken = 0;
        int result;

        if (!frame)
            break;
        result = receive_frame(peer, frame, &taken);
        if (result < 0)
            return result;
        if (disti_shm_fifo_take(&peer->in, taken))
            disti_shm_ring(peer);
        done += taken;
        frames++;
    }
    return frames;
}

/* Discards an unexpected message, which has arrived or is still arriving. */
static void shm_receive_refuse(struct shm_peer *peer, struct disti_unexpected *unexpected)
{
    bool whole = disti_match_is_whole(
        unexpected); /* if false, the remaining bytes must still be read from the ring */

    unexpected->refused = true;
    unexpected->claimed = NULL;
    if (unexpected->descriptor && unexpected->note[0] == SHM_NOTE_RTS)
        shm_answer(peer, (uint32_t)unexpected->note[1],
                   false); /* if out of memory, the sender keeps waiting */
    else if (unexpected->descriptor)
        shm_loan_return(peer, unexpected->note[1]);
    else if (whole)
        receive_return(peer, unexpected->envelope.bytes);
    if (whole)
        disti_match_release(&peer->match, unexpected);
}

/* Starts a receive, which may match an unexpected message. */
static void shm_receive_start(struct shm_peer *peer, struct dist_request *request)
{
    const struct disti_unexpected *found = disti_match_waiting(&peer->match, request->envelope.tag);
    struct disti_unexpected *unexpected;

    if (peer->phase == SHM_LOST && (!found || found->descriptor)) {
        request->status = disti_shm_report_lost(peer);
        return;
    }
    unexpected = disti_match_post(&peer->match, request);
    if (unexpected && unexpected->refused) {
        shm_receive_refuse(peer, unexpected);
    } else if (unexpected && unexpected->descriptor && unexpected->note[0] == SHM_NOTE_RTS) {
        /* A failure completes the request. */
        receive_send_cts(peer, request, (uint32_t)unexpected->note[1]);
        disti_match_release(&peer->match, unexpected);
    } else if (unexpected && unexpected->descriptor) {
        struct shm_loan loan = {.address = unexpected->note[2], .id = unexpected->note[1]};

        disti_match_release(&peer->match, unexpected);
        shm_loan_take(peer, request, &loan);
    } else if (unexpected && unexpected->arrived == unexpected->envelope.bytes) {
        disti_sink_apply(&request->sink, 0, unexpected->payload, unexpected->arrived);
        receive_release(peer, unexpected);
        request->status = DIST_OK;
    }
}

/* Outgoing messages: copied into the ring, or sent as loans. */

/*
 * Returns whether the peer can read this process's memory. Long messages wait until this is known,
 * shortly after the connection is made.
 */
static enum shm_verdict send_verdict(struct shm_peer *peer)
{
    if (peer->lend == SHM_CMA_UNKNOWN)
        peer->lend = atomic_load_explicit(&peer->theirs->verdict, memory_order_seq_cst);
    return peer->lend;
}

/* Returns true if the credit suffices to send the message eagerly. */
static bool send_has_credit(struct shm_peer *peer, uint64_t bytes)
{
    uint64_t returned;

    if (disti_credit_covers(&peer->credit, bytes))
        return true;
    returned = atomic_load_explicit(&peer->theirs->returned, memory_order_relaxed);
    if (!disti_credit_update(&peer->credit, returned))
        peer->out.corrupt = true;
    return disti_credit_covers(&peer->credit, bytes);
}

/* Sends the first frame of a copied message: SHM_DATA after CTS, otherwise an eager frame. */
static bool send_first(struct shm_peer *peer, const struct dist_request *request, size_t piece)
{
    struct dist_envelope envelope = request->envelope;
    bool is_data = request->own[0];
    enum shm_kind kind = is_data ? SHM_DATA : piece == envelope.bytes ? SHM_WHOLE : SHM_FIRST;

    if (is_data)
        envelope.tag = request->own[1];
    if (!shm_send_frame(peer, kind, &envelope, request->data, piece))
        return false;
    if (!is_data)
        disti_credit_spend(&peer->credit, envelope.bytes);
    return true;
}

/*
 * Copies as much of a message into the ring as fits, and adds it to request->moved and *copied_p.
 * Returns true if the whole message has been copied.
 */
static bool send_copy(struct shm_peer *peer, struct dist_request *request, size_t *copied_p)
{
    size_t total = request->own[0] < SHM_SEND_CANCELED ? (size_t)request->envelope.bytes : 0;
    size_t most = disti_shm_frame_max(peer->out.size);

    do {
        size_t left = total - request->moved;
        size_t piece = left < most ? left : most;
        const char *data = request->data;

        if (!request->moved
                ? !send_first(peer, request, piece)
                : !shm_send_frame(peer, SHM_MORE, &request->envelope, data + request->moved, piece))
            return false;
        request->moved += piece;
        *copied_p += piece;
    } while (request->moved < total && *copied_p < SHM_TURN_BYTES);
    return request->moved == total;
}

/*
 * Sends RTS for the first request of the send queue and removes it from the queue. Returns false if
 * the ring is full.
 */
static bool shm_send_rts(struct shm_peer *peer, struct dist_request *request)
{
    dist_status status = DIST_IN_PROGRESS;
    uint32_t name;

    if (!disti_rts_add(&peer->rts_sends, request, &name)) {
        status = disti_fail(DIST_ERR_NO_MEMORY, "shm: out of memory for a message to rank %d",
                            peer->rank);
    } else if (!shm_send_frame(peer, SHM_RTS, &request->envelope, &name, sizeof(name))) {
        disti_rts_take(&peer->rts_sends, name);
        return false;
    }
    disti_shm_pop(&peer->send_head);
    if (status != DIST_IN_PROGRESS)
        request->status = status;
    return true;
}

/* Writes queued answers and sends to the ring. Returns the number of steps made. */
static int shm_send_turn(struct shm_peer *peer)
{
    struct shm_answers *answers = &peer->answers;
    size_t copied = 0;
    int moved = 0;

    while (answers->sent < answers->count && answer_put(peer, answers->entries[answers->sent]))
        answers->sent++;
    peer->send_blocked = answers->sent < answers->count;
    if (!peer->send_blocked)
        answers->sent = answers->count = 0;
    while (!peer->send_blocked && peer->send_head && copied < SHM_TURN_BYTES) {
        struct dist_request *request = peer->send_head;
        size_t bytes = (size_t)request->envelope.bytes, before = copied;

        if (bytes > peer->whole_max && send_verdict(peer) == SHM_CMA_UNKNOWN) {
            peer->send_blocked = true;
            break;
        }
        if (!request->moved && !request->own[0] &&
            (bytes > peer->whole_max && peer->lend == SHM_CMA_WORKS && peer->lent_free)) {
            uint64_t id = (uint64_t)__builtin_ctzll(peer->lent_free);
            struct shm_loan loan = {.address = (uint64_t)(uintptr_t)request->data, .id = id};

            peer->send_blocked =
                !shm_send_frame(peer, SHM_LENT, &request->envelope, &loan, sizeof(loan));
            if (peer->send_blocked)
                break;
            peer->lent_free &= peer->lent_free - 1;
            peer->lent[id] = request;
            disti_shm_pop(&peer->send_head);
        } else if (!request->moved && !request->own[0] && !send_has_credit(peer, bytes)) {
            peer->send_blocked = !shm_send_rts(peer, request);
            if (peer->send_blocked)
                break;
        } else if (send_copy(peer, request, &copied)) {
            disti_shm_pop(&peer->send_head);
            request->status =
                request->own[0] != SHM_SEND_UNREADABLE
                    ? DIST_OK
                    : disti_fail(DIST_ERR_INVALID_ARGUMENT,
                                 "shm: a message to rank %d cannot be read: no readable memory is "
                                 "mapped at %p for %llu bytes. Pass a valid buffer.",
                                 peer->rank, request->data, (unsigned long long)bytes);
        } else {
            moved += copied > before;
            peer->send_blocked = copied < SHM_TURN_BYTES;
            break;
        }
        moved++;
    }
    return moved;
}

static void shm_send_start(struct shm_peer *peer, struct dist_request *request)
{
    size_t bytes = (size_t)request->envelope.bytes;

    request->moved = 0;
    request->own[0] = SHM_SEND_EAGER;
    if (peer->phase == SHM_CONNECTED && !peer->send_head && bytes <= peer->whole_max &&
        send_has_credit(peer, bytes) && send_first(peer, request, bytes)) {
        request->status = DIST_OK;
        return;
    }
    disti_shm_append(&peer->send_head, &peer->send_tail, request);
    if (peer->phase == SHM_CONNECTED && peer->send_head == request)
        shm_send_turn(peer);
}

/* Returns true if shm_send_turn may be able to write to the ring. */
static bool shm_send_ready(struct shm_peer *peer)
{
    if (!peer->send_head && !peer->answers.count)
        return false;
    return !peer->send_blocked || peer->out.corrupt ||
           atomic_load_explicit(peer->out.consumed_now, memory_order_seq_cst) !=
               peer->out.consumed ||
           (peer->lend == SHM_CMA_UNKNOWN && send_verdict(peer) != SHM_CMA_UNKNOWN);
}

/* Returns the next acknowledgement as lap << 8 | id, or 0 if it has not arrived. */
static uint64_t send_next_ack(struct shm_peer *peer)
{
    uint64_t lap = peer->acks_seen / SHM_LENT_MAX + 1;
    uint64_t ack = atomic_load_explicit(&peer->theirs->acks[peer->acks_seen % SHM_LENT_MAX],
                                        memory_order_seq_cst);

    return ack >> 8 == lap ? ack : 0;
}

/* Completes the sends whose loans were acknowledged. Returns their number. */
static int shm_send_acks(struct shm_peer *peer)
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
        if (atomic_load_explicit(&peer->mine->revoked, memory_order_relaxed))
            atomic_fetch_and(&peer->mine->revoked, ~(UINT64_C(1) << id));
        request->status = DIST_OK;
        moved++;
    }
    return moved;
}

void disti_shm_fail(struct shm_peer *peer, dist_status status)
{
    struct shm_arrival arrival = peer->arrival;
    struct dist_request *request;
    uint32_t cursor = 0;

    while (peer->send_head)
        disti_shm_pop(&peer->send_head)->status = status;
    while ((request = disti_rts_take_next(&peer->rts_sends, &cursor)))
        request->status = status;
    for (int id = 0; id < SHM_LENT_MAX; id++) {
        if (peer->lent[id])
            peer->lent[id]->status = status;
        peer->lent[id] = NULL;
    }
    peer->lent_free = ~UINT64_C(0);
    memset(&peer->arrival, 0, sizeof(peer->arrival));
    disti_match_fail(&peer->match, status);
    if (arrival.unexpected) {
        request = arrival.unexpected->claimed;
        disti_match_release(&peer->match, arrival.unexpected);
        if (request)
            request->status = status;
    }
    if (arrival.request)
        arrival.request->status = status;
    while (peer->cts_head)
        disti_shm_pop(&peer->cts_head)->status = status;
    while (peer->pull_head)
        disti_shm_pop(&peer->pull_head)->status = status;
    disti_match_release_descriptors(&peer->match);
}

void disti_shm_drain(struct shm_peer *peer)
{
    int turns = (int)(peer->fifo_bytes / SHM_LINE / SHM_TURN_FRAMES) + 1;

    while (turns-- > 0 && shm_receive_turn(peer) > 0)
        ;
    shm_send_acks(peer);
}

/* Loans: messages that are read from the sender's memory. */

/*
 * True if the sender has revoked the loan, because its group was closed: the data read may be
 * invalid.
 */
static bool loan_is_revoked(const struct shm_peer *peer, const struct dist_request *request)
{
    return atomic_load(&peer->theirs->revoked) & UINT64_C(1) << request->own[1];
}

/* Removes the first queued loan, acknowledges it and completes its receive. */
static void loan_end(struct shm_peer *peer, struct dist_request *request, dist_status status)
{
    disti_shm_pop(&peer->pull_head);
    shm_loan_return(peer, request->own[1]);
    request->status = status;
}

/*
 * Asks the sender to copy the message of the first queued loan through the ring, since this rank
 * cannot read it.
 */
static int loan_decline(struct shm_peer *peer, struct dist_request *request, int error)
{
    uint32_t name = SHM_NAME_LOAN | (uint32_t)request->own[1];

    if (!peer->declined)
        disti_info("shm: %s from rank %d go through the shared ring, since process_vm_readv cannot "
                   "read them: %s",
                   error == EFAULT ? "messages in pages of a device" : "long messages", peer->rank,
                   strerror(error));
    peer->declined = true;
    if (error != EFAULT)
        atomic_store_explicit(&peer->mine->verdict, SHM_CMA_REFUSED, memory_order_seq_cst);
    disti_shm_pop(&peer->pull_head);
    request->own[1] = name;
    disti_shm_append(&peer->cts_head, &peer->cts_tail, request);
    return shm_answer(peer, name, true);
}

/* Handles a failed read of a loan. Returns a negative status if the connection must be closed. */
static int loan_failed(struct shm_peer *peer, struct dist_request *request, int error, void *direct,
                       size_t piece)
{
    if (loan_is_revoked(peer, request)) {
        request->moved = (size_t)request->envelope.bytes;
        return 0;
    }
    if (error == ESRCH) {
        errno = error;
        return disti_fail_errno(DIST_ERR_PEER_LOST,
                                "shm: cannot read a message from the memory of rank %d (pid %d): "
                                "see the output of that rank",
                                peer->rank, peer->pid);
    }
    if (error == EFAULT && direct && !pages_pass(direct, piece, true)) {
        loan_end(peer, request,
                 disti_fail(DIST_ERR_INVALID_ARGUMENT,
                            "shm: a message of rank %d cannot be stored at %p: no writable memory "
                            "is mapped there. Pass a valid buffer.",
                            peer->rank, direct));
        return 0;
    }
    return loan_decline(peer, request, error);
}

/*
 * Reads the next piece of a loan: directly to its destination, or through the bounce buffer if it
 * is reduced.
 */
static int loan_piece(struct shm_state *state, struct shm_peer *peer, struct dist_request *request,
                      size_t *done_p)
{
    size_t left = (size_t)request->envelope.bytes - request->moved;
    void *direct = disti_sink_direct(&request->sink, request->moved);
    size_t most = direct ? SHM_TURN_BYTES : SHM_PULL_PIECE;
    size_t piece = left < most ? left : most;
    int error = disti_shm_machine_read(peer->pid, direct ? direct : state->bounce,
                                       request->own[0] + request->moved, piece);

    if (error)
        return loan_failed(peer, request, error, direct, piece);
    if (!direct)
        disti_sink_apply(&request->sink, request->moved, state->bounce, piece);
    request->moved += piece;
    *done_p += piece;
    return 0;
}

/*
 * Reads from the peer's loans, up to the limit of one turn. Returns the number of steps made, or a
 * negative status if the peer is lost.
 */
static int shm_loan_pull(struct shm_state *state, struct shm_peer *peer)
{
    size_t done = 0;
    int moved = 0;

    while (peer->pull_head && done < SHM_TURN_BYTES) {
        struct dist_request *request = peer->pull_head;

        if (request->moved < request->envelope.bytes) {
            int result = loan_piece(state, peer, request, &done);

            if (result < 0)
                return result;
            moved++;
        }
        if (peer->pull_head != request || request->moved < request->envelope.bytes)
            continue;
        /* If the peer closed during the read, it may have reused the memory. */
        if (atomic_load_explicit(&peer->theirs->closed, memory_order_acquire))
            return disti_fail(DIST_ERR_PEER_LOST,
                              "shm: rank %d left the group while sending to this rank: see the "
                              "output of that rank",
                              peer->rank);
        loan_end(peer, request, loan_is_revoked(peer, request) ? loan_lost(peer) : DIST_OK);
        moved++;
    }
    return moved;
}

/*
 * Cancels the messages of a closed group while other groups continue. Requests that have not begun
 * are removed. Requests that are partly transferred are replaced by detached requests. Loans to the
 * peer are revoked: a bit informs the peer that the data it reads may be invalid.
 */
struct cancel {
    struct shm_state *state;
    struct shm_peer *peer;
    uint64_t tag, mask;
    bool failed; /* out of memory for a detached request */
};

static bool cancel_matches(const struct cancel *cancel, const struct dist_request *request)
{
    return disti_standin_is_for(request, cancel->tag, cancel->mask) &&
           !disti_standins_have(&cancel->state->standins, request);
}

/* Returns the detached request that replaces `request`, or NULL if out of memory. */
static struct dist_request *cancel_replace(struct cancel *cancel,
                                           const struct dist_request *request, bool send)
{
    struct disti_standins *standins = &cancel->state->standins;
    bool copies = send && request->own[0] != SHM_SEND_UNREADABLE;
    struct dist_request *standin = copies ? disti_standin_send(standins, request, request->moved)
                                          : disti_standin_receive(standins, request);

    cancel->failed = cancel->failed || !standin;
    return standin;
}

/* Cancels the matching requests of a list that is linked through `next`. */
static void cancel_list(struct cancel *cancel, struct dist_request **head,
                        struct dist_request **tail, bool send)
{
    struct dist_request **at = head, *last = NULL;

    while (*at) {
        struct dist_request *request = *at, *standin = NULL;
        bool begun = !send || request->moved || request->own[0];

        if (cancel_matches(cancel, request)) {
            if (begun)
                standin = cancel_replace(cancel, request, send);
            *at = standin ? standin : request->next;
            if (!standin)
                continue;
            standin->next = request->next;
        }
        last = *at;
        at = &(*at)->next;
    }
    *tail = last;
}

static void cancel_peer(struct cancel *cancel)
{
    struct shm_peer *peer = cancel->peer;

    disti_standin_unpost(&peer->match, cancel->tag, cancel->mask);
    if (peer->arrival.request && cancel_matches(cancel, peer->arrival.request))
        peer->arrival.request = NULL;
    for (struct disti_unexpected *unexpected = peer->match.unexpected_head, *next; unexpected;
         unexpected = next) {
        next = unexpected->next;
        if ((unexpected->envelope.tag & cancel->mask) == cancel->tag)
            shm_receive_refuse(peer, unexpected);
    }
    cancel_list(cancel, &peer->send_head, &peer->send_tail, true);
    cancel_list(cancel, &peer->cts_head, &peer->cts_tail, false);
    cancel_list(cancel, &peer->pull_head, &peer->pull_tail, false);
    for (uint32_t name = 0; name < peer->rts_sends.capacity; name++) {
        struct dist_request **at = (struct dist_request **)disti_rts_slot(&peer->rts_sends, name);

        if (at && cancel_matches(cancel, *at))
            *at = cancel_replace(cancel, *at, true);
    }
    for (int id = 0; peer->mine && id < SHM_LENT_MAX; id++) {
        struct dist_request *request = peer->lent[id];

        if (!request || !cancel_matches(cancel, request))
            continue;
        peer->lent[id] = cancel_replace(cancel, request, false);
        atomic_fetch_or(&peer->mine->revoked, UINT64_C(1) << id);
    }
    if (!cancel->failed)
        return;
    errno = ENOMEM;
    disti_fail_errno(DIST_ERR_NO_MEMORY, "shm: rank %d cannot cancel its messages with rank %d",
                     cancel->state->config.rank, peer->rank);
    disti_shm_connection_lose(cancel->state, peer, DIST_ERR_NO_MEMORY);
}

/* Implements cancel of struct dist_transport. */
static void shm_cancel(void *opaque, uint64_t tag, uint64_t mask)
{
    struct shm_state *state = opaque;

    for (int rank = 0; rank < state->config.world_size; rank++) {
        struct cancel cancel = {
            .state = state, .peer = state->peers[rank], .tag = tag, .mask = mask};

        if (cancel.peer)
            cancel_peer(&cancel);
    }
    disti_standins_sweep(&state->standins);
}

/*
 * The sockets are polled once in this many calls of progress, and more often while connections are
 * being made.
 */
#define SHM_CALLS_PER_POLL 1024
#define SHM_CALLS_PER_POLL_CONNECTING 16
/* The approximate FIFO memory of all connections of a rank, per direction. */
#define SHM_FIFOS_BYTES ((size_t)4 << 20)
#define SHM_LATENCY_NS 200
#define SHM_BANDWIDTH 8e9

static dist_status shm_probe(char *reason, size_t reason_size)
{
    struct shm_address address;
    uint64_t most;
    int fd;

    if (!disti_file_may_have(disti_shm_pair_bytes(SHM_FIFO_MAX), &most)) {
        snprintf(
            reason, reason_size,
            "the file size limit of %llu KiB is too small for shared memory: raise it (ulimit -f)",
            (unsigned long long)most >> 10);
        return DIST_ERR_UNSUPPORTED;
    }
    fd = disti_file_memory();
    if (fd < 0 && disti_call_denied(errno)) {
        snprintf(reason, reason_size,
                 "the system call memfd_create is denied here (%s): allow it in the container's "
                 "seccomp filter",
                 strerror(errno));
        return DIST_ERR_UNSUPPORTED;
    }
    if (fd >= 0)
        close(fd);
    return disti_shm_machine_self(&address, reason, reason_size);
}

static dist_status shm_open_transport(void *opaque, const struct dist_transport_config *config)
{
    struct shm_state *state = opaque;
    char reason[128];
    size_t ranks = (size_t)config->world_size;
    int cma = 1, local = config->local_ranks;
    dist_status status;

    state->opened = true;
    state->listener = state->doorbell = state->poll = -1;
    state->config = *config;
    status = disti_variable_int("DIST_SHM_CMA", 1, &cma);
    if (status != DIST_OK)
        return status;
    state->cma = cma;
    state->job = disti_hash_text(DISTI_HASH_START, config->job);
    state->fifo_bytes = SHM_FIFO_MAX;
    while (state->fifo_bytes > SHM_FIFO_MIN &&
           state->fifo_bytes > SHM_FIFOS_BYTES / (size_t)(local > 0 ? local : 1))
        state->fifo_bytes /= 2;
    state->peers = calloc(ranks, sizeof(*state->peers));
    state->active = calloc(ranks, sizeof(*state->active));
    state->addresses = calloc(ranks, sizeof(*state->addresses));
    if (!state->peers || !state->active || !state->addresses ||
        posix_memalign((void **)&state->bounce, 4096, SHM_PULL_PIECE) != 0)
        return disti_fail(DIST_ERR_NO_MEMORY, "shm: out of memory for %zu ranks", ranks);
    if (disti_shm_machine_self(&state->address, reason, sizeof(reason)) != DIST_OK)
        return disti_fail(DIST_ERR_UNSUPPORTED, "shm: %s", reason);
    disti_shm_machine_random(&state->probe, sizeof(state->probe));
    return disti_shm_connection_open(state);
}

static dist_status shm_address(void *opaque, void *blob, size_t *size_p)
{
    struct shm_state *state = opaque;

    memcpy(blob, &state->address, sizeof(state->address));
    *size_p = sizeof(state->address);
    return DIST_OK;
}

static dist_status shm_reach(void *opaque, const void *blob, size_t size,
                             struct dist_reach *reach_p)
{
    struct shm_state *state = opaque;
    struct shm_address address;

    if (size != sizeof(address))
        return DIST_ERR_UNSUPPORTED;
    memcpy(&address, blob, sizeof(address));
    if (!(address.magic == SHM_MACHINE_MAGIC && address.abi == state->address.abi &&
          address.uid == state->address.uid &&
          address.network_device == state->address.network_device &&
          address.network_inode == state->address.network_inode &&
          memcmp(address.boot, state->address.boot, sizeof(state->address.boot)) == 0))
        return DIST_ERR_UNSUPPORTED;
    *reach_p = (struct dist_reach){.latency_ns = SHM_LATENCY_NS, .bytes_per_second = SHM_BANDWIDTH};
    return DIST_OK;
}

static dist_status shm_connect(void *opaque, int rank, const void *blob, size_t size)
{
    struct shm_state *state = opaque;

    if (rank < 0 || rank >= state->config.world_size || rank == state->config.rank ||
        size != sizeof(*state->addresses))
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "shm: no address of rank %d", rank);
    memcpy(&state->addresses[rank], blob, size);
    return DIST_OK;
}

/*
 * Returns the peer of a request. On failure returns NULL and completes the request. Peers are
 * created on first use, since most ranks exchange messages with few peers.
 */
static struct shm_peer *shm_request_peer(struct shm_state *state, struct dist_request *request)
{
    struct shm_peer *peer = state->peers[request->peer];

    if (!peer)
        peer = disti_shm_connection_peer(state, request->peer);
    if (!peer)
        request->status = DIST_ERR_NO_MEMORY;
    return peer;
}

static void shm_send(void *opaque, struct dist_request *request)
{
    struct shm_state *state = opaque;
    struct shm_peer *peer = shm_request_peer(state, request);

    if (!peer)
        return;
    if (peer->phase == SHM_LOST) {
        request->status = disti_shm_report_lost(peer);
        return;
    }
    shm_send_start(peer, request);
    if (peer->phase != SHM_CONNECTED)
        disti_shm_call_request(state, peer);
}

static void shm_recv(void *opaque, struct dist_request *request)
{
    struct shm_state *state = opaque;
    struct shm_peer *peer = shm_request_peer(state, request);

    if (!peer)
        return;
    shm_receive_start(peer, request);
    if (peer->phase == SHM_IDLE)
        disti_shm_call_request(state, peer);
}

/*
 * Makes progress with one peer. Returns the number of steps made, or a negative status if the
 * connection is broken.
 */
static int shm_turn(struct shm_state *state, struct shm_peer *peer)
{
    int moved = shm_receive_turn(peer);

    if (moved >= 0 && peer->pull_head) {
        int pulled = shm_loan_pull(state, peer);

        moved = pulled < 0 ? pulled : moved + pulled;
    }
    if (moved < 0)
        return moved;
    if (~peer->lent_free)
        moved += shm_send_acks(peer);
    if (peer->send_head || peer->answers.count)
        moved += shm_send_turn(peer);
    peer->corrupt = peer->out.corrupt;
    if (peer->corrupt)
        return disti_fail(DIST_ERR_PEER_LOST,
                          "shm: rank %d (pid %d) corrupted the shared memory: check it for stray "
                          "writes, and give all ranks the same version of libdist",
                          peer->rank, peer->pid);
    return moved;
}

static int shm_progress(void *opaque)
{
    struct shm_state *state = opaque;
    int moved = 0;

    for (int i = state->active_count;
         i-- > 0;) { /* downwards: losing a peer moves the last one into its place */
        struct shm_peer *peer = state->active[i];
        int result = shm_turn(state, peer);

        if (result < 0)
            disti_shm_connection_lose(state, peer, result);
        moved += result < 0 ? 1 : result;
    }
    state->calls++;
    if (state->poll_now ||
        state->calls >= (state->connecting ? SHM_CALLS_PER_POLL_CONNECTING : SHM_CALLS_PER_POLL))
        moved += disti_shm_connection_poll(state);
    return moved;
}

/* Also probes lost peers, since complete messages from them can still be received. */
static int shm_probe_tag(void *opaque, uint64_t tag)
{
    return disti_match_probe(&((const struct shm_state *)opaque)->unexpected, tag);
}

static void shm_unexpected(void *opaque, uint64_t tag, uint64_t mask, int most,
                           dist_unexpected_fn see, void *arg)
{
    disti_match_show(&((struct shm_state *)opaque)->unexpected, tag, mask, most, see, arg);
}

static void shm_disarm(void *opaque)
{
    struct shm_state *state = opaque;

    for (int i = 0; state->armed && i < state->active_count; i++)
        atomic_store_explicit(&state->active[i]->mine->asleep, 0, memory_order_relaxed);
    state->armed = false;
    state->poll_now = true;
}

static int shm_arm(void *opaque)
{
    struct shm_state *state = opaque;
    bool called = disti_shm_call_all(state);

    state->armed = true;
    for (int i = 0; i < state->active_count; i++)
        atomic_store_explicit(&state->active[i]->mine->asleep, 1, memory_order_seq_cst);
    for (int i = 0; i < state->active_count; i++) {
        if (disti_shm_fifo_peek(&state->active[i]->in) || state->active[i]->pull_head ||
            (~state->active[i]->lent_free && send_next_ack(state->active[i])) ||
            shm_send_ready(state->active[i]))
            return -2;
    }
    return called ? state->poll : -1;
}

static void shm_close(void *opaque)
{
    struct shm_state *state = opaque;

    if (!state->opened)
        return;
    if (state->peers)
        disti_shm_connection_close(state);
    disti_standins_free(&state->standins);
    free(state->peers);
    free(state->addresses);
    free(state->active);
    free(state->bounce);
    memset(state, 0, sizeof(*state));
}

static void shm_describe(void *opaque, int rank, char *text, size_t size)
{
    static const char *const phases[] = {"idle", "needed", "calling", "connected", "lost"};
    static const char *const verdicts[] = {"not yet known", "used", "refused"};
    struct shm_state *state = opaque;
    const struct shm_peer *peer = state->peers[rank];

    if (!peer)
        snprintf(text, size, "shared memory, idle");
    else
        snprintf(text, size, "shared memory, %s, pid %d, FIFO %zu KiB, CMA to it %s",
                 phases[peer->phase], peer->pid, peer->fifo_bytes >> 10, verdicts[peer->lend]);
}

/* Descriptors per peer: the shared memory, the socket, the doorbell and the pidfd. */
static int shm_files(void)
{
    return 4;
}

const struct dist_transport disti_transport_shm = {
    .abi = DIST_ABI,
    .size = sizeof(struct dist_transport),
    .name = "shm",
    .summary = "shared memory and CMA between ranks of one machine",
    .state_size = sizeof(struct shm_state),
    .probe = shm_probe,
    .open = shm_open_transport,
    .address = shm_address,
    .reach = shm_reach,
    .connect = shm_connect,
    .send = shm_send,
    .recv = shm_recv,
    .progress = shm_progress,
    .probe_tag = shm_probe_tag,
    .unexpected = shm_unexpected,
    .arm = shm_arm,
    .disarm = shm_disarm,
    .close = shm_close,
    .describe = shm_describe,
    .cancel = shm_cancel,
    .shares_memory = true,
    .files = shm_files,
};
