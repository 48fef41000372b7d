/* SPDX-License-Identifier: BSD-3-Clause */
/* Transport mpi: messages over MPI point-to-point. Part of the mpi module. */
#include "transports/mpi/mpi.h"
#include "base/backoff.h"
#include "base/clock.h"
#include "transports/match/match.h"

#include <stdlib.h>
#include <string.h>

/*
 * Control messages use tag 0. A short message for which the credit suffices (match.h) is sent
 * eagerly, as one control message. For any other message the sender sends an RTS. After its receive
 * is posted, the receiver answers with a tag of its choice, on which the sender sends the data in
 * pieces. So MPI does not have to buffer long messages.
 *
 *   sender, tag 0:     MESSAGE [envelope, payload]   RTS [envelope, name 7]
 *   receiver, tag 0:                                     CTS [name 7, tag 3]
 *   sender, tag 3:                                           [piece] [piece] [piece]
 */
#define MPI_CONTROL_TAG 0
#define MPI_INLINE_BYTES (16 * 1024)
#define MPI_PIECE_BYTES (256 * 1024)
#define MPI_WINDOW 4 /* maximum pieces in flight per message */
#define MPI_CONTROL_RECVS 16
/* The maximum number of messages in pieces from one peer at a time, on tags 1 to 16. */
#define MPI_PULLS 16
#define MPI_CREDIT_BYTES ((uint64_t)1 << 20) /* credit limit of each peer */

enum mpi_kind {
    MPI_KIND_MESSAGE = 1,
    MPI_KIND_RTS,
    MPI_KIND_CTS,
    MPI_KIND_DISCARD,
    MPI_KIND_CREDIT
};

struct mpi_control {
    struct dist_envelope envelope; /* CREDIT: `bytes` is the total credit returned */
    uint32_t kind;
    uint32_t name; /* RTS, CTS and DISCARD */
    uint32_t tag;  /* CTS: the tag for the pieces */
    uint32_t pad;
};

/* The buffer of a receive on tag 0. */
struct mpi_arrival {
    struct mpi_control control;
    unsigned char payload[MPI_INLINE_BYTES];
};

/*
 * A message that is transferred in pieces, or a control message that is being sent. The bytes
 * before `ended` are complete, and those from `ended` to `begun` are in flight.
 */
struct mpi_transfer {
    struct mpi_transfer *next;
    struct dist_request *request; /* NULL: a control message, or a transfer that failed to start */
    bool sends;
    int tag;
    size_t begun, ended;
    MPI_Request window[MPI_WINDOW]; /* a ring; the piece at offset `ended` is the oldest */
    unsigned char *bounce;          /* for a receive that reduces: memory for MPI_WINDOW pieces */
    MPI_Request control_request;
    struct mpi_control control; /* the control message */
    unsigned char payload[];    /* its payload, contiguous with it */
};

struct mpi_peer {
    struct disti_match match;
    struct disti_credit_out credit;
    struct disti_credit_in debit;
    struct disti_rts_table rts_sends;                 /* send requests that wait for CTS */
    uint32_t pulls;                                   /* bit i: pieces arrive on tag 1 + i */
    struct dist_request *waiting_head, *waiting_tail; /* receives that wait for an unused tag */
};

struct mpi_state {
    const struct dist_host *host;
    MPI_Comm comm;
    int ranks;
    struct mpi_peer *peers;
    struct disti_match_set unexpected;
    struct mpi_transfer *transfers;
    struct mpi_arrival *arriving; /* a ring of MPI_CONTROL_RECVS buffers */
    MPI_Request arrivals[MPI_CONTROL_RECVS];
    unsigned oldest; /* the entry of `arrivals` that completes next */
};

/* Eager messages, RTS and CTS, and matching. */

/*
 * Sends a control message with a copy of `bytes` bytes of payload. On failure returns ERR_NO_MEMORY
 * or, for an error of MPI, ERR_SYSTEM.
 */
