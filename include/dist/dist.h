/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * libdist: collective communication for any C program. The public interface.
 *
 * A program joins the world of ranks, calls collectives, and leaves:
 *
 *     dist_group *world = NULL;
 *
 *     if (dist_init_process_group(NULL, &world) != DIST_OK ||
 *         dist_all_reduce(world, x, x, n, DIST_FLOAT32, DIST_SUM) != DIST_OK)
 *         fprintf(stderr, "%s\n", dist_last_error());
 *     dist_destroy_process_group(world);
 *
 * The sections of this header:
 *
 *     version             numbers and text
 *     statuses and types  what calls return, what elements are, what reductions do
 *     errors and logging  the text of the last error, a function that receives log lines
 *     the world           join, leave, abort; who is this rank
 *     groups              some of the ranks, with collectives of their own
 *     operations          reductions that the program defines
 *     collectives         all_reduce, reduce, broadcast, barrier, all_gather, reduce_scatter,
 *                         gather, scatter, all_to_all
 *     point to point      send, receive, and both at once
 *     works               wait for started operations; persistent all-reduce
 *     device memory       GPU buffers and streams
 *     memory              buffers that collectives move fastest
 *     processes           start ranks, list backends
 *
 * Conventions. A function that can fail returns a dist_status; DIST_ERR_TIMEOUT is written
 * ERR_TIMEOUT below. Results come last in the argument list, have names that end in _p, and are set
 * on success only. Counts and offsets are in elements of the dtype. A call that blocks ends with
 * ERR_TIMEOUT after the group's timeout at the latest. Any thread may call any function, unless its
 * comment says otherwise; threads that share a group must call its collectives in one order, the
 * same on all ranks. A thread that is cancelled (pthread_cancel, deferred) ends after its call;
 * asynchronous cancellation is not supported. The library never ends the process. By default it
 * prints nothing, except one line for an unknown DIST_ variable and one for a call that has waited
 * for half of its timeout. libdist(3) has the details.
 */
#ifndef DIST_DIST_H
#define DIST_DIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define DIST_API __attribute__((visibility("default")))
#else
#define DIST_API
#endif

/* ---- version ---- */

#define DIST_VERSION_MAJOR 0
#define DIST_VERSION_MINOR 1
#define DIST_VERSION_PATCH 0
#define DIST_VERSION_STRING "0.1.0"

/* Returns the version of the library that the program runs with, as "MAJOR.MINOR.PATCH". */
DIST_API const char *dist_version(void);

/* ---- statuses and types ---- */

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
    X(ERR_INTERNAL, -13, "internal error in libdist, please report it")                            \
    X(ERR_SCHEDULER, -14, "this process was the job's scheduler, which is no rank")

typedef enum dist_status {
#define DIST_STATUS_ENUM(name, value, text) DIST_##name = value,
    DIST_STATUS_MAP(DIST_STATUS_ENUM)
#undef DIST_STATUS_ENUM
} dist_status;

/*
 * Element types. X(name, text, bytes of an element)
 *
 * The numbers are part of the ABI: FLOAT32 is 0, BOOL is 10, and new types come last. A bool is one
 * byte: 0 is false, anything else is true, and operations write 0 or 1.
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
 *
 * The numbers are part of the ABI: SUM is 0, USER is 9, and new operations come last.
 *
 *                          float32 to bfloat16    int8 to uint64    bool
 *     SUM, MAX             yes                    yes               logical or
 *     PROD, MIN            yes                    yes               logical and
 *     AVG                  yes                    yes               -
 *     BAND, BOR, BXOR      -                      yes               logical
 *     PREMUL_SUM           yes                    -                 -
 *     USER                 yes                    yes               yes
 *
 * Integer sums and products wrap. AVG is the sum divided by the number of ranks; integers truncate
 * towards zero. MIN and MAX of a NaN and a number are NaN, on every rank. PREMUL_SUM and USER are
 * not operations by themselves: dist_op_create_premul_sum and dist_op_create make operations of
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
    DIST_OP_DYNAMIC = 0x40000000 /* created operations have this value or more */
} dist_op;

/*
 * Return the text of a status, a dtype or an op. Never NULL, static storage. The text of a created
 * op is "created".
 */
DIST_API const char *dist_status_string(dist_status status);
DIST_API const char *dist_dtype_string(dist_dtype dtype);
DIST_API const char *dist_op_string(dist_op op);

/* Returns the bytes of one element, or 0 if dtype is not a dist_dtype. */
DIST_API size_t dist_dtype_size(dist_dtype dtype);

