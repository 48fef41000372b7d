/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages that the sender lends: they are read where they lie. */
#include "base/kernels/sink.h"
#include "base/log.h"
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

static void loan_end(struct shm_peer *peer, struct dist_request *request)
{
    dist_status status = DIST_OK;

    if (loan_is_taken_back(peer, request))
        status = disti_fail(
            DIST_ERR_PEER_LOST,
            "shm: rank %d was sending to this rank when its group ended: its own output says why",
            peer->rank);
    disti_shm_pop(&peer->pull_head);
    disti_shm_loan_return(peer, request->own[1]);
    disti_shm_end(request, status);
}

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

    if (error && loan_is_taken_back(peer, request)) {
        request->moved = (size_t)request->envelope.bytes;
        return 0;
    }
    if (error) {
        errno = error;
        return disti_fail_errno(
            DIST_ERR_PEER_LOST,
            "shm: cannot read a message from the memory of rank %d (pid %d): see whether it ended, "
            "or set DIST_SHM_CMA=0, which avoids such reads",
            peer->rank, peer->pid);
    }
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
        if (request->moved < request->envelope.bytes)
            continue;
        /* A peer that closed while we read may have used its memory again. */
        if (atomic_load_explicit(&peer->theirs->closed, memory_order_acquire))
            return disti_fail(
                DIST_ERR_PEER_LOST,
                "shm: rank %d left the group while sending to this rank: its own output says why",
                peer->rank);
        loan_end(peer, request);
        moved++;
    }
    return moved;
}
