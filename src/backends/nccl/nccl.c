/* SPDX-License-Identifier: BSD-3-Clause */
/* Backend nccl: collectives of NCCL or RCCL on memory of GPUs. A module. */
#include "backends/nccl/nccl.h"
#include "base/collective.h"

#include <stdio.h>

static dist_status nccl_probe(char *reason, size_t reason_size)
{
    const struct disti_driver *driver = disti_driver_load(reason, reason_size);
    int count = 0, error;

    if (!driver || !disti_nccl_load(driver, reason, reason_size))
        return DIST_ERR_NO_BACKEND;
    error = driver->device_count(&count);
    if (!error && count > 0)
        return DIST_OK;
    snprintf(reason, reason_size, "no GPU is visible%s%s: check CUDA_VISIBLE_DEVICES",
             error ? ": " : "", error ? disti_driver_text(driver, error) : "");
    return DIST_ERR_NO_BACKEND;
}

static bool nccl_has_op(dist_op op, dist_dtype dtype)
{
    switch (op) {
    case DIST_SUM:
    case DIST_AVG:
    case DIST_PROD:
    case DIST_MIN:
    case DIST_MAX:
        return true;
    case DIST_PREMUL_SUM:
        return dtype == DIST_FLOAT64 || dtype == DIST_FLOAT32 || dtype == DIST_FLOAT16 ||
               dtype == DIST_BFLOAT16;
    default:
        return false;
    }
}

static dist_status nccl_query(const void *state, dist_collective collective, dist_dtype dtype,
                              dist_op op)
{
    (void)state;
    if ((unsigned)collective >= DIST_COLL_COUNT || (unsigned)dtype >= DIST_DTYPE_COUNT)
        return DIST_ERR_UNSUPPORTED;
    if (disti_algorithm_reduces(collective) && (dtype == DIST_BOOL || !nccl_has_op(op, dtype)))
        return DIST_ERR_UNSUPPORTED;
    return DIST_OK;
}

/* What has an end in host memory is waited for there, and so is a barrier. */
static dist_manner nccl_manner(const void *state, const struct dist_call *call)
{
    (void)state;
    return call->memory == DIST_MEMORY_DEVICE && call->collective != DIST_COLL_BARRIER
               ? DIST_MANNER_STREAM
               : DIST_MANNER_HOST;
}

static const struct dist_backend nccl_backend = {
    .abi = DIST_ABI,
    .size = sizeof(struct dist_backend),
    .name = "nccl",
    .summary = "NCCL's or RCCL's collectives on memory of GPUs, ordered by streams",
    .state_size = sizeof(struct disti_nccl_state),
    .probe = nccl_probe,
    .query = nccl_query,
    .open = disti_nccl_open,
    .close = disti_nccl_close,
    .post = disti_nccl_post,
    .progress = disti_nccl_progress,
    .abort = disti_nccl_abort,
    .describe = disti_nccl_describe,
    .alloc = disti_nccl_alloc,
    .free = disti_nccl_free,
    .lacks = DIST_LACKS_ANY_SOURCE | DIST_LACKS_TAGS | DIST_LACKS_NAN,
    .manner = nccl_manner,
    .join = disti_nccl_join,
    .batch = disti_nccl_batch,
};

__attribute__((visibility("default"))) extern const struct dist_module dist_module_entry;
const struct dist_module dist_module_entry = {
    .abi = DIST_ABI,
    .size = sizeof(struct dist_module),
    .backend = &nccl_backend,
};
