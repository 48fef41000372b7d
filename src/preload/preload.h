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

#include "base/collective.h"
#include "preload/calls.h"

#include <dist/dist.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/queue.h>

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

/* What a call sends, or what it receives, in the program's words. */
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
    MPI_Request *request;          /* of calls that have one */
    int refused;                   /* MPI_SUCCESS, or the error code that it is refused with */
    struct disti_channel *channel; /* if it is served: by this one */
    struct disti_comm *counted;    /* that counts it; NULL: none */
    struct disti_comparison *comparison; /* if it is timed: tell disti_compare_end */
};

/* Field by field: to clear it at once takes longer than a short call's share of it. */
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

/* ---- imports.c ---- */

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

/* Has calls served that come from objects that the program has opened since. */
void disti_imports_renew(void);

/* MPI_Init asks for no level: the program's user may tell MPI one, in the environment. */
#define DISTI_NO_LEVEL (-1)

/* Calls a function that is MPI_Init if `required` is DISTI_NO_LEVEL, else MPI_Init_thread. */
static inline int disti_init_by(void *function, int *argc, char ***argv, int required,
                                int *provided)
{
    int (*init)(int *, char ***);
    int (*init_thread)(int *, char ***, int, int *);

    *(void **)&init = *(void **)&init_thread = function;
    return required == DISTI_NO_LEVEL ? init(argc, argv)
                                      : init_thread(argc, argv, required, provided);
}

/* MPI's own MPI_Init or MPI_Init_thread. */
int disti_mpi_init(int *argc, char ***argv, int required, int *provided);

/* The program's tests and waits go past us, as long as nothing of ours is under way. */
void disti_straight_begin(void);

/* They come here from now on. */
void disti_straight_end(void);

/* ---- init.c ---- */

void disti_report_count(dist_collective kind, enum disti_form form, enum disti_why reason);

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
    LIST_ENTRY(disti_comm) made;
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

/* The smallest value of all ranks of comm, each giving its own. Collective; blocks. */
int disti_comm_least(MPI_Comm comm, int value);

/*
 * A call of libdist has failed: prints its error and calls the communicator's error handler, which
 * may end the program. Returns MPI_ERR_OTHER.
 */
int disti_comm_fail(MPI_Comm comm);

/* Ours against MPI's, for one collective and one class of sizes. */
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
    STAILQ_HEAD(, disti_pending) pending; /* under way; requests.c's */
    SLIST_ENTRY(disti_channel) next;      /* of those with operations under way */
    struct channels_list *list;
    struct disti_comparison comparisons[DIST_COLL_COUNT][DISTI_CLASSES];
    int slot;
    bool broken; /* a call has failed: it serves nobody else */
};

/* Gives it back. Local. */
void disti_channel_give(struct disti_channel *channel);

/* Forgets all communicators and channels; after the groups. */
void disti_comms_close(void);

/* Preload: from a call of MPI to one of libdist. */

/* ---- reduce.c ---- */

/* A reduction as libdist sees it: an element of the program's type is `parts` of dtype. */
struct disti_reduction {
    dist_dtype dtype;
    size_t parts;
    dist_op op;
};

/*
 * Can this type be reduced by this operation here? Depends on nothing but the two. With WHY_SERVED
 * the caller may ask for it.
 */
enum disti_why disti_reduction_is_eligible(MPI_Datatype type, MPI_Op op);

/* May fail only for lack of memory, with dist_last_error. */
dist_status disti_reduction_find(MPI_Datatype type, MPI_Op op, struct disti_reduction *reduction_p);

/* Of one that may be found: is the result the same whoever computes it? */
bool disti_reduction_is_exact(MPI_Datatype type, MPI_Op op);

/* ---- call.c: layouts ---- */

/*
 * What a call reads from, or writes to: blocks of elements in the program's memory. libdist sees
 * bytes: the memory itself where elements of the type lie without gaps and in order (contiguous),
 * else a copy that is packed before and unpacked after.
 */
struct disti_layout {
    char *memory;
    MPI_Datatype type; /* of a copy: a duplicate of our own */
    size_t size;       /* bytes of an element's data */
    MPI_Aint extent;
    bool contiguous;
    int blocks;              /* 0: the call has no such side on this rank */
    size_t block;            /* bytes of each, unless there are sizes */
    size_t *sizes;           /* bytes, by block; NULL: all alike, one after the other */
    size_t *offsets;         /* by block, from `bytes` */
    MPI_Aint *displacements; /* by block, from `memory`, of a copy */
    char *bytes;             /* what libdist is given */
};

/* One that is not there. Field by field: short calls have two. */
static inline void disti_layout_clear(struct disti_layout *layout)
{
    layout->type = MPI_DATATYPE_NULL;
    layout->contiguous = true;
    layout->blocks = 0;
    layout->sizes = NULL;
    layout->offsets = NULL;
    layout->displacements = NULL;
}

/* Is there anything that closing would free? */
static inline bool disti_layout_owns(const struct disti_layout *layout)
{
    return !layout->contiguous || layout->sizes || layout->offsets || layout->displacements;
}

