/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Preload: serves the collectives of an unmodified MPI program through MPI's profiling interface.
 *
 *    program ---- MPI_Allreduce ----> here ---- dist_all_reduce ----> libdist   (served)
 *                                       \------ PMPI_Allreduce -----> MPI       (handed on)
 *
 * Either all ranks of a communicator serve a call or all hand it on; otherwise they would wait for
 * each other for ever. So what decides is only what MPI makes the same on all of them: which call
 * it is, the communicator, and for reductions type and operation. The types of calls that only move
 * data may differ between ranks (an MPI_INT here, a vector of MPI_INT there): such calls are served
 * whatever the types are, as bytes, which a derived type is packed into and unpacked from.
 */
#ifndef DISTI_PRELOAD_PRELOAD_H
#define DISTI_PRELOAD_PRELOAD_H

#include "preload/calls.h"

#include <dist/dist.h>

/* What MPI declares, and we define, is for the program to see. */
#pragma GCC visibility push(default)
#include <mpi.h>
#ifdef OPEN_MPI
#include <mpi-ext.h>
#endif
#pragma GCC visibility pop

enum disti_kind {
#define DISTI_KIND(KIND, ...) DISTI_##KIND,
    DISTI_CALLS(DISTI_KIND, int, int)
#undef DISTI_KIND
        DISTI_KINDS
};

enum disti_form { DISTI_BLOCKING, DISTI_NONBLOCKING, DISTI_PERSISTENT, DISTI_FORMS };

/* Why a call was handed on. X(name, text) */
#define DISTI_REASONS(X)                                                                           \
    X(SERVED, "")                                                                                  \
    X(SWITCHED_OFF, "switched off by DIST_MPI_SERVE")                                              \
    X(NO_GROUP, "libdist could not start")                                                         \
    X(COMMUNICATOR, "a communicator that is not served, or not yet")                               \
    X(NO_THREAD, "not blocking, and no thread that would move it: see MPI PROGRAMS in dist(7)")    \
    X(OPERATION, "an operation of the program's own")                                              \
    X(TYPE, "a type that is not reduced here")                                                     \
    X(NO_COMMUNICATOR, "no communicator")

enum disti_reason {
#define DISTI_REASON(name, text) DISTI_WHY_##name,
    DISTI_REASONS(DISTI_REASON)
#undef DISTI_REASON
        DISTI_WHY_COUNT
};

/* An array of counts or displacements; at NULL: none. */
struct disti_numbers {
    const void *at;
    size_t bytes; /* of one: an int, or an MPI_Count or MPI_Aint */
};
#define DISTI_NUMBERS(array)                                                                       \
    {                                                                                              \
        (array), sizeof(*(array))                                                                  \
    }
long long disti_number(struct disti_numbers numbers, int i);

/* A call as the program made it. */
struct disti_args {
    enum disti_kind kind;
    MPI_Comm comm;
    const void *send;
    void *recv;
    long long sendcount, recvcount;
    struct disti_numbers sendcounts, recvcounts, senddispls, recvdispls;
    MPI_Datatype sendtype, recvtype;
    MPI_Op op;
    int root;
};

/* What all of these files share; written in MPI_Init and MPI_Finalize only. */
struct disti_preload {
    bool active;       /* groups are open, between MPI_Init and MPI_Finalize */
    bool background;   /* libdist moves its operations by a thread of its own, on every rank */
    unsigned serves;   /* a bit for each kind, the same on every rank */
    dist_group *world; /* groups are made from it; carries no call itself */
    MPI_Comm self;     /* our own, of this process alone: completes persistent requests */
    MPI_Comm silent;   /* our own, of all ranks: no message is ever sent on it */
    int timeout_ms;    /* of the groups that serve */
    int rank, ranks;   /* in MPI_COMM_WORLD */
};
extern struct disti_preload disti_preload;

/* ---- report.c ---- */

void disti_report_count(enum disti_kind kind, enum disti_form form, enum disti_reason reason);

/* Prints the table on rank 0 if DIST_MPI_REPORT asks for it. Collective over MPI_COMM_WORLD. */
void disti_report_print(void);

/* ---- comms.c ---- */

/* A communicator whose collectives are served. The list of operations is requests.c's. */
struct disti_comm {
    dist_group *group;
    MPI_Comm comm; /* the program's handle; MPI_COMM_WORLD once it has freed that */
    int rank, ranks;
    int persistents;                     /* persistent operations made on it and not freed */
    struct disti_pending *first, **last; /* under way */
    struct disti_comm *next;             /* of those with operations under way */
    struct disti_comm *next_made;        /* of all */
};

/* NULL: it is not served. comm is not MPI_COMM_NULL. */
struct disti_comm *disti_comm_find(MPI_Comm comm);

/*
 * Makes a group for a communicator that was just made, with all its ranks or with none. Collective
 * over comm, which may be MPI_COMM_NULL; blocks.
 */
void disti_comm_adopt(MPI_Comm comm);

/* Ends the group of a communicator that is about to be freed. Collective over comm; blocks. */
void disti_comm_release(MPI_Comm comm);

bool disti_comms_open(void);
void disti_comms_close(void); /* after the groups */

/*
 * While MPI waits in a call that is collective over comm, must we move our operations? If no thread
 * does, and comm is served. The same on every rank of it. comm may be MPI_COMM_NULL.
 */
bool disti_comm_needs_us(MPI_Comm comm);

/* Before such a call that MPI has no nonblocking form of: all ranks come here first. */
void disti_comm_meet(MPI_Comm comm);

/* The smallest value of all ranks of comm, each giving its own. Collective; blocks; moves our
 * operations meanwhile. */
int disti_comm_least(MPI_Comm comm, int value);

/*
 * A call of libdist has failed: prints its error and calls the communicator's error handler, which
 * may end the program. Returns MPI_ERR_OTHER.
 */
int disti_comm_fail(MPI_Comm comm);

#endif
