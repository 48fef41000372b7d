/* SPDX-License-Identifier: BSD-3-Clause */
/* Incoming messages: frames from the ring into sinks, and loans read where they lie. */
#include "base/log.h"
#include "base/sink.h"
#include "transports/shm/state.h"

#include <errno.h>
#include <string.h>

/* The lender may use its memory again. Its ids are few enough for the ring to have room. */
static void receive_acknowledge(struct shm_peer *peer, uint64_t id)
{
    uint64_t lap = peer->acks_given / SHM_LENT_MAX + 1;

    atomic_store_explicit(&peer->mine->acks[peer->acks_given % SHM_LENT_MAX], lap << 8 | id,
                          memory_order_seq_cst);
    peer->acks_given++;
    disti_shm_ring(peer);
}

static void receive_queue_pull(struct shm_peer *peer, struct dist_request *request,
                               const struct shm_loan *loan)
{
    request->moved = 0;
    request->own[0] = (uintptr_t)loan->address;
    request->own[1] = (uintptr_t)loan->id;
    disti_shm_append(&peer->pull_head, &peer->pull_tail, request);
}

static int receive_corrupt(struct shm_peer *peer, const char *what)
{
    peer->corrupt = true;
    return disti_fail(DIST_ERR_PEER_LOST,
                      "shm: rank %d (pid %d) broke the rules of the shared memory (%s); is it "
                      "another build of libdist?",
                      peer->rank, peer->pid, what);
}

/* A message that lies in the sender's memory. */
static int receive_loan(struct shm_peer *peer, const struct dist_envelope *envelope,
                        const unsigned char *payload, size_t bytes)
{
    struct shm_loan loan;
    struct dist_request *request;
    struct disti_early *early;
    bool mismatch = false;

    if (bytes != sizeof(loan))
        return receive_corrupt(peer, "loan");
    memcpy(&loan, payload, sizeof(loan));
    if (loan.id >= SHM_LENT_MAX)
        return receive_corrupt(peer, "loan id");
    request = disti_match_arrival(&peer->match, envelope, &mismatch);
    if (mismatch) {
        receive_acknowledge(peer, loan.id);
    } else if (request) {
        receive_queue_pull(peer, request, &loan);
    } else {
        early = disti_match_hold(&peer->match, envelope, true);
        if (!early)
            return disti_fail(DIST_ERR_NO_MEMORY, "shm: no memory for a note about a message");
        early->note[0] = loan.address;
        early->note[1] = loan.id;
    }
    return 0;
}

/* All of the message that arrives in pieces is there. */
static void receive_finish(struct shm_peer *peer)
{
    struct shm_arrival arrival = peer->arrival;
    struct dist_request *claimed;

    memset(&peer->arrival, 0, sizeof(peer->arrival));
    if (arrival.request) {
        disti_shm_end(arrival.request, DIST_OK);
    } else if (arrival.early && arrival.early->refused) {
        disti_match_release(&peer->match, arrival.early);
    } else if (arrival.early && arrival.early->claimed) {
        claimed = arrival.early->claimed;
        disti_sink_apply(&claimed->sink, 0, arrival.early->payload, arrival.bytes);
        disti_match_release(&peer->match, arrival.early);
        disti_shm_end(claimed, DIST_OK);
    }
}

/* The next bytes of the message that is arriving; src points into the ring. */
static void receive_piece(struct shm_peer *peer, const unsigned char *src, size_t bytes)
{
    struct shm_arrival *arrival = &peer->arrival;

    if (arrival->request) {
        disti_sink_apply(&arrival->request->sink, arrival->arrived, src, bytes);
    } else if (arrival->early) {
        memcpy(arrival->early->payload + arrival->arrived, src, bytes);
        arrival->early->arrived += bytes;
    }
    arrival->arrived += bytes;
    if (arrival->arrived == arrival->bytes)
        receive_finish(peer);
}

/* The first or only frame of a message that is copied. */
static int receive_first(struct shm_peer *peer, const struct dist_envelope *envelope,
                         const unsigned char *payload, size_t bytes, bool whole)
{
    bool mismatch = false;
    struct dist_request *request;
    struct disti_early *early = NULL;

    if (peer->arrival.active || (whole ? bytes != envelope->bytes : bytes >= envelope->bytes))
        return receive_corrupt(peer, "first frame");
    request = disti_match_arrival(&peer->match, envelope, &mismatch);
    if (whole && request && !mismatch) {
        disti_sink_apply(&request->sink, 0, payload, bytes);
        disti_shm_end(request, DIST_OK);
        return 0;
    }
    if (mismatch) {
        request = NULL;
    } else if (!request) {
        early = disti_match_hold(&peer->match, envelope, false);
        if (!early)
            return disti_fail(DIST_ERR_NO_MEMORY,
                              "shm: no memory to keep %llu bytes that rank %d sent early",
                              (unsigned long long)envelope->bytes, peer->rank);
    }
    peer->arrival = (struct shm_arrival){
        .active = true, .request = request, .early = early, .bytes = (size_t)envelope->bytes};
    receive_piece(peer, payload, bytes);
    return 0;
}

static int receive_more(struct shm_peer *peer, const unsigned char *payload, size_t bytes)
{
    if (!peer->arrival.active || bytes == 0 ||
        bytes > peer->arrival.bytes - peer->arrival.arrived ||
        (bytes % SHM_LINE && bytes != peer->arrival.bytes - peer->arrival.arrived))
        return receive_corrupt(peer, "further frame");
    receive_piece(peer, payload, bytes);
    return 0;
}

