/* SPDX-License-Identifier: BSD-3-Clause */
/* A floating-point environment that changes the results of code that depends on the default one. */
#ifndef TESTS_UNIT_BASE_ENVIRONMENT_H
#define TESTS_UNIT_BASE_ENVIRONMENT_H

#include <fenv.h>
#include <stdbool.h>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

/* Rounds up and, if the CPU can, flushes subnormal numbers to zero. */
static inline void environment_odd(void)
{
#if defined(__aarch64__)
    unsigned long word;
#endif

    fesetround(FE_UPWARD);
#if defined(__SSE2__)
    _mm_setcsr(_mm_getcsr() | 0x8040);
#elif defined(__aarch64__)
    __asm__ volatile("mrs %0, fpcr" : "=r"(word));
    __asm__ volatile("msr fpcr, %0" : : "r"(word | 1ul << 24));
#endif
}

/* Sets the default environment. Returns false if environment_odd was not in force any more. */
static inline bool environment_usual(void)
{
    bool kept = fegetround() == FE_UPWARD;

#if defined(__SSE2__)
    kept = kept && (_mm_getcsr() & 0x8040) == 0x8040;
#endif
    fesetenv(FE_DFL_ENV);
    return kept;
}

#endif
