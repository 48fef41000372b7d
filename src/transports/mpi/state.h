/* SPDX-License-Identifier: BSD-3-Clause */
/* What transport mpi is made of; private to this folder. */
#ifndef DISTI_TRANSPORTS_MPI_STATE_H
#define DISTI_TRANSPORTS_MPI_STATE_H

#include "transports/match/match.h"
#include "transports/mpi/mpi.h"

/*
 * Control messages go on tag 0. A short message is one; it is sent unasked as far as the credit
 * reaches (match/match.h). Any other is announced, and comes in pieces, on a tag that the receiver
 * chooses, when its receive is posted: then MPI has nowhere to keep anything.
 *
 *   sender, tag 0:     MESSAGE [envelope, payload]   ANNOUNCE [envelope, name 7]
 *   receiver, tag 0:                                     WANTED [name 7, tag 3]
 *   sender, tag 3:                                           [piece] [piece] [piece]
 */
#define MPI_CONTROL_TAG 0
#define MPI_INLINE_BYTES (16 * 1024)
#define MPI_PIECE_BYTES (256 * 1024)
#define MPI_WINDOW 4 /* pieces under way a message */
#define MPI_CONTROL_RECVS 16
#define MPI_PULLS                                                                                  \
    16 /* messages in pieces of one peer that are received at a time: tags 1 .. 16                 \
        */
#define MPI_CREDIT_BYTES ((uint64_t)1 << 20) /* kept for each peer before its receives, at most */

enum mpi_kind {
    MPI_KIND_MESSAGE = 1,
    MPI_KIND_ANNOUNCE,
    MPI_KIND_WANTED,
    MPI_KIND_UNWANTED,
    MPI_KIND_CREDIT
};

struct mpi_control {
    struct dist_envelope envelope; /* CREDIT: bytes is what was returned, in all */
    uint32_t kind;
    uint32_t name; /* ANNOUNCE and the answers */
    uint32_t tag;  /* WANTED */
    uint32_t pad;
};

/* One that arrives: a message brings its payload. */
struct mpi_arrival {
    struct mpi_control control;
    unsigned char payload[MPI_INLINE_BYTES];
};

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
    struct mpi_control control; /* of a control message */
    unsigned char payload[];    /* right behind it */
};

struct mpi_peer {
    struct disti_match match;
    struct disti_credit_out credit;
    struct disti_credit_in debit;
    struct disti_announced announced;                 /* sends, as requests */
    uint32_t pulls;                                   /* bit i: tag 1 + i is in use */
    struct dist_request *waiting_head, *waiting_tail; /* receives that wait for a tag */
};

struct mpi_state {
    const struct dist_host *host;
    MPI_Comm comm;
    int ranks;
    struct mpi_peer *peers;
    struct disti_match_set unexpected;
    struct mpi_transfer *transfers;
    struct mpi_arrival *arriving; /* MPI_CONTROL_RECVS of them, a ring */
    MPI_Request arrivals[MPI_CONTROL_RECVS];
    unsigned oldest;
};

/* ---- message.c; all with the lock held ---- */

/* Sends it, or announces it. */
void disti_mpi_send(struct mpi_state *state, struct dist_request *request);

/* Posts a receive, which may meet a message that came first. */
void disti_mpi_recv(struct mpi_state *state, struct dist_request *request);

/* Starts receives of announced messages that wait for a tag, as far as there are tags. */
void disti_mpi_pull_waiting(struct mpi_state *state, struct mpi_peer *peer);

/* A control message has come. Negative: it breaks the rules, or there is no memory. */
int disti_mpi_arrived(struct mpi_state *state, int peer, const struct mpi_arrival *arrival,
                      size_t bytes);

/* ---- message.c ---- */

/* Moves it along. True: it is over. *moved counts pieces; *code becomes MPI's code. */
bool disti_mpi_transfer_over(struct mpi_state *state, struct mpi_transfer *t, int *moved,
                             int *code);

void disti_mpi_transfer_free(struct mpi_transfer *t);

/* Gives up a transfer that is not over, and frees it: bounded. */
void disti_mpi_transfer_drop(struct mpi_transfer *t);

/* Gives up a receive: bounded. */
void disti_mpi_cancel(MPI_Request *request);

#endif
