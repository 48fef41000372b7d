/* SPDX-License-Identifier: BSD-3-Clause */
/* Transport mpi: messages as MPI point-to-point. Part of the mpi module. */
#include "transports/mpi/state.h"

#include <stdlib.h>
#include <string.h>

/* ---- opening ---- */

static int mpi_listen(struct mpi_state *state, unsigned slot)
{
    return MPI_Irecv(&state->arriving[slot], (int)sizeof(struct mpi_arrival), MPI_BYTE,
                     MPI_ANY_SOURCE, MPI_CONTROL_TAG, state->comm, &state->arrivals[slot]);
}

static dist_status mpi_listen_all(struct mpi_state *state)
{
    int code = MPI_SUCCESS;

    for (unsigned i = 0; i < MPI_CONTROL_RECVS && code == MPI_SUCCESS; i++)
        code = mpi_listen(state, i);
    return code == MPI_SUCCESS ? DIST_OK : disti_mpi_fail(state->host, "MPI_Irecv", code);
}

static dist_status mpi_open(void *opaque, const struct dist_transport_config *config)
{
    struct mpi_state *state = opaque;
    dist_status status;

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
    status = mpi_listen_all(state);
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

/* MPI reaches everybody; how well it does not tell. Shared memory of our own is better. */
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

/* ---- sending ---- */

static void mpi_send(void *opaque, struct dist_request *request)
{
    struct mpi_state *state = opaque;

    if (!disti_mpi_lock()) {
        request->status = disti_mpi_ended(state->host);
        return;
    }
    disti_mpi_send(state, request);
    disti_mpi_unlock();
}

/* ---- receiving ---- */

static void mpi_recv(void *opaque, struct dist_request *request)
{
    struct mpi_state *state = opaque;

    if (!disti_mpi_lock()) {
        request->status = disti_mpi_ended(state->host);
        return;
    }
    disti_mpi_recv(state, request);
    disti_mpi_unlock();
}

/* Takes the control messages that have come, in order. */
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
        got = disti_mpi_arrived(state, status.MPI_SOURCE, &state->arriving[slot], (size_t)bytes);
        if (got < 0)
            return got;
        code = mpi_listen(state, slot);
        if (code != MPI_SUCCESS)
            return disti_mpi_fail(state->host, "MPI_Irecv", code);
        state->oldest = (slot + 1) % MPI_CONTROL_RECVS;
        moved++;
    }
}

/* ---- progress and end ---- */

static void mpi_transfer_end(struct mpi_state *state, struct mpi_transfer *t)
{
    struct dist_request *request = t->request;

    if (request && !t->sends) {
        struct mpi_peer *peer = &state->peers[request->peer];

        peer->pulls &= ~(UINT32_C(1) << (t->tag - 1));
        disti_mpi_pull_waiting(state, peer);
    }
    disti_mpi_transfer_free(t);
    if (request)
        request->status = DIST_OK;
}

static int mpi_move(struct mpi_state *state)
{
    int moved = mpi_listen_step(state), code = MPI_SUCCESS;

    for (struct mpi_transfer **at = &state->transfers; *at && moved >= 0;) {
        struct mpi_transfer *t = *at;

        if (!disti_mpi_transfer_over(state, t, &moved, &code)) {
            if (code != MPI_SUCCESS)
                return disti_mpi_fail(state->host, "MPI message", code);
            at = &t->next;
            continue;
        }
        *at = t->next;
        mpi_transfer_end(state, t);
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
    const struct mpi_state *state = opaque;

    return disti_match_probe(&state->unexpected, tag);
}

static void mpi_unexpected(void *opaque, uint64_t tag, uint64_t mask, int most,
                           dist_unexpected_fn see, void *arg)
{
    struct mpi_state *state = opaque;

    disti_match_show(&state->unexpected, &(struct disti_look){tag, mask, most, see, arg});
}

static int mpi_arm(void *opaque)
{
    (void)opaque;
    return -1; /* MPI gives nothing to sleep on */
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
            disti_mpi_transfer_drop(t);
        else
            disti_mpi_transfer_free(t);
    }
    for (int i = 0; alive && state->arriving && i < MPI_CONTROL_RECVS; i++)
        disti_mpi_cancel(&state->arrivals[i]);
    if (alive)
        disti_mpi_unlock();
    for (int peer = 0; state->peers && peer < state->ranks; peer++) {
        disti_match_clear(&state->peers[peer].match);
        disti_announced_clear(&state->peers[peer].announced);
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
