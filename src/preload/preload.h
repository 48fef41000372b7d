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
#include <stdatomic.h>

/* What MPI declares, and we define, is for the program to see. */
#pragma GCC visibility push(default)
#include <mpi.h>
#ifdef OPEN_MPI
#include <mpi-ext.h>
#endif
#pragma GCC visibility pop

/* MPI-4, and Open MPI 5, which says that it is MPI-3, have persistent collectives. */
#if MPI_VERSION >= 4 || (defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)
#define DISTI_MPI_PERSISTENT 1
#else
#define DISTI_MPI_PERSISTENT 0
#endif

enum disti_kind {
#define DISTI_KIND(KIND, ...) DISTI_##KIND,
    DISTI_CALLS(DISTI_KIND, int, int)
#undef DISTI_KIND
        DISTI_KINDS
};

/* What each thread has for itself, for short calls: no call is needed to find it. */
#define DISTI_THREAD_LOCAL _Thread_local __attribute__((tls_model("initial-exec")))

enum disti_form { DISTI_BLOCKING, DISTI_NONBLOCKING, DISTI_PERSISTENT, DISTI_FORMS };

/* Why a call was handed on. X(name, text) */
#define DISTI_REASONS(X)                                                                           \
    X(SERVED, "")                                                                                  \
    X(SWITCHED_OFF, "switched off by DIST_MPI_SERVE")                                              \
    X(NO_GROUP, "libdist could not start")                                                         \
    X(COMMUNICATOR, "a communicator that is not served, or not yet")                               \
    X(NO_THREAD, "nonblocking, and no thread to advance it: see MPI PROGRAMS in dist(7)")          \
    X(OPERATION, "an operation that the program defined")                                          \
    X(TYPE, "a type that libdist does not reduce")                                                 \
    X(SLOWER, "found to be faster in MPI: see DIST_MPI_COMPARE in dist-env(7)")                    \
    X(COMPARED, "to find out whether MPI is faster")                                               \
    X(NO_COMMUNICATOR, "no communicator")

enum disti_why {
#define DISTI_REASON(name, text) DISTI_WHY_##name,
    DISTI_REASONS(DISTI_REASON)
#undef DISTI_REASON
        DISTI_WHY_COUNT
};

/* Counts or displacements; array NULL: none. */
struct disti_numbers {
    const void *array;
    size_t bytes; /* of one: an int, or an MPI_Count or MPI_Aint */
};
#define DISTI_NUMBERS(array) ((struct disti_numbers){(array), sizeof(*(array))})
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
    MPI_Request *request;          /* of calls that have one */
    int refused;                   /* MPI_SUCCESS, or the error code that it is refused with */
    struct disti_channel *channel; /* if it is served: by this one */
    struct disti_comm *counted;    /* that counts it; NULL: none */
    struct disti_comparison *comparison; /* if it is timed: tell disti_compare_end */
};

/* Field by field: to clear it at once takes longer than a short call's share of it. */
static inline void disti_args_clear(struct disti_args *args, enum disti_kind kind, MPI_Comm comm)
{
    const struct disti_numbers none = {NULL, 0};

    args->kind = kind;
    args->comm = comm;
    args->send = NULL;
    args->recv = NULL;
    args->sendcount = 0;
    args->recvcount = 0;
    args->sendcounts = none;
    args->recvcounts = none;
    args->senddispls = none;
    args->recvdispls = none;
    args->sendtype = MPI_DATATYPE_NULL;
    args->recvtype = MPI_DATATYPE_NULL;
    args->op = MPI_OP_NULL;
    args->root = 0;
    args->request = NULL;
    args->refused = MPI_SUCCESS;
    args->channel = NULL;
    args->counted = NULL;
    args->comparison = NULL;
}

/* Facts that MPI_Init finds out; a fact counts if it is true on every rank. */
enum {
    DISTI_FACT_NO_THREADS = 1,  /* only one thread at a time may call MPI */
    DISTI_FACT_COMPARES = 2,    /* calls that MPI does faster are to be handed on */
    DISTI_FACT_REPORTS = 4,     /* a report is wanted */
    DISTI_FACT_ONE_MACHINE = 8, /* the launcher has told the rank that it has no other machine */
};

/* What all of these files share; written in MPI_Init and MPI_Finalize only. */
struct disti_preload {
    bool active;       /* groups are open, between MPI_Init and MPI_Finalize */
    bool background;   /* a thread of libdist moves operations, on every rank */
    bool compares;     /* calls that MPI does faster are handed on */
    bool turns;        /* several threads may call MPI, on some rank */
    unsigned serves;   /* a bit for each kind, the same on every rank */
    unsigned facts;    /* DISTI_FACT_, the same on every rank */
    dist_group *world; /* groups are made from it; carries no call itself */
    MPI_Comm self;     /* our own, of this process alone: completes persistent requests, packs */
    MPI_Comm silent;   /* our own, of all ranks: no message is ever sent on it */
    int timeout_ms;    /* of the groups that serve */
    int rank, ranks;   /* in MPI_COMM_WORLD */
};
extern struct disti_preload disti_preload;