static dist_status mpi_control_send(struct mpi_state *state, int peer,
                                    const struct mpi_control *control, const void *payload,
                                    size_t bytes)
{
    struct mpi_transfer *t = calloc(1, sizeof(*t) + bytes);
    int code;

    if (!t)
        return state->host->fail(DIST_ERR_NO_MEMORY, "no memory for a message to rank %d", peer);
    t->sends = true;
    t->control = *control;
    if (bytes)
        memcpy(t->payload, payload, bytes);
    code = MPI_Isend(&t->control, (int)(sizeof(t->control) + bytes), MPI_BYTE, peer,
                     MPI_CONTROL_TAG, state->comm, &t->control_request);
    if (code != MPI_SUCCESS) {
        free(t);
        return disti_mpi_fail(state->host, "MPI_Isend", code);
    }
    t->next = state->transfers;
    state->transfers = t;
    return DIST_OK;
}

static dist_status mpi_send_answer(struct mpi_state *state, int peer, enum mpi_kind kind,
                                   uint32_t name, uint32_t tag)
{
    const struct mpi_control control = {.kind = kind, .name = name, .tag = tag};

    return mpi_control_send(state, peer, &control, NULL, 0);
}

static dist_status mpi_send_rts(struct mpi_state *state, struct dist_request *request)
{
    struct mpi_control control = {.envelope = request->envelope, .kind = MPI_KIND_RTS};
    struct disti_rts_table *rts_sends = &state->peers[request->peer].rts_sends;
    dist_status status;

    if (!disti_rts_add(rts_sends, request, &control.name))
        return state->host->fail(DIST_ERR_NO_MEMORY, "no memory for a message to rank %d",
                                 request->peer);
    status = mpi_control_send(state, request->peer, &control, NULL, 0);
    if (status == DIST_OK)
        return DIST_IN_PROGRESS;
    disti_rts_take(rts_sends, control.name);
    return status;
}

/*
 * Creates a transfer of pieces and adds it to the list of transfers. If out of memory, fails the
 * request and returns NULL.
 */
static struct mpi_transfer *mpi_transfer_new(struct mpi_state *state, struct dist_request *request,
                                             bool sends)
{
    struct mpi_transfer *t = calloc(1, sizeof(*t));

    if (!t) {
        request->status = state->host->fail(DIST_ERR_NO_MEMORY,
                                            "no memory for a message with rank %d", request->peer);
        return NULL;
    }
    t->request = request;
    t->sends = sends;
    t->control_request = MPI_REQUEST_NULL;
    t->next = state->transfers;
    state->transfers = t;
    return t;
}

static size_t mpi_piece_bytes(const struct mpi_transfer *t, size_t offset)
{
    size_t left = t->request->envelope.bytes - offset;

    return left < MPI_PIECE_BYTES ? left : MPI_PIECE_BYTES;
}

static unsigned char *mpi_piece_memory(const struct mpi_transfer *t, size_t offset, unsigned slot)
{
    if (t->bounce)
        return t->bounce + (size_t)slot * MPI_PIECE_BYTES;
    return (t->sends ? (unsigned char *)(uintptr_t)t->request->data
                     : (unsigned char *)t->request->sink.dst) +
           offset;
}

static void mpi_transfer_free(struct mpi_transfer *t)
{
    free(t->bounce);
    free(t);
}

/*
 * Waits for an MPI request for at most timeout_ms. Returns false if it failed or timed out. The
 * caller holds the lock, which is not released meanwhile.
 */
