/* SPDX-License-Identifier: BSD-3-Clause */
/* libdist: collective communication for any C program. The public interface. */
#ifndef DIST_DIST_H
#define DIST_DIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DIST_VERSION_MAJOR 0
#define DIST_VERSION_MINOR 1
#define DIST_VERSION_PATCH 0
#define DIST_VERSION_STRING "0.1.0"

#if defined(__GNUC__)
#define DIST_API __attribute__((visibility("default")))
#else
#define DIST_API
#endif

/*
 * Statuses: 0 is success, positive is "not yet", negative is failure.
 * X(name, value, text)
 */
#define DIST_STATUS_MAP(X)                                                                         \
    X(OK, 0, "success")                                                                            \
    X(IN_PROGRESS, 1, "the operation is still in progress")                                        \
    X(ERR_INVALID_ARGUMENT, -1, "invalid argument")                                                \
    X(ERR_UNSUPPORTED, -2, "not supported by this backend")                                        \
    X(ERR_NO_MEMORY, -3, "out of memory")                                                          \
    X(ERR_SYSTEM, -4, "a system call failed")                                                      \
    X(ERR_TIMEOUT, -5, "the operation timed out")                                                  \
    X(ERR_PEER_LOST, -6, "a rank was lost")                                                        \
    X(ERR_MISMATCH, -7, "the ranks called different operations")                                   \
    X(ERR_NO_BACKEND, -8, "no such backend, or it cannot run here")                                \
    X(ERR_RENDEZVOUS, -9, "the ranks could not find each other")                                   \
    X(ERR_ADDRESS_IN_USE, -10, "the address is already in use")                                    \
    X(ERR_ABI, -11, "the module was built for another version of libdist")                         \
    X(ERR_ABORTED, -12, "the group was aborted after an earlier error")                            \
    X(ERR_INTERNAL, -13, "internal error in libdist, please report it")

typedef enum dist_status {
#define DIST_STATUS_ENUM(name, value, text) DIST_##name = value,
    DIST_STATUS_MAP(DIST_STATUS_ENUM)
#undef DIST_STATUS_ENUM
} dist_status;

/*
 * Element types. X(name, text, bytes an element)
 * The numbers are a part of the ABI: from FLOAT32, 0, to BOOL, 10, in this order. New ones come
 * last. A bool is a byte: 0 is false, anything else true; what an operation gives is 0 or 1.
 */
#define DIST_DTYPE_MAP(X)                                                                          \
    X(FLOAT32, "float32", 4)                                                                       \
    X(FLOAT64, "float64", 8)                                                                       \
    X(FLOAT16, "float16", 2)                                                                       \
    X(BFLOAT16, "bfloat16", 2)                                                                     \
    X(INT8, "int8", 1)                                                                             \
    X(UINT8, "uint8", 1)                                                                           \
    X(INT32, "int32", 4)                                                                           \
    X(UINT32, "uint32", 4)                                                                         \
    X(INT64, "int64", 8)                                                                           \
    X(UINT64, "uint64", 8)                                                                         \
    X(BOOL, "bool", 1)

typedef enum dist_dtype {
#define DIST_DTYPE_ENUM(name, text, bytes) DIST_##name,
    DIST_DTYPE_MAP(DIST_DTYPE_ENUM)
#undef DIST_DTYPE_ENUM
        DIST_DTYPE_COUNT
} dist_dtype;

/*
 * Reduction operations. X(name, text)
 * The numbers are a part of the ABI: from SUM, 0, to USER, 9, in this order. New ones come last.
 *
 *                          float32 to bfloat16    int8 to uint64    bool
 *     SUM, MAX             yes                    yes               logical or
 *     PROD, MIN            yes                    yes               logical and
 *     AVG                  yes                    yes               -
 *     BAND, BOR, BXOR      -                      yes               logical
 *     PREMUL_SUM           yes                    -                 -
 *     USER                 yes                    yes               yes
 *
 * Sums and products of integers wrap. AVG is the sum divided by the number of ranks; integers
 * truncate towards zero. MIN and MAX of a NaN and a number are NaN, on every rank. PREMUL_SUM and
 * USER are not given by themselves: dist_op_create_premul_sum and dist_op_create make operations of
 * these kinds.
 */