/* ---- flavour.c ---- */

/*
 * True if the program's MPI has an ABI that no libdist_mpi.so serves. Then all calls but MPI_Init
 * and MPI_Init_thread go past this library from now on, and rank 0 has said so.
 */
bool disti_mpi_is_foreign(void);

/*
 * Every MPI has handles of its own: with another than that of this library nothing can even be
 * handed on. False: it is another, which has been said. After disti_mpi_is_foreign.
 */
bool disti_mpi_is_own(void);

/* ---- imports.c ---- */

/* Has calls served that come from objects that the program has opened since. */
void disti_imports_renew(void);

/* MPI's own MPI_Init and MPI_Init_thread. */
int disti_mpi_init(int *argc, char ***argv);
int disti_mpi_init_thread(int *argc, char ***argv, int required, int *provided);

/* ---- straight.c ---- */

/* The program's tests and waits go past us, as long as nothing of ours is under way. */
void disti_straight_begin(void);

/* They come here from now on. */
void disti_straight_end(void);

/* ---- report.c ---- */

void disti_report_count(enum disti_kind kind, enum disti_form form, enum disti_why reason);

/* ---- comms.c ---- */

/* What is known of a communicator. It lives until that is freed and its operations have ended. */
struct disti_comm {
    struct disti_channel *channel; /* serves it; NULL: not yet, or never */
    MPI_Comm comm;                 /* the program's handle; MPI_COMM_WORLD once it has freed that */
    int rank, ranks;
    long long calls;  /* collectives begun, the same on all its ranks */
    bool foreign;     /* not of this world alone, or an intercommunicator */
    bool left;        /* to MPI for good */
    bool early;       /* to be served from its first call on */
    int credit;       /* to make communicators that are early, the same on all its ranks */
    atomic_int users; /* the program's handle, and operations */
    struct disti_comm *next_made, **entry; /* of all */
};

/* Its record, made anew if need be. NULL: no memory. comm is not MPI_COMM_NULL. */
struct disti_comm *disti_comm_find(MPI_Comm comm);

/* How many communicators have lost their record. As long as none does, all records stay. */
unsigned disti_comms_gone(void);

/*
 * The channel that serves a call of this form, the same on every rank; of a persistent
 * call one of its own, which the caller gives back. NULL: MPI does it. Collective over comm; blocks
 * if it has to make one, but not in nonblocking calls.
 */
struct disti_channel *disti_comm_channel(struct disti_comm *comm, enum disti_form form);

/* An operation needs the record, or no longer does. */
void disti_comm_hold(struct disti_comm *comm);
void disti_comm_let_go(struct disti_comm *comm);

bool disti_comms_open(void);
void disti_comms_start(void); /* collective over MPI_COMM_WORLD; blocks */
void disti_comms_close(void); /* after the groups */

/* As MPI_Allreduce, whoever serves that. False: MPI has failed. Collective; blocks. */
bool disti_comm_agree(MPI_Comm comm, const void *mine, void *all, int count, MPI_Datatype type,
                      MPI_Op op);

/* The smallest value of all ranks of comm, each giving its own. Collective; blocks. */
int disti_comm_least(MPI_Comm comm, int value);

/*
 * A call of libdist has failed: prints its error and calls the communicator's error handler, which
 * may end the program. Returns MPI_ERR_OTHER.
 */
int disti_comm_fail(MPI_Comm comm);

/* Ours against MPI's, for one collective and one class of sizes; compare.c's. */
#define DISTI_CLASSES 16
#define DISTI_TURNS 6 /* of both sides */
struct disti_comparison {
    bool served, handed_on; /* it is over */
    int calls, tries;       /* until then */
    double begun_s;         /* the call */
    float turns_s[DISTI_TURNS];
};

/* A group, in which calls of one communicator or of one persistent request run. */
struct disti_channel {
    dist_group *group;
    struct disti_pending *first, **last; /* under way; requests.c's */
    struct disti_channel *next;          /* of those with operations under way */
    struct channels_list *list;
    struct disti_comparison comparisons[DISTI_KINDS][DISTI_CLASSES];
    int slot;
    bool broken; /* a call has failed: it serves nobody else */
};

/* Gives it back. Local. */
void disti_channel_give(struct disti_channel *channel);

void disti_channels_close(void); /* after the groups */

#endif