/* Memory at a displacement that may be negative, from a base that may be MPI_BOTTOM. */
static inline char *disti_layout_address(char *base, MPI_Aint displacement)
{
    return (char *)((uintptr_t)base + (uintptr_t)displacement);
}

/* Bytes of an element's data; 0: MPI does not know the type. */
size_t disti_type_size(MPI_Datatype type);

/* Does MPI_Pack write nothing but the data? Else types that are not contiguous cannot be served. */
bool disti_pack_is_data_only(void);

/* ---- call.c ---- */

/* Refuses a call that is so marked: calls the error handler. Returns the error code. */
int disti_call_refuse(const struct disti_args *args);

/* ---- comms.c: comparisons ---- */

/* For blocking calls like this one, which could be served by args->channel. NULL: not compared. */
struct disti_comparison *disti_comparison_find(const struct disti_args *args,
                                               const struct disti_comm *comm);

/*
 * Is such a call faster in MPI? SERVED, or why it is handed on; the same on all ranks. With
 * args->comparison set the caller is to tell when it has ended.
 */
enum disti_why disti_compare(struct disti_args *args, struct disti_comparison *comparison);

/* The call has ended, whoever did it. The last of a comparison meets the other ranks: blocks. */
void disti_compare_end(const struct disti_args *args);

/* ---- call.c ---- */

/* A call made ready: it may be started, once or again and again. */
struct disti_call {
    dist_collective kind;
    struct disti_comm *comm;
    struct disti_channel *channel;
    int root;
    struct disti_layout send, recv;
    struct disti_reduction reduction;
    const void *in; /* as libdist's call wants them */
    void *out;
    size_t count;
    size_t *counts;   /* REDUCE_SCATTER: elements, by rank */
    void *spare;      /* a result that cannot be where it belongs yet */
    void *spare_goes; /* there it belongs */
    size_t spare_bytes;
    bool loads_own;  /* in place: this rank gives its block of recv */
    bool loads_recv; /* a broadcast's root gives what recv is, and gets nothing */
};

/* Ends the channel's use and calls the error handler. Returns an error code. */
int disti_call_fail(const struct disti_call *call);

/* MPI_SUCCESS, or an error code after the error handler was called. Always to be closed. */
int disti_call_open(struct disti_call *call, const struct disti_args *args,
                    struct disti_comm *comm);
void disti_call_close(struct disti_call *call);

/*
 * Copies the data in and starts the operation; with work_p NULL it does it to its end, and MPI's
 * own messages are looked after meanwhile. As disti_call_open.
 */
int disti_call_start(struct disti_call *call, dist_work **work_p);

/*
 * The operation has ended well: brings the result to where the program wants it. MPI_SUCCESS or an
 * error code; calls no error handler.
 */
int disti_call_finish(const struct disti_call *call);

/* ---- call.c: the same call again ---- */

/* Such a call has ended well. */
void disti_again_remember(const struct disti_args *args, const struct disti_call *call);

/* ---- requests.c ---- */

/* An operation that the program has a request for. */
struct disti_pending {
    struct disti_call call;
    dist_work *work; /* under way; of an all-reduce that libdist keeps: always */
    MPI_Request request;
    int code; /* how it ended */
    bool persistent, kept, running, abandoned;
    int tag;                          /* persistent: of the message that completes it */
    STAILQ_ENTRY(disti_pending) next; /* of those under way in its channel */
    struct disti_pending *next_made;  /* of the persistent ones */
};

/* Serves it to the end. */
int disti_serve(struct disti_args *args, struct disti_comm *comm);

/* The request that a call of this thread was last served with. */
extern DISTI_THREAD_LOCAL MPI_Request disti_request_made;

/* Starts it; *request_p is one that MPI knows. */
int disti_serve_nonblocking(struct disti_args *args, struct disti_comm *comm,
                            MPI_Request *request_p);

/* Are operations under way in this channel? */
bool disti_pending_any(const struct disti_channel *channel);

/*
 * Moves the operations of all channels along, and tells MPI of those that have ended. True:
 * some are still under way.
 */
bool disti_requests_move(void);

/* How many are under way in the process. */
extern atomic_int disti_requests_pending;

/* The same, for each of MPI's own calls that tests or waits: programs make millions a second, and
 * mostly nothing is under way. */
static inline bool disti_move(void)
{
    return atomic_load(&disti_requests_pending) && disti_requests_move();
}

/* Lets MPI move its own messages; arg is NULL, see dist_group_options.meanwhile. */
void disti_poll_mpi(void *arg);

int disti_serve_persistent(struct disti_args *args, struct disti_comm *comm,
                           MPI_Request *request_p);

/* MPI_Finalize: forgets all that the program has not freed. */
void disti_persistent_close(void);

/* That MPI's own MPI_Init or MPI_Init_thread, or that of a tool that was preloaded after us. */
int disti_foreign_init(int *argc, char ***argv, int required, int *provided);

#endif