#define DIST_OP_MAP(X)                                                                             \
    X(SUM, "sum")                                                                                  \
    X(AVG, "avg")                                                                                  \
    X(PROD, "prod")                                                                                \
    X(MIN, "min")                                                                                  \
    X(MAX, "max")                                                                                  \
    X(BAND, "band")                                                                                \
    X(BOR, "bor")                                                                                  \
    X(BXOR, "bxor")                                                                                \
    X(PREMUL_SUM, "premul_sum")                                                                    \
    X(USER, "user")

typedef enum dist_op {
#define DIST_OP_ENUM(name, text) DIST_##name,
    DIST_OP_MAP(DIST_OP_ENUM)
#undef DIST_OP_ENUM
        DIST_OP_COUNT,
    DIST_OP_DYNAMIC = 0x40000000 /* operations that were created have values from here on */
} dist_op;

/* The text of a status, dtype or op; never NULL, static storage. An op that was made: "created". */
DIST_API const char *dist_status_string(dist_status status);
DIST_API const char *dist_dtype_string(dist_dtype dtype);
DIST_API const char *dist_op_string(dist_op op);

/* Bytes of one element; 0 if dtype is none of ours. */
DIST_API size_t dist_dtype_size(dist_dtype dtype);

/*
 * What went wrong in the last call of this thread that failed: which rank, which
 * peer, which cause, what to do. Never NULL; "" if nothing failed yet. Valid until
 * the next failing call of this thread.
 */
DIST_API const char *dist_last_error(void);

/* The library's version, "MAJOR.MINOR.PATCH". */
DIST_API const char *dist_version(void);

/* Log levels, most severe first. */
typedef enum dist_log_level {
    DIST_LOG_ERROR,
    DIST_LOG_WARN,
    DIST_LOG_INFO,
    DIST_LOG_TRACE
} dist_log_level;

/* Receives one line (no newline); may be called from any thread; must not call back. */
typedef void (*dist_log_fn)(void *arg, dist_log_level level, const char *line);

/*
 * An all-gather that the program brings itself, for bootstrap only: every rank gives
 * `bytes` bytes at `in`, every rank receives world_size * bytes at `out`, in rank
 * order. May block. Returns 0 or anything else for failure.
 */
typedef int (*dist_oob_all_gather_fn)(void *arg, const void *in, void *out, size_t bytes);

/*
 * A process group: a fixed set of ranks that call collectives together. It is the process's that
 * made it: in a child that this forks every call refuses the group and its works with
 * ERR_INVALID_ARGUMENT, but for those that say who and where this rank is, which answer for the
 * parent. The child has none of its connections, and may join jobs of its own.
 */
typedef struct dist_group dist_group;

/* A started operation. */
typedef struct dist_work dist_work;

/* How to start. Initialise with DIST_OPTIONS_INIT; it carries its size, so it can grow. */
struct dist_options {
    size_t size;             /* sizeof(struct dist_options) */
    const char *backend;     /* "gloo", "mpi", ...; NULL: DIST_BACKEND, else "auto" */
    const char *init_method; /* "env://", "tcp://host:port", "file:///path", "mpi://";
                                NULL: find out what launched this process */
    int rank;                /* 0 to world_size - 1; -1: ask the launcher */
    int world_size;          /* number of ranks; -1: ask the launcher */
    int local_rank;          /* rank among those of this machine; -1: ask the launcher */
    int timeout_ms;          /* for every blocking call; 0: DIST_TIMEOUT, else 300 000 */
    dist_log_fn log;         /* NULL: stderr, for what DIST_DEBUG asks for (default: nothing) */
    void *log_arg;
    dist_oob_all_gather_fn oob_all_gather; /* with rank and world_size set: replaces init_method */
    void *oob_arg;
    bool reproducible; /* the bits of a reduction depend on the number of ranks and on nothing
                          else; the same on every rank; also DIST_REPRODUCIBLE=1 */
    int device;        /* this rank's GPU: its number among those that are visible; -1: DIST_DEVICE,
                          else by local rank. For backends that have one */
    void *stream;      /* as in dist_set_stream; NULL: the device's default stream */
};