static bool mpi_transfer_wait(MPI_Request *request, int timeout_ms)
{
    int64_t deadline = disti_deadline_ms(timeout_ms);
    struct disti_backoff backoff = {0};
    int done = 0;

    while (MPI_Test(request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && !done) {
        if (disti_expired(deadline))
            return false;
        disti_backoff(&backoff);
    }
    return done;
}

/*
 * Cancels a receive and waits up to 100 ms for it to end. A receive that has already matched a send
 * cannot be canceled, but soon completes.
 */
static void mpi_cancel(MPI_Request *request)
{
    if (*request == MPI_REQUEST_NULL)
        return;
    MPI_Cancel(request);
    if (!mpi_transfer_wait(request, 100))
        MPI_Request_free(request);
}

/*
 * Abandons an incomplete transfer and frees it. Waits up to 1 ms for each piece being sent, and up
 * to 100 ms for each piece being received and for the control message.
 */
static void mpi_transfer_drop(struct mpi_transfer *t)
{
    size_t offset = t->ended;

    for (; t->request && offset < t->begun; offset += mpi_piece_bytes(t, offset)) {
        unsigned slot = (unsigned)(offset / MPI_PIECE_BYTES % MPI_WINDOW);

        if (!t->sends)
            mpi_cancel(&t->window[slot]);
        else if (!mpi_transfer_wait(&t->window[slot], 1))
            MPI_Request_free(&t->window[slot]);
    }
    if (t->control_request != MPI_REQUEST_NULL && !mpi_transfer_wait(&t->control_request, 100)) {
        MPI_Request_free(&t->control_request);
        return; /* leak the memory, since MPI may still read the control message */
    }
    mpi_transfer_free(t);
}

/* Starts pieces until the window is full. Returns an MPI error code. */
static int mpi_transfer_fill(struct mpi_state *state, struct mpi_transfer *t)
{
    int code = MPI_SUCCESS;

    while (code == MPI_SUCCESS && t->begun < t->request->envelope.bytes &&
           t->begun - t->ended < (size_t)MPI_WINDOW * MPI_PIECE_BYTES) {
        unsigned slot = (unsigned)(t->begun / MPI_PIECE_BYTES % MPI_WINDOW);
        int bytes = (int)mpi_piece_bytes(t, t->begun);
        unsigned char *memory = mpi_piece_memory(t, t->begun, slot);

        if (t->sends)
            code = MPI_Isend(memory, bytes, MPI_BYTE, t->request->peer, t->tag, state->comm,
                             &t->window[slot]);
        else
            code = MPI_Irecv(memory, bytes, MPI_BYTE, t->request->peer, t->tag, state->comm,
                             &t->window[slot]);
        if (code == MPI_SUCCESS)
            t->begun += (size_t)bytes;
    }
    return code;
}

/* Handles a CTS or DISCARD. */
static int mpi_receive_answer(struct mpi_state *state, int peer, const struct mpi_control *control)
{
    struct dist_request *request = disti_rts_take(&state->peers[peer].rts_sends, control->name);
    struct mpi_transfer *t;
    int code;

    if (!request || control->tag > MPI_PULLS)
        return state->host->fail(DIST_ERR_INTERNAL,
                                 "rank %d answered an RTS that does not exist: give all ranks the "
                                 "same version of libdist",
                                 peer);
    if (control->kind == MPI_KIND_DISCARD) {
        request->status = DIST_OK;
        return 1;
    }
    t = mpi_transfer_new(state, request, true);
    if (!t)
        return 1;
    t->tag = (int)control->tag;
    code = mpi_transfer_fill(state, t);
    return code == MPI_SUCCESS ? 1 : disti_mpi_fail(state->host, "MPI_Isend", code);
}

/* Gives the credit of an eager message back to the peer. */
static dist_status mpi_return(struct mpi_state *state, int peer, uint64_t bytes)
{
    struct disti_credit_in *debit = &state->peers[peer].debit;
    struct mpi_control control = {.kind = MPI_KIND_CREDIT};

    if (!disti_credit_return(debit, bytes))
        return DIST_OK;
    control.envelope.bytes = debit->reported;
    return mpi_control_send(state, peer, &control, NULL, 0);
}

/* Starts to receive pieces on tag 1 + slot, which must be unused, and sends CTS. */
static dist_status mpi_pull_on(struct mpi_state *state, struct dist_request *request, unsigned slot)
{
    struct mpi_transfer *t = mpi_transfer_new(state, request, false);
    dist_status status;
    int code;

    if (!t)
        return request->status;
    t->tag = 1 + (int)slot;
    if (request->sink.src)
        t->bounce = malloc((size_t)MPI_WINDOW * MPI_PIECE_BYTES);
    if (request->sink.src && !t->bounce) {
        t->request = NULL; /* no piece was started: progress frees the transfer */
        return state->host->fail(DIST_ERR_NO_MEMORY, "no memory to receive from rank %d",
                                 request->peer);
    }
    state->peers[request->peer].pulls |= UINT32_C(1) << slot;
    code = mpi_transfer_fill(state, t);
    if (code == MPI_SUCCESS)
        status = mpi_send_answer(state, request->peer, MPI_KIND_CTS, (uint32_t)request->own[0],
                                 (uint32_t)t->tag);
    else
        status = disti_mpi_fail(state->host, "MPI_Irecv", code);
    if (status != DIST_OK) { /* the caller fails the request, so MPI must not write to its memory */
        state->peers[request->peer].pulls &= ~(UINT32_C(1) << slot);
        state->transfers = t->next;
        mpi_transfer_drop(t);
    }
    return status;
}

/* Starts waiting receives until there are no unused tags. */
static void mpi_pull_waiting(struct mpi_state *state, struct mpi_peer *peer)
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

/* Starts a receive that matched an RTS, or queues it until a tag is unused. */
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
    mpi_pull_waiting(state, peer);
}

