/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages that the sender lends: they are read where they lie. */
#include "base/kernels/sink.h"
#include "base/log.h"
#include "base/process/pages.h"
#include "transports/shm/state.h"

#include <errno.h>
#include <string.h>

/* The lender may use its memory again. Its ids are few enough for the ring to have room. */
void disti_shm_loan_return(struct shm_peer *peer, uint64_t id)
{
    uint64_t lap = peer->acks_given / SHM_LENT_MAX + 1;

    atomic_store_explicit(&peer->mine->acks[peer->acks_given % SHM_LENT_MAX], lap << 8 | id,
                          memory_order_seq_cst);
    peer->acks_given++;
    disti_shm_ring(peer);
}

void disti_shm_loan_take(struct shm_peer *peer, struct dist_request *request,
                         const struct shm_loan *loan)
{
    request->moved = 0;
    request->own[0] = (uintptr_t)loan->address;
    request->own[1] = (uintptr_t)loan->id;
    disti_shm_append(&peer->pull_head, &peer->pull_tail, request);
}

/* A message that lies in the sender's memory. */
int disti_shm_loan_came(struct shm_peer *peer, const struct dist_envelope *envelope,
                        const unsigned char *payload, size_t bytes)
{
    struct shm_loan loan;
    struct dist_request *request;
    struct disti_unexpected *unexpected;
    bool mismatch = false;

    if (bytes != sizeof(loan))
        return disti_shm_corrupt(peer, "loan");
    memcpy(&loan, payload, sizeof(loan));
    if (loan.id >= SHM_LENT_MAX)
        return disti_shm_corrupt(peer, "loan id");
    request = disti_match_arrival(&peer->match, envelope, &mismatch);
    if (mismatch) {
        disti_shm_loan_return(peer, loan.id);
    } else if (request) {
        disti_shm_loan_take(peer, request, &loan);
    } else {
        unexpected = disti_match_hold(&peer->match, envelope, true);
        if (!unexpected)
            return disti_fail(DIST_ERR_NO_MEMORY, "shm: no memory to record a message");
        unexpected->note[0] = SHM_NOTE_LENT;
        unexpected->note[1] = loan.id;
        unexpected->note[2] = loan.address;
    }
    return 0;
}

/* The lender's group has ended: what was read may be anything. */
static bool loan_is_taken_back(const struct shm_peer *peer, const struct dist_request *request)
{
    return atomic_load(&peer->theirs->taken_back) & UINT64_C(1) << request->own[1];
}

static dist_status loan_lost(const struct shm_peer *peer)
{
    return disti_fail(
        DIST_ERR_PEER_LOST,
        "shm: rank %d was sending to this rank when its group ended: its own output says why",
        peer->rank);
}

static void loan_end(struct shm_peer *peer, struct dist_request *request, dist_status status)
{
    disti_shm_pop(&peer->pull_head);
    disti_shm_loan_return(peer, request->own[1]);
    disti_shm_end(request, status);
}

/* ---- loans that cannot be read ---- */

/*
 * The kernel copies only pages that it manages itself: not those of a device (VM_PFNMAP, VM_IO). It
 * also refuses when the sender has become unreadable since the connection was made (it is not
 * dumpable any more, or has other rights). The sender's CPU can still read the message:
 *
 *      receiver                                 sender
 *        loan_decline: request->moved bytes
 *        have been read
 *        WANTED, SHM_NAME_LOAN | id   ------->  disti_shm_loan_declined
 *                                     <-------  ASKED and MORE frames, the whole message
 *        skips request->moved bytes
 */
static void loan_log(struct shm_peer *peer, int error)
{
    if (peer->declined)
        return;
    peer->declined = true;
    disti_info(
        "shm: %s from rank %d go through the shared ring, since process_vm_readv cannot read "
        "them: %s",
        error == EFAULT ? "messages in pages of a device" : "long messages", peer->rank,
        strerror(error));
}

static int loan_decline(struct shm_peer *peer, struct dist_request *request, int error)
{
    uint32_t name = SHM_NAME_LOAN | (uint32_t)request->own[1];

    loan_log(peer, error);
    if (error != EFAULT)
        atomic_store_explicit(&peer->mine->verdict, SHM_CMA_REFUSED, memory_order_seq_cst);
    disti_shm_pop(&peer->pull_head);
    request->own[1] = name;
    disti_shm_append(&peer->asked_head, &peer->asked_tail, request);
    return disti_shm_answer(peer, name, true);
}

bool disti_shm_loan_declined(struct shm_peer *peer, uint32_t id)
{
    struct dist_request *request = id < SHM_LENT_MAX ? peer->lent[id] : NULL;
    const uint64_t bit = UINT64_C(1) << id % SHM_LENT_MAX;
    bool gone;

    if (!request)
        return false;
    peer->lent[id] = NULL;
    peer->lent_free |= bit;
    peer->lend = atomic_load_explicit(&peer->theirs->verdict, memory_order_seq_cst);
    gone = atomic_fetch_and(&peer->mine->taken_back, ~bit) & bit;
    request->own[0] = gone ? SHM_SEND_GONE : SHM_SEND_ASKED;
    if (!gone && !disti_pages_readable(request->data, (size_t)request->envelope.bytes))
        request->own[0] = SHM_SEND_UNREADABLE;
    request->own[1] = SHM_NAME_LOAN | id;
    disti_shm_append(&peer->send_head, &peer->send_tail, request);
    return true;
}

void disti_shm_loan_gone(struct shm_peer *peer)
{
    disti_shm_end(disti_shm_pop(&peer->asked_head), loan_lost(peer));
}

static int loan_failed(struct shm_peer *peer, struct dist_request *request, int error, void *direct,
                       size_t piece)
{
    if (loan_is_taken_back(peer, request)) {
        request->moved = (size_t)request->envelope.bytes;
        return 0;
    }
    if (error == ESRCH) {
        errno = error;
        return disti_fail_errno(DIST_ERR_PEER_LOST,
                                "shm: cannot read a message from the memory of rank %d (pid %d): "
                                "its own output says why it ended",
                                peer->rank, peer->pid);
    }
    if (error == EFAULT && direct && !disti_pages_writable(direct, piece)) {
        loan_end(peer, request,
                 disti_fail(DIST_ERR_INVALID_ARGUMENT,
                            "shm: a message of rank %d cannot be stored at %p: no writable memory "
                            "is mapped there. Pass a valid buffer.",
                            peer->rank, direct));
        return 0;
    }
    return loan_decline(peer, request, error);
}

/* ---- reading ---- */

/* The next piece of a loan: in place, or through the bounce buffer if it is reduced. */
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

int disti_shm_loan_pull(struct shm_state *state, struct shm_peer *peer)
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
        /* A peer that closed while we read may have used its memory again. */
        if (atomic_load_explicit(&peer->theirs->closed, memory_order_acquire))
            return disti_fail(
                DIST_ERR_PEER_LOST,
                "shm: rank %d left the group while sending to this rank: its own output says why",
                peer->rank);
        loan_end(peer, request, loan_is_taken_back(peer, request) ? loan_lost(peer) : DIST_OK);
        moved++;
    }
    return moved;
}
