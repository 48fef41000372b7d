/* SPDX-License-Identifier: BSD-3-Clause */
/* If NCCL's header exists, compares the stand-in's view of its ABI with it. */
#if defined(__has_include)
#if __has_include(<nccl.h>) && __has_include(<cuda_runtime.h>)
#define CHECK_POSSIBLE 1
#endif
#endif

#ifdef CHECK_POSSIBLE
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpragmas"
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#pragma GCC diagnostic ignored "-Wshadow"
#include <nccl.h>
#pragma GCC diagnostic pop

#define NCCL_T_RESULT ncclResult_t
#define NCCL_T_COMM ncclComm_t
#define NCCL_T_ID ncclUniqueId
#define NCCL_T_CONFIG ncclConfig_t
#define NCCL_T_TYPE ncclDataType_t
#define NCCL_T_OP ncclRedOp_t
#define NCCL_T_RESIDENCE ncclScalarResidence_t
#define NCCL_T_STREAM cudaStream_t
#define NCCL_T_WINDOW ncclWindow_t
#include "nccl_abi.h"

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
#define CHECK(expression) _Static_assert(expression, #expression)

#define CHECK_CALL(name, parameters)                                                               \
    CHECK(__builtin_types_compatible_p(__typeof__(name), ncclResult_t parameters));
NCCL_CALLS(CHECK_CALL)

#define CHECK_RESULT(name, number, text) CHECK((int)nccl##name == (int)RESULT_##name);
NCCL_RESULTS(CHECK_RESULT)
#define CHECK_TYPE(name, number, type, reckoned) CHECK((int)nccl##name == (int)TYPE_##name);
NCCL_TYPES(CHECK_TYPE)
#define CHECK_OP(name, number) CHECK((int)nccl##name == (int)OP_##name);
NCCL_OPS(CHECK_OP)

#define CHECK_MEMBER(theirs, ours)                                                                 \
    CHECK(offsetof(ncclConfig_t, theirs) == offsetof(struct nccl_config, ours))
CHECK(sizeof(ncclConfig_t) == sizeof(struct nccl_config));
CHECK(sizeof(ncclUniqueId) == sizeof(struct nccl_id));
CHECK(sizeof(ncclRedOp_t) == sizeof(int) && sizeof(ncclDataType_t) == sizeof(int));
CHECK(sizeof(ncclResult_t) == sizeof(int) && sizeof(ncclScalarResidence_t) == sizeof(int));
CHECK_MEMBER(blocking, blocking);
CHECK_MEMBER(netName, net_name);
CHECK_MEMBER(splitShare, split_share);
CHECK_MEMBER(commName, comm_name);
CHECK_MEMBER(nvlinkCentricSched, nvlink_centric_sched);
CHECK(NCCL_CONFIG_UNDEF_INT == NCCL_UNDEFINED && NCCL_SPLIT_NOCOLOR == NCCL_NO_COLOR);
CHECK(ncclScalarDevice == 0 && ncclScalarHostImmediate == 1);
#endif
#endif

/* A file must not be empty. */
extern int standin_nccl_is_checked;