/* Adds an eager message or an RTS without a posted receive to the unexpected messages. */
static int mpi_keep(struct mpi_state *state, struct disti_match *match,
                    const struct mpi_arrival *arrival, bool is_rts)
{
    struct disti_unexpected *unexpected =
        disti_match_hold(match, &arrival->control.envelope, is_rts);

    if (!unexpected)
        return state->host->fail(DIST_ERR_NO_MEMORY, "no memory for an unexpected message");
    unexpected->note[0] = arrival->control.name;
    if (!is_rts) {
        memcpy(unexpected->payload, arrival->payload, (size_t)unexpected->envelope.bytes);
        unexpected->arrived = (size_t)unexpected->envelope.bytes;
    }
    return 1;
}

static int mpi_receive_rts(struct mpi_state *state, int peer, const struct mpi_arrival *arrival)
{
    struct disti_match *match = &state->peers[peer].match;
    bool mismatch = false;
    struct dist_request *request =
        disti_match_arrival(match, &arrival->control.envelope, &mismatch);

    if (!request)
        return mpi_keep(state, match, arrival, true);
    if (mismatch)
        return mpi_send_answer(state, peer, MPI_KIND_DISCARD, arrival->control.name, 0);
    mpi_pull(state, request, arrival->control.name);
    return 1;
}

static int mpi_receive_message(struct mpi_state *state, int peer, const struct mpi_arrival *arrival)
{
    const struct dist_envelope *envelope = &arrival->control.envelope;
    struct disti_match *match = &state->peers[peer].match;
    bool mismatch = false;
    struct dist_request *request;

    if (!disti_credit_receive(&state->peers[peer].debit, envelope->bytes))
        return state->host->fail(
            DIST_ERR_INTERNAL,
            "rank %d sent a message without credit: give all ranks the same version of libdist",
            peer);
    request = disti_match_arrival(match, envelope, &mismatch);
    if (!request)
        return mpi_keep(state, match, arrival, false);
    if (!mismatch) {
        state->host->sink_apply(&request->sink, 0, arrival->payload, (size_t)envelope->bytes);
        request->status = DIST_OK;
    }
    return mpi_return(state, peer, envelope->bytes);
}

/*
 * Handles a control message. Returns a negative status if it violates the protocol or memory is
 * exhausted.
 */
