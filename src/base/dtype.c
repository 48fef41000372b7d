/* SPDX-License-Identifier: BSD-3-Clause */
/* Reductions over each element type, and sinks, which copy or reduce received bytes. */
#include "base/dtype.h"

#include "base/kernels/environment.h"
#include "base/kernels/half.h"
#include "base/kernels/kernels.h"
#include "base/kernels/sink.h"

#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

/* ---- the patterns of kernels ---- */

/* An unaligned element in memory of any declared type. */
#define ANYWHERE __attribute__((aligned(1), may_alias))

/* Defines name(dst, a, b, count): dst[i] = combine(a[i], b[i]). */
#define KERNEL(name, type, combine)                                                                \
    DISTI_CLONES static void name(void *dst, const void *a, const void *b, size_t count)           \
    {                                                                                              \
        typedef type element ANYWHERE;                                                             \
        element *out = dst;                                                                        \
        const element *x = a, *y = b;                                                              \
                                                                                                   \
        DISTI_INDEPENDENT                                                                          \
        for (size_t i = 0; i < count; i++)                                                         \
            out[i] = combine(x[i], y[i]);                                                          \
    }

/* Defines name(data, count, ranks): data[i] = quotient(data[i], ranks). */
#define DIVIDE_KERNEL(name, type, quotient)                                                        \
    DISTI_CLONES static void name(void *data, size_t count, int ranks)                             \
    {                                                                                              \
        typedef type element ANYWHERE;                                                             \
        element *x = data;                                                                         \
        const disti_environment saved = disti_environment_enter();                                 \
                                                                                                   \
        DISTI_INDEPENDENT                                                                          \
        for (size_t i = 0; i < count; i++)                                                         \
            x[i] = quotient(x[i], ranks);                                                          \
        disti_environment_leave(saved);                                                            \
    }

/* Defines name(dst, src, count, factor): dst[i] = product(src[i], *factor as a number). */
#define SCALE_KERNEL(name, type, number, product)                                                  \
    DISTI_CLONES static void name(void *dst, const void *src, size_t count, const double *factor)  \
    {                                                                                              \
        typedef type element ANYWHERE;                                                             \
        const disti_environment saved = disti_environment_enter();                                 \
        const number by = (number)*factor;                                                         \
        const element *x = src;                                                                    \
        element *out = dst;                                                                        \
                                                                                                   \
        DISTI_INDEPENDENT                                                                          \
        for (size_t i = 0; i < count; i++)                                                         \
            out[i] = product(x[i], by);                                                            \
        disti_environment_leave(saved);                                                            \
    }

/* Inlined into each clone, to be compiled for the clone's CPU. */
#define INLINE static inline __attribute__((always_inline))

/* ---- integers: sums and products wrap, also the sum of an average ---- */

/*
 * Computes in unsigned long long, since narrow types would be promoted to int, which may overflow.
 */
#define INT_SUM(a, b) ((a) + 0ULL + (b))
#define INT_PROD(a, b) ((a)*1ULL * (b))
#define INT_AND(a, b) ((a) & (b))
#define INT_OR(a, b) ((a) | (b))
#define INT_XOR(a, b) ((a) ^ (b))
#define INT_MIN_OF(a, b) ((a) < (b) ? (a) : (b))
#define INT_MAX_OF(a, b) ((a) > (b) ? (a) : (b))

/*
 * Two's complement: one sum, one product and one of each bitwise op serve both signed and unsigned
 * types of a width.
 */
