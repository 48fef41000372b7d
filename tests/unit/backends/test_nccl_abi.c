/* SPDX-License-Identifier: BSD-3-Clause */
/* The nccl module's copy of NCCL's ABI matches nccl.h. */
#include "backends/nccl/abi.h"

#include <dlfcn.h>
#include <nccl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #theirs)

SAME(DISTI_NCCL_SUCCESS, ncclSuccess);
SAME(DISTI_NCCL_REMOTE_ERROR, ncclRemoteError);
SAME(DISTI_NCCL_IN_PROGRESS, ncclInProgress);
SAME(DISTI_NCCL_INT8, ncclInt8);
SAME(DISTI_NCCL_UINT8, ncclUint8);
SAME(DISTI_NCCL_INT32, ncclInt32);
SAME(DISTI_NCCL_UINT32, ncclUint32);
SAME(DISTI_NCCL_INT64, ncclInt64);
SAME(DISTI_NCCL_UINT64, ncclUint64);
SAME(DISTI_NCCL_FLOAT16, ncclFloat16);
SAME(DISTI_NCCL_FLOAT32, ncclFloat32);
SAME(DISTI_NCCL_FLOAT64, ncclFloat64);
SAME(DISTI_NCCL_BFLOAT16, ncclBfloat16);
SAME(DISTI_NCCL_SUM, ncclSum);
SAME(DISTI_NCCL_PROD, ncclProd);
SAME(DISTI_NCCL_MAX, ncclMax);
SAME(DISTI_NCCL_MIN, ncclMin);
SAME(DISTI_NCCL_AVG, ncclAvg);
SAME(DISTI_NCCL_HOST_IMMEDIATE, ncclScalarHostImmediate);
SAME(DISTI_NCCL_UNDEFINED, NCCL_CONFIG_UNDEF_INT);
SAME(DISTI_NCCL_VERSION(2, 28, 9), NCCL_VERSION(2, 28, 9));
SAME(sizeof(struct disti_nccl_id), sizeof(ncclUniqueId));
SAME(sizeof(enum disti_nccl_result), sizeof(ncclResult_t));
SAME(sizeof(int), sizeof(ncclResult_t));
SAME(sizeof(int), sizeof(ncclDataType_t));
SAME(sizeof(int), sizeof(ncclRedOp_t));
SAME(offsetof(struct disti_nccl_config, size), offsetof(ncclConfig_t, size));
SAME(offsetof(struct disti_nccl_config, magic), offsetof(ncclConfig_t, magic));
SAME(offsetof(struct disti_nccl_config, version), offsetof(ncclConfig_t, version));
SAME(offsetof(struct disti_nccl_config, blocking), offsetof(ncclConfig_t, blocking));

static void the_config_begins_like_ncclConfig_t(void **state)
{
    const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;

    (void)state;
    assert_int_equal(theirs.magic, DISTI_NCCL_MAGIC);
    assert_true(theirs.size >= sizeof(struct disti_nccl_config));
    assert_true(theirs.version >= DISTI_NCCL_OLDEST);
}

/* If NCCL is installed, it has all functions that the module calls. */
static void the_library_has_all_called_functions(void **state)
{
    static const char *const files[] = {"libnccl.so.2", NCCL_PREFIX "/lib/libnccl.so.2",
                                        NCCL_PREFIX "/lib64/libnccl.so.2"};
    void *handle = NULL;

    (void)state;
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]) && !handle; i++)
        handle = dlopen(files[i], RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        skip();
#define FUNCTION(member, symbol, parameters)                                                       \
    if (!dlsym(handle, symbol))                                                                    \
        fail_msg("NCCL has no %s", symbol);
    DISTI_NCCL_CALLS(FUNCTION)
    DISTI_NCCL_TEXT_CALLS(FUNCTION)
    if (NCCL_VERSION_CODE >= DISTI_NCCL_VERSION(2, 28, 0)) {
        DISTI_NCCL_OPTIONAL_CALLS(FUNCTION)
    }
#undef FUNCTION
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_config_begins_like_ncclConfig_t),
        cmocka_unit_test(the_library_has_all_called_functions),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