/* ---- errors and logging ---- */

/*
 * Returns the text of this thread's last failed call: which rank, which peer, which cause, and what
 * to do. Never NULL; "" if no call has failed. Valid until the thread's next failing call.
 */
DIST_API const char *dist_last_error(void);

/* Log levels, most severe first. */
typedef enum dist_log_level {
    DIST_LOG_ERROR,
    DIST_LOG_WARN,
    DIST_LOG_INFO,
    DIST_LOG_TRACE
} dist_log_level;

/* Receives one line, without a newline. Any thread may call it. It must not call the library. */
typedef void (*dist_log_fn)(void *arg, dist_log_level level, const char *line);

/* ---- the world ---- */

/*
 * A process group: a fixed set of ranks that call collectives together.
 *
 * A group belongs to the process that created it. A child that this process forks cannot use it:
 * every call with the group or its works returns ERR_INVALID_ARGUMENT, except the dist_get_
 * functions, which return the parent's values. The child has none of the group's connections, and
 * may join jobs of its own.
 */
typedef struct dist_group dist_group;

/* A started operation. */
typedef struct dist_work dist_work;

/*
 * An all-gather that the program provides, for ranks to find each other without a store address.
 * Every rank passes `bytes` bytes at `in`, and receives world_size * bytes at `out`, in rank order.
 * May block. Returns 0 on success, anything else on failure.
 */
typedef int (*dist_oob_all_gather_fn)(void *arg, const void *in, void *out, size_t bytes);

/* Options for joining. Initialise with DIST_OPTIONS_INIT: `size` lets later versions add members.
 */
struct dist_options {
    size_t size;             /* sizeof(struct dist_options) */
    const char *backend;     /* "gloo", "mpi", ...; NULL: DIST_BACKEND, else "auto" */
    const char *init_method; /* "env://", "tcp://host:port", "file:///path", "mpi://";
                                NULL: find the launcher that started this process */
    int rank;                /* 0 to world_size - 1; -1: ask the launcher */
    int world_size;          /* number of ranks; -1: ask the launcher */
    int local_rank;          /* rank among those of this machine; -1: ask the launcher */
    int timeout_ms;  /* milliseconds for every blocking call; 0: DIST_TIMEOUT, else 300 000 */
    dist_log_fn log; /* NULL: stderr, with the levels that DIST_DEBUG selects (default: none) */
    void *log_arg;
    dist_oob_all_gather_fn oob_all_gather; /* replaces init_method; needs rank and world_size */
    void *oob_arg;
    bool reproducible; /* equal inputs on an equal number of ranks give equal bits (except in a NaN)
                          in every reduction; set it on all ranks or on none; DIST_REPRODUCIBLE=1
                          does the same */
    int device;        /* index of this rank's GPU among the visible ones; -1: DIST_DEVICE, else
                          chosen by local rank. For backends that use a GPU */
    void *stream;      /* see dist_set_stream; NULL: the device's default stream */
};

#define DIST_OPTIONS_INIT                                                                          \
    {                                                                                              \
        sizeof(struct dist_options), NULL, NULL, -1, -1, -1, 0, NULL, NULL, NULL, NULL, false, -1, \
            NULL                                                                                   \
    }

/*
 * Joins the world. Blocks until all world_size ranks have joined.
 *
 * options may be NULL: the library then reads everything from the environment, and a process
 * without a launcher is a world of one rank. The caller owns *group_p and passes it to
 * dist_destroy_process_group.
 *
 * Errors: ERR_NO_BACKEND (dist_last_error lists the backends that exist), ERR_RENDEZVOUS,
 * ERR_ADDRESS_IN_USE, ERR_INVALID_ARGUMENT, ERR_TIMEOUT (dist_last_error names the missing ranks),
 * ERR_MISMATCH (the ranks ask for different backends or settings). A rank whose options are wrong
 * reports the error to the other ranks, if it can reach them within two seconds.
 *
 * A process that MindSpore's variables make the scheduler (MS_ROLE=MS_SCHED) is not a rank. The
 * call runs the store until the job ends, and returns ERR_SCHEDULER if all ranks have left
 * regularly, ERR_PEER_LOST if one was lost (dist_last_error names it), or ERR_TIMEOUT if not all
 * ranks joined.
 */
DIST_API dist_status dist_init_process_group(const struct dist_options *options,
                                             dist_group **group_p);

