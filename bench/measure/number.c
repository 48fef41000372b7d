/* SPDX-License-Identifier: BSD-3-Clause */
/* An element of any dtype from a double, and back. */
#include "number.h"

#include <math.h>
#include <string.h>

/* A whole number of at most 11 significant bits as float16. */
static uint16_t number_half(double value)
{
    int exponent;
    double fraction = frexp(fabs(value), &exponent); /* 0.5 to 1 */
    uint16_t sign = value < 0 ? 0x8000 : 0;

    if (value == 0)
        return sign;
    if (exponent > 16)
        return sign | 0x7c00;
    return (uint16_t)(sign | ((exponent + 14) << 10) | ((int)ldexp(fraction, 11) & 0x3ff));
}

static double number_of_half(uint16_t bits)
{
    int exponent = (bits >> 10) & 0x1f, fraction = bits & 0x3ff;
    double sign = bits & 0x8000 ? -1 : 1;

    if (exponent == 31)
        return fraction ? NAN : sign * INFINITY;
    if (exponent == 0)
        return sign * ldexp(fraction, -24);
    return sign * ldexp(fraction | 0x400, exponent - 25);
}

static uint16_t number_brain(double value)
{
    float single = (float)value;
    uint32_t bits;

    memcpy(&bits, &single, sizeof(bits));
    return (uint16_t)(bits >> 16);
}

static double number_of_brain(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float single;

    memcpy(&single, &bits, sizeof(single));
    return single;
}

void number_write(dist_dtype dtype, double value, void *element)
{
    float single = (float)value;
    uint16_t half = dtype == DIST_FLOAT16 ? number_half(value) : number_brain(value);
    int64_t whole = (int64_t)value;

    switch (dtype) {
    case DIST_FLOAT32:
        memcpy(element, &single, sizeof(single));
        break;
    case DIST_FLOAT64:
        memcpy(element, &value, sizeof(value));
        break;
    case DIST_FLOAT16:
    case DIST_BFLOAT16:
        memcpy(element, &half, sizeof(half));
        break;
    default: /* the low bytes, however many; as the wire formats, for little-endian machines */
        for (size_t i = 0; i < dist_dtype_size(dtype); i++)
            ((unsigned char *)element)[i] = (unsigned char)((uint64_t)whole >> (8 * i));
    }
}

static double number_whole(dist_dtype dtype, const void *element)
{
    size_t size = dist_dtype_size(dtype);
    bool is_signed = dtype == DIST_INT8 || dtype == DIST_INT32 || dtype == DIST_INT64;
    uint64_t bits = 0;

    for (size_t i = 0; i < size; i++)
        bits |= (uint64_t)((const unsigned char *)element)[i] << (8 * i);
    if (is_signed && size < 8 && bits >> (8 * size - 1))
        bits |= ~UINT64_C(0) << (8 * size);
    return is_signed ? (double)(int64_t)bits : (double)bits;
}

double number_read(dist_dtype dtype, const void *element)
{
    float single;
    double twice;
    uint16_t half;

    switch (dtype) {
    case DIST_FLOAT32:
        memcpy(&single, element, sizeof(single));
        return single;
    case DIST_FLOAT64:
        memcpy(&twice, element, sizeof(twice));
        return twice;
    case DIST_FLOAT16:
    case DIST_BFLOAT16:
        memcpy(&half, element, sizeof(half));
        return dtype == DIST_FLOAT16 ? number_of_half(half) : number_of_brain(half);
    default:
        return number_whole(dtype, element);
    }
}
