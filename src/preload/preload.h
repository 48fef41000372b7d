/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Preload: serves the collectives of an unmodified MPI program through MPI's profiling interface.
 *
 *    program ---- MPI_Allreduce ----> here ---- dist_all_reduce ----> libdist   (served)
 *                                       \------ PMPI_Allreduce -----> MPI       (forwarded)
 *
 * Either all ranks of a communicator serve a call or all forward it; otherwise they would deadlock.
 * So the decision depends only on values that MPI requires to be equal on all ranks: the
 * collective, the communicator, and for reductions type and operation. The types of calls that only
 * move data may differ between ranks (MPI_INT on one, a vector of MPI_INT on another): such calls
 * are served for all types, as bytes; data of a derived type are packed and unpacked.
 */
#ifndef DISTI_PRELOAD_PRELOAD_H
#define DISTI_PRELOAD_PRELOAD_H

#include "base/collective.h"
#include "preload/calls.h"

#include <dist/dist.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/queue.h>

/* Symbols that MPI declares and this library defines must be visible to the program. */
#pragma GCC visibility push(default)
#include <mpi.h>
#ifdef OPEN_MPI
#include <mpi-ext.h>
#endif
#pragma GCC visibility pop

/* MPI-4 has persistent collectives, and Open MPI 5, which reports MPI-3.1. */
#if MPI_VERSION >= 4 || (defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)
#define DISTI_MPI_PERSISTENT 1
#else
#define DISTI_MPI_PERSISTENT 0
#endif

/*
 * Thread-local data of short calls: the initial-exec model needs no function call to access them.
 */
#define DISTI_THREAD_LOCAL _Thread_local __attribute__((tls_model("initial-exec")))

enum disti_form { DISTI_BLOCKING, DISTI_NONBLOCKING, DISTI_PERSISTENT, DISTI_FORMS };

/* Reasons why a call is forwarded. X(name, text); SERVED: it is not forwarded. */
#define DISTI_REASONS(X)                                                                           \
    X(SERVED, "")                                                                                  \
    X(SWITCHED_OFF, "switched off by DIST_MPI_SERVE")                                              \
    X(NO_GROUP, "libdist could not start")                                                         \
    X(COMMUNICATOR, "a communicator that libdist does not serve, or not yet")                      \
    X(NO_THREAD, "nonblocking, without a progress thread: see MPI PROGRAMS in dist(7)")            \
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
    size_t bytes; /* size of an element: int, MPI_Count or MPI_Aint */
};
#define DISTI_NUMBERS(array) ((struct disti_numbers){(array), sizeof(*(array))})

/* One side of a call, as the program passed it: what it sends or receives. */
struct disti_side {
    const void *memory;
    MPI_Datatype type;
    long long count;
    struct disti_numbers counts, displs;
};

/* A call as the program made it. */
struct disti_args {
    dist_collective kind;
    MPI_Comm comm;
    struct disti_side send, recv;
    MPI_Op op;
    int root;
    MPI_Request *request; /* the program's request; NULL in a blocking call */
    int refused;          /* MPI_SUCCESS, or the error code with which the call is rejected */
    struct disti_channel *channel; /* runs the call, if it is served */
    struct disti_comm *counted;    /* the communicator whose `calls` was incremented; NULL: none */
    /* Not NULL: the call is timed, and the caller must call disti_compare_end. */
    struct disti_comparison *comparison;
};

/* Field by field: a memset of the structure takes a noticeable part of a short call's time. */
static inline void disti_args_clear(struct disti_args *args, dist_collective kind, MPI_Comm comm)
{
    args->kind = kind;
    args->comm = comm;
    args->send = args->recv = (struct disti_side){.type = MPI_DATATYPE_NULL};
    args->op = MPI_OP_NULL;
    args->root = 0;
    args->request = NULL;
    args->refused = MPI_SUCCESS;
    args->channel = NULL;
    args->counted = NULL;
    args->comparison = NULL;
}

/* Facts that MPI_Init determines; each holds only if it holds on every rank. */
enum {
    DISTI_FACT_NO_THREADS = 1,  /* only one thread at a time may call MPI */
    DISTI_FACT_COMPARES = 2,    /* calls that are faster in MPI are forwarded */
    DISTI_FACT_REPORTS = 4,     /* a report was requested */
    DISTI_FACT_ONE_MACHINE = 8, /* the launcher reported that all ranks are on one machine */
};

