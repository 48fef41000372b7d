/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Converts float16 and bfloat16 from and to float32, rounding to nearest even. A NaN becomes a
 * quiet NaN.
 */
#ifndef DISTI_BASE_KERNELS_HALF_H
#define DISTI_BASE_KERNELS_HALF_H

#include <stdint.h>
#include <string.h>

/*
 *      float16    s eeeee mmmmmmmmmm               exponent biased by 15
 *      bfloat16   s eeeeeeee mmmmmmm               the upper half of a float32
 *      float32    s eeeeeeee mmmmmmmmmmmmmmmmmmmmmmm          biased by 127
 *
 * The conversions have no branches, so that they vectorize. Their arithmetic uses normal numbers
 * only, so that the results do not depend on how the CPU treats subnormal numbers.
 */

/* Inlined into each kernel, so that it is compiled for the kernel's CPU. */
#define DISTI_HALF static inline __attribute__((always_inline))

DISTI_HALF uint32_t disti_half_bits(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

DISTI_HALF float disti_half_float(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

#define DISTI_HALF_NAN UINT32_C(0x7fc00000)

DISTI_HALF float disti_float16_to_float(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    uint32_t rest = (uint32_t)(half & 0x7fff) << 13;
    uint32_t normal = rest + ((127 - 15) << 23);
    uint32_t special = (rest & 0x7fffff) ? rest | DISTI_HALF_NAN : 0x7f800000;
    /* A subnormal m * 2^-24 is (1 + m * 2^-10) * 2^-14 minus 2^-14. */
    float subnormal = disti_half_float(rest + (113 << 23)) - 0x1p-14f;
    uint32_t magnitude = rest < (1 << 23) ? disti_half_bits(subnormal) : normal;

    return disti_half_float(sign | (rest >= (31 << 23) ? special : magnitude));
}

DISTI_HALF uint16_t disti_float16_from_float(float value)
{
    uint32_t pattern = disti_half_bits(value);
    uint32_t sign = pattern >> 31 << 15;
    uint32_t rest = pattern & 0x7fffffff;
    uint32_t nan = 0x7e00 | (rest >> 13 & 0x3ff);
    /*
     * Adds half a unit of the last place minus 1, plus 1 if the last place is odd: ties round to
     * even.
     */
    uint32_t normal = (rest - ((127 - 15) << 23) + 0xfff + (rest >> 13 & 1)) >> 13;
    /*
     * The last place of 0.5 is 2^-24, so adding 0.5 rounds to that unit and leaves m in the low
     * bits.
     */
    uint32_t small = rest < (113 << 23) ? rest : 0;
    uint32_t subnormal = disti_half_bits(disti_half_float(small) + 0.5f) - (126 << 23);
    uint32_t finite = rest < (113 << 23) ? subnormal : normal;
    uint32_t large = rest > 0x7f800000 ? nan : 0x7c00;

    return (uint16_t)(sign | (rest >= (143 << 23) ? large : finite));
}

/* Rounds a float32 to bfloat16; the upper half of the result is the bfloat16. */
DISTI_HALF uint32_t disti_bfloat16_round(float value)
{
    uint32_t pattern = disti_half_bits(value);
    uint32_t rounded = pattern + 0x7fff + (pattern >> 16 & 1);

    return (pattern & 0x7fffffff) > 0x7f800000 ? pattern | 0x400000 : rounded;
}

DISTI_HALF float disti_bfloat16_to_float(uint16_t half)
{
    return disti_half_float((uint32_t)half << 16);
}

DISTI_HALF uint16_t disti_bfloat16_from_float(float value)
{
    return (uint16_t)(disti_bfloat16_round(value) >> 16);
}

#endif
