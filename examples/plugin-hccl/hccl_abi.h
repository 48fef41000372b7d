/* SPDX-License-Identifier: BSD-3-Clause */
/* The part of CANN's ABI that is used: its runtime (libascendcl.so) and HCCL (libhccl.so). */
#ifndef PLUGIN_HCCL_ABI_H
#define PLUGIN_HCCL_ABI_H

#include <stddef.h>
#include <stdint.h>

/*
 * From the documentation "AscendCL API reference, runtime management" and "HCCL API (C)" of CANN
 * 8.0 and 8.5. Contexts, streams, events and communicators are handles. All functions return an
 * int; 0 is success. X(member, symbol, needed, parameters)
 */
#define HCCL_ACL_CALLS(X)                                                                          \
    X(init, "aclInit", 1, (const char *config))                                                    \
    X(device_count, "aclrtGetDeviceCount", 1, (uint32_t * count))                                  \
    X(device_set, "aclrtSetDevice", 1, (int32_t device))                                           \
    X(context_get, "aclrtGetCurrentContext", 1, (void **context))                                  \
    X(context_set, "aclrtSetCurrentContext", 1, (void *context))                                   \
    X(malloc, "aclrtMalloc", 1, (void **memory, size_t bytes, int policy))                         \
    X(free, "aclrtFree", 1, (void *memory))                                                        \
    X(memset, "aclrtMemset", 1, (void *memory, size_t room, int32_t value, size_t bytes))          \
    X(memcpy, "aclrtMemcpy", 1, (void *to, size_t room, const void *from, size_t bytes, int kind)) \
    X(memcpy_async, "aclrtMemcpyAsync", 1,                                                         \
      (void *to, size_t room, const void *from, size_t bytes, int kind, void *stream))             \
    X(pointer, "aclrtPointerGetAttributes", 0, (const void *at, struct hccl_acl_pointer *what_p))  \
    X(stream_create, "aclrtCreateStream", 1, (void **stream))                                      \
    X(stream_destroy, "aclrtDestroyStream", 1, (void *stream))                                     \
    X(stream_abort, "aclrtStreamAbort", 0, (void *stream))                                         \
    X(stream_wait, "aclrtStreamWaitEvent", 1, (void *stream, void *event))                         \
    X(event_create, "aclrtCreateEvent", 1, (void **event))                                         \
    X(event_create_ex, "aclrtCreateEventExWithFlag", 0, (void **event, uint32_t flags))            \
    X(event_destroy, "aclrtDestroyEvent", 1, (void *event))                                        \
    X(event_record, "aclrtRecordEvent", 1, (void *event, void *stream))                            \
    X(event_status, "aclrtQueryEventStatus", 1, (void *event, int *status_p))

#define HCCL_HCCL_CALLS(X)                                                                         \
    X(root, "HcclGetRootInfo", 1, (struct hccl_root * root_p))                                     \
    X(comm_init, "HcclCommInitRootInfo", 1,                                                        \
      (uint32_t ranks, const struct hccl_root *root, uint32_t rank, void **comm_p))                \
    X(comm_destroy, "HcclCommDestroy", 1, (void *comm))                                            \
    X(comm_error, "HcclGetCommAsyncError", 0, (void *comm, int *error_p))                          \
    X(all_reduce, "HcclAllReduce", 1,                                                              \
      (void *in, void *out, uint64_t count, int dtype, int op, void *comm, void *stream))          \
    X(broadcast, "HcclBroadcast", 1,                                                               \
      (void *data, uint64_t count, int dtype, uint32_t root, void *comm, void *stream))            \
    X(reduce, "HcclReduce", 1,                                                                     \
      (void *in, void *out, uint64_t count, int dtype, int op, uint32_t root, void *comm,          \
       void *stream))                                                                              \
    X(all_gather, "HcclAllGather", 1,                                                              \
      (void *in, void *out, uint64_t count, int dtype, void *comm, void *stream))                  \
    X(reduce_scatter, "HcclReduceScatter", 1,                                                      \
      (void *in, void *out, uint64_t count, int dtype, int op, void *comm, void *stream))          \
    X(scatter, "HcclScatter", 1,                                                                   \
      (void *in, void *out, uint64_t count, int dtype, uint32_t root, void *comm, void *stream))   \
    X(all_to_all_v, "HcclAlltoAllV", 1,                                                            \
      (const void *in, const void *in_counts, const void *in_offsets, int in_dtype,                \
       const void *out, const void *out_counts, const void *out_offsets, int out_dtype,            \
       void *comm, void *stream))                                                                  \
    X(send_recv, "HcclBatchSendRecv", 1,                                                           \
      (struct hccl_item * items, uint32_t count, void *comm, void *stream))                        \
    X(barrier, "HcclBarrier", 1, (void *comm, void *stream))

/* HcclRootInfo, of HCCL_ROOT_INFO_BYTES. */
struct hccl_root {
    char internal[4108];
};

/* HcclSendRecvItem */
struct hccl_item {
    int type; /* HCCL_ITEM_SEND, HCCL_ITEM_RECV */
    void *data;
    uint64_t count;
    int dtype;
    uint32_t peer;
};
enum { HCCL_ITEM_SEND, HCCL_ITEM_RECV };

/* aclrtPtrAttributes, with space for additions of later versions. */
struct hccl_acl_pointer {
    uint32_t device;
    int type; /* HCCL_ACL_MEMORY_DEVICE, or another value */
    uint32_t page;
    uint32_t reserved[32];
};

/* Values of the enums that are used. */
enum { HCCL_ACL_REPEATED = 100002 }; /* aclInit: has been called before */
enum { HCCL_ACL_MEMORY_DEVICE = 1 };
enum { HCCL_ACL_HUGE_FIRST = 0 };
enum { HCCL_ACL_TO_DEVICE = 1, HCCL_ACL_TO_HOST = 2, HCCL_ACL_WITHIN = 3 };
enum { HCCL_ACL_EVENT_SYNC = 1, HCCL_ACL_EVENT_PROGRESS = 2 };
enum { HCCL_ACL_RECORDED = 1 };
enum { HCCL_SUM, HCCL_PROD, HCCL_MAX, HCCL_MIN, HCCL_OP_NONE = -1 };
enum {
    HCCL_INT8 = 0,
    HCCL_INT32 = 2,
    HCCL_FP16 = 3,
    HCCL_FP32 = 4,
    HCCL_INT64 = 5,
    HCCL_BFP16 = 11,
    HCCL_TYPE_NONE = -1
};
enum {
    HCCL_E_MEMORY = 3,
    HCCL_E_TIMEOUT = 9,
    HCCL_E_TCP_CONNECT = 11,
    HCCL_E_TCP_TRANSFER = 13,
    HCCL_E_ROCE_TRANSFER = 14,
    HCCL_E_AGAIN = 20,
    HCCL_E_REMOTE = 21
};

/* The loaded functions. Those that are not needed may be NULL. */
struct hccl_api {
#define HCCL_MEMBER(member, symbol, needed, parameters) int(*member) parameters;
    struct {
        HCCL_ACL_CALLS(HCCL_MEMBER)
        const char *(*recent)(void); /* aclGetRecentErrMsg */
    } acl;
    HCCL_HCCL_CALLS(HCCL_MEMBER)
#undef HCCL_MEMBER
    const char *(*text)(int error); /* HcclGetErrorString */
};

#endif