/*
 * Leaves a group and frees it, whatever status it returns.
 *
 * Completes the pending works, then blocks until every rank of the group has called this function.
 * Returns ERR_MISMATCH on all ranks if they called different collectives and no call has reported
 * that. After an error in the group it waits for no other rank. Ranks that share several groups
 * destroy them in the same order; otherwise they wait for each other. Destroying the world first
 * destroys the groups that were made from it. The group's works stay valid for dist_wait, which
 * returns how they ended.
 *
 * No other thread may be in a call with the group; a later call returns ERR_INVALID_ARGUMENT. NULL
 * is accepted.
 */
DIST_API dist_status dist_destroy_process_group(dist_group *group);

/*
 * Sets the timeout of this rank's later calls in the group, in milliseconds, 1 or more. Does not
 * block. Pending works keep their timeout, and so do calls on a stream of a GPU. Ranks may have
 * different timeouts. Groups that are created from this one inherit the timeout.
 */
DIST_API dist_status dist_set_timeout(dist_group *group, int timeout_ms);

/*
 * Ends a group at once, on all its ranks. Does not block.
 *
 * Pending works and blocked calls (collectives, dist_wait, dist_recv, dist_monitored_barrier,
 * dist_new_group with this group as parent) return ERR_ABORTED on every rank, and dist_last_error
 * says which rank aborted the group. Later calls are refused, and the group cannot be a parent. The
 * caller must still pass it to dist_destroy_process_group, which then waits for no other rank.
 * Other groups continue. A second abort does nothing.
 *
 * Any thread may call it, even while other threads are in calls with the group, and so may a signal
 * handler: it is async-signal-safe and does not set dist_last_error. The group must not be
 * destroyed yet. If only calls make progress (DIST_PROGRESS_THREAD=0), this process's works end
 * with its next call; the other ranks are notified immediately in any case.
 *
 * Errors: ERR_INVALID_ARGUMENT (NULL, or a group that was destroyed or belongs to the process that
 * forked this one).
 */
DIST_API dist_status dist_abort(dist_group *group);

/*
 * Writes the last calls of each group of this process to a file, as JSON for `dist_info flight`.
 * If path is NULL, the file is that of DIST_FLIGHT_FILE, or dist-flight.RANK.json in the current
 * directory; the second to ninth dumps of a process get ".2" to ".9" appended, and later dumps
 * replace the ninth. An existing file is replaced. The library does so by itself when a group ends
 * with an error that is not the loss of a process (the error names the file), and when the process
 * gets SIGUSR1, if the program does not handle that signal.
 *
 * Blocks only as long as the file system does. Any thread may call it, even while other threads are
 * in calls.
 *
 * Errors: ERR_INVALID_ARGUMENT (this process has no group), ERR_SYSTEM (the file cannot be
 * written).
 */
DIST_API dist_status dist_flight_dump(const char *path);

/* Return this process's rank, the number of ranks, and the rank among the ranks of this machine; -1
 * if the group is NULL or destroyed. */
DIST_API int dist_get_rank(const dist_group *group);
DIST_API int dist_get_world_size(const dist_group *group);
DIST_API int dist_get_local_rank(const dist_group *group);

/* Returns the name of the group's backend, such as "gloo"; "" if the group is NULL or destroyed.
 * The group owns the text. */
DIST_API const char *dist_get_backend(const dist_group *group);

/* ---- groups ---- */

/* Options of a new group, in which it differs from its parent. Initialise with
 * DIST_GROUP_OPTIONS_INIT. */
struct dist_group_options {
    size_t size;         /* sizeof(struct dist_group_options) */
    const char *backend; /* NULL: the parent's; "auto": as dist_init_process_group chooses. In both
                            cases a group of one rank gets "self". A backend given by its name is
                            used for any number of ranks */
    int timeout_ms;      /* 0: the parent's */
    void *stream;        /* see dist_set_stream; NULL: the parent's */
    /* Called about every millisecond by a thread that waits in a call of this group, to make
     * progress on something else, such as an MPI library. It must return soon and must not call
     * libdist. NULL: no function, even if the parent has one */
    void (*meanwhile)(void *arg);
    void *meanwhile_arg;
};

#define DIST_GROUP_OPTIONS_INIT                                                                    \
    {                                                                                              \
        sizeof(struct dist_group_options), NULL, 0, NULL, NULL, NULL                               \
    }

