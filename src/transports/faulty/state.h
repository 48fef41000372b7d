/* SPDX-License-Identifier: BSD-3-Clause */
/* What a faulty transport adds to the state of the one behind it; private to this folder. */
#ifndef DISTI_TRANSPORTS_FAULTY_STATE_H
#define DISTI_TRANSPORTS_FAULTY_STATE_H

#include <dist/transport.h>

/*
 * A send that is kept for a while, or is sent in another form. The engine's request is in progress
 * meanwhile, and the transport behind has `sent` or has nothing yet.
 */
struct faulty_send {
    struct faulty_send *next;
    struct dist_request *request; /* the engine's */
    bool started;                 /* `sent` is with the transport behind */
    int64_t until_ns;             /* when to send it, if it is not started */
    struct dist_request sent;
    unsigned char data[]; /* of a message with a bit changed */
};

/* Behind the state of the transport, in the same memory, zero at first. */
struct faulty_state {
    struct faulty_send *sends; /* in the order of the program's sends */
    bool blind;                /* arm has not asked the transport behind */
};

/* A wrapped transport: table is `inner` with other functions for what concerns sends. */
struct faulty_table {
    const struct dist_transport *inner;
    struct dist_transport table;
    size_t at; /* where in the state this folder's part is */
};

void disti_faulty_send(const struct faulty_table *table, void *state, struct dist_request *request);
int disti_faulty_progress(const struct faulty_table *table, void *state);
int disti_faulty_arm(const struct faulty_table *table, void *state);
void disti_faulty_disarm(const struct faulty_table *table, void *state);
void disti_faulty_close(const struct faulty_table *table, void *state);
void disti_faulty_cancel(const struct faulty_table *table, void *state, uint64_t tag,
                         uint64_t mask);

#endif
