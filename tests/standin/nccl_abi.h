/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NCCL 2.28's ABI, written without its header; nccl_check.c compares it with the header, if that
 * exists.
 */
#ifndef TESTS_STANDIN_NCCL_ABI_H
#define TESTS_STANDIN_NCCL_ABI_H

#include "standin.h"

#define NCCL_VERSION_CODE_OF_STANDIN 22809

/* Results. X(name, number, text) */
#define NCCL_RESULTS(X)                                                                            \
    X(Success, 0, "no error")                                                                      \
    X(UnhandledCudaError, 1, "unhandled cuda error (run with NCCL_DEBUG=INFO for details)")        \
    X(SystemError, 2, "unhandled system error (run with NCCL_DEBUG=INFO for details)")             \
    X(InternalError, 3, "internal error - please report this issue to the NCCL developers")        \
    X(InvalidArgument, 4, "invalid argument (run with NCCL_DEBUG=WARN for details)")               \
    X(InvalidUsage, 5, "invalid usage (run with NCCL_DEBUG=WARN for details)")                     \
    X(RemoteError, 6, "remote process exited or there was a network error")                        \
    X(InProgress, 7, "NCCL operation in progress")

/* Types that can be summed. X(name, number, C type of an element, type to compute in) */
#define NCCL_TYPES(X)                                                                              \
    X(Int8, 0, int8_t, int8_t)                                                                     \
    X(Uint8, 1, uint8_t, uint8_t)                                                                  \
    X(Int32, 2, int32_t, int32_t)                                                                  \
    X(Uint32, 3, uint32_t, uint32_t)                                                               \
    X(Int64, 4, int64_t, int64_t)                                                                  \
    X(Uint64, 5, uint64_t, uint64_t)                                                               \
    X(Float16, 6, uint16_t, float)                                                                 \
    X(Float32, 7, float, float)                                                                    \
    X(Float64, 8, double, double)                                                                  \
    X(Bfloat16, 9, uint16_t, float)

#define NCCL_OPS(X) X(Sum, 0) X(Prod, 1) X(Max, 2) X(Min, 3) X(Avg, 4) X(NumOps, 5)

enum {
#define NCCL_RESULT(name, number, text) RESULT_##name = number,
    NCCL_RESULTS(NCCL_RESULT)
#undef NCCL_RESULT
#define NCCL_TYPE(name, number, type, reckoned) TYPE_##name = number,
        NCCL_TYPES(NCCL_TYPE)
#undef NCCL_TYPE
            TYPE_Float8e4m3 = 10,
    TYPE_Float8e5m2 = 11,
    TYPE_COUNT = 12,
#define NCCL_OP(name, number) OP_##name = number,
    NCCL_OPS(NCCL_OP)
#undef NCCL_OP
};

#define NCCL_ID_BYTES 128
#define NCCL_UNDEFINED INT32_MIN
#define NCCL_NO_COLOR (-1)
#define NCCL_CONFIG_MAGIC 0xcafebeefu

struct nccl_id {
    char internal[NCCL_ID_BYTES];
};

/* Later versions have more members; this library ignores them. */
struct nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking, cga_cluster_size, min_ctas, max_ctas;
    const char *net_name;
    int split_share, traffic_class;
    const char *comm_name;
    int collnet_enable, cta_policy, shrink_share, nvls_ctas, channels_per_net_peer;
    int nvlink_centric_sched;
};

/* Types of parameters; nccl_check.c defines them as NCCL's types. */
#ifndef NCCL_T_COMM
#define NCCL_T_RESULT int
#define NCCL_T_COMM struct ncclComm *
#define NCCL_T_ID struct nccl_id
#define NCCL_T_CONFIG struct nccl_config
#define NCCL_T_TYPE int
#define NCCL_T_OP int
#define NCCL_T_RESIDENCE int
#define NCCL_T_STREAM void *
#define NCCL_T_WINDOW void *
#endif

