/* SPDX-License-Identifier: BSD-3-Clause */
/* Reductions of float16 and bfloat16: widened to float32, reduced, rounded back. */
#include "base/kernels/kernels.h"

/*
 * float32 has more than twice the digits of either type and two more, so a sum or a product
 * that is rounded to float32 and then to the type is the exact one rounded once.
 *
 *      float16    s eeeee mmmmmmmmmm               exponent biased by 15
 *      bfloat16   s eeeeeeee mmmmmmm               the upper half of a float32
 *      float32    s eeeeeeee mmmmmmmmmmmmmmmmmmmmmmm          biased by 127
 *
 * The conversions have no branches, so that they vectorise, and do arithmetic on normal
 * numbers only, so that they do not depend on the CPU's treatment of subnormal ones.
 */

DISTI_INLINE uint32_t half_bits(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

DISTI_INLINE float half_float(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

#define HALF_NAN_TO_FLOAT UINT32_C(0x7fc00000)

DISTI_INLINE float float16_widen(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    uint32_t rest = (uint32_t)(half & 0x7fff) << 13;
    uint32_t normal = rest + ((127 - 15) << 23);
    uint32_t special = (rest & 0x7fffff) ? rest | HALF_NAN_TO_FLOAT : 0x7f800000;
    /* A subnormal m * 2^-24 is (1 + m * 2^-10) * 2^-14 less 2^-14. */
    float subnormal = half_float(rest + (113 << 23)) - 0x1p-14f;
    uint32_t magnitude = rest < (1 << 23) ? half_bits(subnormal) : normal;

    return half_float(sign | (rest >= (31 << 23) ? special : magnitude));
}

DISTI_INLINE uint16_t float16_narrow(float value)
{
    uint32_t pattern = half_bits(value);
    uint32_t sign = pattern >> 31 << 15;
    uint32_t rest = pattern & 0x7fffffff;
    uint32_t nan = 0x7e00 | (rest >> 13 & 0x3ff);
    /* Half a unit of the last place less one, and one more if that place is odd: to even. */
    uint32_t normal = (rest - ((127 - 15) << 23) + 0xfff + (rest >> 13 & 1)) >> 13;
    /* 0.5 has the unit 2^-24, so that adding it rounds there and leaves m in the low bits. */
    uint32_t small = rest < (113 << 23) ? rest : 0;
    uint32_t subnormal = half_bits(half_float(small) + 0.5f) - (126 << 23);
    uint32_t finite = rest < (113 << 23) ? subnormal : normal;
    uint32_t large = rest > 0x7f800000 ? nan : 0x7c00;

    return (uint16_t)(sign | (rest >= (143 << 23) ? large : finite));
}

/* Rounds in place: the type is the upper half of the result. */
DISTI_INLINE uint32_t bfloat16_round(float value)
{
    uint32_t pattern = half_bits(value);
    uint32_t rounded = pattern + 0x7fff + (pattern >> 16 & 1);

    return (pattern & 0x7fffffff) > 0x7f800000 ? pattern | 0x400000 : rounded;
}

float disti_float16_to_float(uint16_t half)
{
    return float16_widen(half);
}

uint16_t disti_float16_from_float(float value)
{
    return float16_narrow(value);
}

float disti_bfloat16_to_float(uint16_t half)
{
    return half_float((uint32_t)half << 16);
}

uint16_t disti_bfloat16_from_float(float value)
{
    return (uint16_t)(bfloat16_round(value) >> 16);
}

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
    return float16_narrow(float16_widen(a) + float16_widen(b));
}

DISTI_INLINE uint16_t float16_multiplied(uint16_t a, uint16_t b)
{
    return float16_narrow(float16_widen(a) * float16_widen(b));
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
    float upper = half_float(a & BFLOAT16_UPPER) + half_float(b & BFLOAT16_UPPER);
    float lower = half_float(a << 16) + half_float(b << 16);

    return (bfloat16_round(upper) & BFLOAT16_UPPER) | bfloat16_round(lower) >> 16;
}

DISTI_INLINE uint32_t bfloat16_multiplied(uint32_t a, uint32_t b)
{
    float upper = half_float(a & BFLOAT16_UPPER) * half_float(b & BFLOAT16_UPPER);
    float lower = half_float(a << 16) * half_float(b << 16);

    return (bfloat16_round(upper) & BFLOAT16_UPPER) | bfloat16_round(lower) >> 16;
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
    return float16_narrow(float16_widen(a) / (float)ranks);
}

DISTI_INLINE uint16_t bfloat16_quotient(uint16_t a, int ranks)
{
    return (uint16_t)(bfloat16_round(half_float((uint32_t)a << 16) / (float)ranks) >> 16);
}

DISTI_DIVIDE_KERNEL(float16_divide, uint16_t, float16_quotient)
DISTI_DIVIDE_KERNEL(bfloat16_divide, uint16_t, bfloat16_quotient)

DISTI_INLINE uint16_t float16_scaled(uint16_t a, float factor)
{
    return float16_narrow(float16_widen(a) * factor);
}

DISTI_INLINE uint16_t bfloat16_scaled(uint16_t a, float factor)
{
    return (uint16_t)(bfloat16_round(half_float((uint32_t)a << 16) * factor) >> 16);
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