/* Shared by all files; written in MPI_Init and MPI_Finalize only. */
struct disti_preload {
    bool active;       /* groups exist: between MPI_Init and MPI_Finalize */
    bool background;   /* a thread of libdist makes progress, on every rank */
    bool compares;     /* calls that are faster in MPI are forwarded */
    bool is_threaded;  /* on some rank, several threads may call MPI */
    unsigned serves;   /* one bit per collective, equal on every rank */
    unsigned facts;    /* DISTI_FACT_, equal on every rank */
    dist_group *world; /* parent of all groups; runs no calls itself */
    MPI_Comm self;     /* duplicate of MPI_COMM_SELF: completes persistent requests, packs */
    MPI_Comm silent;   /* duplicate of MPI_COMM_WORLD on which no message is ever sent */
    int timeout_ms;    /* timeout of the groups that serve calls */
    int rank, ranks;   /* rank and size in MPI_COMM_WORLD */
};
extern struct disti_preload disti_preload;

/* ---- imports.c ---- */

/*
 * True if the program's MPI has an ABI that no libdist_mpi.so supports. Then all calls except
 * MPI_Init and MPI_Init_thread bypass this library from now on; rank 0 has printed a message.
 */
bool disti_mpi_is_foreign(void);

/*
 * True if the program's MPI is the one that this library was built for: calls of another MPI, whose
 * handles differ, cannot even be forwarded. Prints a message if false. Call disti_mpi_is_foreign
 * first.
 */
bool disti_mpi_is_own(void);

/* Redirects the imports of shared objects that were loaded since the last call. */
void disti_imports_renew(void);

/* MPI_Init requests no thread level: the user may set one in MPI's environment variables. */
#define DISTI_NO_LEVEL (-1)

/* Calls `function` as MPI_Init if `required` is DISTI_NO_LEVEL, else as MPI_Init_thread. */
static inline int disti_init_by(void *function, int *argc, char ***argv, int required,
                                int *provided)
{
    int (*init)(int *, char ***);
    int (*init_thread)(int *, char ***, int, int *);

    *(void **)&init = *(void **)&init_thread = function;
    return required == DISTI_NO_LEVEL ? init(argc, argv)
                                      : init_thread(argc, argv, required, provided);
}

/* Calls MPI's own MPI_Init or MPI_Init_thread. */
int disti_mpi_init(int *argc, char ***argv, int required, int *provided);

/* Lets the program's tests and waits bypass this library until disti_bypass_end. */
void disti_bypass_begin(void);

/* Directs tests and waits to this library from now on. */
void disti_bypass_end(void);

/* ---- init.c ---- */

void disti_report_count(dist_collective kind, enum disti_form form, enum disti_why reason);

/* ---- comms.c ---- */

/*
 * The record of a communicator. It is freed after the communicator is freed and its operations have
 * ended.
 */
struct disti_comm {
    struct disti_channel *channel; /* runs its calls; NULL: none */
    MPI_Comm comm;                 /* the program's handle; MPI_COMM_WORLD after the program has
                                    * freed it */
    int rank, ranks;
    long long calls;   /* number of collectives begun, equal on all its ranks */
    bool foreign;      /* an intercommunicator, or has ranks outside MPI_COMM_WORLD */
    bool never_served; /* no channel could be made: all calls are forwarded */
    bool early;        /* served from its first call on */
    int credit; /* how many communicators made from it may be `early`, equal on all its ranks */
    atomic_int users; /* the program's handle, and operations */
    LIST_ENTRY(disti_comm) entry;
};

/*
 * Returns the record of a communicator; creates it if needed. NULL: out of memory. comm must not be
 * MPI_COMM_NULL.
 */
struct disti_comm *disti_comm_find(MPI_Comm comm);

/*
 * Returns how many communicators have been freed. While it does not change, all records stay valid.
 */
unsigned disti_comms_freed(void);

/*
 * Returns the channel for a call of this form, the same on every rank. A persistent call has its
 * own channel, which the caller returns with disti_channel_return. NULL: forward the call.
 * Collective over comm; may block to make a channel, except for nonblocking calls.
 */
struct disti_channel *disti_comm_channel(struct disti_comm *comm, enum disti_form form);

/* Add and drop a reference of an operation to the record. */
void disti_comm_ref(struct disti_comm *comm);
void disti_comm_unref(struct disti_comm *comm);

bool disti_comms_open(void);
void disti_comms_start(void); /* collective over MPI_COMM_WORLD; blocks */

/* Returns the minimum of all ranks' values. Collective over comm; blocks. */
int disti_comm_min(MPI_Comm comm, int value);