/* X(name, parameters); the two functions that return a text are not in it. */
#define NCCL_CALLS(X)                                                                              \
    X(ncclGetVersion, (int *version))                                                              \
    X(ncclGetUniqueId, (NCCL_T_ID * id))                                                           \
    X(ncclCommInitRank, (NCCL_T_COMM * comm, int ranks, NCCL_T_ID id, int rank))                   \
    X(ncclCommInitRankConfig,                                                                      \
      (NCCL_T_COMM * comm, int ranks, NCCL_T_ID id, int rank, NCCL_T_CONFIG *config))              \
    X(ncclCommFinalize, (NCCL_T_COMM comm))                                                        \
    X(ncclCommDestroy, (NCCL_T_COMM comm))                                                         \
    X(ncclCommAbort, (NCCL_T_COMM comm))                                                           \
    X(ncclCommSplit,                                                                               \
      (NCCL_T_COMM comm, int color, int key, NCCL_T_COMM *made, NCCL_T_CONFIG *config))            \
    X(ncclCommGetAsyncError, (NCCL_T_COMM comm, NCCL_T_RESULT * error))                            \
    X(ncclCommCount, (NCCL_T_COMM comm, int *count))                                               \
    X(ncclCommCuDevice, (NCCL_T_COMM comm, int *device))                                           \
    X(ncclCommUserRank, (NCCL_T_COMM comm, int *rank))                                             \
    X(ncclMemAlloc, (void **memory, size_t bytes))                                                 \
    X(ncclMemFree, (void *memory))                                                                 \
    X(ncclCommRegister, (NCCL_T_COMM comm, void *memory, size_t bytes, void **handle))             \
    X(ncclCommDeregister, (NCCL_T_COMM comm, void *handle))                                        \
    X(ncclCommWindowRegister,                                                                      \
      (NCCL_T_COMM comm, void *memory, size_t bytes, NCCL_T_WINDOW *window, int flags))            \
    X(ncclCommWindowDeregister, (NCCL_T_COMM comm, NCCL_T_WINDOW window))                          \
    X(ncclRedOpCreatePreMulSum, (NCCL_T_OP * op, void *scalar, NCCL_T_TYPE type,                   \
                                 NCCL_T_RESIDENCE residence, NCCL_T_COMM comm))                    \
    X(ncclRedOpDestroy, (NCCL_T_OP op, NCCL_T_COMM comm))                                          \
    X(ncclAllReduce, (const void *in, void *out, size_t count, NCCL_T_TYPE type, NCCL_T_OP op,     \
                      NCCL_T_COMM comm, NCCL_T_STREAM stream))                                     \
    X(ncclReduce, (const void *in, void *out, size_t count, NCCL_T_TYPE type, NCCL_T_OP op,        \
                   int root, NCCL_T_COMM comm, NCCL_T_STREAM stream))                              \
    X(ncclReduceScatter, (const void *in, void *out, size_t count, NCCL_T_TYPE type, NCCL_T_OP op, \
                          NCCL_T_COMM comm, NCCL_T_STREAM stream))                                 \
    X(ncclBroadcast, (const void *in, void *out, size_t count, NCCL_T_TYPE type, int root,         \
                      NCCL_T_COMM comm, NCCL_T_STREAM stream))                                     \
    X(ncclAllGather, (const void *in, void *out, size_t count, NCCL_T_TYPE type, NCCL_T_COMM comm, \
                      NCCL_T_STREAM stream))                                                       \
    X(ncclAlltoAll, (const void *in, void *out, size_t count, NCCL_T_TYPE type, NCCL_T_COMM comm,  \
                     NCCL_T_STREAM stream))                                                        \
    X(ncclGather, (const void *in, void *out, size_t count, NCCL_T_TYPE type, int root,            \
                   NCCL_T_COMM comm, NCCL_T_STREAM stream))                                        \
    X(ncclScatter, (const void *in, void *out, size_t count, NCCL_T_TYPE type, int root,           \
                    NCCL_T_COMM comm, NCCL_T_STREAM stream))                                       \
    X(ncclSend, (const void *in, size_t count, NCCL_T_TYPE type, int peer, NCCL_T_COMM comm,       \
                 NCCL_T_STREAM stream))                                                            \
    X(ncclRecv, (void *out, size_t count, NCCL_T_TYPE type, int peer, NCCL_T_COMM comm,            \
                 NCCL_T_STREAM stream))                                                            \
    X(ncclGroupStart, (void))                                                                      \
    X(ncclGroupEnd, (void))

#endif