static int mpi_receive_control(struct mpi_state *state, int peer, const struct mpi_arrival *arrival,
                               size_t bytes)
{
    const struct mpi_control *control = &arrival->control;
    bool message = bytes >= sizeof(*control) && control->kind == MPI_KIND_MESSAGE;

    if (bytes < sizeof(*control) ||
        bytes - sizeof(*control) != (message ? control->envelope.bytes : 0))
        return state->host->fail(DIST_ERR_INTERNAL,
                                 "rank %d sent a control message of invalid length (%zu bytes): "
                                 "give all ranks the same version of libdist",
                                 peer, bytes);
    switch (control->kind) {
    case MPI_KIND_MESSAGE:
        return mpi_receive_message(state, peer, arrival);
    case MPI_KIND_RTS:
        return mpi_receive_rts(state, peer, arrival);
    case MPI_KIND_CTS:
    case MPI_KIND_DISCARD:
        return mpi_receive_answer(state, peer, control);
    case MPI_KIND_CREDIT:
        if (disti_credit_update(&state->peers[peer].credit, control->envelope.bytes))
            return 1;
        break;
    }
    return state->host->fail(
        DIST_ERR_INTERNAL,
        "rank %d sent an invalid control message: give all ranks the same version of libdist",
        peer);
}

/* Messages whose pieces are in flight. */

_Static_assert(offsetof(struct mpi_transfer, payload) ==
                   offsetof(struct mpi_transfer, control) + sizeof(struct mpi_control),
               "the payload stands right behind the control message");

/*
 * Completes pieces in order and starts further ones. Returns true if the whole message is complete.
 * Stores the error code of MPI in *code.
 */
static bool mpi_transfer_step(struct mpi_state *state, struct mpi_transfer *t, int *moved,
                              int *code)
{
    while (t->ended < t->begun) {
        unsigned slot = (unsigned)(t->ended / MPI_PIECE_BYTES % MPI_WINDOW);
        size_t bytes = mpi_piece_bytes(t, t->ended);
        int done = 0;

        *code = MPI_Test(&t->window[slot], &done, MPI_STATUS_IGNORE);
        if (*code != MPI_SUCCESS || !done)
            return false;
        if (t->bounce)
            state->host->sink_apply(&t->request->sink, t->ended,
                                    mpi_piece_memory(t, t->ended, slot), bytes);
        t->ended += bytes;
        ++*moved;
        *code = mpi_transfer_fill(state, t);
        if (*code != MPI_SUCCESS)
            return false;
    }
    return true;
}

/* ---- opening ---- */

static int mpi_listen(struct mpi_state *state, unsigned slot)
{
    return MPI_Irecv(&state->arriving[slot], (int)sizeof(struct mpi_arrival), MPI_BYTE,
                     MPI_ANY_SOURCE, MPI_CONTROL_TAG, state->comm, &state->arrivals[slot]);
}

static dist_status mpi_open(void *opaque, const struct dist_transport_config *config)
{
    struct mpi_state *state = opaque;
    dist_status status = DIST_OK;
    int code = MPI_SUCCESS;

    state->host = config->host;
    state->comm = *(const MPI_Comm *)config->context;
    state->ranks = config->world_size;
    for (int i = 0; i < MPI_CONTROL_RECVS; i++)
        state->arrivals[i] = MPI_REQUEST_NULL;
    state->peers = calloc((size_t)state->ranks, sizeof(*state->peers));
    state->arriving = calloc(MPI_CONTROL_RECVS, sizeof(*state->arriving));
    if (!state->peers || !state->arriving)
        return state->host->fail(DIST_ERR_NO_MEMORY, "no memory for transport mpi");
    for (int peer = 0; peer < state->ranks; peer++) {
        state->peers[peer].credit.limit = state->peers[peer].debit.limit = MPI_CREDIT_BYTES;
        state->peers[peer].match.rank = peer;
        state->peers[peer].match.set = &state->unexpected;
    }
    if (!disti_mpi_lock())
        return disti_mpi_ended(state->host);
    for (unsigned i = 0; i < MPI_CONTROL_RECVS && code == MPI_SUCCESS; i++)
        code = mpi_listen(state, i);
    if (code != MPI_SUCCESS)
        status = disti_mpi_fail(state->host, "MPI_Irecv", code);
    disti_mpi_unlock();
    return status;
}