/*
 * Makes a group of some ranks of `parent`. Collective over the listed ranks; blocks.
 *
 * ranks[0..count) lists ranks of parent in any order, each once; ranks[i] becomes rank i. All
 * listed ranks pass the same list. Ranks that make several groups together make them in the same
 * order. A rank that is not listed may call it too and gets NULL. options may be NULL.
 *
 * A wrong argument of one rank (options, backend or group_p) is refused there at once, and the
 * other listed ranks get the same status, with an error that names the rank and the cause. The same
 * holds for dist_split_group, dist_dup_group and dist_shrink. Only if the list itself is wrong do
 * the other ranks wait for their timeout.
 *
 * Groups do not disturb each other: each has its own connections, its own order of operations and
 * its own errors. A group that has failed can still be a parent, so that the remaining ranks can
 * continue among themselves. The caller passes *group_p to dist_destroy_process_group.
 */
DIST_API dist_status dist_new_group(dist_group *parent, const int *ranks, int count,
                                    const struct dist_group_options *options, dist_group **group_p);

/*
 * Splits the parent into groups. Collective over parent; blocks.
 *
 * Ranks with the same color (0 or more) form a group, ordered by key, then by rank in parent. A
 * rank that passes DIST_NO_COLOR joins no group and gets NULL.
 */
#define DIST_NO_COLOR (-1)
DIST_API dist_status dist_split_group(dist_group *parent, int color, int key,
                                      const struct dist_group_options *options,
                                      dist_group **group_p);

/* Makes a group of the same ranks, with its own order of operations. Collective; blocks. */
DIST_API dist_status dist_dup_group(dist_group *parent, const struct dist_group_options *options,
                                    dist_group **group_p);

/*
 * Makes a group of the remaining ranks of `group`, in its order. Collective over them; blocks, at
 * most twice the timeout.
 *
 * For a program that continues after ERR_PEER_LOST. Ranks that died, were lost or have left
 * the world are not remaining ranks. The group may have failed, but not been aborted. Either all
 * remaining ranks get the new group or none does, even if more ranks are lost during the call. If a
 * remaining rank does not call, all other ranks get ERR_TIMEOUT with an error that names it. The
 * caller must still destroy the old group; destroying the world destroys both.
 *
 * The job's store must outlive the lost ranks. distrun --on-failure continue and dist_spawn_with
 * run it in their own process, so any rank may die. Under mpirun, srun and other launchers rank 0
 * runs it: after rank 0's death every call returns ERR_RENDEZVOUS on all ranks. ERR_PEER_LOST means
 * that ranks were still being lost when the timeout had passed: try again.
 */
DIST_API dist_status dist_shrink(dist_group *group, const struct dist_group_options *options,
                                 dist_group **group_p);

/*
 * Translate between a rank of this group and its rank in the world, the group that
 * dist_init_process_group made. Return -1 if there is none.
 */
DIST_API int dist_get_global_rank(const dist_group *group, int group_rank);
DIST_API int dist_get_group_rank(const dist_group *group, int global_rank);

/* ---- operations ---- */

/*
 * Computes dst[i] = a[i] op b[i] for count elements; dst may be a or b.
 *
 * The operation must be associative and commutative. The library calls it for any part of a vector,
 * from any thread, and from several threads at a time. It must not call the library. The pointers
 * are aligned to an element if the buffers of the call are.
 */
typedef void (*dist_reduce_fn)(void *arg, void *dst, const void *a, const void *b, size_t count,
                               dist_dtype dtype);

/*
 * Creates an operation that fn computes, for every dtype. Any thread may call it.
 *
 * The operation belongs to the process, not to a group: every rank creates its own, and may use it
 * in any number of calls. arg must live as long as the operation. The caller passes *op_p to
 * dist_op_free when no call uses it. Up to 65536 created operations, PREMUL_SUM included, may exist
 * at a time.
 *
 * Errors: ERR_INVALID_ARGUMENT (fn or op_p is NULL), ERR_NO_MEMORY.
 */
DIST_API dist_status dist_op_create(dist_reduce_fn fn, void *arg, dist_op *op_p);

/*
 * Creates the sum of factor * in over the ranks, for floating-point dtypes; each rank passes its
 * own factor.
 *
 * Except for float64, the factor is rounded to float32 before it multiplies. The product is rounded
 * to the dtype before it is added. Otherwise as dist_op_create.
 */
DIST_API dist_status dist_op_create_premul_sum(double factor, dist_op *op_p);

/*
 * Frees a created operation. No call in progress may use it; a later call with it is refused.
 *
 * Errors: ERR_INVALID_ARGUMENT (op is built in, or was freed).
 */
DIST_API dist_status dist_op_free(dist_op op);

/* ---- collectives ---- */

