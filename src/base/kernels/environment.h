/* SPDX-License-Identifier: BSD-3-Clause */
/* One floating-point environment for all arithmetic of the library, whatever the program's is. */
#ifndef DISTI_BASE_KERNELS_ENVIRONMENT_H
#define DISTI_BASE_KERNELS_ENVIRONMENT_H

#include <stdbool.h>
#include <stdint.h>

/*
 * A shared object built with -ffast-math sets "flush to zero" in every process that loads it, and a
 * program may choose a rounding mode. Ranks with different settings would compute different
 * results. So the library's arithmetic always rounds to nearest and keeps subnormal numbers:
 *
 *     disti_environment saved = disti_environment_enter();
 *     (reads operands from memory, stores results to memory)
 *     disti_environment_leave(saved);
 *
 * Both functions are barriers for memory accesses, not for values in registers. So operands must be
 * loaded and results stored between the two. A function that returns its result, or whose operands
 * are passed by value, must be called between the two and must not be inlined.
 */
typedef uint32_t disti_environment;

#if defined(__SSE2__)

/* MXCSR: denormals are zero, rounding control, flush to zero. */
#define ENVIRONMENT_BITS 0xe040u

static inline void environment_write(uint32_t word)
{
    __asm__ volatile("ldmxcsr %0" : : "m"(word) : "memory");
}

static inline uint32_t environment_read(void)
{
    uint32_t word;

    __asm__ volatile("stmxcsr %0" : "=m"(word) : : "memory");
    return word;
}

#elif defined(__aarch64__)

/* FPCR: default NaN, flush to zero, rounding mode, flush to zero of float16, and the bits FIZ and
 * AH of newer CPUs. */
#define ENVIRONMENT_BITS 0x3c80003u

static inline void environment_write(uint32_t word)
{
    __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)word) : "memory");
}

static inline uint32_t environment_read(void)
{
    uint64_t word; /* the upper half is reserved */

    __asm__ volatile("mrs %0, fpcr" : "=r"(word) : : "memory");
    return (uint32_t)word;
}

#else /* other processors: only the rounding mode */

#include <fenv.h>

static inline bool disti_environment_differs(void)
{
    return fegetround() != FE_TONEAREST;
}

static inline disti_environment disti_environment_enter(void)
{
    const int mode = fegetround();

    if (__builtin_expect(mode != FE_TONEAREST, 0))
        fesetround(FE_TONEAREST);
    return (uint32_t)mode;
}

static inline void disti_environment_leave(disti_environment saved)
{
    if (__builtin_expect((int)saved != FE_TONEAREST, 0))
        fesetround((int)saved);
}

#endif

#ifdef ENVIRONMENT_BITS

static inline bool disti_environment_differs(void)
{
    return environment_read() & ENVIRONMENT_BITS;
}

static inline disti_environment disti_environment_enter(void)
{
    const disti_environment word = environment_read();

    if (__builtin_expect(word & ENVIRONMENT_BITS, 0))
        environment_write(word & ~ENVIRONMENT_BITS);
    return word;
}

static inline void disti_environment_leave(disti_environment saved)
{
    __asm__ volatile("" : : : "memory");
    if (__builtin_expect(saved & ENVIRONMENT_BITS, 0))
        environment_write(saved);
}

#endif
#endif