#define DIST_OPTIONS_INIT                                                                          \
    {                                                                                              \
        sizeof(struct dist_options), NULL, NULL, -1, -1, -1, 0, NULL, NULL, NULL, NULL, false, -1, \
            NULL                                                                                   \
    }

/*
 * Join the world. Blocks until all world_size ranks have joined, at most the timeout.
 * options may be NULL: everything is found out; a process that nothing launched is a
 * world of one. On success *group_p is the caller's, to be given to
 * dist_destroy_process_group. On failure *group_p is untouched.
 *
 * ERR_NO_BACKEND (dist_last_error lists those there are), ERR_RENDEZVOUS,
 * ERR_ADDRESS_IN_USE, ERR_INVALID_ARGUMENT, ERR_TIMEOUT (names the missing ranks).
 */
DIST_API dist_status dist_init_process_group(const struct dist_options *options,
                                             dist_group **group_p);

/*
 * Leave: finishes the works that are pending, waits until every rank of the group has come here too
 * (both bounded by the timeout), then frees the group, whatever is returned. Ranks that share
 * several groups destroy them in the same order, else they wait for each other. Its works may still
 * be given to dist_wait, which tells how they ended. For the world, the groups that were made from
 * it and still are there go first. After an error nobody is waited for. NULL is accepted. No other
 * thread may be in a call with the group; a later call is refused with ERR_INVALID_ARGUMENT.
 */
DIST_API dist_status dist_destroy_process_group(dist_group *group);

/*
 * Ends the group at once, on all ranks: what is pending and what blocks (collectives, dist_wait,
 * dist_recv, dist_monitored_barrier, dist_new_group of this parent) returns ERR_ABORTED there, and
 * dist_last_error says which rank aborted it. Later calls are refused; it can be no parent. It must
 * still be given to dist_destroy_process_group, which waits for nobody then. Other groups go on.
 *
 * Any thread may call it, beside calls with the group, and so may a signal handler: it is
 * async-signal-safe, returns at once, and does not set dist_last_error. Only
 * dist_destroy_process_group must not have returned. While nothing of this process is in the
 * library, and works pending are moved by calls alone (DIST_PROGRESS_THREAD=0), they end here with
 * the next call; the others are told all the same. Again: nothing happens. ERR_INVALID_ARGUMENT:
 * NULL, a group that is gone or a parent's.
 */
DIST_API dist_status dist_abort(dist_group *group);

/* This process's place. */
DIST_API int dist_get_rank(const dist_group *group);
DIST_API int dist_get_world_size(const dist_group *group);
DIST_API int dist_get_local_rank(const dist_group *group);

/* The name of the backend in use, e.g. "gloo". The group's; do not free. */
DIST_API const char *dist_get_backend(const dist_group *group);

/* ---- groups ---- */

/* How a new group differs from its parent. Initialise with DIST_GROUP_OPTIONS_INIT. */
struct dist_group_options {
    size_t size;         /* sizeof(struct dist_group_options) */
    const char *backend; /* NULL: the parent's; "auto": as at the beginning; both: "self" for one */
    int timeout_ms;      /* 0: the parent's */
    void *stream;        /* as in dist_set_stream; NULL: the parent's */
};

#define DIST_GROUP_OPTIONS_INIT                                                                    \
    {                                                                                              \
        sizeof(struct dist_group_options), NULL, 0, NULL                                           \
    }

/*
 * A group of some ranks of `parent`: ranks[i] (a rank of parent, each once, in any order) becomes
 * rank i. Collective over the ranks that are listed: each passes the same list, and where it makes
 * several groups of the same ranks, in the same order. A rank that is not listed may call it too;
 * it gets NULL. options may be NULL. Blocks, at most the timeout. Groups do not disturb each other:
 * each has its own connections, its own order of operations, and its own errors. Even a group that
 * has failed can be a parent: so the ranks that are left go on among themselves.
 */