/* One frame; the ring's bytes that it took go to *taken_p. */
static int receive_frame(struct shm_peer *peer, struct shm_frame *frame, size_t *taken_p)
{
    size_t bytes = frame->bytes, to_end = disti_shm_fifo_to_end(&peer->in);
    uint32_t kind = frame->kind;
    struct dist_envelope envelope;
    const unsigned char *payload;

    if (kind == SHM_PAD) {
        *taken_p = to_end;
        return bytes == to_end ? 0 : receive_corrupt(peer, "padding");
    }
    if (bytes > disti_shm_frame_max(peer->in.size) || disti_shm_frame_bytes(bytes) > to_end)
        return receive_corrupt(peer, "frame length");
    *taken_p = disti_shm_frame_bytes(bytes);
    envelope = frame->envelope;
    payload = disti_shm_frame_payload(frame, bytes);
    switch (kind) {
    case SHM_WHOLE:
    case SHM_FIRST:
        return receive_first(peer, &envelope, payload, bytes, kind == SHM_WHOLE);
    case SHM_MORE:
        return receive_more(peer, payload, bytes);
    case SHM_LENT:
        return receive_loan(peer, &envelope, payload, bytes);
    default:
        return receive_corrupt(peer, "frame kind");
    }
}

int disti_shm_receive_turn(struct shm_peer *peer)
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

/* The next piece of a loan: in place, or through the bounce buffer if it is reduced. */
static int receive_pull_piece(struct shm_state *state, struct shm_peer *peer,
                              struct dist_request *request, size_t *done_p)
{
    size_t left = (size_t)request->envelope.bytes - request->moved;
    void *direct = disti_sink_direct(&request->sink, request->moved);
    size_t most = direct ? SHM_TURN_BYTES : SHM_PULL_PIECE;
    size_t piece = left < most ? left : most;
    int error = disti_shm_machine_read(peer->pid, direct ? direct : state->bounce,
                                       request->own[0] + request->moved, piece);

    if (error) {
        errno = error;
        return disti_fail_errno(DIST_ERR_PEER_LOST,
                                "shm: cannot read a message from the memory of rank %d (pid %d); "
                                "has it ended? DIST_SHM_CMA=0 does without such reads",
                                peer->rank, peer->pid);
    }
    if (!direct)
        disti_sink_apply(&request->sink, request->moved, state->bounce, piece);
    request->moved += piece;
    *done_p += piece;
    return 0;
}

int disti_shm_receive_pull(struct shm_state *state, struct shm_peer *peer)
{
    size_t done = 0;
    int moved = 0;

    while (peer->pull_head && done < SHM_TURN_BYTES) {
        struct dist_request *request = peer->pull_head;

        if (request->moved < request->envelope.bytes) {
            int result = receive_pull_piece(state, peer, request, &done);

            if (result < 0)
                return result;
            moved++;
        }
        if (request->moved < request->envelope.bytes)
            continue;
        /* A peer that closed while we read may have used its memory again. */
        if (atomic_load_explicit(&peer->theirs->left, memory_order_acquire))
            return disti_fail(DIST_ERR_PEER_LOST, "shm: rank %d left while it was sending to us",
                              peer->rank);
        disti_shm_pop(&peer->pull_head);
        receive_acknowledge(peer, request->own[1]);
        disti_shm_end(request, DIST_OK);
        moved++;
    }
    return moved;
}

/* A message that came first is wanted now. */
static void receive_early(struct shm_peer *peer, struct dist_request *request,
                          struct disti_early *early)
{
    if (early->descriptor) {
        struct shm_loan loan = {.address = early->note[0], .id = early->note[1]};

        disti_match_release(&peer->match, early);
        receive_queue_pull(peer, request, &loan);
    } else if (early->arrived == early->envelope.bytes) {
        disti_sink_apply(&request->sink, 0, early->payload, early->arrived);
        disti_match_release(&peer->match, early);
        disti_shm_end(request, DIST_OK);
    }
}

void disti_shm_receive_start(struct shm_peer *peer, struct dist_request *request)
{
    const struct disti_early *found = disti_match_waiting(&peer->match, request->envelope.tag);
    bool lent = found && found->descriptor;
    uint64_t id = lent ? found->note[1] : 0;
    struct disti_early *early;

    if (peer->phase == SHM_LOST && (!found || lent)) {
        disti_shm_end(request, disti_shm_lost(peer));
        return;
    }
    early = disti_match_post(&peer->match, request);
    if (early)
        receive_early(peer, request, early);
    else if (lent) /* refused, and dropped */
        receive_acknowledge(peer, id);
}

/* Frees the loans that nobody can read any more. */
static void receive_drop_loans(struct shm_peer *peer)
{
    struct disti_early *early = peer->match.early_head;

    while (early) {
        struct disti_early *next = early->next;

        if (early->descriptor)
            disti_match_release(&peer->match, early);
        early = next;
    }
}

void disti_shm_receive_fail(struct shm_peer *peer, dist_status status)
{
    struct shm_arrival arrival = peer->arrival;
    struct disti_match waiting = {.posted_head = peer->match.posted_head,
                                  .posted_tail = peer->match.posted_tail};

    memset(&peer->arrival, 0, sizeof(peer->arrival));
    peer->match.posted_head = peer->match.posted_tail = NULL;
    disti_match_fail(&waiting, status);
    if (arrival.early) {
        struct dist_request *claimed = arrival.early->claimed;

        disti_match_release(&peer->match, arrival.early);
        if (claimed)
            disti_shm_end(claimed, status);
    }
    if (arrival.request)
        disti_shm_end(arrival.request, status);
    while (peer->pull_head)
        disti_shm_end(disti_shm_pop(&peer->pull_head), status);
    receive_drop_loans(peer);
}