/*
 * Rules for all collectives:
 *
 * Order. Every rank of the group calls the same collectives in the same order, with the same count,
 * dtype, op and root. Operations of one group start in the order of the calls.
 *
 * Buffers. in and out must not overlap, except in place as each collective says. With offsets, the
 * blocks must not overlap, but a block of one buffer may be in a gap between blocks of the other. A
 * buffer whose count is 0 may have any address, NULL included. If offsets are NULL, the blocks are
 * contiguous, in rank order. A count or an offset that no buffer can have, such as (size_t)-1, is
 * ERR_INVALID_ARGUMENT.
 *
 * Forms. The form without a suffix blocks. The _async form starts the operation and never waits for
 * another rank: on success *work_p must be passed to dist_wait once. Until the work has ended the
 * buffers belong to the library; arrays of counts and offsets are copied. The _v form has blocks of
 * different sizes, one entry of `counts` for each rank.
 *
 * Errors:
 *     ERR_INVALID_ARGUMENT, ERR_UNSUPPORTED     nothing was started, the group is as before
 *     ERR_MISMATCH, ERR_TIMEOUT, ERR_PEER_LOST  the group has ended on all ranks, with the same
 *     (and ERR_NO_MEMORY, ERR_SYSTEM)           status; other groups continue
 *     ERR_ABORTED                               the group had ended earlier
 *
 * A mismatch of calls in which no rank waited, such as short broadcasts from different roots, is
 * reported by the next call that waits, or by dist_destroy_process_group.
 */

/*
 * All-reduce: out[i] = op over all ranks of in[i], for count elements, on every rank.
 *
 * In place: in == out. float16 and bfloat16 are added in float32 and rounded to the type after each
 * step.
 */
DIST_API dist_status dist_all_reduce(dist_group *group, const void *in, void *out, size_t count,
                                     dist_dtype dtype, dist_op op);
DIST_API dist_status dist_all_reduce_async(dist_group *group, const void *in, void *out,
                                           size_t count, dist_dtype dtype, dist_op op,
                                           dist_work **work_p);

/*
 * All-reduce of buffer_count buffers in place, as one operation: small buffers are sent together.
 *
 * buffers[i] has counts[i] elements. Both arrays are copied.
 */
DIST_API dist_status dist_all_reduce_coalesced(dist_group *group, void *const *buffers,
                                               const size_t *counts, int buffer_count,
                                               dist_dtype dtype, dist_op op);
DIST_API dist_status dist_all_reduce_coalesced_async(dist_group *group, void *const *buffers,
                                                     const size_t *counts, int buffer_count,
                                                     dist_dtype dtype, dist_op op,
                                                     dist_work **work_p);

/* Reduce: as all-reduce, but only root gets the result. out matters at root only. */
DIST_API dist_status dist_reduce(dist_group *group, const void *in, void *out, size_t count,
                                 dist_dtype dtype, dist_op op, int root);
DIST_API dist_status dist_reduce_async(dist_group *group, const void *in, void *out, size_t count,
                                       dist_dtype dtype, dist_op op, int root, dist_work **work_p);

/* Broadcast: every rank's buffer (count elements) becomes a copy of root's. */
DIST_API dist_status dist_broadcast(dist_group *group, void *buffer, size_t count, dist_dtype dtype,
                                    int root);
DIST_API dist_status dist_broadcast_async(dist_group *group, void *buffer, size_t count,
                                          dist_dtype dtype, int root, dist_work **work_p);

/* Barrier: completes once every rank has called it. */
DIST_API dist_status dist_barrier(dist_group *group);
DIST_API dist_status dist_barrier_async(dist_group *group, dist_work **work_p);

/*
 * Barrier that names the missing ranks. Blocks at most timeout_ms milliseconds (0: the group's
 * timeout).
 *
 * If a rank has not called it by then, the call returns ERR_TIMEOUT and dist_last_error names the
 * missing ranks. The group stays usable. The ranks that have called it stay counted, so a rank that
 * calls it late does not wait for them.
 */
DIST_API dist_status dist_monitored_barrier(dist_group *group, int timeout_ms);