/*
 * Handles a failed libdist call: prints its error and calls the communicator's error handler, which
 * may end the program. Returns MPI_ERR_OTHER.
 */
int disti_comm_fail(MPI_Comm comm);

/* Timings of libdist and MPI for one collective and one size class. */
#define DISTI_CLASSES 16
#define DISTI_TURNS 6 /* turns of libdist and of MPI, together */
struct disti_comparison {
    bool served, forwarded;     /* the decision; both false: undecided */
    int calls;                  /* number of calls in this comparison */
    int tries;                  /* number of comparisons that ended without a decision */
    double begun_s;             /* start time of the current call */
    float turns_s[DISTI_TURNS]; /* total time of each turn's calls, without its first call */
};

/* A group that runs the calls of one communicator or one persistent request. */
struct disti_channel {
    dist_group *group;
    STAILQ_HEAD(, disti_pending) pending; /* operations in progress; used by requests.c */
    SLIST_ENTRY(disti_channel) next;      /* list of the channels with operations in progress */
    struct channels_list *list;
    struct disti_comparison comparisons[DIST_COLL_COUNT][DISTI_CLASSES];
    int slot;
    bool broken; /* a call has failed: the channel is not used again */
};

/* Returns a channel for use by another communicator. Local. */
void disti_channel_return(struct disti_channel *channel);

/* Frees all records and channels, after the groups were destroyed. */
void disti_comms_close(void);

/* Translates MPI calls to libdist calls. */

/* ---- reduce.c ---- */

/* A reduction in libdist's terms: an element of the program's type is `parts` elements of dtype. */
struct disti_reduction {
    dist_dtype dtype;
    size_t parts;
    dist_op op;
};

/*
 * Returns whether libdist can reduce this type with this operation. Depends only on these two. If
 * it returns DISTI_WHY_SERVED, disti_reduction_find is allowed.
 */
enum disti_why disti_reduction_is_eligible(MPI_Datatype type, MPI_Op op);

/* Translates a reduction that is eligible. Fails only if out of memory; sets dist_last_error. */
dist_status disti_reduction_find(MPI_Datatype type, MPI_Op op, struct disti_reduction *reduction_p);

/* True if the result of an eligible reduction does not depend on the library that computes it. */
bool disti_reduction_is_exact(MPI_Datatype type, MPI_Op op);

/* ---- call.c: layouts ---- */

/*
 * The blocks of elements that a call reads or writes. libdist handles bytes: the program's memory
 * itself if the elements have no gaps and are in order (contiguous), else a copy that is packed
 * before and unpacked after the call.
 */
struct disti_layout {
    char *memory;
    MPI_Datatype type; /* if a copy is used: our duplicate of the program's type */
    size_t size;       /* bytes of data in an element */
    MPI_Aint extent;
    bool contiguous;
    int blocks;              /* 0: the call does not have this side on this rank */
    size_t block;            /* bytes of each block, if `sizes` is NULL */
    size_t *sizes;           /* bytes, by block; NULL: consecutive blocks of equal size */
    size_t *offsets;         /* by block, relative to `bytes` */
    MPI_Aint *displacements; /* if a copy is used: by block, relative to `memory` */
    char *bytes;             /* the memory passed to libdist */
};

/* Initializes a layout without blocks. Field by field: a short call has two of them. */
static inline void disti_layout_clear(struct disti_layout *layout)
{
    layout->type = MPI_DATATYPE_NULL;
    layout->contiguous = true;
    layout->blocks = 0;
    layout->sizes = NULL;
    layout->offsets = NULL;
    layout->displacements = NULL;
}

/* True if layout_close would free something. */
static inline bool disti_layout_owns(const struct disti_layout *layout)
{
    return !layout->contiguous || layout->sizes || layout->offsets || layout->displacements;
}

/* Adds a displacement, which may be negative, to a base, which may be MPI_BOTTOM. */
static inline char *disti_layout_address(char *base, MPI_Aint displacement)
{
    return (char *)((uintptr_t)base + (uintptr_t)displacement);
}

/* Returns the bytes of data in an element; 0: invalid type. */
size_t disti_type_size(MPI_Datatype type);

/* True if MPI_Pack writes nothing but the data; otherwise noncontiguous types cannot be served. */
bool disti_pack_is_data_only(void);

/* ---- call.c ---- */

/* Calls the error handler for a call with args->refused set. Returns the error code. */
int disti_call_refuse(const struct disti_args *args);

/* ---- comms.c: comparisons ---- */

