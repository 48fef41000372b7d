/* SPDX-License-Identifier: BSD-3-Clause */
/* Reductions of integers. Sums and products wrap, so an int8 average of large values does. */
#include "base/kernels/kernels.h"

/* unsigned long long: narrow types would become int before the arithmetic, which may overflow. */
#define INT_SUM(a, b) ((a) + 0ULL + (b))
#define INT_PROD(a, b) ((a)*1ULL * (b))
#define INT_AND(a, b) ((a) & (b))
#define INT_OR(a, b) ((a) | (b))
#define INT_XOR(a, b) ((a) ^ (b))
#define INT_MIN_OF(a, b) ((a) < (b) ? (a) : (b))
#define INT_MAX_OF(a, b) ((a) > (b) ? (a) : (b))

/* Two's complement: one sum and one product do for a width, as does one of each bitwise op. */
#define INT_WIDTH(bits)                                                                            \
    DISTI_KERNEL(int_sum##bits, uint##bits##_t, INT_SUM)                                           \
    DISTI_KERNEL(int_prod##bits, uint##bits##_t, INT_PROD)                                         \
    DISTI_KERNEL(int_and##bits, uint##bits##_t, INT_AND)                                           \
    DISTI_KERNEL(int_or##bits, uint##bits##_t, INT_OR)                                             \
    DISTI_KERNEL(int_xor##bits, uint##bits##_t, INT_XOR)

/* `wide` holds every element and every number of ranks, and keeps the sign of the quotient. */
#define INT_TYPE(name, type, wide, bits)                                                           \
    DISTI_KERNEL(type##_min, type##_t, INT_MIN_OF)                                                 \
    DISTI_KERNEL(type##_max, type##_t, INT_MAX_OF)                                                 \
    static void type##_divide(void *data, size_t count, int ranks)                                 \
    {                                                                                              \
        typedef type##_t element DISTI_ANYWHERE;                                                   \
        element *x = data;                                                                         \
                                                                                                   \
        for (size_t i = 0; i < count; i++)                                                         \
            x[i] = (type##_t)(x[i] / (wide)ranks);                                                 \
    }                                                                                              \
    const struct disti_kernels disti_##name = {.reduce = {[DIST_SUM] = int_sum##bits,              \
                                                          [DIST_AVG] = int_sum##bits,              \
                                                          [DIST_PROD] = int_prod##bits,            \
                                                          [DIST_MIN] = type##_min,                 \
                                                          [DIST_MAX] = type##_max,                 \
                                                          [DIST_BAND] = int_and##bits,             \
                                                          [DIST_BOR] = int_or##bits,               \
                                                          [DIST_BXOR] = int_xor##bits},            \
                                               .divide = type##_divide};

INT_WIDTH(8)
INT_WIDTH(32)
INT_WIDTH(64)

INT_TYPE(INT8, int8, int32_t, 8)
INT_TYPE(UINT8, uint8, uint32_t, 8)
INT_TYPE(INT32, int32, int32_t, 32)
INT_TYPE(UINT32, uint32, uint32_t, 32)
INT_TYPE(INT64, int64, int64_t, 64)
INT_TYPE(UINT64, uint64, uint64_t, 64)

/* Truth values: any byte but 0 is true. */
#define BOOL_AND(a, b) (((a) != 0) & ((b) != 0))
#define BOOL_OR(a, b) (((a) | (b)) != 0)
#define BOOL_XOR(a, b) (((a) != 0) ^ ((b) != 0))

DISTI_KERNEL(bool_and, uint8_t, BOOL_AND)
DISTI_KERNEL(bool_or, uint8_t, BOOL_OR)
DISTI_KERNEL(bool_xor, uint8_t, BOOL_XOR)

const struct disti_kernels disti_BOOL = {.reduce = {[DIST_SUM] = bool_or,
                                                    [DIST_PROD] = bool_and,
                                                    [DIST_MIN] = bool_and,
                                                    [DIST_MAX] = bool_or,
                                                    [DIST_BAND] = bool_and,
                                                    [DIST_BOR] = bool_or,
                                                    [DIST_BXOR] = bool_xor}};
