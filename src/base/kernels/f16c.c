/* SPDX-License-Identifier: BSD-3-Clause */
/* float16 on x86-64 CPUs that convert it themselves: eight elements at a time. */
#include "base/kernels/kernels.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

#define F16C_TARGET __attribute__((target("avx2,f16c")))
#define F16C_INLINE F16C_TARGET DISTI_INLINE

static bool f16c_ask_cpu(void)
{
    unsigned a, b, c = 0, d;

    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

/* Asked once: the instruction is slow in virtual machines. */
static bool f16c_here(void)
{
    static signed char known;
    signed char answer = __atomic_load_n(&known, __ATOMIC_RELAXED);

    if (answer == 0) {
        answer = f16c_ask_cpu() ? 1 : -1;
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
    size_t disti_f16c_##op(void *dst, const void *a, const void *b, size_t count)                  \
    {                                                                                              \
        size_t whole = f16c_here() ? count / 8 * 8 : 0;                                            \
                                                                                                   \
        f16c_reduce_##op(dst, a, b, whole);                                                        \
        return whole;                                                                              \
    }

F16C_KERNEL(sum, _mm256_add_ps)
F16C_KERNEL(prod, _mm256_mul_ps)

#else
#define F16C_NONE(op)                                                                              \
    size_t disti_f16c_##op(void *dst, const void *a, const void *b, size_t count)                  \
    {                                                                                              \
        (void)dst, (void)a, (void)b, (void)count;                                                  \
        return 0;                                                                                  \
    }

F16C_NONE(sum)
F16C_NONE(prod)
#endif
