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

/* Element types. X(name, text, bytes an element) */
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
    X(UINT64, "uint64", 8)

typedef enum dist_dtype {
#define DIST_DTYPE_ENUM(name, text, bytes) DIST_##name,
    DIST_DTYPE_MAP(DIST_DTYPE_ENUM)
#undef DIST_DTYPE_ENUM
        DIST_DTYPE_COUNT
} dist_dtype;

/*
 * Reduction operations. X(name, text)
 * AVG is the sum divided by the number of ranks; integers truncate towards zero.
 * MIN and MAX of a NaN and a number are NaN, on every rank.
 */
#define DIST_OP_MAP(X)                                                                             \
    X(SUM, "sum")                                                                                  \
    X(AVG, "avg")                                                                                  \
    X(PROD, "prod")                                                                                \
    X(MIN, "min")                                                                                  \
    X(MAX, "max")

typedef enum dist_op {
#define DIST_OP_ENUM(name, text) DIST_##name,
    DIST_OP_MAP(DIST_OP_ENUM)
#undef DIST_OP_ENUM
        DIST_OP_COUNT
} dist_op;

/* The text of a status, dtype or op; never NULL, static storage. */
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

/* A process group: a fixed set of ranks that call collectives together. */
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
};

#define DIST_OPTIONS_INIT                                                                          \
    {                                                                                              \
        sizeof(struct dist_options), NULL, NULL, -1, -1, -1, 0, NULL, NULL, NULL, NULL             \
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
 * Leave: waits (bounded by the timeout) until every rank has come here too, then frees the group,
 * whatever is returned. Works still pending are refused with ERR_ABORTED.
 * After an error nobody is waited for. NULL is accepted.
 */
DIST_API dist_status dist_destroy_process_group(dist_group *group);

/* This process's place. */
DIST_API int dist_get_rank(const dist_group *group);
DIST_API int dist_get_world_size(const dist_group *group);
DIST_API int dist_get_local_rank(const dist_group *group);

/* The name of the backend in use, e.g. "gloo". The group's; do not free. */
DIST_API const char *dist_get_backend(const dist_group *group);

/*
 * out[i] = op over all ranks of in[i], for count elements of dtype, on every rank.
 * in == out means in place; otherwise the two must not overlap. Both may be NULL if
 * count is 0. Every rank must pass the same count, dtype and op. Blocks.
 * float16 and bfloat16 are added in float32 and rounded to the type after each step.
 */
DIST_API dist_status dist_all_reduce(dist_group *group, const void *in, void *out, size_t count,
                                     dist_dtype dtype, dist_op op);

/* Every rank's buffer (count elements of dtype) becomes a copy of root's. Blocks. */
DIST_API dist_status dist_broadcast(dist_group *group, void *buffer, size_t count, dist_dtype dtype,
                                    int root);

/* Returns once every rank has called it. Blocks. */
DIST_API dist_status dist_barrier(dist_group *group);

/*
 * out (world_size * count elements) becomes the ranks' in (count elements each), in
 * rank order. In place: in == out + rank * count elements. Blocks.
 */
DIST_API dist_status dist_all_gather(dist_group *group, const void *in, void *out, size_t count,
                                     dist_dtype dtype);

/*
 * The same, started and not waited for. On success *work_p must be given to dist_wait
 * once; until then the buffers belong to the library. Operations of one group start in
 * the order of the calls, which must be the same on every rank. Never blocks on a peer.
 */
DIST_API dist_status dist_all_reduce_async(dist_group *group, const void *in, void *out,
                                           size_t count, dist_dtype dtype, dist_op op,
                                           dist_work **work_p);
DIST_API dist_status dist_broadcast_async(dist_group *group, void *buffer, size_t count,
                                          dist_dtype dtype, int root, dist_work **work_p);
DIST_API dist_status dist_barrier_async(dist_group *group, dist_work **work_p);
DIST_API dist_status dist_all_gather_async(dist_group *group, const void *in, void *out,
                                           size_t count, dist_dtype dtype, dist_work **work_p);

/* Blocks until the work has ended (at most the group's timeout) and frees it, always. */
DIST_API dist_status dist_wait(dist_work *work);

/*
 * Moves things along and says whether the work has ended; does not free it, does not
 * block. A failure of the work is returned by dist_wait, not here.
 */
DIST_API dist_status dist_test(dist_work *work, bool *done_p);

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