/* Returns the comparison for a blocking call that args->channel could serve. NULL: not compared. */
struct disti_comparison *disti_comparison_find(const struct disti_args *args,
                                               const struct disti_comm *comm);

/*
 * Returns DISTI_WHY_SERVED, or why the call is forwarded; the same on all ranks. If it sets
 * args->comparison, the caller must call disti_compare_end after the call.
 */
enum disti_why disti_compare(struct disti_args *args, struct disti_comparison *comparison);

/*
 * Records the time of a call that libdist or MPI has completed. The last call of a comparison is
 * collective: blocks.
 */
void disti_compare_end(const struct disti_args *args);

/* ---- call.c ---- */

/* A prepared call: it can be started once, or repeatedly. */
struct disti_call {
    dist_collective kind;
    struct disti_comm *comm;
    struct disti_channel *channel;
    int root;
    struct disti_layout send, recv;
    struct disti_reduction reduction;
    const void *in; /* arguments of the libdist call */
    void *out;
    size_t count;
    size_t *counts;      /* REDUCE_SCATTER_V: elements, by rank */
    void *temporary;     /* a temporary buffer for the result */
    void *temporary_for; /* destination of the result */
    size_t temporary_bytes;
    bool loads_own;  /* in place: this rank sends its block of recv */
    bool loads_recv; /* root of a broadcast: sends recv, receives nothing */
};

/* Marks the channel as broken and calls the error handler. Returns an error code. */
int disti_call_fail(const struct disti_call *call);

/*
 * Prepares a call. Returns MPI_SUCCESS, or an error code after calling the error handler. In any
 * case the caller must call disti_call_close.
 */
int disti_call_open(struct disti_call *call, const struct disti_args *args,
                    struct disti_comm *comm);
void disti_call_close(struct disti_call *call);

/*
 * Packs the data and starts the operation; if work_p is NULL, runs it to completion, while MPI's
 * own messages make progress. Errors as in disti_call_open.
 */
int disti_call_start(struct disti_call *call, dist_work **work_p);

/*
 * Stores the result in the program's memory after the operation succeeded. Returns MPI_SUCCESS or
 * an error code; does not call the error handler.
 */
int disti_call_finish(const struct disti_call *call);

/* ---- call.c: fast path ---- */

/* Stores a successful blocking call, so that the same call takes the fast path. */
void disti_fast_call_store(const struct disti_args *args, const struct disti_call *call);

/* ---- requests.c ---- */

/* An operation for which the program has a request. */
struct disti_pending {
    struct disti_call call;
    dist_work *work; /* NULL if not in progress; of a prepared all-reduce always set */
    MPI_Request request;
    int code; /* MPI_SUCCESS, or the error code of the ended operation */
    bool persistent, is_prepared, running, is_freed;
    int tag;                               /* persistent: tag of the message that completes it */
    STAILQ_ENTRY(disti_pending) next;      /* in the channel's list of operations in progress */
    struct disti_pending *next_persistent; /* in the list of persistent operations */
};

/* Runs a call to completion. Returns an MPI error code. */
int disti_serve(struct disti_args *args, struct disti_comm *comm);

/* The request of the last call that was served in this thread. */
extern DISTI_THREAD_LOCAL MPI_Request disti_last_request;

/* Starts a nonblocking call; *request_p is a request that MPI can complete. */
int disti_serve_nonblocking(struct disti_args *args, struct disti_comm *comm,
                            MPI_Request *request_p);

/* True if the channel has operations in progress. */
bool disti_pending_any(const struct disti_channel *channel);

/*
 * Makes progress on all channels and completes the requests of operations that have ended. True if
 * some are still in progress.
 */
bool disti_requests_progress(void);

/* Number of operations in progress in the process. */
extern atomic_int disti_requests_pending;

/*
 * As disti_requests_progress, with a fast path: programs test and wait millions of times a second,
 * mostly without an operation in progress.
 */
static inline bool disti_progress(void)
{
    return atomic_load(&disti_requests_pending) && disti_requests_progress();
}

/*
 * Lets MPI make progress on its own messages; a dist_group_options.meanwhile callback, arg is NULL.
 */
void disti_poll_mpi(void *arg);

int disti_serve_persistent(struct disti_args *args, struct disti_comm *comm,
                           MPI_Request *request_p);

/* Called by MPI_Finalize: releases persistent operations that the program has not freed. */
void disti_persistent_close(void);

/* Calls the foreign MPI's MPI_Init or MPI_Init_thread, or that of a tool preloaded after us. */
int disti_foreign_init(int *argc, char ***argv, int required, int *provided);

#endif
