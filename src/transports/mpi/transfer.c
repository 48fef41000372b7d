/* SPDX-License-Identifier: BSD-3-Clause */
/* Transport mpi: messages whose pieces are under way. */
#include "base/backoff.h"
#include "base/clock.h"
#include "transports/mpi/state.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(offsetof(struct mpi_transfer, payload) ==
                   offsetof(struct mpi_transfer, control) + sizeof(struct mpi_control),
               "the payload stands right behind the control message");

struct mpi_transfer *disti_mpi_transfer_new(struct mpi_state *state, struct dist_request *request,
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

dist_status disti_mpi_control_send(struct mpi_state *state, int peer,
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
    t->next = state->transfers;
    state->transfers = t;
    code = MPI_Isend(&t->control, (int)(sizeof(t->control) + bytes), MPI_BYTE, peer,
                     MPI_CONTROL_TAG, state->comm, &t->control_request);
    return code == MPI_SUCCESS ? DIST_OK : disti_mpi_fail(state->host, "MPI_Isend", code);
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
int disti_mpi_transfer_fill(struct mpi_state *state, struct mpi_transfer *t)
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
        t->begun += (size_t)bytes;
    }
    return code;
}

/* Ends pieces, oldest first. True: all are through. */
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
        *code = disti_mpi_transfer_fill(state, t);
        if (*code != MPI_SUCCESS)
            return false;
    }
    return true;
}

/* A transfer is over when its pieces are, and its control message has left. */
bool disti_mpi_transfer_over(struct mpi_state *state, struct mpi_transfer *t, int *moved, int *code)
{
    int done = 1;

    if (t->request && !mpi_transfer_step(state, t, moved, code))
        return false;
    if (t->control_request != MPI_REQUEST_NULL)
        *code = MPI_Test(&t->control_request, &done, MPI_STATUS_IGNORE);
    return *code == MPI_SUCCESS && done;
}

void disti_mpi_transfer_free(struct mpi_transfer *t)
{
    free(t->bounce);
    free(t);
}

/* Waits, for a short time, with the lock held. */
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

/* Cancels a receive. One that a sender has matched already cannot be: then it soon ends. */
void disti_mpi_cancel(MPI_Request *request)
{
    if (*request == MPI_REQUEST_NULL)
        return;
    MPI_Cancel(request);
    if (!mpi_transfer_wait(request, 100))
        MPI_Request_free(request);
}

void disti_mpi_transfer_drop(struct mpi_transfer *t)
{
    size_t offset = t->ended;

    for (; t->request && offset < t->begun; offset += mpi_piece_bytes(t, offset)) {
        unsigned slot = (unsigned)(offset / MPI_PIECE_BYTES % MPI_WINDOW);

        if (!t->sends)
            disti_mpi_cancel(&t->window[slot]);
        else if (!mpi_transfer_wait(&t->window[slot], 1))
            MPI_Request_free(&t->window[slot]);
    }
    if (t->control_request != MPI_REQUEST_NULL && !mpi_transfer_wait(&t->control_request, 100)) {
        MPI_Request_free(&t->control_request);
        return; /* MPI still reads the control message: its memory is left to it */
    }
    disti_mpi_transfer_free(t);
}
