/* SPDX-License-Identifier: BSD-3-Clause */
/* Stand-in for Ascend: HCCL's types and reductions. */
#include "standin/ascend.h"

#include <math.h>
#include <string.h>

enum { INT8, INT16, INT32, FP16, FP32, INT64, UINT64, UINT8, UINT16, UINT32, FP64, BFP16, TYPES };
enum { SUM, PROD, MAX, MIN };

size_t ascend_size(int dtype)
{
    static const size_t sizes[TYPES] = {1, 2, 4, 2, 4, 8, 8, 1, 2, 4, 8, 2};

    return dtype >= 0 && dtype < TYPES ? sizes[dtype] : 0;
}

/* ---- half precision, converted to and from float ---- */

static float reduce_from_half(uint16_t h)
{
    int exponent = h >> 10 & 31;
    float mantissa = (float)(h & 1023), sign = h >> 15 ? -1.0F : 1.0F;

    if (exponent == 31)
        return (h & 1023) != 0 ? NAN : sign * INFINITY;
    return sign * (exponent ? ldexpf(1024 + mantissa, exponent - 25) : ldexpf(mantissa, -24));
}

/* Rounds to nearest, ties to even, as nearbyint does. */
static uint16_t reduce_to_half(float f)
{
    uint16_t sign = signbit(f) ? 0x8000 : 0;
    int exponent = 0;

    if (isnan(f))
        return 0x7e00;
    f = fabsf(f);
    if (f >= 65520)
        return sign | 0x7c00;
    frexpf(f, &exponent);
    if (f == 0 || exponent < -13) /* also numbers that round up to the smallest normal number */
        return sign | (uint16_t)nearbyintf(ldexpf(f, 24));
    return (uint16_t)(sign + ((exponent + 13) << 10) + (int)nearbyintf(ldexpf(f, 11 - exponent)));
}

static float reduce_from_bfloat(uint16_t b)
{
    uint32_t bits = (uint32_t)b << 16;
    float f;

    memcpy(&f, &bits, sizeof(f));
    return f;
}

static uint16_t reduce_to_bfloat(float f)
{
    uint32_t bits;

    memcpy(&bits, &f, sizeof(bits));
    if (isnan(f))
        return 0x7fc0;
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* ---- */

static float reduce_floats(int op, float a, float b)
{
    switch (op) {
    case SUM:
        return a + b;
    case PROD:
        return a * b;
    case MAX:
        return fmaxf(a, b);
    default:
        return fminf(a, b);
    }
}

/* Computes in 64 bits; the truncated result wraps as it should. */
static int64_t reduce_ints(int op, int64_t a, int64_t b)
{
    switch (op) {
    case SUM:
        return (int64_t)((uint64_t)a + (uint64_t)b);
    case PROD:
        return (int64_t)((uint64_t)a * (uint64_t)b);
    case MAX:
        return a > b ? a : b;
    default:
        return a < b ? a : b;
    }
}

#define REDUCE_INTS(type)                                                                          \
    for (size_t i = 0; i < count; i++)                                                             \
    ((type *)into)[i] = (type)reduce_ints(op, ((type *)into)[i], ((const type *)from)[i])

#define REDUCE_HALVES(kind)                                                                        \
    for (size_t i = 0; i < count; i++)                                                             \
    ((uint16_t *)into)[i] =                                                                        \
        reduce_to_##kind(reduce_floats(op, reduce_from_##kind(((uint16_t *)into)[i]),              \
                                       reduce_from_##kind(((const uint16_t *)from)[i])))

bool ascend_reduce(int dtype, int op, void *into, const void *from, size_t count)
{
    if (op < SUM || op > MIN || (dtype == BFP16 && op == PROD))
        return false;
    switch (dtype) {
    case INT8:
        REDUCE_INTS(int8_t);
        return true;
    case INT32:
        REDUCE_INTS(int32_t);
        return true;
    case INT64:
        REDUCE_INTS(int64_t);
        return true;
    case FP16:
        REDUCE_HALVES(half);
        return true;
    case BFP16:
        REDUCE_HALVES(bfloat);
        return true;
    case FP32:
        for (size_t i = 0; i < count; i++)
            ((float *)into)[i] = reduce_floats(op, ((float *)into)[i], ((const float *)from)[i]);
        return true;
    default:
        return false;
    }
}
