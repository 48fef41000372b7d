/* SPDX-License-Identifier: BSD-3-Clause */
/* Reductions of float16 and bfloat16: widened to float32, reduced, rounded back. */
#include "base/kernels/kernels.h"

#include "base/kernels/half.h"

/*
 * float32 has more than twice the digits of either type and two more, so a sum or a product
 * that is rounded to float32 and then to the type is the exact one rounded once.
 */

/* Two's complement order of both types; -0 comes before +0. */
DISTI_INLINE int16_t half_order(uint16_t half)
{
    return (int16_t)(half >> 15 ? half ^ 0x7fff : half);
}

/* No conversion: the least or greatest is one of the two. A NaN wins on either side. */
#define HALF_MIN_MAX(type, infinity)                                                               \
    DISTI_INLINE uint16_t type##_least(uint16_t a, uint16_t b)                                     \
    {                                                                                              \
        uint16_t number = half_order(a) < half_order(b) ? a : b;                                   \
        uint16_t b_wins = (b & 0x7fff) > (infinity) ? b : number;                                  \
                                                                                                   \
        return (a & 0x7fff) > (infinity) ? a : b_wins;                                             \
    }                                                                                              \
    DISTI_INLINE uint16_t type##_greatest(uint16_t a, uint16_t b)                                  \
    {                                                                                              \
        uint16_t number = half_order(a) > half_order(b) ? a : b;                                   \
        uint16_t b_wins = (b & 0x7fff) > (infinity) ? b : number;                                  \
                                                                                                   \
        return (a & 0x7fff) > (infinity) ? a : b_wins;                                             \
    }                                                                                              \
    DISTI_KERNEL(type##_min, uint16_t, type##_least)                                               \
    DISTI_KERNEL(type##_max, uint16_t, type##_greatest)

HALF_MIN_MAX(float16, 0x7c00)
HALF_MIN_MAX(bfloat16, 0x7f80)

DISTI_INLINE uint16_t float16_added(uint16_t a, uint16_t b)
{
    return disti_float16_from_float(disti_float16_to_float(a) + disti_float16_to_float(b));
}

DISTI_INLINE uint16_t float16_multiplied(uint16_t a, uint16_t b)
{
    return disti_float16_from_float(disti_float16_to_float(a) * disti_float16_to_float(b));
}

DISTI_KERNEL(float16_add_rest, uint16_t, float16_added)
DISTI_KERNEL(float16_multiply_rest, uint16_t, float16_multiplied)

static void float16_sum(void *dst, const void *a, const void *b, size_t count)
{
    size_t done = disti_f16c_sum(dst, a, b, count);

    float16_add_rest((char *)dst + 2 * done, (const char *)a + 2 * done, (const char *)b + 2 * done,
                     count - done);
}

static void float16_prod(void *dst, const void *a, const void *b, size_t count)
{
    size_t done = disti_f16c_prod(dst, a, b, count);

    float16_multiply_rest((char *)dst + 2 * done, (const char *)a + 2 * done,
                          (const char *)b + 2 * done, count - done);
}

/*
 * bfloat16 goes two elements at a time, both within their 32 bits, so that no element
 * changes its place in the vector:
 *
 *      a:  [ a1 | a0 ]     a & upper, b & upper -> r1     r:  [ r1 | r0 ]
 *      b:  [ b1 | b0 ]     a << 16,   b << 16   -> r0
 */
#define BFLOAT16_UPPER UINT32_C(0xffff0000)

DISTI_INLINE uint32_t bfloat16_added(uint32_t a, uint32_t b)
{
    float upper = disti_half_float(a & BFLOAT16_UPPER) + disti_half_float(b & BFLOAT16_UPPER);
    float lower = disti_half_float(a << 16) + disti_half_float(b << 16);

    return (disti_bfloat16_round(upper) & BFLOAT16_UPPER) | disti_bfloat16_round(lower) >> 16;
}

DISTI_INLINE uint32_t bfloat16_multiplied(uint32_t a, uint32_t b)
{
    float upper = disti_half_float(a & BFLOAT16_UPPER) * disti_half_float(b & BFLOAT16_UPPER);
    float lower = disti_half_float(a << 16) * disti_half_float(b << 16);

    return (disti_bfloat16_round(upper) & BFLOAT16_UPPER) | disti_bfloat16_round(lower) >> 16;
}

DISTI_KERNEL(bfloat16_add_pairs, uint32_t, bfloat16_added)
DISTI_KERNEL(bfloat16_multiply_pairs, uint32_t, bfloat16_multiplied)

/* The last of an odd number of elements, as a pair with nothing. */
static void bfloat16_last(disti_reduce_fn pairs, void *dst, const void *a, const void *b,
                          size_t count)
{
    size_t at = 2 * (count - 1);
    uint16_t x[2] = {0}, y[2] = {0};

    memcpy(x, (const char *)a + at, 2);
    memcpy(y, (const char *)b + at, 2);
    pairs(x, x, y, 1);
    memcpy((char *)dst + at, x, 2);
}

static void bfloat16_sum(void *dst, const void *a, const void *b, size_t count)
{
    bfloat16_add_pairs(dst, a, b, count / 2);
    if (count % 2)
        bfloat16_last(bfloat16_add_pairs, dst, a, b, count);
}

static void bfloat16_prod(void *dst, const void *a, const void *b, size_t count)
{
    bfloat16_multiply_pairs(dst, a, b, count / 2);
    if (count % 2)
        bfloat16_last(bfloat16_multiply_pairs, dst, a, b, count);
}

DISTI_INLINE uint16_t float16_quotient(uint16_t a, int ranks)
{
    return disti_float16_from_float(disti_float16_to_float(a) / (float)ranks);
}

DISTI_INLINE uint16_t bfloat16_quotient(uint16_t a, int ranks)
{
    return disti_bfloat16_from_float(disti_bfloat16_to_float(a) / (float)ranks);
}

DISTI_DIVIDE_KERNEL(float16_divide, uint16_t, float16_quotient)
DISTI_DIVIDE_KERNEL(bfloat16_divide, uint16_t, bfloat16_quotient)

DISTI_INLINE uint16_t float16_scaled(uint16_t a, float factor)
{
    return disti_float16_from_float(disti_float16_to_float(a) * factor);
}

DISTI_INLINE uint16_t bfloat16_scaled(uint16_t a, float factor)
{
    return disti_bfloat16_from_float(disti_bfloat16_to_float(a) * factor);
}

DISTI_SCALE_KERNEL(float16_scale, uint16_t, float, float16_scaled)
DISTI_SCALE_KERNEL(bfloat16_scale, uint16_t, float, bfloat16_scaled)

#define HALF_TYPE(name, type)                                                                      \
    const struct disti_kernels disti_##name = {.reduce = {[DIST_SUM] = type##_sum,                 \
                                                          [DIST_AVG] = type##_sum,                 \
                                                          [DIST_PROD] = type##_prod,               \
                                                          [DIST_MIN] = type##_min,                 \
                                                          [DIST_MAX] = type##_max,                 \
                                                          [DIST_PREMUL_SUM] = type##_sum},         \
                                               .divide = type##_divide,                            \
                                               .scale = type##_scale};

HALF_TYPE(FLOAT16, float16)
HALF_TYPE(BFLOAT16, bfloat16)
