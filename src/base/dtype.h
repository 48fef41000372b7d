/* SPDX-License-Identifier: BSD-3-Clause */
/* Element types and the reduction kernels over them. */
#ifndef DISTI_BASE_DTYPE_H
#define DISTI_BASE_DTYPE_H

#include <dist/dist.h>

/* The format of a floating-point type (dtypes.def); zeros for another type. */
struct disti_dtype_format {
    uint8_t exponent; /* bits */
    uint64_t special; /* magnitudes at or above this, as bits, are infinities or NaNs */
};

static const struct disti_dtype_format disti_dtype_formats[DIST_DTYPE_COUNT] = {
#define DTYPE(name, kernels, exponent, special, ...) [DIST_##name] = {exponent, special},
#include "base/dtypes.def"
#undef DTYPE
};

static inline bool disti_dtype_is_float(dist_dtype dtype)
{
    return disti_dtype_formats[dtype].exponent > 0;
}

bool disti_dtype_valid(dist_dtype dtype);
bool disti_op_valid(dist_op op);

/* True if the op is defined for the dtype, see dist.h. False for invalid values. */
bool disti_op_fits(dist_op op, dist_dtype dtype);

/*
 * Returns the kernel that computes dst[i] = op(a[i], b[i]) for count elements. dst may be a or b,
 * but must not overlap them otherwise. The alignment may be any. The kernel is vectorized and
 * selected for this CPU at run time. float16 and bfloat16 are computed in float32. For AVG the
 * kernel only adds, and disti_finish divides. For PREMUL_SUM it only adds, and the caller has
 * scaled the input. Returns NULL if the op does not fit the dtype, and for USER. The result is
 * bitwise equal on all CPUs, except for which of two NaNs a sum or product returns. Integers wrap,
 * also in the sum of AVG. MIN and MAX return NaN if an operand is NaN, and -0 is less than +0.
 */
typedef void (*disti_reduce_fn)(void *dst, const void *a, const void *b, size_t count);
disti_reduce_fn disti_reduce_kernel(dist_dtype dtype, dist_op op);

/*
 * Runs the kernel in the library's floating-point environment (kernels/environment.h). disti_finish
 * and disti_scale set this environment too. Code that calls a kernel directly must set it itself.
 */
void disti_reduce(dist_dtype dtype, dist_op op, void *dst, const void *a, const void *b,
                  size_t count);

/*
 * Completes a result that includes all ranks: divides by `ranks` for AVG, does nothing for other
 * ops.
 */
void disti_finish(void *data, size_t count, dist_dtype dtype, dist_op op, int ranks);

/*
 * Computes dst[i] = factor * src[i], rounded once, for a floating-point dtype; dst may be src. The
 * factor is rounded to float first, except for float64.
 */
void disti_scale(void *dst, const void *src, size_t count, dist_dtype dtype, double factor);

#endif
