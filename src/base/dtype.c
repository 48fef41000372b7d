/* SPDX-License-Identifier: BSD-3-Clause */
/* From dtype and op to the kernel. */
#include "base/dtype.h"

#include "base/kernels/kernels.h"

static const struct disti_kernels *const dtype_kernels[] = {
#define DTYPE_ROW(name, text, bytes) [DIST_##name] = &disti_##name,
    DIST_DTYPE_MAP(DTYPE_ROW)
#undef DTYPE_ROW
};

bool disti_dtype_valid(dist_dtype dtype)
{
    return (unsigned)dtype < DIST_DTYPE_COUNT;
}

bool disti_op_valid(dist_op op)
{
    return (unsigned)op < DIST_OP_COUNT;
}

bool disti_op_fits(dist_op op, dist_dtype dtype)
{
    return disti_dtype_valid(dtype) && disti_op_valid(op) &&
           (op == DIST_USER || dtype_kernels[dtype]->reduce[op]);
}

disti_reduce_fn disti_reduce_kernel(dist_dtype dtype, dist_op op)
{
    return dtype_kernels[dtype]->reduce[op];
}

void disti_reduce(dist_dtype dtype, dist_op op, void *dst, const void *a, const void *b,
                  size_t count)
{
    const disti_environment saved = disti_environment_enter();

    disti_reduce_kernel(dtype, op)(dst, a, b, count);
    disti_environment_leave(saved);
}

void disti_finish(void *data, size_t count, dist_dtype dtype, dist_op op, int ranks)
{
    if (op == DIST_AVG && ranks > 1)
        dtype_kernels[dtype]->divide(data, count, ranks);
}

void disti_scale(void *dst, const void *src, size_t count, dist_dtype dtype, double factor)
{
    dtype_kernels[dtype]->scale(dst, src, count, &factor);
}