DIST_API dist_status dist_new_group(dist_group *parent, const int *ranks, int count,
                                    const struct dist_group_options *options, dist_group **group_p);

/*
 * Cuts the parent into groups: ranks with the same color (0 or more) come together, ordered by key,
 * then by rank in parent. DIST_NO_COLOR: this rank joins none and gets NULL. Collective over
 * parent: every rank calls it. Blocks.
 */
#define DIST_NO_COLOR (-1)
DIST_API dist_status dist_split_group(dist_group *parent, int color, int key,
                                      const struct dist_group_options *options,
                                      dist_group **group_p);

/* A group of the same ranks with its own order of operations. Collective over parent. Blocks. */
DIST_API dist_status dist_dup_group(dist_group *parent, const struct dist_group_options *options,
                                    dist_group **group_p);

/*
 * From a rank of this group to the rank in the world (the group that dist_init_process_group made),
 * and back. -1: there is none.
 */
DIST_API int dist_get_global_rank(const dist_group *group, int group_rank);
DIST_API int dist_get_group_rank(const dist_group *group, int global_rank);

/* ---- reduction operations of one's own ---- */

/*
 * dst[i] = a[i] op b[i] for count elements; dst may be a or b. Must be associative and commutative,
 * may be called from any thread, several at a time, and for any part of a vector; must not call the
 * library. The pointers are aligned to an element if the buffers of the call are.
 */
typedef void (*dist_reduce_fn)(void *arg, void *dst, const void *a, const void *b, size_t count,
                               dist_dtype dtype);

/*
 * An operation that the program brings, for every dtype. It is the process's, not a group's, and
 * good for any number of calls; every rank must create its own. arg must live as long as it. On
 * success *op_p is to be given to dist_op_free once no call uses it. May be called from any thread;
 * 65536 operations may exist at a time, of both sorts together.
 *
 * ERR_INVALID_ARGUMENT (fn or op_p is NULL), ERR_NO_MEMORY.
 */
DIST_API dist_status dist_op_create(dist_reduce_fn fn, void *arg, dist_op *op_p);

/*
 * The sum of factor * in over the ranks, factor being each rank's own; for floating-point dtypes.
 * The product is rounded to the dtype before it is added; but for float64, the factor is rounded to
 * float32 before it multiplies. Otherwise as dist_op_create.
 */
DIST_API dist_status dist_op_create_premul_sum(double factor, dist_op *op_p);

/*
 * Ends an operation that was made here. No call may be under way that uses it; a later call that
 * does is refused. ERR_INVALID_ARGUMENT: op is built in, or was freed.
 */
DIST_API dist_status dist_op_free(dist_op op);

/* ---- collectives ---- */

/*
 * Common to all. Every rank of the group calls the same collectives in the same order with the same
 * count, dtype, op and root. Counts are elements of dtype. Buffers may be NULL if the count is 0.
 * in and out must not overlap except in place, as each says; of blocks with offsets it is the
 * blocks that must not, which may lie in each other's gaps. The plain form blocks, at most the
 * timeout. The _async form starts the operation and does not block on a peer: on success *work_p
 * must be given to dist_wait once, and until it has ended the buffers belong to the library; arrays
 * of counts and offsets are copied. Operations of one group start in the order of the calls.
 *
 * ERR_INVALID_ARGUMENT, ERR_UNSUPPORTED: nothing was started, the group is as before.
 * ERR_MISMATCH, ERR_TIMEOUT, ERR_PEER_LOST: the group has ended, on all ranks; other groups go on.
 * ERR_ABORTED: the group ended earlier.
 */

/*
 * out[i] = op over all ranks of in[i], for count elements, on every rank. In place: in == out.
 * float16 and bfloat16 are added in float32 and rounded to the type after each step.
 */
DIST_API dist_status dist_all_reduce(dist_group *group, const void *in, void *out, size_t count,
                                     dist_dtype dtype, dist_op op);