/*
 * All-gather: block r of out becomes a copy of rank r's in, on every rank.
 *
 * in has count elements, out has world_size * count. In place: in == out + rank * count elements.
 * _v: rank r contributes counts[r] elements, which are stored at out + offsets[r] elements. In
 * place: in is the place of this rank's block in out.
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
 * Reduce-scatter: in is reduced over the ranks, and out becomes this rank's block of the result.
 *
 * in has world_size * count elements, out has count. In place: out == in + rank * count elements;
 * the other blocks of in are unchanged. _v: block r has counts[r] elements, one block after the
 * other.
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
 * Gather: block r of root's out becomes a copy of rank r's in.
 *
 * in has count elements, out has world_size * count and matters at root only. In place at root: in
 * is the place of root's block in out. _v: this rank contributes count elements; root receives
 * counts[r] elements from rank r at out + offsets[r] elements. counts and offsets matter at root
 * only.
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
 * Scatter: rank r's out becomes a copy of block r of root's in.
 *
 * out has count elements, in has world_size * count and matters at root only. In place at root: out
 * is root's block of in. _v: root's block r has counts[r] elements at in + offsets[r] elements;
 * this rank expects count elements. counts and offsets matter at root only.
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
 * All-to-all: block s of rank d's out becomes a copy of block d of rank s's in.
 *
 * in and out have world_size blocks of count elements. There is no in-place form. _v: this rank
 * sends in_counts[r] elements at in + in_offsets[r] elements to rank r, and receives out_counts[r]
 * elements from rank r at out + out_offsets[r] elements.
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
 * Send count elements to rank `peer`, or receive them from it.
 *
 * Sender and receiver pass the same count, dtype and tag (0 to DIST_TAG_MAX). Messages with one tag
 * between two ranks stay in order. A rank may send to itself. A receive from DIST_ANY_SOURCE
 * matches the first message with the tag, from any sender.
 *
 * dist_send and dist_recv block; a send may block until the peer receives it. dist_isend and
 * dist_irecv start the operation, and *work_p must be passed to dist_wait once. *source_p becomes
 * the sender's rank when the receive has ended, or at once if a stream orders the receive (see
 * device memory). source_p may be NULL. Errors: as for collectives.
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
 * Run all blocking calls between these two functions at the same time.
 *
 * Between them, this thread's blocking collectives, sends and receives, on any groups, only record
 * the call and return at once. dist_group_end starts all recorded calls together, blocks until all
 * have ended, and returns the first failure. So an exchange of sends and receives cannot deadlock,
 * whatever their order.
 *
 * The pair may be nested; only the outermost dist_group_end starts the calls. A call with a wrong
 * argument fails at once and is not recorded. dist_all_reduce_coalesced immediately starts the
 * calls recorded so far and then its own operation; dist_group_end waits for all of them. _async
 * forms and dist_monitored_barrier run at once. A function passed to dist_on_complete must not call
 * these two functions.
 */
DIST_API dist_status dist_group_start(void);
DIST_API dist_status dist_group_end(void);

/* ---- works ---- */

/*
 * Collectives of one group end in the order in which they were started. Sends, receives, and works
 * of different groups end in any order. The library's progress thread makes progress on works while
 * the program computes; with DIST_PROGRESS_THREAD=0 only calls do. Every call that waits makes
 * progress on the works of all groups of the process, so ranks may wait in any order.
 *
 * All of these functions return ERR_INVALID_ARGUMENT for a work that was freed. dist_wait also
 * returns it for a work that another thread waits for. A dist_work is a handle, not an address: no
 * two works of a process have the same one.
 */

/* Blocks until the work has ended, returns how it ended, and frees it in any case. */
DIST_API dist_status dist_wait(dist_work *work);

/*
 * As dist_wait, but blocks at most timeout_ms milliseconds, 0 or more. Returns IN_PROGRESS, and
 * leaves the work as it is, if the work has not ended by then.
 */
DIST_API dist_status dist_wait_for(dist_work *work, int timeout_ms);

/*
 * Makes progress on works and sets *done_p to whether this one has ended. Does not block, and does
 * not free the work. dist_wait, not dist_test, returns a failure of the work.
 */
DIST_API dist_status dist_test(dist_work *work, bool *done_p);

/*
 * Registers fn, which is called once, as fn(arg, status), when the work has ended.
 *
 * The thread that detects the end of the work calls fn: the calling thread before this function
 * returns, or any other thread. fn may start operations but must not wait for them. The work must
 * still be passed to dist_wait. A work can have one function; a persistent work cannot have any.
 */
typedef void (*dist_work_fn)(void *arg, dist_status status);
DIST_API dist_status dist_on_complete(dist_work *work, dist_work_fn fn, void *arg);

/*
 * Prepares an all-reduce that runs repeatedly on the same buffers: plan and scratch memory are made
 * once. Called by all ranks; sends nothing.
 *
 * dist_start starts the operation. dist_wait waits for it but does not free it, and must return
 * before the next dist_start. dist_work_free frees it.
 */
