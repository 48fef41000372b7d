/* SPDX-License-Identifier: BSD-3-Clause */
/* Transport mpi: messages as MPI point-to-point. Part of the mpi module. */
#include "transports/mpi/state.h"

#include <stdlib.h>
#include <string.h>

/* ---- opening ---- */

static int mpi_listen(struct mpi_link *link, unsigned slot)
{
    return MPI_Irecv(&link->arriving[slot], (int)sizeof(struct mpi_arrival), MPI_BYTE,
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
    link->peers = calloc((size_t)link->ranks, sizeof(*link->peers));
    link->arriving = calloc(MPI_CONTROL_RECVS, sizeof(*link->arriving));
    if (!link->peers || !link->arriving)
        return link->host->fail(DIST_ERR_NO_MEMORY, "no memory for transport mpi");
    for (int peer = 0; peer < link->ranks; peer++) {
        link->peers[peer].credit.limit = link->peers[peer].debit.limit = MPI_CREDIT_BYTES;
        link->peers[peer].match.rank = peer;
        link->peers[peer].match.set = &link->unexpected;
    }
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

static void mpi_link_send(void *state, struct dist_request *request)
{
    struct mpi_link *link = state;

    if (!disti_mpi_lock()) {
        request->status = disti_mpi_ended(link->host);
        return;
    }
    disti_mpi_send(link, request);
    disti_mpi_unlock();
}

/* ---- receiving ---- */

static void mpi_link_recv(void *state, struct dist_request *request)
{
    struct mpi_link *link = state;

    if (!disti_mpi_lock()) {
        request->status = disti_mpi_ended(link->host);
        return;
    }
    disti_mpi_recv(link, request);
    disti_mpi_unlock();
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
        got = disti_mpi_arrived(link, status.MPI_SOURCE, &link->arriving[slot], (size_t)bytes);
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

static void mpi_transfer_end(struct mpi_link *link, struct mpi_transfer *t)
{
    struct dist_request *request = t->request;

    if (request && !t->sends) {
        struct mpi_peer *peer = &link->peers[request->peer];

        peer->pulls &= ~(UINT32_C(1) << (t->tag - 1));
        disti_mpi_pull_waiting(link, peer);
    }
    disti_mpi_transfer_free(t);
    if (request)
        request->status = DIST_OK;
}

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
        *at = t->next;
        mpi_transfer_end(link, t);
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

    return disti_match_probe(&link->unexpected, tag);
}

static void mpi_link_unexpected(void *state, uint64_t tag, uint64_t mask, int most,
                                dist_unexpected_fn see, void *arg)
{
    struct mpi_link *link = state;

    disti_match_show(&link->unexpected, &(struct disti_look){tag, mask, most, see, arg});
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
    for (int peer = 0; link->peers && peer < link->ranks; peer++) {
        disti_match_clear(&link->peers[peer].match);
        disti_announced_clear(&link->peers[peer].announced);
    }
    free(link->peers);
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
    .unexpected = mpi_link_unexpected,
};