DIST_API dist_status dist_all_reduce_async(dist_group *group, const void *in, void *out,
                                           size_t count, dist_dtype dtype, dist_op op,
                                           dist_work **work_p);

/*
 * All-reduce, in place, of `buffers` buffers: buffer i has counts[i] elements. One operation: small
 * buffers travel together. The arrays are copied, the buffers belong to the library until it ends.
 */
DIST_API dist_status dist_all_reduce_coalesced(dist_group *group, void *const *buffers,
                                               const size_t *counts, int buffer_count,
                                               dist_dtype dtype, dist_op op);
DIST_API dist_status dist_all_reduce_coalesced_async(dist_group *group, void *const *buffers,
                                                     const size_t *counts, int buffer_count,
                                                     dist_dtype dtype, dist_op op,
                                                     dist_work **work_p);

/* As all_reduce, but only root gets the result: out matters at root only. In place: in == out. */
DIST_API dist_status dist_reduce(dist_group *group, const void *in, void *out, size_t count,
                                 dist_dtype dtype, dist_op op, int root);
DIST_API dist_status dist_reduce_async(dist_group *group, const void *in, void *out, size_t count,
                                       dist_dtype dtype, dist_op op, int root, dist_work **work_p);

/* Every rank's buffer (count elements) becomes a copy of root's. */
DIST_API dist_status dist_broadcast(dist_group *group, void *buffer, size_t count, dist_dtype dtype,
                                    int root);
DIST_API dist_status dist_broadcast_async(dist_group *group, void *buffer, size_t count,
                                          dist_dtype dtype, int root, dist_work **work_p);

/* Returns once every rank has called it. */
DIST_API dist_status dist_barrier(dist_group *group);
DIST_API dist_status dist_barrier_async(dist_group *group, dist_work **work_p);

/*
 * A barrier that says who is missing: if not every rank has come within timeout_ms (0: the group's
 * timeout), ERR_TIMEOUT, and dist_last_error names those that did not. The group goes on as it was,
 * and a rank that comes late passes through.
 */
DIST_API dist_status dist_monitored_barrier(dist_group *group, int timeout_ms);

/*
 * out (world_size * count elements) becomes the ranks' in (count elements each), in rank order. In
 * place: in == out + rank * count elements. _v: rank r gives counts[r] elements, which come to
 * out + offsets[r] elements; offsets NULL: one after the other. In place: in is where it will be.
 */
DIST_API dist_status dist_all_gather(dist_group *group, const void *in, void *out, size_t count,
                                     dist_dtype dtype);
DIST_API dist_status dist_all_gather_async(dist_group *group, const void *in, void *out,
                                           size_t count, dist_dtype dtype, dist_work **work_p);
DIST_API dist_status dist_all_gather_v(dist_group *group, const void *in, void *out,
                                       const size_t *counts, const size_t *offsets,
                                       dist_dtype dtype);
DIST_API dist_status dist_all_gather_v_async(dist_group *group, const void *in, void *out,
                                             const size_t *counts, const size_t *offsets,
                                             dist_dtype dtype, dist_work **work_p);

/*
 * in (world_size * count elements) is reduced over the ranks, and rank r gets the r-th block of
 * count elements of the result in out. In place: out == in + rank * count elements; what else is in
 * `in` stays as it was. _v: block r has counts[r] elements, one after the other.
 */
DIST_API dist_status dist_reduce_scatter(dist_group *group, const void *in, void *out, size_t count,
                                         dist_dtype dtype, dist_op op);
DIST_API dist_status dist_reduce_scatter_async(dist_group *group, const void *in, void *out,
                                               size_t count, dist_dtype dtype, dist_op op,
                                               dist_work **work_p);
DIST_API dist_status dist_reduce_scatter_v(dist_group *group, const void *in, void *out,
                                           const size_t *counts, dist_dtype dtype, dist_op op);
DIST_API dist_status dist_reduce_scatter_v_async(dist_group *group, const void *in, void *out,
                                                 const size_t *counts, dist_dtype dtype, dist_op op,
                                                 dist_work **work_p);