static dist_status mpi_address(void *opaque, void *blob, size_t *size_p)
{
    (void)opaque;
    memcpy(blob, "mpi", 4);
    *size_p = 4;
    return DIST_OK;
}

/*
 * MPI reaches all ranks but does not report costs. The estimates are worse than those of transport
 * shm, so that shm is preferred where both are possible.
 */
static dist_status mpi_reach(void *opaque, const void *blob, size_t size,
                             struct dist_reach *reach_p)
{
    (void)opaque;
    if (size != 4 || memcmp(blob, "mpi", 4) != 0)
        return DIST_ERR_UNSUPPORTED;
    *reach_p = (struct dist_reach){.latency_ns = 2000, .bytes_per_second = 4e9};
    return DIST_OK;
}

static dist_status mpi_connect(void *opaque, int peer, const void *blob, size_t size)
{
    (void)opaque;
    (void)peer;
    (void)blob;
    (void)size;
    return DIST_OK;
}

/* The request of an eager message completes immediately, since the message is copied. */
static void mpi_send(void *opaque, struct dist_request *request)
{
    struct mpi_state *state = opaque;
    struct disti_credit_out *credit = &state->peers[request->peer].credit;
    uint64_t bytes = request->envelope.bytes;
    dist_status status;

    if (!disti_mpi_lock()) {
        request->status = disti_mpi_ended(state->host);
        return;
    }
    if (bytes <= MPI_INLINE_BYTES && disti_credit_covers(credit, bytes)) {
        disti_credit_spend(credit, bytes);
        status = mpi_control_send(
            state, request->peer,
            &(struct mpi_control){.envelope = request->envelope, .kind = MPI_KIND_MESSAGE},
            request->data, (size_t)bytes);
    } else {
        status = mpi_send_rts(state, request);
    }
    if (status != DIST_IN_PROGRESS)
        request->status = status;
    disti_mpi_unlock();
}

static void mpi_recv(void *opaque, struct dist_request *request)
{
    struct mpi_state *state = opaque;
    struct disti_match *match = &state->peers[request->peer].match;
    struct disti_unexpected *unexpected;

    if (!disti_mpi_lock()) {
        request->status = disti_mpi_ended(state->host);
        return;
    }
    unexpected = disti_match_post(match, request);
    if (unexpected) {
        uint32_t name = (uint32_t)unexpected->note[0];
        dist_status status = DIST_IN_PROGRESS;

        if (unexpected->descriptor && unexpected->refused) {
            status = mpi_send_answer(state, request->peer, MPI_KIND_DISCARD, name, 0);
        } else if (unexpected->descriptor) {
            mpi_pull(state, request, name);
        } else {
            if (!unexpected->refused)
                state->host->sink_apply(&request->sink, 0, unexpected->payload,
                                        unexpected->arrived);
            status = mpi_return(state, request->peer, unexpected->envelope.bytes);
        }
        if (request->status == DIST_IN_PROGRESS && status != DIST_IN_PROGRESS)
            request->status = status;
        disti_match_release(match, unexpected);
    }
    disti_mpi_unlock();
}

/* Handles the control messages that have arrived, in order. */
static int mpi_listen_step(struct mpi_state *state)
{
    int moved = 0;

    for (;;) {
        unsigned slot = state->oldest;
        int done = 0, bytes = 0, got, code;
        MPI_Status status;

        code = MPI_Test(&state->arrivals[slot], &done, &status);
        if (code != MPI_SUCCESS)
            return disti_mpi_fail(state->host, "MPI_Test", code);
        if (!done)
            return moved;
        MPI_Get_count(&status, MPI_BYTE, &bytes);
        got = mpi_receive_control(state, status.MPI_SOURCE, &state->arriving[slot], (size_t)bytes);
        if (got < 0)
            return got;
        code = mpi_listen(state, slot);
        if (code != MPI_SUCCESS)
            return disti_mpi_fail(state->host, "MPI_Irecv", code);
        state->oldest = (slot + 1) % MPI_CONTROL_RECVS;
        moved++;
    }
}

