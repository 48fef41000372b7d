/* SPDX-License-Identifier: BSD-3-Clause */
/* What a backend supports, for those who ask from outside. */
#include "backends/registry.h"

#include "base/dtype.h"
#include "base/log.h"
#include "plan/plan.h"

bool dist_collective_reduces(dist_collective collective)
{
    return (unsigned)collective < DIST_COLL_COUNT && disti_algorithm_reduces(collective);
}

dist_status dist_backend_query(const char *backend, dist_collective collective, dist_dtype dtype,
                               dist_op op)
{
    const struct dist_backend *found;
    dist_status status;

    if (!dist_collective_reduces(collective))
        op = DIST_SUM;
    if (collective == DIST_COLL_BARRIER)
        dtype = DIST_UINT8;
    if (!backend || (unsigned)collective >= DIST_COLL_COUNT || !disti_dtype_valid(dtype) ||
        (unsigned)op >= DIST_OP_COUNT)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "backend_query: %s is none of those in dist.h and backend.h",
                          !backend                                  ? "the backend (NULL)"
                          : (unsigned)collective >= DIST_COLL_COUNT ? "the collective"
                          : !disti_dtype_valid(dtype)               ? "the dtype"
                                                                    : "the op");
    status = disti_backend_find(backend, &found);
    if (status == DIST_OK && !disti_op_fits(op, dtype))
        status = DIST_ERR_UNSUPPORTED;
    if (status == DIST_OK)
        status = found->query(NULL, collective, dtype, op);
    if (status != DIST_ERR_UNSUPPORTED)
        return status;
    return disti_fail(DIST_ERR_UNSUPPORTED, "backend %s has no %s of %s with op %s", found->name,
                      dist_collective_string(collective), dist_dtype_string(dtype),
                      dist_op_string(op));
}

dist_status dist_backend_lacks(const char *backend, uint32_t *lacks_p)
{
    const struct dist_backend *found;
    dist_status status;

    if (!backend || !lacks_p)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "backend_lacks: %s is NULL",
                          backend ? "lacks_p" : "backend");
    status = disti_backend_find(backend, &found);
    if (status == DIST_OK)
        *lacks_p = found->lacks;
    return status;
}