/*
 * As all_gather, but only root gets the result: out, counts and offsets matter at root only. In
 * place at root: in is where it will be. _v: this rank gives count elements, and root expects
 * counts[r] from rank r at out + offsets[r] elements (NULL: one after the other).
 */
DIST_API dist_status dist_gather(dist_group *group, const void *in, void *out, size_t count,
                                 dist_dtype dtype, int root);
DIST_API dist_status dist_gather_async(dist_group *group, const void *in, void *out, size_t count,
                                       dist_dtype dtype, int root, dist_work **work_p);
DIST_API dist_status dist_gather_v(dist_group *group, const void *in, size_t count, void *out,
                                   const size_t *counts, const size_t *offsets, dist_dtype dtype,
                                   int root);
DIST_API dist_status dist_gather_v_async(dist_group *group, const void *in, size_t count, void *out,
                                         const size_t *counts, const size_t *offsets,
                                         dist_dtype dtype, int root, dist_work **work_p);

/*
 * Rank r's out becomes the r-th block of count elements of root's in, which matters at root only.
 * In place at root: out is that block. _v: block r is counts[r] elements at in + offsets[r]
 * elements (NULL: one after the other), both root's; this rank expects count elements.
 */
DIST_API dist_status dist_scatter(dist_group *group, const void *in, void *out, size_t count,
                                  dist_dtype dtype, int root);
DIST_API dist_status dist_scatter_async(dist_group *group, const void *in, void *out, size_t count,
                                        dist_dtype dtype, int root, dist_work **work_p);
DIST_API dist_status dist_scatter_v(dist_group *group, const void *in, const size_t *counts,
                                    const size_t *offsets, void *out, size_t count,
                                    dist_dtype dtype, int root);
DIST_API dist_status dist_scatter_v_async(dist_group *group, const void *in, const size_t *counts,
                                          const size_t *offsets, void *out, size_t count,
                                          dist_dtype dtype, int root, dist_work **work_p);

/*
 * Block s of rank d's out becomes block d of rank s's in; a block is count elements, in and out are
 * world_size blocks. There is no in place. _v: to rank r go in_counts[r] elements from
 * in + in_offsets[r] elements, from rank r come out_counts[r] to out + out_offsets[r] elements;
 * offsets NULL: one after the other.
 */
DIST_API dist_status dist_all_to_all(dist_group *group, const void *in, void *out, size_t count,
                                     dist_dtype dtype);
DIST_API dist_status dist_all_to_all_async(dist_group *group, const void *in, void *out,
                                           size_t count, dist_dtype dtype, dist_work **work_p);
DIST_API dist_status dist_all_to_all_v(dist_group *group, const void *in, const size_t *in_counts,
                                       const size_t *in_offsets, void *out,
                                       const size_t *out_counts, const size_t *out_offsets,
                                       dist_dtype dtype);
DIST_API dist_status dist_all_to_all_v_async(dist_group *group, const void *in,
                                             const size_t *in_counts, const size_t *in_offsets,
                                             void *out, const size_t *out_counts,
                                             const size_t *out_offsets, dist_dtype dtype,
                                             dist_work **work_p);

/* ---- point to point ---- */

/*
 * count elements to rank `peer`, which receives as many of the same dtype with the same tag (0 to
 * DIST_TAG_MAX); from rank `peer`, or from DIST_ANY_SOURCE: from whoever comes first. Messages of
 * one tag between two ranks stay in order. A rank may send to itself. *source_p (may be NULL)
 * becomes the sender's rank when the operation has ended; or at once, if a stream orders it
 * (below). A send may block until it is received.
 */
#define DIST_ANY_SOURCE (-1)
#define DIST_TAG_MAX 0x7fffffff
DIST_API dist_status dist_send(dist_group *group, const void *data, size_t count, dist_dtype dtype,
                               int peer, int tag);
DIST_API dist_status dist_recv(dist_group *group, void *data, size_t count, dist_dtype dtype,
                               int peer, int tag, int *source_p);
DIST_API dist_status dist_isend(dist_group *group, const void *data, size_t count, dist_dtype dtype,
                                int peer, int tag, dist_work **work_p);
