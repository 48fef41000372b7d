/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The stand-in's arithmetic: plain loops, in the order of ranks; half precision is computed in
 * float.
 */
#include "communicator.h"

#include <math.h>
#include <string.h>

static float half_get(uint16_t bits)
{
    int exponent = bits >> 10 & 31;
    float fraction = (float)(bits & 1023), value;

    if (exponent == 31)
        value = fraction != 0 ? NAN : INFINITY;
    else if (exponent == 0)
        value = ldexpf(fraction, -24);
    else
        value = ldexpf(fraction + 1024, exponent - 25);
    return bits & 0x8000 ? -value : value;
}

/* Rounds to the nearest half, ties to even, in units of its last place. */
static uint16_t half_put(float value)
{
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    float size = fabsf(value), units;
    int exponent;

    if (isnan(value))
        return sign | 0x7e00;
    if (size >= 65520)
        return sign | 0x7c00;
    frexpf(size, &exponent);
    exponent = exponent < -13 ? -13 : exponent; /* below it all numbers have the same unit */
    units = rintf(ldexpf(size, 11 - exponent));
    if (units < 1024)
        return (uint16_t)(sign | (uint16_t)units);
    return (uint16_t)(sign + ((exponent + 13) << 10) + (uint16_t)units);
}

static float bfloat_get(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;

    memcpy(&value, &wide, sizeof(value));
    return value;
}

static uint16_t bfloat_put(float value)
{
    uint32_t wide, low;

    memcpy(&wide, &value, sizeof(wide));
    if (isnan(value))
        return (uint16_t)(wide >> 16 | 0x40);
    low = wide & 0xffff;
    wide >>= 16;
    if (low > 0x8000 || (low == 0x8000 && wide & 1))
        wide++;
    return (uint16_t)wide;
}

#define SAME(value) (value)
#define WHOLE_MIN(a, b) ((b) < (a) ? (b) : (a))
#define WHOLE_MAX(a, b) ((a) < (b) ? (b) : (a))

/* Integers wrap around: sums and products are computed unsigned. */
#define REDUCE(name, stored, reckoned, get, put, wide, min, max)                                   \
    static void reduce_##name(int op, int ranks, const unsigned char *rows, size_t stride,         \
                              const unsigned char *scalars, size_t count, void *out)               \
    {                                                                                              \
        for (size_t i = 0; i < count; i++) {                                                       \
            reckoned all = 0;                                                                      \
            for (int r = 0; r < ranks; r++) {                                                      \
                stored cell, scalar;                                                               \
                reckoned one;                                                                      \
                memcpy(&cell, rows + (size_t)r * stride + i * sizeof(cell), sizeof(cell));         \
                one = get(cell);                                                                   \
                if (scalars) {                                                                     \
                    memcpy(&scalar, scalars + (size_t)r * 8, sizeof(scalar));                      \
                    one = (reckoned)((wide)one * (wide)get(scalar));                               \
                }                                                                                  \
                if (r == 0)                                                                        \
                    all = one;                                                                     \
                else if (op == OP_Prod)                                                            \
                    all = (reckoned)((wide)all * (wide)one);                                       \
                else if (op == OP_Min)                                                             \
                    all = min(all, one);                                                           \
                else if (op == OP_Max)                                                             \
                    all = max(all, one);                                                           \
                else                                                                               \
                    all = (reckoned)((wide)all + (wide)one);                                       \
            }                                                                                      \
            if (op == OP_Avg)                                                                      \
                all = (reckoned)(all / (reckoned)ranks);                                           \
            {                                                                                      \
                stored cell = put(all);                                                            \
                memcpy((unsigned char *)out + i * sizeof(cell), &cell, sizeof(cell));              \
            }                                                                                      \
        }                                                                                          \
    }

REDUCE(Int8, int8_t, int8_t, SAME, SAME, uint32_t, WHOLE_MIN, WHOLE_MAX)
REDUCE(Uint8, uint8_t, uint8_t, SAME, SAME, uint32_t, WHOLE_MIN, WHOLE_MAX)
REDUCE(Int32, int32_t, int32_t, SAME, SAME, uint32_t, WHOLE_MIN, WHOLE_MAX)
REDUCE(Uint32, uint32_t, uint32_t, SAME, SAME, uint32_t, WHOLE_MIN, WHOLE_MAX)
REDUCE(Int64, int64_t, int64_t, SAME, SAME, uint64_t, WHOLE_MIN, WHOLE_MAX)
REDUCE(Uint64, uint64_t, uint64_t, SAME, SAME, uint64_t, WHOLE_MIN, WHOLE_MAX)
REDUCE(Float16, uint16_t, float, half_get, half_put, float, fminf, fmaxf)
REDUCE(Float32, float, float, SAME, SAME, float, fminf, fmaxf)
REDUCE(Float64, double, double, SAME, SAME, double, fmin, fmax)
REDUCE(Bfloat16, uint16_t, float, bfloat_get, bfloat_put, float, fminf, fmaxf)

static const struct {
    size_t size;
    void (*reduce)(int op, int ranks, const unsigned char *rows, size_t stride,
                   const unsigned char *scalars, size_t count, void *out);
} reduce_types[TYPE_COUNT] = {
#define REDUCE_TYPE(name, number, type, reckoned) [number] = {sizeof(type), reduce_##name},
    NCCL_TYPES(REDUCE_TYPE)
#undef REDUCE_TYPE
        [TYPE_Float8e4m3] = {1, NULL},
    [TYPE_Float8e5m2] = {1, NULL},
};

size_t nccl_type_size(int type)
{
    return type >= 0 && type < TYPE_COUNT ? reduce_types[type].size : 0;
}

bool nccl_type_sums(int type)
{
    return type >= 0 && type < TYPE_COUNT && reduce_types[type].reduce;
}

void nccl_reduce_rows(int type, int op, int ranks, const unsigned char *rows, size_t stride,
                      const unsigned char *scalars, size_t count, void *out)
{
    reduce_types[type].reduce(op, ranks, rows, stride, scalars, count, out);
}
