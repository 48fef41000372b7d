/* SPDX-License-Identifier: BSD-3-Clause */
/* What transport mpi is made of; private to this folder. */
#ifndef DISTI_TRANSPORTS_MPI_STATE_H
#define DISTI_TRANSPORTS_MPI_STATE_H

#include "transports/match.h"
#include "transports/mpi/mpi.h"

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

/* ---- transfer.c ---- */

/* A new transfer in the link's list. NULL: out of memory, and the request has ended so. */
struct mpi_transfer *disti_mpi_transfer_new(struct mpi_link *link, struct dist_request *request,
                                            bool sends);

/* Begins pieces until the window is full. Returns MPI's code. */
int disti_mpi_transfer_fill(struct mpi_link *link, struct mpi_transfer *t);

/* Moves it along. True: it is over. *moved counts pieces; *code becomes MPI's code. */
bool disti_mpi_transfer_over(struct mpi_link *link, struct mpi_transfer *t, int *moved, int *code);

void disti_mpi_transfer_free(struct mpi_transfer *t);

/* Gives up a transfer that is not over, and frees it: bounded. */
void disti_mpi_transfer_drop(struct mpi_transfer *t);

/* Gives up a receive: bounded. */
void disti_mpi_cancel(MPI_Request *request);

#endif
