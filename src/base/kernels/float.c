/* SPDX-License-Identifier: BSD-3-Clause */
/* Reductions of float32 and float64. */
#include "base/kernels/kernels.h"

/*
 * Defines float_type_min and float_type_max. A NaN wins on either side, and -0 is less than
 * +0, so that the order of the operands, which differs between ranks, changes nothing.
 */
#define FLOAT_MIN_MAX(type, bits)                                                                  \
    DISTI_INLINE bits float_##type##_bits(type value)                                              \
    {                                                                                              \
        bits pattern;                                                                              \
                                                                                                   \
        memcpy(&pattern, &value, sizeof(pattern));                                                 \
        return pattern;                                                                            \
    }                                                                                              \
    DISTI_INLINE type float_##type##_of(bits pattern)                                              \
    {                                                                                              \
        type value;                                                                                \
                                                                                                   \
        memcpy(&value, &pattern, sizeof(value));                                                   \
        return value;                                                                              \
    }                                                                                              \
    DISTI_INLINE type float_##type##_min(type a, type b)                                           \
    {                                                                                              \
        type same = float_##type##_of(float_##type##_bits(a) | float_##type##_bits(b));            \
        type least = ((a < b) | (a != a)) ? a : b;                                                 \
                                                                                                   \
        return a == b ? same : least;                                                              \
    }                                                                                              \
    DISTI_INLINE type float_##type##_max(type a, type b)                                           \
    {                                                                                              \
        type same = float_##type##_of(float_##type##_bits(a) & float_##type##_bits(b));            \
        type most = ((a > b) | (a != a)) ? a : b;                                                  \
                                                                                                   \
        return a == b ? same : most;                                                               \
    }

FLOAT_MIN_MAX(float, uint32_t)
FLOAT_MIN_MAX(double, uint64_t)

#define FLOAT_SUM(a, b) ((a) + (b))
#define FLOAT_PROD(a, b) ((a) * (b))
#define FLOAT_QUOTIENT(a, ranks) ((a) / (ranks))

#define FLOAT_TYPE(name, prefix, type)                                                             \
    DISTI_KERNEL(prefix##_sum, type, FLOAT_SUM)                                                    \
    DISTI_KERNEL(prefix##_prod, type, FLOAT_PROD)                                                  \
    DISTI_KERNEL(prefix##_min, type, float_##type##_min)                                           \
    DISTI_KERNEL(prefix##_max, type, float_##type##_max)                                           \
    DISTI_DIVIDE_KERNEL(prefix##_divide, type, FLOAT_QUOTIENT)                                     \
    DISTI_SCALE_KERNEL(prefix##_scale, type, type, FLOAT_PROD)                                     \
    const struct disti_kernels disti_##name = {.reduce = {[DIST_SUM] = prefix##_sum,               \
                                                          [DIST_AVG] = prefix##_sum,               \
                                                          [DIST_PROD] = prefix##_prod,             \
                                                          [DIST_MIN] = prefix##_min,               \
                                                          [DIST_MAX] = prefix##_max,               \
                                                          [DIST_PREMUL_SUM] = prefix##_sum},       \
                                               .divide = prefix##_divide,                          \
                                               .scale = prefix##_scale};

FLOAT_TYPE(FLOAT32, float32, float)
FLOAT_TYPE(FLOAT64, float64, double)
