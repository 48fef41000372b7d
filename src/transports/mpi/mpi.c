/* SPDX-License-Identifier: BSD-3-Clause */
/* Transport mpi: messages as MPI point-to-point. Part of the mpi module. */
#include "transports/mpi/state.h"

#include <stdlib.h>
#include <string.h>

/* ---- opening ---- */

static int mpi_listen(struct mpi_link *link, unsigned slot)
{
    return MPI_Irecv(&link->arriving[slot], (int)sizeof(struct mpi_control), MPI_BYTE,
                     MPI_ANY_SOURCE, MPI_CONTROL_TAG, link->comm, &link->arrivals[slot]);
}

static dist_status mpi_listen_all(struct mpi_link *link)
{
    int code = MPI_SUCCESS;

    for (unsigned i = 0; i < MPI_CONTROL_RECVS && code == MPI_SUCCESS; i++)
        code = mpi_listen(link, i);
    return code == MPI_SUCCESS ? DIST_OK : disti_mpi_fail(link->host, "MPI_Irecv", code);
}

static dist_status mpi_link_open(void *state, const struct dist_transport_config *config)
{
    struct mpi_link *link = state;
    dist_status status;

    link->host = config->host;
    link->comm = *(const MPI_Comm *)config->context;
    link->ranks = config->world_size;
    for (int i = 0; i < MPI_CONTROL_RECVS; i++)
        link->arrivals[i] = MPI_REQUEST_NULL;
    link->matches = calloc((size_t)link->ranks, sizeof(*link->matches));
    link->arriving = calloc(MPI_CONTROL_RECVS, sizeof(*link->arriving));
    if (!link->matches || !link->arriving)
        return link->host->fail(DIST_ERR_NO_MEMORY, "no memory for transport mpi");
    if (!disti_mpi_lock())
        return disti_mpi_ended(link->host);
    status = mpi_listen_all(link);
    disti_mpi_unlock();
    return status;
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

/* ---- sending ---- */

static void mpi_send(struct mpi_link *link, struct dist_request *request)
{
    struct mpi_transfer *t = disti_mpi_transfer_new(link, request, true);
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
        code = disti_mpi_transfer_fill(link, t);
    if (code != MPI_SUCCESS)
        request->status = disti_mpi_fail(link->host, "MPI_Isend", code);
    else if (small)
        request->status = DIST_OK;
}

static void mpi_link_send(void *state, struct dist_request *request)
{
    struct mpi_link *link = state;

    if (!disti_mpi_lock()) {
        request->status = disti_mpi_ended(link->host);
        return;
    }
    mpi_send(link, request);
    disti_mpi_unlock();
}

/* ---- receiving ---- */

static void mpi_pull(struct mpi_link *link, struct dist_request *request, uint32_t serial)
{
    struct mpi_transfer *t = disti_mpi_transfer_new(link, request, false);
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
    code = disti_mpi_transfer_fill(link, t);
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
    if (!early->descriptor) {
        link->host->sink_apply(&request->sink, 0, early->payload, early->envelope.bytes);
        request->status = DIST_OK;
    } else if (disti_mpi_lock()) {
        mpi_pull(link, request, (uint32_t)early->note[0]);
        disti_mpi_unlock();
    } else {
        request->status = disti_mpi_ended(link->host);
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

static int mpi_move(struct mpi_link *link)
{
    int moved = mpi_listen_step(link), code = MPI_SUCCESS;

    for (struct mpi_transfer **at = &link->transfers; *at && moved >= 0;) {
        struct mpi_transfer *t = *at;

        if (!disti_mpi_transfer_over(link, t, &moved, &code)) {
            if (code != MPI_SUCCESS)
                return disti_mpi_fail(link->host, "MPI message", code);
            at = &t->next;
            continue;
        }
        if (t->request)
            t->request->status = DIST_OK;
        *at = t->next;
        disti_mpi_transfer_free(t);
        moved++;
    }
    return moved;
}

static int mpi_link_progress(void *state)
{
    struct mpi_link *link = state;
    int moved;

    if (!disti_mpi_lock())
        return disti_mpi_ended(link->host);
    moved = mpi_move(link);
    disti_mpi_unlock();
    return moved;
}

static int mpi_link_probe_tag(void *state, uint64_t tag)
{
    const struct mpi_link *link = state;
    uint64_t oldest = UINT64_MAX;
    int found = -1;

    for (int peer = 0; peer < link->ranks; peer++) {
        const struct disti_early *early = disti_match_waiting(&link->matches[peer], tag);

        if (early && early->order < oldest) {
            oldest = early->order;
            found = peer;
        }
    }
    return found;
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

static void mpi_link_close(void *state)
{
    struct mpi_link *link = state;
    bool alive = disti_mpi_lock();

    while (link->transfers) {
        struct mpi_transfer *t = link->transfers;

        link->transfers = t->next;
        if (alive)
            disti_mpi_transfer_drop(t);
        else
            disti_mpi_transfer_free(t);
    }
    for (int i = 0; alive && link->arriving && i < MPI_CONTROL_RECVS; i++)
        disti_mpi_cancel(&link->arrivals[i]);
    if (alive)
        disti_mpi_unlock();
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
    .probe_tag = mpi_link_probe_tag,
    .arm = mpi_link_arm,
    .disarm = mpi_link_disarm,
    .close = mpi_link_close,
};
