/* SPDX-License-Identifier: BSD-3-Clause */
/* Transport mpi: messages as MPI point-to-point. Part of the mpi module. */
#include "transports/mpi/mpi.h"
#include "transports/match.h"

#include <stdlib.h>
#include <string.h>

/*
 * A message begins with a control message on tag 0: its envelope and, if it is small, its
 * payload. A larger payload follows in pieces on a tag of its own, so that several
 * messages of a pair cannot be mixed up, whatever order their receives are posted in:
 *
 *   tag 0:       [envelope, serial 5, payload]  [envelope, serial 6]
 *   tag 1 + 6:                                          [piece] [piece] [piece]
 */
#define MPI_CONTROL_TAG 0
#define MPI_PIECE_TAGS 16384 /* 1 .. 16384; MPI promises tags up to 32767 */
#define MPI_INLINE_BYTES 4096
#define MPI_PIECE_BYTES (256 * 1024)
#define MPI_WINDOW 4 /* pieces under way a message */
#define MPI_CONTROL_RECVS 16

struct mpi_control {
    struct dist_envelope envelope;
    uint32_t serial;
    uint32_t pad;
    unsigned char payload[MPI_INLINE_BYTES];
};
#define MPI_CONTROL_HEAD offsetof(struct mpi_control, payload)

/* A message whose pieces are under way. Bytes before `ended` are through, before `begun` begun. */
struct mpi_transfer {
    struct mpi_transfer *next;
    struct dist_request *request; /* NULL: a control message whose send has to end */
    bool sends;
    int tag;
    size_t begun, ended;
    MPI_Request window[MPI_WINDOW]; /* a ring; the piece at `ended` is the oldest */
    unsigned char *bounce;          /* reducing receives: MPI_WINDOW pieces */
    MPI_Request control_request;
    struct mpi_control control; /* sends */
};

struct mpi_link {
    const struct dist_host *host;
    MPI_Comm comm;
    int ranks;
    uint32_t serial;
    struct disti_match *matches; /* by peer */
    struct mpi_transfer *transfers;
    struct mpi_control *arriving; /* MPI_CONTROL_RECVS of them, a ring */
    MPI_Request arrivals[MPI_CONTROL_RECVS];
    unsigned oldest;
};

/* ---- opening ---- */

static int mpi_listen(struct mpi_link *link, unsigned slot)
{
    return MPI_Irecv(&link->arriving[slot], (int)sizeof(struct mpi_control), MPI_BYTE,
                     MPI_ANY_SOURCE, MPI_CONTROL_TAG, link->comm, &link->arrivals[slot]);
}

static dist_status mpi_link_open(void *state, const struct dist_transport_config *config)
{
    struct mpi_link *link = state;

    link->host = config->host;
    link->comm = *(const MPI_Comm *)config->context;
    link->ranks = config->world_size;
    for (int i = 0; i < MPI_CONTROL_RECVS; i++)
        link->arrivals[i] = MPI_REQUEST_NULL;
    link->matches = calloc((size_t)link->ranks, sizeof(*link->matches));
    link->arriving = calloc(MPI_CONTROL_RECVS, sizeof(*link->arriving));
    if (!link->matches || !link->arriving)
        return link->host->fail(DIST_ERR_NO_MEMORY, "no memory for transport mpi");
    for (unsigned i = 0; i < MPI_CONTROL_RECVS; i++) {
        int code = mpi_listen(link, i);

        if (code != MPI_SUCCESS)
            return disti_mpi_fail(link->host, "MPI_Irecv", code);
    }
    return DIST_OK;
}

static dist_status mpi_link_address(void *state, void *blob, size_t *size_p)
{
    (void)state;
    memcpy(blob, "mpi", 4);
    *size_p = 4;
    return DIST_OK;
}