/* Makes progress. Returns the number of steps made or a negative status. Caller holds the lock. */
static int mpi_move(struct mpi_state *state)
{
    int moved = mpi_listen_step(state), code = MPI_SUCCESS;

    for (struct mpi_transfer **at = &state->transfers; *at && moved >= 0;) {
        struct mpi_transfer *t = *at;
        struct dist_request *request = t->request;
        /* A transfer is complete when its pieces and its control message are complete. */
        int over = !request || mpi_transfer_step(state, t, &moved, &code);

        if (over && t->control_request != MPI_REQUEST_NULL)
            code = MPI_Test(&t->control_request, &over, MPI_STATUS_IGNORE);
        if (code != MPI_SUCCESS)
            return disti_mpi_fail(state->host, "MPI message", code);
        if (!over) {
            at = &t->next;
            continue;
        }
        *at = t->next;
        if (request && !t->sends) {
            struct mpi_peer *peer = &state->peers[request->peer];

            peer->pulls &= ~(UINT32_C(1) << (t->tag - 1));
            mpi_pull_waiting(state, peer);
        }
        mpi_transfer_free(t);
        if (request)
            request->status = DIST_OK;
        moved++;
    }
    return moved;
}

static int mpi_progress(void *opaque)
{
    struct mpi_state *state = opaque;
    int moved;

    if (!disti_mpi_lock())
        return disti_mpi_ended(state->host);
    moved = mpi_move(state);
    disti_mpi_unlock();
    return moved;
}

static int mpi_probe_tag(void *opaque, uint64_t tag)
{
    return disti_match_probe(&((const struct mpi_state *)opaque)->unexpected, tag);
}

static void mpi_unexpected(void *opaque, uint64_t tag, uint64_t mask, int most,
                           dist_unexpected_fn see, void *arg)
{
    disti_match_show(&((struct mpi_state *)opaque)->unexpected, tag, mask, most, see, arg);
}

static int mpi_arm(void *opaque)
{
    (void)opaque;
    return -1; /* MPI has no descriptor to sleep on */
}

static void mpi_disarm(void *opaque)
{
    (void)opaque;
}

static void mpi_close(void *opaque)
{
    struct mpi_state *state = opaque;
    bool alive = disti_mpi_lock();

    while (state->transfers) {
        struct mpi_transfer *t = state->transfers;

        state->transfers = t->next;
        if (alive)
            mpi_transfer_drop(t);
        else
            mpi_transfer_free(t);
    }
    for (int i = 0; alive && state->arriving && i < MPI_CONTROL_RECVS; i++)
        mpi_cancel(&state->arrivals[i]);
    if (alive)
        disti_mpi_unlock();
    for (int peer = 0; state->peers && peer < state->ranks; peer++) {
        disti_match_clear(&state->peers[peer].match);
        disti_rts_clear(&state->peers[peer].rts_sends);
    }
    free(state->peers);
    free(state->arriving);
    *state = (struct mpi_state){0};
}

const struct dist_transport disti_transport_mpi = {
    .abi = DIST_ABI,
    .size = sizeof(struct dist_transport),
    .name = "mpi",
    .summary = "MPI point-to-point messages",
    .state_size = sizeof(struct mpi_state),
    .open = mpi_open,
    .address = mpi_address,
    .reach = mpi_reach,
    .connect = mpi_connect,
    .send = mpi_send,
    .recv = mpi_recv,
    .progress = mpi_progress,
    .probe_tag = mpi_probe_tag,
    .arm = mpi_arm,
    .disarm = mpi_disarm,
    .close = mpi_close,
    .unexpected = mpi_unexpected,
};
