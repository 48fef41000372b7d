/* SPDX-License-Identifier: BSD-3-Clause */
/* The part of the binary interface of NCCL and RCCL that is used, so that none of their headers is
 * needed. */
#ifndef DISTI_BACKENDS_NCCL_ABI_H
#define DISTI_BACKENDS_NCCL_ABI_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

/* A version in the format of ncclGetVersion, since 2.9. */
#define DISTI_NCCL_VERSION(major, minor, patch) ((major)*10000 + (minor)*100 + (patch))

/* The oldest supported version: the first one with nonblocking communicators. */
#define DISTI_NCCL_OLDEST DISTI_NCCL_VERSION(2, 14, 0)

#define DISTI_NCCL_ID_BYTES 128
#define DISTI_NCCL_MAGIC 0xcafebeefu
#define DISTI_NCCL_UNDEFINED INT_MIN

/* A dtype or op that NCCL lacks. */
enum { DISTI_NCCL_NONE = -1 };

/* ncclResult_t */
enum disti_nccl_result {
    DISTI_NCCL_SUCCESS = 0,
    DISTI_NCCL_REMOTE_ERROR = 6,
    DISTI_NCCL_IN_PROGRESS = 7
};

/* True if NCCL has accepted the call. A nonblocking call may still be in progress. */
static inline bool disti_nccl_accepted(int result)
{
    return result == DISTI_NCCL_SUCCESS || result == DISTI_NCCL_IN_PROGRESS;
}

/* ncclDataType_t */
enum disti_nccl_dtype {
    DISTI_NCCL_INT8 = 0,
    DISTI_NCCL_UINT8 = 1,
    DISTI_NCCL_INT32 = 2,
    DISTI_NCCL_UINT32 = 3,
    DISTI_NCCL_INT64 = 4,
    DISTI_NCCL_UINT64 = 5,
    DISTI_NCCL_FLOAT16 = 6,
    DISTI_NCCL_FLOAT32 = 7,
    DISTI_NCCL_FLOAT64 = 8,
    DISTI_NCCL_BFLOAT16 = 9
};

/* ncclRedOp_t, and ncclScalarResidence_t */
enum disti_nccl_op {
    DISTI_NCCL_SUM = 0,
    DISTI_NCCL_PROD = 1,
    DISTI_NCCL_MAX = 2,
    DISTI_NCCL_MIN = 3,
    DISTI_NCCL_AVG = 4
};
enum { DISTI_NCCL_HOST_IMMEDIATE = 1 };

struct disti_nccl_id {
    char bytes[DISTI_NCCL_ID_BYTES];
};

/* ncclConfig_t of 2.14, with which newer versions begin. They recognize it by size and version.
 * `unused` is the first field of 2.17, set to undefined. */
struct disti_nccl_config {
    size_t size;
    unsigned magic;
    unsigned version;
    int blocking;
    int unused;
};

/* The functions, which return an enum disti_nccl_result as int. X(member, symbol, parameters).
 * Communicators, streams and handles are void *. The functions of the second list, from 2.19
 * and 2.28, are optional. */
#define DISTI_NCCL_CALLS(X)                                                                        \
    X(get_version, "ncclGetVersion", (int *version))                                               \
    X(get_unique_id, "ncclGetUniqueId", (struct disti_nccl_id * id))                               \
    X(comm_init, "ncclCommInitRankConfig",                                                         \
      (void **comm, int ranks, struct disti_nccl_id id, int rank,                                  \
       struct disti_nccl_config *config))                                                          \
    X(comm_finalize, "ncclCommFinalize", (void *comm))                                             \
    X(comm_destroy, "ncclCommDestroy", (void *comm))                                               \
    X(comm_abort, "ncclCommAbort", (void *comm))                                                   \
    X(comm_error, "ncclCommGetAsyncError", (void *comm, int *error))                               \
    X(premul_create, "ncclRedOpCreatePreMulSum",                                                   \
      (int *op, void *scalar, int dtype, int residence, void *comm))                               \
    X(op_destroy, "ncclRedOpDestroy", (int op, void *comm))                                        \
    X(reduce, "ncclReduce",                                                                        \
      (const void *in, void *out, size_t count, int dtype, int op, int root, void *comm,           \
       void *stream))                                                                              \
    X(broadcast, "ncclBroadcast",                                                                  \
      (const void *in, void *out, size_t count, int dtype, int root, void *comm, void *stream))    \
    X(all_reduce, "ncclAllReduce",                                                                 \
      (const void *in, void *out, size_t count, int dtype, int op, void *comm, void *stream))      \
    X(reduce_scatter, "ncclReduceScatter",                                                         \
      (const void *in, void *out, size_t count, int dtype, int op, void *comm, void *stream))      \
    X(all_gather, "ncclAllGather",                                                                 \
      (const void *in, void *out, size_t count, int dtype, void *comm, void *stream))              \
    X(send, "ncclSend",                                                                            \
      (const void *in, size_t count, int dtype, int peer, void *comm, void *stream))               \
    X(recv, "ncclRecv", (void *out, size_t count, int dtype, int peer, void *comm, void *stream))  \
    X(group_start, "ncclGroupStart", (void))                                                       \
    X(group_end, "ncclGroupEnd", (void))

#define DISTI_NCCL_OPTIONAL_CALLS(X)                                                               \
    X(mem_alloc, "ncclMemAlloc", (void **memory, size_t bytes))                                    \
    X(mem_free, "ncclMemFree", (void *memory))                                                     \
    X(comm_register, "ncclCommRegister", (void *comm, void *memory, size_t bytes, void **handle))  \
    X(comm_deregister, "ncclCommDeregister", (void *comm, void *handle))                           \
    X(all_to_all, "ncclAlltoAll",                                                                  \
      (const void *in, void *out, size_t count, int dtype, void *comm, void *stream))

/* Functions that return a text. */
#define DISTI_NCCL_TEXT_CALLS(X)                                                                   \
    X(error_text, "ncclGetErrorString", (int result))                                              \
    X(last_error, "ncclGetLastError", (void *comm))

struct disti_nccl_api {
#define DISTI_NCCL_MEMBER(member, symbol, parameters) int(*member) parameters;
    DISTI_NCCL_CALLS(DISTI_NCCL_MEMBER)
    DISTI_NCCL_OPTIONAL_CALLS(DISTI_NCCL_MEMBER) /* may be NULL */
#undef DISTI_NCCL_MEMBER
#define DISTI_NCCL_MEMBER(member, symbol, parameters) const char *(*member)parameters;
    DISTI_NCCL_TEXT_CALLS(DISTI_NCCL_MEMBER)
#undef DISTI_NCCL_MEMBER
    int version;
    char file[256]; /* name or path of the library */
};

#endif