DIST_API dist_status dist_irecv(dist_group *group, void *data, size_t count, dist_dtype dtype,
                                int peer, int tag, int *source_p, dist_work **work_p);

/*
 * Between the two, this thread's blocking collectives, sends and receives (on any groups) are only
 * noted: they return at once, and dist_group_end starts them together and waits for all. So an
 * exchange of sends and receives cannot deadlock, whatever their order. May be nested; the
 * outermost end counts. Returns the first failure. What is refused at once (a wrong argument) is
 * not noted. dist_all_reduce_coalesced starts at once what was noted before it, and itself. _async
 * forms and dist_monitored_barrier are not held back. Not for functions given to dist_on_complete.
 */
DIST_API dist_status dist_group_start(void);
DIST_API dist_status dist_group_end(void);

/* ---- works ---- */

/*
 * Collectives of one group end in the order in which they were started; sends, receives, and works
 * of different groups end in any order. A thread of the library moves works along while the program
 * computes (DIST_PROGRESS_THREAD=0: only calls of the library for the same group do).
 *
 * A work that was freed is refused with ERR_INVALID_ARGUMENT by all of these, and so is a thread
 * that waits for a work for which another one waits. A dist_work is no address: it cannot be looked
 * into, and no two works of a process are the same one.
 */

/* Blocks until the work has ended (at most the group's timeout) and frees it, always. */
DIST_API dist_status dist_wait(dist_work *work);

/*
 * Blocks at most timeout_ms. IN_PROGRESS: it has not ended, and the work is as it was. Anything
 * else: as dist_wait.
 */
DIST_API dist_status dist_wait_for(dist_work *work, int timeout_ms);

/*
 * Moves things along and says whether the work has ended; does not free it, does not
 * block. A failure of the work is returned by dist_wait, not here.
 */
DIST_API dist_status dist_test(dist_work *work, bool *done_p);

/*
 * fn(arg, status) is called once, when the work has ended: by whatever thread finds out, or by this
 * one before the call returns. It may start operations but not wait for them. The work must still
 * be given to dist_wait. At most one function a work. Not for persistent works.
 */
typedef void (*dist_work_fn)(void *arg, dist_status status);
DIST_API dist_status dist_on_complete(dist_work *work, dist_work_fn fn, void *arg);

/*
 * An all-reduce that is done again and again on the same buffers: plan and scratch memory are made
 * here, once. Called by all ranks; sends nothing. dist_start starts it, dist_wait waits for it
 * and does not free it; it must not be started again before. dist_work_free ends it.
 */
DIST_API dist_status dist_all_reduce_init(dist_group *group, const void *in, void *out,
                                          size_t count, dist_dtype dtype, dist_op op,
                                          dist_work **work_p);
DIST_API dist_status dist_start(dist_work *work);

/* Frees a persistent work that is not running. NULL is accepted. */
DIST_API dist_status dist_work_free(dist_work *work);

/* ---- memory of devices ---- */

/*
 * Buffers may be memory of a GPU: CUDA's, or HIP's. Backend nccl takes it as it is, and so do MPI's
 * own collectives (DIST_MPI_COLL=native) where the MPI says so; else it is copied to the host and
 * back.
 *
 * With backend nccl, calls on such memory are ordered by streams, as with NCCL itself:
 *
 *     dist_all_reduce        put on the group's stream; returns at once, and what is put on the
 *                            stream afterwards begins when it has ended
 *     dist_all_reduce_async  begins after what is on the group's stream now, and runs beside it
 *     dist_wait              puts the end of the work on the group's stream: what comes afterwards
 *                            begins after it. The host does not wait
 *     dist_test              has it ended on the device?
 *
 * To wait on the host, wait for the stream (cudaStreamSynchronize). A call that fails later, for
 * instance because its deadline has passed, ends the group: its streams go on, with buffers that
 * mean nothing, and the next call returns the error. On a stream that is being captured calls
 * become part of the graph. Calls on host memory wait on the host, with every backend.
 */

