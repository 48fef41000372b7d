/* SPDX-License-Identifier: BSD-3-Clause */
/* Transport mpi: messages, sent unasked or announced, and how they meet their receives. */
#include "transports/mpi/state.h"

#include <stdlib.h>
#include <string.h>

static dist_status mpi_note(struct mpi_state *state, int peer, enum mpi_kind kind, uint32_t name,
                            uint32_t tag)
{
    const struct mpi_control control = {.kind = kind, .name = name, .tag = tag};

    return disti_mpi_control_send(state, peer, &control, NULL, 0);
}

/* The payload is copied, so the request ends at once. */
static dist_status mpi_send_short(struct mpi_state *state, const struct dist_request *request)
{
    const struct mpi_control control = {.envelope = request->envelope, .kind = MPI_KIND_MESSAGE};

    disti_credit_spend(&state->peers[request->peer].credit, request->envelope.bytes);
    return disti_mpi_control_send(state, request->peer, &control, request->data,
                                  (size_t)request->envelope.bytes);
}

static dist_status mpi_announce(struct mpi_state *state, struct dist_request *request)
{
    struct mpi_control control = {.envelope = request->envelope, .kind = MPI_KIND_ANNOUNCE};
    struct disti_announced *announced = &state->peers[request->peer].announced;
    dist_status status;

    if (!disti_announced_add(announced, request, &control.name))
        return state->host->fail(DIST_ERR_NO_MEMORY, "no memory for a message to rank %d",
                                 request->peer);
    status = disti_mpi_control_send(state, request->peer, &control, NULL, 0);
    if (status == DIST_OK)
        return DIST_IN_PROGRESS;
    disti_announced_take(announced, control.name);
    return status;
}

void disti_mpi_send(struct mpi_state *state, struct dist_request *request)
{
    const struct disti_credit_out *credit = &state->peers[request->peer].credit;
    uint64_t bytes = request->envelope.bytes;
    dist_status status;

    if (bytes <= MPI_INLINE_BYTES && disti_credit_covers(credit, bytes))
        status = mpi_send_short(state, request);
    else
        status = mpi_announce(state, request);
    if (status != DIST_IN_PROGRESS)
        request->status = status;
}

/* The receiver says of an announced message whether it wants it. */
static int mpi_answered(struct mpi_state *state, int peer, const struct mpi_control *control)
{
    struct dist_request *request =
        disti_announced_take(&state->peers[peer].announced, control->name);
    struct mpi_transfer *t;
    int code;

    if (!request || control->tag > MPI_PULLS)
        return state->host->fail(DIST_ERR_INTERNAL,
                                 "rank %d asked for a message that does not exist", peer);
    if (control->kind == MPI_KIND_UNWANTED) {
        request->status = DIST_OK;
        return 1;
    }
    t = disti_mpi_transfer_new(state, request, true);
    if (!t)
        return 1;
    t->tag = (int)control->tag;
    code = disti_mpi_transfer_fill(state, t);
    return code == MPI_SUCCESS ? 1 : disti_mpi_fail(state->host, "MPI_Isend", code);
}

/* A message that was sent unasked is kept no more. */
static dist_status mpi_return(struct mpi_state *state, int peer, uint64_t bytes)
{
    struct disti_credit_in *debit = &state->peers[peer].debit;
    struct mpi_control control = {.kind = MPI_KIND_CREDIT};

    if (!disti_credit_return(debit, bytes))
        return DIST_OK;
    control.envelope.bytes = debit->told;
    return disti_mpi_control_send(state, peer, &control, NULL, 0);
}

/* Receives the pieces of an announced message on a tag that is free, and asks for them. */
static dist_status mpi_pull_on(struct mpi_state *state, struct dist_request *request, unsigned slot)
{
    struct mpi_transfer *t = disti_mpi_transfer_new(state, request, false);
    int code;

    if (!t)
        return request->status;
    t->tag = 1 + (int)slot;
    if (request->sink.src)
        t->bounce = malloc((size_t)MPI_WINDOW * MPI_PIECE_BYTES);
    if (request->sink.src && !t->bounce) {
        t->request = NULL; /* nothing was begun: the list forgets it */
        return state->host->fail(DIST_ERR_NO_MEMORY, "no memory to receive from rank %d",
                                 request->peer);
    }
    state->peers[request->peer].pulls |= UINT32_C(1) << slot;
    code = disti_mpi_transfer_fill(state, t);
    if (code != MPI_SUCCESS)
        return disti_mpi_fail(state->host, "MPI_Irecv", code);
    return mpi_note(state, request->peer, MPI_KIND_WANTED, (uint32_t)request->own[0],
                    (uint32_t)t->tag);
}

/* Starts the receives of announced messages, as far as there are tags. */
void disti_mpi_pull_waiting(struct mpi_state *state, struct mpi_peer *peer)
{
    while (peer->waiting_head) {
        struct dist_request *request = peer->waiting_head;
        unsigned slot = 0;
        dist_status status;

        while (slot < MPI_PULLS && peer->pulls >> slot & 1)
            slot++;
        if (slot == MPI_PULLS)
            return;
        peer->waiting_head = request->next;
        status = mpi_pull_on(state, request, slot);
        if (status != DIST_OK)
            request->status = status;
    }
}