DIST_API dist_status dist_all_reduce_init(dist_group *group, const void *in, void *out,
                                          size_t count, dist_dtype dtype, dist_op op,
                                          dist_work **work_p);
DIST_API dist_status dist_start(dist_work *work);

/* Frees a persistent work that is not running. NULL is accepted. */
DIST_API dist_status dist_work_free(dist_work *work);

/* ---- device memory ---- */

/*
 * Buffers may be memory of a GPU, CUDA's or HIP's. Backend nccl uses it directly, and so do MPI's
 * own collectives (DIST_MPI_COLL=native) if the MPI supports it. Otherwise the library copies it to
 * the host and back.
 *
 * With backend nccl, streams order the calls on such memory, as with NCCL itself:
 *
 *     dist_all_reduce        is put on the group's stream and returns at once; later work on the
 *                            stream begins when it has ended
 *     dist_all_reduce_async  begins after the work that is on the group's stream now, and runs
 *                            concurrently with later work
 *     dist_wait              makes later work on the group's stream begin after the operation has
 *                            ended. The host does not wait
 *     dist_test              reports whether the work has ended on the device
 *
 * To wait on the host, wait for the stream (cudaStreamSynchronize). A call that fails later, for
 * example at its deadline, ends the group: its streams continue, with undefined buffers, and the
 * next call returns the error. On a stream that is being captured, calls become part of the graph.
 * Calls on host memory block the host, with every backend.
 */

/*
 * Sets the stream (cudaStream_t, hipStream_t) that orders this group's later calls on device
 * memory. NULL is the device's default stream.
 *
 * The stream must live until it is replaced or the group has ended. No other thread may be in a
 * call with the group.
 */
DIST_API dist_status dist_set_stream(dist_group *group, void *stream);

/* ---- memory ---- */

/*
 * Allocates memory that collectives move fastest. Does not block on a peer; any thread may call it.
 *
 * It is the memory that the backend prefers (nccl: device memory), else host memory that the other
 * ranks of the machine can map, read and write in place. It is zeroed. It is aligned to a
 * page, or to 2 MiB if it has at least 2 MiB, with huge pages where the kernel provides them. Calls
 * of every group of the process may use any part of it. With group NULL it is host memory, which
 * groups that the process joins later share too.
 *
 * The call is local: ranks need not allocate alike, or at all. Each allocation has whole pages; a
 * process needs few descriptors for all of them. If no memory can be shared, because no descriptor
 * is left or memfd_create is not allowed, the function returns ordinary memory. The caller passes
 * *memory_p to dist_free. With bytes 0, *memory_p becomes NULL.
 *
 * Pages are allocated at the first touch; if the machine has none left, the kernel kills the
 * process, as with malloc. A forked child has a private copy: the parent does not see the child's
 * writes; the child may or may not see the parent's later writes, and cannot free the memory.
 *
 * Errors: ERR_INVALID_ARGUMENT, ERR_NO_MEMORY, ERR_SYSTEM, ERR_ABORTED (the backend allocates, and
 * the group has ended).
 */
DIST_API dist_status dist_alloc(dist_group *group, size_t bytes, void **memory_p);

/*
 * Frees memory of dist_alloc at once.
 *
 * First complete all operations that use it, including operations of other ranks that wait for this
 * rank. `group` is the one passed to dist_alloc, or NULL; it may have been destroyed. Memory that
 * the backend allocated is freed with its group; passing it afterwards is an error. memory may be
 * NULL. Memory that is never passed to dist_free is freed when the process ends.
 *
 * Errors: ERR_INVALID_ARGUMENT (memory is not from dist_alloc in this process, or was freed).
 */
DIST_API dist_status dist_free(dist_group *group, void *memory);

/*
 * Allocates memory that all ranks of a machine share, with a part for each rank, like
 * MPI_Win_allocate_shared.
 *
 * Collective over group, whose ranks are on one machine; blocks. bytes is the size of this rank's
 * own part, and may differ between the ranks. parts has room for world_size addresses: parts[r]
 * becomes rank r's part as this process sees it. Any rank may read and write any part at any time;
 * the program orders these accesses. After a barrier of the group every rank sees what the other
 * ranks wrote before it. Each part is zeroed, at least a page long, and aligned to a page, or to
 * 2 MiB if it has at least 2 MiB. In calls, a rank's own part is as fast as memory of dist_alloc.
 *
 * A part stays mapped until its rank passes it to dist_shared_free, even if that rank's process
 * ends. A forked child has a private copy of its parent's own part, as with dist_alloc; it shares
 * the other parts, and must not write to them.
 *
 * Errors: ERR_UNSUPPORTED on all ranks (they are on several machines, may not map each other's
 * memory, or DIST_NODE_MEMORY is 0), ERR_NO_MEMORY, ERR_INVALID_ARGUMENT, those of collectives.
 */