/* MPI reaches everybody; how well it does not tell. Shared memory of our own is better. */
static dist_status mpi_link_reach(void *state, const void *blob, size_t size,
                                  struct dist_reach *reach_p)
{
    (void)state;
    if (size != 4 || memcmp(blob, "mpi", 4) != 0)
        return DIST_ERR_UNSUPPORTED;
    *reach_p = (struct dist_reach){.latency_ns = 2000, .bytes_per_second = 4e9};
    return DIST_OK;
}

static dist_status mpi_link_connect(void *state, int peer, const void *blob, size_t size)
{
    (void)state;
    (void)peer;
    (void)blob;
    (void)size;
    return DIST_OK;
}

/* ---- transfers ---- */

static struct mpi_transfer *mpi_transfer_new(struct mpi_link *link, struct dist_request *request,
                                             bool sends)
{
    struct mpi_transfer *t = calloc(1, sizeof(*t));

    if (!t) {
        request->status = link->host->fail(DIST_ERR_NO_MEMORY,
                                           "no memory for a message with rank %d", request->peer);
        return NULL;
    }
    t->request = request;
    t->sends = sends;
    t->control_request = MPI_REQUEST_NULL;
    t->next = link->transfers;
    link->transfers = t;
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

/* Begins pieces until the window is full. */
static int mpi_transfer_fill(struct mpi_link *link, struct mpi_transfer *t)
{
    int code = MPI_SUCCESS;

    while (code == MPI_SUCCESS && t->begun < t->request->envelope.bytes &&
           t->begun - t->ended < (size_t)MPI_WINDOW * MPI_PIECE_BYTES) {
        unsigned slot = (unsigned)(t->begun / MPI_PIECE_BYTES % MPI_WINDOW);
        int bytes = (int)mpi_piece_bytes(t, t->begun);
        unsigned char *memory = mpi_piece_memory(t, t->begun, slot);

        if (t->sends)
            code = MPI_Isend(memory, bytes, MPI_BYTE, t->request->peer, t->tag, link->comm,
                             &t->window[slot]);
        else
            code = MPI_Irecv(memory, bytes, MPI_BYTE, t->request->peer, t->tag, link->comm,
                             &t->window[slot]);
        t->begun += (size_t)bytes;
    }
    return code;
}

/* Ends pieces, oldest first. True: all are through. */
static bool mpi_transfer_step(struct mpi_link *link, struct mpi_transfer *t, int *moved, int *code)
{
    while (t->ended < t->begun) {
        unsigned slot = (unsigned)(t->ended / MPI_PIECE_BYTES % MPI_WINDOW);
        size_t bytes = mpi_piece_bytes(t, t->ended);
        int done = 0;

        *code = MPI_Test(&t->window[slot], &done, MPI_STATUS_IGNORE);
        if (*code != MPI_SUCCESS || !done)
            return false;
        if (t->bounce)
            link->host->sink_apply(&t->request->sink, t->ended, mpi_piece_memory(t, t->ended, slot),
                                   bytes);
        t->ended += bytes;
        ++*moved;
        *code = mpi_transfer_fill(link, t);
        if (*code != MPI_SUCCESS)
            return false;
    }
    return true;
}

/* A transfer is over when its pieces are, and its control message has left. */
static bool mpi_transfer_over(struct mpi_link *link, struct mpi_transfer *t, int *moved, int *code)
{
    int done = 1;

    if (t->request && !mpi_transfer_step(link, t, moved, code))
        return false;
    if (t->control_request != MPI_REQUEST_NULL)
        *code = MPI_Test(&t->control_request, &done, MPI_STATUS_IGNORE);
    return *code == MPI_SUCCESS && done;
}

/* ---- sending ---- */

static void mpi_link_send(void *state, struct dist_request *request)
{
    struct mpi_link *link = state;
    struct mpi_transfer *t = mpi_transfer_new(link, request, true);
    bool small = request->envelope.bytes <= MPI_INLINE_BYTES;
    size_t bytes = MPI_CONTROL_HEAD + (small ? request->envelope.bytes : 0);
    int code;

    if (!t)
        return;
    t->control.envelope = request->envelope;
    t->control.serial = link->serial++ % MPI_PIECE_TAGS;
    t->tag = 1 + (int)t->control.serial;
    if (small && request->envelope.bytes)
        memcpy(t->control.payload, request->data, request->envelope.bytes);
    code = MPI_Isend(&t->control, (int)bytes, MPI_BYTE, request->peer, MPI_CONTROL_TAG, link->comm,
                     &t->control_request);
    if (small)
        t->request = NULL;
    else if (code == MPI_SUCCESS)
        code = mpi_transfer_fill(link, t);
    if (code != MPI_SUCCESS)
        request->status = disti_mpi_fail(link->host, "MPI_Isend", code);
    else if (small)
        request->status = DIST_OK;
}

/* ---- receiving ---- */

static void mpi_pull(struct mpi_link *link, struct dist_request *request, uint32_t serial)
{
    struct mpi_transfer *t = mpi_transfer_new(link, request, false);
    int code;

    if (!t)
        return;
    t->tag = 1 + (int)serial;
    if (request->sink.src)
        t->bounce = malloc((size_t)MPI_WINDOW * MPI_PIECE_BYTES);
    if (request->sink.src && !t->bounce) {
        t->request = NULL; /* nothing was begun: the list forgets it */
        request->status = link->host->fail(DIST_ERR_NO_MEMORY, "no memory to receive from rank %d",
                                           request->peer);
        return;
    }
    code = mpi_transfer_fill(link, t);
    if (code != MPI_SUCCESS)
        request->status = disti_mpi_fail(link->host, "MPI_Irecv", code);
}

static void mpi_link_recv(void *state, struct dist_request *request)
{
    struct mpi_link *link = state;
    struct disti_match *match = &link->matches[request->peer];
    struct disti_early *early = disti_match_post(match, request);

    if (!early)
        return;
    if (early->descriptor) {
        mpi_pull(link, request, (uint32_t)early->note[0]);
    } else {
        link->host->sink_apply(&request->sink, 0, early->payload, early->envelope.bytes);
        request->status = DIST_OK;
    }
    disti_match_release(match, early);
}

/* A control message has come that no receive waits for. */
static int mpi_keep(struct mpi_link *link, struct disti_match *match,
                    const struct mpi_control *control, bool small)
{
    struct disti_early *early = disti_match_hold(match, &control->envelope, !small);

    if (!early)
        return link->host->fail(DIST_ERR_NO_MEMORY, "no memory for a message that came early");
    early->note[0] = control->serial;
    if (small) {
        memcpy(early->payload, control->payload, control->envelope.bytes);
        early->arrived = control->envelope.bytes;
    }
    return 1;
}

static int mpi_arrived(struct mpi_link *link, int peer, const struct mpi_control *control,
                       int bytes)
{
    bool small = control->envelope.bytes <= MPI_INLINE_BYTES, mismatch = false;
    struct disti_match *match = &link->matches[peer];
    struct dist_request *request;

    if (bytes < (int)MPI_CONTROL_HEAD ||
        (size_t)bytes != MPI_CONTROL_HEAD + (small ? control->envelope.bytes : 0))
        return link->host->fail(DIST_ERR_INTERNAL, "rank %d sent a control message of %d bytes",
                                peer, bytes);
    request = disti_match_arrival(match, &control->envelope, &mismatch);
    if (mismatch)
        return 1;
    if (!request)
        return mpi_keep(link, match, control, small);
    if (!small) {
        mpi_pull(link, request, control->serial);
        return 1;
    }
    link->host->sink_apply(&request->sink, 0, control->payload, control->envelope.bytes);
    request->status = DIST_OK;
    return 1;
}

/* Takes the control messages that have come, in order. */
static int mpi_listen_step(struct mpi_link *link)
{
    int moved = 0;

    for (;;) {
        unsigned slot = link->oldest;
        int done = 0, bytes = 0, got, code;
        MPI_Status status;

        code = MPI_Test(&link->arrivals[slot], &done, &status);
        if (code != MPI_SUCCESS)
            return disti_mpi_fail(link->host, "MPI_Test", code);
        if (!done)
            return moved;
        MPI_Get_count(&status, MPI_BYTE, &bytes);
        got = mpi_arrived(link, status.MPI_SOURCE, &link->arriving[slot], bytes);
        if (got < 0)
            return got;
        code = mpi_listen(link, slot);
        if (code != MPI_SUCCESS)
            return disti_mpi_fail(link->host, "MPI_Irecv", code);
        link->oldest = (slot + 1) % MPI_CONTROL_RECVS;
        moved++;
    }
}

/* ---- progress and end ---- */

static void mpi_transfer_free(struct mpi_transfer *t)
{
    free(t->bounce);
    free(t);
}

static int mpi_link_progress(void *state)
{
    struct mpi_link *link = state;
    int moved = mpi_listen_step(link), code = MPI_SUCCESS;

    for (struct mpi_transfer **at = &link->transfers; *at && moved >= 0;) {
        struct mpi_transfer *t = *at;

        if (!mpi_transfer_over(link, t, &moved, &code)) {
            if (code != MPI_SUCCESS)
                return disti_mpi_fail(link->host, "MPI message", code);
            at = &t->next;
            continue;
        }
        if (t->request)
            t->request->status = DIST_OK;
        *at = t->next;
        mpi_transfer_free(t);
        moved++;
    }
    return moved;
}

static int mpi_link_arm(void *state)
{
    (void)state;
    return -1; /* MPI gives nothing to sleep on */
}

static void mpi_link_disarm(void *state)
{
    (void)state;
}

/* Cancels a receive. One that a sender has matched already cannot be: then it soon ends. */
static void mpi_cancel(MPI_Request *request)
{
    if (*request == MPI_REQUEST_NULL)
        return;
    MPI_Cancel(request);
    if (!disti_mpi_wait(request, 100))
        MPI_Request_free(request);
}

static void mpi_transfer_drop(struct mpi_transfer *t)
{
    size_t offset = t->ended;

    for (; t->request && offset < t->begun; offset += mpi_piece_bytes(t, offset)) {
        unsigned slot = (unsigned)(offset / MPI_PIECE_BYTES % MPI_WINDOW);

        if (!t->sends)
            mpi_cancel(&t->window[slot]);
        else if (!disti_mpi_wait(&t->window[slot], 1))
            MPI_Request_free(&t->window[slot]);
    }
    if (t->control_request != MPI_REQUEST_NULL && !disti_mpi_wait(&t->control_request, 100)) {
        MPI_Request_free(&t->control_request);
        return; /* MPI still reads the control message: its memory is left to it */
    }
    mpi_transfer_free(t);
}

static void mpi_link_close(void *state)
{
    struct mpi_link *link = state;

    while (link->transfers) {
        struct mpi_transfer *t = link->transfers;

        link->transfers = t->next;
        mpi_transfer_drop(t);
    }
    for (int i = 0; link->arriving && i < MPI_CONTROL_RECVS; i++)
        mpi_cancel(&link->arrivals[i]);
    for (int peer = 0; link->matches && peer < link->ranks; peer++)
        disti_match_clear(&link->matches[peer]);
    free(link->matches);
    free(link->arriving);
    *link = (struct mpi_link){0};
}

const struct dist_transport disti_transport_mpi = {
    .abi = DIST_ABI,
    .size = sizeof(struct dist_transport),
    .name = "mpi",
    .summary = "MPI point-to-point messages",
    .state_size = sizeof(struct mpi_link),
    .open = mpi_link_open,
    .address = mpi_link_address,
    .reach = mpi_link_reach,
    .connect = mpi_link_connect,
    .send = mpi_link_send,
    .recv = mpi_link_recv,
    .progress = mpi_link_progress,
    .arm = mpi_link_arm,
    .disarm = mpi_link_disarm,
    .close = mpi_link_close,
};