#define INT_WIDTH(bits)                                                                            \
    KERNEL(int_sum##bits, uint##bits##_t, INT_SUM)                                                 \
    KERNEL(int_prod##bits, uint##bits##_t, INT_PROD)                                               \
    KERNEL(int_and##bits, uint##bits##_t, INT_AND)                                                 \
    KERNEL(int_or##bits, uint##bits##_t, INT_OR)                                                   \
    KERNEL(int_xor##bits, uint##bits##_t, INT_XOR)

/*
 * `wide` is a type that can represent every element and every number of ranks, and that gives the
 * quotient the right sign.
 */
#define INT_TYPE(type, wide)                                                                       \
    KERNEL(type##_min, type##_t, INT_MIN_OF)                                                       \
    KERNEL(type##_max, type##_t, INT_MAX_OF)                                                       \
    static void type##_divide(void *data, size_t count, int ranks)                                 \
    {                                                                                              \
        typedef type##_t element ANYWHERE;                                                         \
        element *x = data;                                                                         \
                                                                                                   \
        for (size_t i = 0; i < count; i++)                                                         \
            x[i] = (type##_t)(x[i] / (wide)ranks);                                                 \
    }

INT_WIDTH(8)
INT_WIDTH(32)
INT_WIDTH(64)

INT_TYPE(int8, int32_t)
INT_TYPE(uint8, uint32_t)
INT_TYPE(int32, int32_t)
INT_TYPE(uint32, uint32_t)
INT_TYPE(int64, int64_t)
INT_TYPE(uint64, uint64_t)

/* Booleans: any nonzero byte is true. */
#define BOOL_AND(a, b) (((a) != 0) & ((b) != 0))
#define BOOL_OR(a, b) (((a) | (b)) != 0)
#define BOOL_XOR(a, b) (((a) != 0) ^ ((b) != 0))

KERNEL(bool_and, uint8_t, BOOL_AND)
KERNEL(bool_or, uint8_t, BOOL_OR)
KERNEL(bool_xor, uint8_t, BOOL_XOR)

/* ---- float32 and float64 ---- */

/*
 * Defines float_type_min and float_type_max. The result is NaN if either operand is NaN, and -0 is
 * less than +0, so that the result does not depend on the order of the operands, which differs
 * between ranks.
 */
#define FLOAT_MIN_MAX(type, bits)                                                                  \
    INLINE bits float_##type##_bits(type value)                                                    \
    {                                                                                              \
        bits pattern;                                                                              \
                                                                                                   \
        memcpy(&pattern, &value, sizeof(pattern));                                                 \
        return pattern;                                                                            \
    }                                                                                              \
    INLINE type float_##type##_of(bits pattern)                                                    \
    {                                                                                              \
        type value;                                                                                \
                                                                                                   \
        memcpy(&value, &pattern, sizeof(value));                                                   \
        return value;                                                                              \
    }                                                                                              \
    INLINE type float_##type##_min(type a, type b)                                                 \
    {                                                                                              \
        type same = float_##type##_of(float_##type##_bits(a) | float_##type##_bits(b));            \
        type least = ((a < b) | (a != a)) ? a : b;                                                 \
                                                                                                   \
        return a == b ? same : least;                                                              \
    }                                                                                              \
    INLINE type float_##type##_max(type a, type b)                                                 \
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

#define FLOAT_TYPE(prefix, type)                                                                   \
    KERNEL(prefix##_sum, type, FLOAT_SUM)                                                          \
    KERNEL(prefix##_prod, type, FLOAT_PROD)                                                        \
    KERNEL(prefix##_min, type, float_##type##_min)                                                 \
    KERNEL(prefix##_max, type, float_##type##_max)                                                 \
    DIVIDE_KERNEL(prefix##_divide, type, FLOAT_QUOTIENT)                                           \
    SCALE_KERNEL(prefix##_scale, type, type, FLOAT_PROD)

FLOAT_TYPE(float32, float)
FLOAT_TYPE(float64, double)

/* ---- float16 and bfloat16: widened to float32, reduced, rounded back ---- */

/*
 * float32 has at least 2 p + 2 bits of precision, where p is the precision of either type. So a sum
 * or product that is rounded to float32 and then to the type is correctly rounded.
 */

/* Maps a float16 or bfloat16 to an integer of the same order; -0 comes before +0. */
INLINE int16_t half_order(uint16_t half)
{
    return (int16_t)(half >> 15 ? half ^ 0x7fff : half);
}

/*
 * Minimum and maximum need no conversion: the result is one of the two operands. It is NaN if
 * either operand is NaN.
 */
#define HALF_TYPE(type, infinity)                                                                  \
    INLINE uint16_t type##_least(uint16_t a, uint16_t b)                                           \
    {                                                                                              \
        uint16_t number = half_order(a) < half_order(b) ? a : b;                                   \
        uint16_t b_wins = (b & 0x7fff) > (infinity) ? b : number;                                  \
                                                                                                   \
        return (a & 0x7fff) > (infinity) ? a : b_wins;                                             \
    }                                                                                              \
    INLINE uint16_t type##_greatest(uint16_t a, uint16_t b)                                        \
    {                                                                                              \
        uint16_t number = half_order(a) > half_order(b) ? a : b;                                   \
        uint16_t b_wins = (b & 0x7fff) > (infinity) ? b : number;                                  \
                                                                                                   \
        return (a & 0x7fff) > (infinity) ? a : b_wins;                                             \
    }                                                                                              \
    INLINE uint16_t type##_quotient(uint16_t a, int ranks)                                         \
    {                                                                                              \
        return disti_##type##_from_float(disti_##type##_to_float(a) / (float)ranks);               \
    }                                                                                              \
    INLINE uint16_t type##_scaled(uint16_t a, float factor)                                        \
    {                                                                                              \
        return disti_##type##_from_float(disti_##type##_to_float(a) * factor);                     \
    }                                                                                              \
    KERNEL(type##_min, uint16_t, type##_least)                                                     \
    KERNEL(type##_max, uint16_t, type##_greatest)                                                  \
    DIVIDE_KERNEL(type##_divide, uint16_t, type##_quotient)                                        \
    SCALE_KERNEL(type##_scale, uint16_t, float, type##_scaled)

HALF_TYPE(float16, 0x7c00)
HALF_TYPE(bfloat16, 0x7f80)

/*
 * Reduces float16 with the conversion instructions of x86-64 CPUs, eight elements at a time.
 * Returns the number of elements reduced, a multiple of eight; 0 if this CPU has no such
 * instructions.
 */
#if defined(__x86_64__)

#define F16C_TARGET __attribute__((target("avx2,f16c")))
#define F16C_INLINE F16C_TARGET INLINE

/* Tested once, since cpuid is slow in virtual machines. */
static bool f16c_here(void)
{
    static signed char known;
    signed char answer = __atomic_load_n(&known, __ATOMIC_RELAXED);
    unsigned a, b, c = 0, d;

    if (answer == 0) {
        __builtin_cpu_init();
        answer = __builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C)
                     ? 1
                     : -1;
        __atomic_store_n(&known, answer, __ATOMIC_RELAXED);
    }
    return answer > 0;
}

F16C_INLINE __m256 f16c_load(const void *from)
{
    return _mm256_cvtph_ps(_mm_loadu_si128(from));
}

F16C_INLINE void f16c_store(void *to, __m256 floats)
{
    _mm_storeu_si128(to, _mm256_cvtps_ph(floats, _MM_FROUND_TO_NEAREST_INT));
}

#define F16C_KERNEL(op, combine)                                                                   \
    F16C_TARGET static void f16c_reduce_##op(char *out, const char *x, const char *y, size_t n)    \
    {                                                                                              \
        for (size_t i = 0; i < 2 * n; i += 16)                                                     \
            f16c_store(out + i, combine(f16c_load(x + i), f16c_load(y + i)));                      \
    }                                                                                              \
    static size_t f16c_##op(void *dst, const void *a, const void *b, size_t count)                 \
    {                                                                                              \
        size_t whole = f16c_here() ? count / 8 * 8 : 0;                                            \
                                                                                                   \
        f16c_reduce_##op(dst, a, b, whole);                                                        \
        return whole;                                                                              \
    }

F16C_KERNEL(sum, _mm256_add_ps)
F16C_KERNEL(prod, _mm256_mul_ps)

#else
static size_t f16c_sum(void *dst, const void *a, const void *b, size_t count)
{
    (void)dst, (void)a, (void)b, (void)count;
    return 0;
}

static size_t f16c_prod(void *dst, const void *a, const void *b, size_t count)
{
    return f16c_sum(dst, a, b, count);
}
#endif

#define FLOAT16_KERNEL(name, sign)                                                                 \
    INLINE uint16_t float16_##name##_one(uint16_t a, uint16_t b)                                   \
    {                                                                                              \
        return disti_float16_from_float(disti_float16_to_float(a) sign disti_float16_to_float(b)); \
    }                                                                                              \
    KERNEL(float16_##name##_rest, uint16_t, float16_##name##_one)                                  \
    static void float16_##name(void *dst, const void *a, const void *b, size_t count)              \
    {                                                                                              \
        size_t done = f16c_##name(dst, a, b, count);                                               \
                                                                                                   \
        float16_##name##_rest((char *)dst + 2 * done, (const char *)a + 2 * done,                  \
                              (const char *)b + 2 * done, count - done);                           \
    }

FLOAT16_KERNEL(sum, +)
FLOAT16_KERNEL(prod, *)

/*
 * Reduces bfloat16 two elements at a time within their 32 bits, so that no element changes its
 * position in the vector:
 *
 *      a:  [ a1 | a0 ]     a & upper, b & upper -> r1     r:  [ r1 | r0 ]
 *      b:  [ b1 | b0 ]     a << 16,   b << 16   -> r0
 */
#define BFLOAT16_UPPER UINT32_C(0xffff0000)

/* Reduces the last of an odd number of elements, paired with zero. */
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

#define BFLOAT16_KERNEL(name, sign)                                                                \
    INLINE uint32_t bfloat16_##name##_pair(uint32_t a, uint32_t b)                                 \
    {                                                                                              \
        float upper =                                                                              \
            disti_half_float(a & BFLOAT16_UPPER) sign disti_half_float(b & BFLOAT16_UPPER);        \
        float lower = disti_half_float(a << 16) sign disti_half_float(b << 16);                    \
                                                                                                   \
        return (disti_bfloat16_round(upper) & BFLOAT16_UPPER) | disti_bfloat16_round(lower) >> 16; \
    }                                                                                              \
    KERNEL(bfloat16_##name##_pairs, uint32_t, bfloat16_##name##_pair)                              \
    static void bfloat16_##name(void *dst, const void *a, const void *b, size_t count)             \
    {                                                                                              \
        bfloat16_##name##_pairs(dst, a, b, count / 2);                                             \
        if (count % 2)                                                                             \
            bfloat16_last(bfloat16_##name##_pairs, dst, a, b, count);                              \
    }

BFLOAT16_KERNEL(sum, +)
BFLOAT16_KERNEL(prod, *)

/* ---- the kernels by dtype and op ---- */

/*
 * The kernels of a dtype. reduce: by op; NULL if the op does not fit the dtype. divide: divides a
 * sum by the number of ranks, for AVG. scale: scales the input, for PREMUL_SUM.
 */
struct dtype_kernels {
    disti_reduce_fn reduce[DIST_OP_COUNT];
    void (*divide)(void *data, size_t count, int ranks);
    void (*scale)(void *dst, const void *src, size_t count, const double *factor);
};

#define DTYPE_INTEGER(type, bits)                                                                  \
    {                                                                                              \
        .reduce =                                                                                  \
            {[DIST_SUM] = int_sum##bits, [DIST_AVG] = int_sum##bits, [DIST_PROD] = int_prod##bits, \
             [DIST_MIN] = type##_min,    [DIST_MAX] = type##_max,    [DIST_BAND] = int_and##bits,  \
             [DIST_BOR] = int_or##bits,  [DIST_BXOR] = int_xor##bits},                             \
        .divide = type##_divide                                                                    \
    }
#define DTYPE_FLOATING(type)                                                                       \
    {                                                                                              \
        .reduce =                                                                                  \
            {[DIST_SUM] = type##_sum, [DIST_AVG] = type##_sum, [DIST_PROD] = type##_prod,          \
             [DIST_MIN] = type##_min, [DIST_MAX] = type##_max, [DIST_PREMUL_SUM] = type##_sum},    \
        .divide = type##_divide, .scale = type##_scale                                             \
    }

#define DTYPE_BOOLEAN                                                                              \
    {                                                                                              \
        .reduce = {                                                                                \
            [DIST_SUM] = bool_or,                                                                  \
            [DIST_PROD] = bool_and,                                                                \
            [DIST_MIN] = bool_and,                                                                 \
            [DIST_MAX] = bool_or,                                                                  \
            [DIST_BAND] = bool_and,                                                                \
            [DIST_BOR] = bool_or,                                                                  \
            [DIST_BXOR] = bool_xor                                                                 \
        }                                                                                          \
    }

static const struct dtype_kernels dtype_kernels[DIST_DTYPE_COUNT] = {
#define DTYPE(name, kernels, ...) [DIST_##name] = DTYPE_##kernels,
#include "base/dtypes.def"
#undef DTYPE
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
           (op == DIST_USER || dtype_kernels[dtype].reduce[op]);
}

disti_reduce_fn disti_reduce_kernel(dist_dtype dtype, dist_op op)
{
    return dtype_kernels[dtype].reduce[op];
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
        dtype_kernels[dtype].divide(data, count, ranks);
}

void disti_scale(void *dst, const void *src, size_t count, dist_dtype dtype, double factor)
{
    dtype_kernels[dtype].scale(dst, src, count, &factor);
}

/* ---- sinks ---- */

/* Unaligned data are copied for a program's function in chunks of this size. */
#define SINK_PIECE 4096

/*
 * Calls the program's reduction function. Received bytes may be unaligned, but the function may
 * require aligned operands, so unaligned data are copied first.
 */
static void sink_call(const struct dist_sink *sink, char *dst, const char *src, const char *data,
                      size_t bytes)
{
    const struct dist_reduction *own = sink->reduction;
    size_t element = dist_dtype_size(sink->dtype);
    uint64_t piece[SINK_PIECE / sizeof(uint64_t)];

    if ((uintptr_t)data % element == 0) {
        own->fn(own->arg, dst, src, data, bytes / element, sink->dtype);
        return;
    }
    for (size_t at = 0; at < bytes; at += sizeof(piece)) {
        size_t take = bytes - at < sizeof(piece) ? bytes - at : sizeof(piece);

        memcpy(piece, data + at, take);
        own->fn(own->arg, dst + at, src + at, piece, take / element, sink->dtype);
    }
}

void disti_sink_apply(const struct dist_sink *sink, size_t offset, const void *data, size_t bytes)
{
    const char *src = sink->src;
    size_t count;
    char *dst;

    if (bytes == 0 || !sink->dst)
        return;
    dst = (char *)sink->dst + offset;
    if (!src) {
        memcpy(dst, data, bytes);
        return;
    }
    src += offset;
    count = bytes / dist_dtype_size(sink->dtype);
    if (sink->op == DIST_USER)
        sink_call(sink, dst, src, data, bytes);
    else
        disti_reduce(sink->dtype, sink->op, dst, src, data, count);
    if (sink->finish_ranks > 0)
        disti_finish(dst, count, sink->dtype, sink->op, sink->finish_ranks);
}