DIST_API dist_status dist_shared_alloc(dist_group *group, size_t bytes, void **parts);

/*
 * Frees this rank's own part at once, and unmaps the parts of the other ranks. Local; does not
 * block.
 *
 * `memory` is parts[rank]. No other rank may use this part any more: call a barrier first.
 * Call it before the group is destroyed. NULL is accepted.
 *
 * Errors: ERR_INVALID_ARGUMENT (memory is not a part of this process, or was freed).
 */
DIST_API dist_status dist_shared_free(void *memory);

/*
 * Turns existing memory of the program into memory like dist_alloc's, in place: address and
 * contents stay.
 *
 * It must be ordinary memory, as from malloc or mmap(MAP_PRIVATE | MAP_ANONYMOUS), at any address:
 * not a file's, not shared, not the stack. The pages that it fills become shared pages. The first
 * and the last page, if it fills only a part of them, stay private; each collective copies the
 * bytes in them, so that no rank sees the other data in these pages.
 *
 * During the call no other thread may write to the memory and no operation may use it. The call
 * copies the memory once, so it needs twice the memory until it returns. Locking (mlock) and
 * pinning for a device are lost. With bytes 0 nothing happens to the memory. Pass the memory to
 * dist_unregister before freeing, reallocating or unmapping it. If no memory can be shared, or the
 * memory is executable, the call succeeds and the memory stays ordinary.
 *
 * Errors: ERR_INVALID_ARGUMENT (dist_last_error says what is wrong with the memory), ERR_NO_MEMORY,
 * ERR_SYSTEM. After an error the memory is as before.
 */
DIST_API dist_status dist_register(dist_group *group, void *memory, size_t bytes);

/*
 * Turns registered memory into ordinary memory again; address and contents stay.
 *
 * `memory` is the address passed to dist_register, or NULL. The rules for `group` are those of
 * dist_free; the rules for threads and operations are those of dist_register.
 */
DIST_API dist_status dist_unregister(dist_group *group, void *memory);

/* ---- processes ---- */

/*
 * Runs fn(rank, arg) in `ranks` new processes on this machine. Blocks until all have ended.
 *
 * Each process has RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT set,
 * so that dist_init_process_group finds its world. When one fails, the other processes are ended
 * too. *exit_code_p becomes 0, or the exit code of the first failure (128 + signal if a signal
 * ended it). Call it before this process has threads or a group.
 */
DIST_API dist_status dist_spawn(int ranks, int (*fn)(int rank, void *arg), void *arg,
                                int *exit_code_p);

/* Options of dist_spawn_with. Initialise with DIST_SPAWN_OPTIONS_INIT. */
struct dist_spawn_options {
    size_t size; /* sizeof(struct dist_spawn_options) */
    /* When a process fails, the remaining processes continue and can call dist_shrink. The calling
     * process holds the store: the death of any rank, rank 0 included, leaves it intact. */
    bool continue_on_failure;
    /* Called in this process for each process that failed, with its exit code (128 + signal if a
     * signal ended it), but not for those that dist_spawn_with has ended. It must not call libdist.
     * NULL: nothing is called. */
    void (*failed)(int rank, int exit_code, void *arg);
    void *failed_arg;
};

#define DIST_SPAWN_OPTIONS_INIT                                                                    \
    {                                                                                              \
        sizeof(struct dist_spawn_options), false, NULL, NULL                                       \
    }

/*
 * As dist_spawn, with options; NULL: as dist_spawn. *exit_code_p is that of the first failure, also
 * with continue_on_failure: 0 means that no process failed.
 */
DIST_API dist_status dist_spawn_with(int ranks, int (*fn)(int rank, void *arg), void *arg,
                                     const struct dist_spawn_options *options, int *exit_code_p);

/*
 * Writes one line for each known backend, "NAME  yes|no  SUMMARY OR REASON", to buffer.
 *
 * Modules are probed in a child process, so this process does not load them. Only nccl is loaded,
 * if the process uses a GPU.
 *
 * The text is always terminated. Returns the length of the whole text, as snprintf does.
 */
DIST_API size_t dist_list_backends(char *buffer, size_t size);

#ifdef __cplusplus
}
#endif
#endif
