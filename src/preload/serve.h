/* SPDX-License-Identifier: BSD-3-Clause */
/* Preload: from a call of MPI to one of libdist. */
#ifndef DISTI_PRELOAD_SERVE_H
#define DISTI_PRELOAD_SERVE_H

#include "preload/preload.h"

#include <stdint.h>

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

/* ---- layout.c ---- */

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

/* The program's words for it. */
struct disti_buffer {
    const void *memory;
    MPI_Datatype type;
    long long count;
    struct disti_numbers counts, displs;
};

static inline struct disti_buffer disti_args_send(const struct disti_args *args)
{
    return (struct disti_buffer){args->send, args->sendtype, args->sendcount, args->sendcounts,
                                 args->senddispls};
}

static inline struct disti_buffer disti_args_recv(const struct disti_args *args)
{
    return (struct disti_buffer){args->recv, args->recvtype, args->recvcount, args->recvcounts,
                                 args->recvdispls};
}

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

/* copy: even if contiguous. 0, or an error code of MPI. Always to be closed. */
int disti_layout_open(struct disti_layout *layout, const struct disti_buffer *buffer, int blocks,
                      bool copy);
void disti_layout_close(struct disti_layout *layout);

/* Is there anything that closing would free? */
static inline bool disti_layout_owns(const struct disti_layout *layout)
{
    return !layout->contiguous || layout->sizes || layout->offsets || layout->displacements;
}

/* Block's bytes, and where they are from `bytes`. */
size_t disti_layout_size(const struct disti_layout *layout, int block);
size_t disti_layout_offset(const struct disti_layout *layout, int block);

/* From `bytes` to the end of the last block. */
size_t disti_layout_span(const struct disti_layout *layout);

/* Copy blocks [first, first + blocks) between memory and bytes; nothing to do if contiguous. */
int disti_layout_load(const struct disti_layout *layout, int first, int blocks);
int disti_layout_store(const struct disti_layout *layout, int first, int blocks);

/* Memory at a displacement that may be negative, from a base that may be MPI_BOTTOM. */
static inline char *disti_layout_address(char *base, MPI_Aint displacement)
{
    return (char *)((uintptr_t)base + (uintptr_t)displacement);
}

/* Is it the last that was used, and nobody's to free? */
bool disti_type_stays(MPI_Datatype type);

/* May the program communicate with it? MPI says so by packing nothing. */
bool disti_type_is_committed(MPI_Datatype type);

/* Bytes of an element's data; 0: MPI does not know the type. */
size_t disti_type_size(MPI_Datatype type);

/* Does MPI_Pack write nothing but the data? Else types that are not contiguous cannot be served. */
bool disti_pack_is_data_only(void);

/* ---- call.c ---- */

/*
 * Whether all ranks serve this call, in args->channel, or hand it on; counts it. NULL: hand it on.
 * Of the arguments only those are left that are heeded. What decides is the same on all ranks, but
 * for a call that this rank refuses: that is none, and the others may know nothing of it. It is
 * marked in args->refused, and its communicator returned.
 */
struct disti_comm *disti_call_is_eligible(struct disti_args *args, enum disti_form form);

/*
 * MPI's code of a call that was handed on. What it has refused counts no more, as it has not
 * happened on other ranks: MPI knows more mistakes than we look for. Returns the code.
 */
int disti_call_handed_on(struct disti_args *args, int code);

/* Refuses a call that is so marked: calls the error handler. Returns the error code. */
int disti_call_refuse(const struct disti_args *args);

/* ---- compare.c ---- */

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
    enum disti_kind kind;
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

/* Does a blocking call if it is like the last of its kind. False: nothing was done. */
bool disti_again(struct disti_args *args, int *code_p);

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
    int tag;                         /* persistent: of the message that completes it */
    struct disti_pending *next;      /* of those under way in its channel */
    struct disti_pending *next_made; /* of the persistent ones */
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

#endif
