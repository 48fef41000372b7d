/* SPDX-License-Identifier: BSD-3-Clause */
/* A library that reports NCCL 2.28 and has no other function of it. */
#include "nccl_abi.h"

STANDIN_API int ncclGetVersion(int *version);
int ncclGetVersion(int *version)
{
    *version = NCCL_VERSION_CODE_OF_STANDIN;
    return RESULT_Success;
}
