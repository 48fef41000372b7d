/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Overflow-checked arithmetic on sizes from untrusted input. Functions return true if the result
 * fits.
 */
#ifndef DISTI_BASE_CHECKED_H
#define DISTI_BASE_CHECKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

static inline bool disti_mul(size_t a, size_t b, size_t *product_p)
{
    return !__builtin_mul_overflow(a, b, product_p);
}

static inline bool disti_add(size_t a, size_t b, size_t *sum_p)
{
    return !__builtin_add_overflow(a, b, sum_p);
}

/*
 * Maximum size of a buffer. No 64-bit kernel that libdist supports maps 2^56 bytes into a process;
 * 32-bit objects end at PTRDIFF_MAX.
 */
#define DISTI_BYTES_MAX ((size_t)PTRDIFF_MAX >> (sizeof(size_t) > 4 ? 7 : 0))

/* True if a buffer of `bytes` bytes at `memory` can exist: it is not too large and does not wrap.
 */
static inline bool disti_addressable(const void *memory, size_t bytes)
{
    return bytes <= DISTI_BYTES_MAX && (uintptr_t)memory <= UINTPTR_MAX - bytes;
}

/*
 * calloc of count elements. Returns NULL if count is negative, which also lets compilers see that
 * no size exceeds the address space.
 */
static inline void *disti_calloc(int count, size_t element)
{
    return count < 0 ? NULL : calloc((size_t)count, element);
}

/* True if [offset, offset + length) is inside [0, size). Does not overflow. */
static inline bool disti_inside(size_t offset, size_t length, size_t size)
{
    return length <= size && offset <= size - length;
}

#endif