/*
 * Calls of this group on memory of a device are ordered by this stream (cudaStream_t, hipStream_t)
 * from now on; NULL: by the device's default stream. It must live until it is replaced, or the
 * group has ended. Not for a thread while another one is in a call with the group.
 */
DIST_API dist_status dist_set_stream(dist_group *group, void *stream);

/* ---- memory ---- */

/*
 * Memory that collectives move fastest: what the backend wants (nccl: memory of the device), else
 * memory that the other ranks of the machine can map, and then read and write in place. It is
 * zeroed and aligned to a page, from 2 MiB on to 2 MiB, with huge pages where the kernel gives
 * them. Any part of it may be used wherever memory may, in calls of every group of the process.
 *
 * group may be NULL: memory of the host that groups which this process joins later share too.
 *
 * Local: ranks need not allocate alike, nor at all. Any thread, never blocks on a peer. Each
 * allocation takes whole pages; a process needs few descriptors for all of them. Where no memory
 * can be shared, as no descriptor is left or memfd_create is not allowed, it is ordinary memory.
 * bytes 0: *memory_p becomes NULL. On success *memory_p is to be given to dist_free.
 *
 * Pages are made when they are first touched; if there is none left then, that ends as with malloc.
 * A child that the process forks has a view of its own: what it writes is its own, what the parent
 * writes later it may see or not. The child cannot free it.
 *
 * ERR_INVALID_ARGUMENT, ERR_NO_MEMORY, ERR_SYSTEM; ERR_ABORTED, if the backend allocates and the
 * group has ended.
 */
DIST_API dist_status dist_alloc(dist_group *group, size_t bytes, void **memory_p);

/*
 * Frees what dist_alloc gave, at once. No operation may be using it, of this rank or of another
 * that waits for this one: complete them first. `group` is the one of dist_alloc, or NULL; it may
 * have been destroyed: but memory of the backend's own goes with its group, and is refused
 * afterwards. memory may be NULL. What is never freed is freed when the process ends.
 *
 * ERR_INVALID_ARGUMENT: dist_alloc did not give it to this process, or it was freed.
 */
DIST_API dist_status dist_free(dist_group *group, void *memory);

/*
 * Makes memory that the program has already as good as that of dist_alloc, in place: address and
 * contents stay. It must be whole pages of ordinary memory, as mmap(MAP_PRIVATE | MAP_ANONYMOUS) or
 * posix_memalign with the size of a page give them; not a file's, not shared, not the stack. During
 * the call no other thread may write there and no operation may use it. It is copied once, so it
 * takes twice the room meanwhile. Whether it was locked (mlock) or pinned for a device is lost.
 * bytes 0: nothing happens. Before the memory is given up it must be given to dist_unregister.
 * Where no memory can be shared the call succeeds, and the memory stays ordinary.
 *
 * ERR_INVALID_ARGUMENT says what is wrong with it; ERR_NO_MEMORY, ERR_SYSTEM: it is as before.
 */
DIST_API dist_status dist_register(dist_group *group, void *memory, size_t bytes);

/*
 * Makes it ordinary memory again; address and contents stay. memory: as it was given to
 * dist_register, or NULL. For `group`, threads and operations as dist_free and dist_register say.
 */
DIST_API dist_status dist_unregister(dist_group *group, void *memory);

/*
 * Runs fn(rank, arg) in `ranks` new processes on this machine, each with RANK,
 * WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT set, so that
 * dist_init_process_group finds its world. Blocks until all have ended; when one
 * fails, the others are ended too. *exit_code_p becomes 0, or the first failure's exit
 * code (128 + signal if a signal ended it). Call it before this process has threads
 * or a group of its own.
 */
DIST_API dist_status dist_spawn(int ranks, int (*fn)(int rank, void *arg), void *arg,
                                int *exit_code_p);

/*
 * Writes one line a known backend, "NAME  yes|no  SUMMARY OR REASON", to the caller's
 * buffer, always terminated. Returns the length of the whole text, as snprintf does.
 */
DIST_API size_t dist_list_backends(char *buffer, size_t size);

#ifdef __cplusplus
}
#endif
#endif