static void mpi_pull(struct mpi_state *state, struct dist_request *request, uint32_t name)
{
    struct mpi_peer *peer = &state->peers[request->peer];

    request->own[0] = name;
    request->next = NULL;
    if (peer->waiting_head)
        peer->waiting_tail->next = request;
    else
        peer->waiting_head = request;
    peer->waiting_tail = request;
    disti_mpi_pull_waiting(state, peer);
}

/* A message that came first is received or refused. What the receive ends with, or IN_PROGRESS. */
static dist_status mpi_recv_unexpected(struct mpi_state *state, struct dist_request *request,
                                       const struct disti_unexpected *unexpected)
{
    uint32_t name = (uint32_t)unexpected->note[0];

    if (unexpected->descriptor && unexpected->refused)
        return mpi_note(state, request->peer, MPI_KIND_UNWANTED, name, 0);
    if (unexpected->descriptor) {
        mpi_pull(state, request, name);
        return DIST_IN_PROGRESS;
    }
    if (!unexpected->refused)
        state->host->sink_apply(&request->sink, 0, unexpected->payload, unexpected->arrived);
    return mpi_return(state, request->peer, unexpected->envelope.bytes);
}

void disti_mpi_recv(struct mpi_state *state, struct dist_request *request)
{
    struct disti_match *match = &state->peers[request->peer].match;
    struct disti_unexpected *unexpected = disti_match_post(match, request);
    dist_status status;

    if (!unexpected)
        return;
    status = mpi_recv_unexpected(state, request, unexpected);
    if (request->status == DIST_IN_PROGRESS && status != DIST_IN_PROGRESS)
        request->status = status;
    disti_match_release(match, unexpected);
}

/* Keeps a message that no receive waits for, or a note about it. */
static int mpi_keep(struct mpi_state *state, struct disti_match *match,
                    const struct mpi_arrival *arrival, bool announced)
{
    struct disti_unexpected *unexpected =
        disti_match_hold(match, &arrival->control.envelope, announced);

    if (!unexpected)
        return state->host->fail(DIST_ERR_NO_MEMORY, "no memory for an unexpected message");
    unexpected->note[0] = arrival->control.name;
    if (!announced) {
        memcpy(unexpected->payload, arrival->payload, (size_t)unexpected->envelope.bytes);
        unexpected->arrived = (size_t)unexpected->envelope.bytes;
    }
    return 1;
}

static int mpi_announced(struct mpi_state *state, int peer, const struct mpi_arrival *arrival)
{
    struct disti_match *match = &state->peers[peer].match;
    bool mismatch = false;
    struct dist_request *request =
        disti_match_arrival(match, &arrival->control.envelope, &mismatch);

    if (!request)
        return mpi_keep(state, match, arrival, true);
    if (mismatch)
        return mpi_note(state, peer, MPI_KIND_UNWANTED, arrival->control.name, 0);
    mpi_pull(state, request, arrival->control.name);
    return 1;
}

static int mpi_came(struct mpi_state *state, int peer, const struct mpi_arrival *arrival)
{
    const struct dist_envelope *envelope = &arrival->control.envelope;
    struct disti_match *match = &state->peers[peer].match;
    bool mismatch = false;
    struct dist_request *request;

    if (!disti_credit_came(&state->peers[peer].debit, envelope->bytes))
        return state->host->fail(DIST_ERR_INTERNAL, "rank %d sent more than it may", peer);
    request = disti_match_arrival(match, envelope, &mismatch);
    if (!request)
        return mpi_keep(state, match, arrival, false);
    if (!mismatch) {
        state->host->sink_apply(&request->sink, 0, arrival->payload, (size_t)envelope->bytes);
        request->status = DIST_OK;
    }
    return mpi_return(state, peer, envelope->bytes);
}

/* A control message. Negative: it breaks the rules, or there is no memory. */
int disti_mpi_arrived(struct mpi_state *state, int peer, const struct mpi_arrival *arrival,
                      size_t bytes)
{
    const struct mpi_control *control = &arrival->control;
    bool message = bytes >= sizeof(*control) && control->kind == MPI_KIND_MESSAGE;

    if (bytes < sizeof(*control) ||
        bytes - sizeof(*control) != (message ? control->envelope.bytes : 0))
        return state->host->fail(DIST_ERR_INTERNAL, "rank %d sent a control message of %zu bytes",
                                 peer, bytes);
    switch (control->kind) {
    case MPI_KIND_MESSAGE:
        return mpi_came(state, peer, arrival);
    case MPI_KIND_ANNOUNCE:
        return mpi_announced(state, peer, arrival);
    case MPI_KIND_WANTED:
    case MPI_KIND_UNWANTED:
        return mpi_answered(state, peer, control);
    case MPI_KIND_CREDIT:
        if (disti_credit_heard(&state->peers[peer].credit, control->envelope.bytes))
            return 1;
        break;
    }
    return state->host->fail(
        DIST_ERR_INTERNAL,
        "rank %d sent an invalid control message: give all ranks the same version of libdist",
        peer);
}
