/* SPDX-License-Identifier: BSD-3-Clause */
/* Makes one allocation of this process fail. */
#include "scarce.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);

/* The allocation that decrements it to 0 fails; none fails if it is 0 or negative. */
static atomic_int scarce_left;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) /* they replace the allocator */
bool scarce_works(void)
{
    return false;
}
#else
bool scarce_works(void)
{
    return true;
}

static bool scarce_now(void)
{
    if (atomic_load(&scarce_left) <= 0 || atomic_fetch_sub(&scarce_left, 1) != 1)
        return false;
    errno = ENOMEM;
    return true;
}

#pragma GCC visibility push(default)
void *malloc(size_t bytes)
{
    return scarce_now() ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    return scarce_now() ? NULL : __libc_calloc(count, bytes);
}

void *realloc(void *memory, size_t bytes)
{
    return scarce_now() ? NULL : __libc_realloc(memory, bytes);
}
#pragma GCC visibility pop
#endif

void scarce_from(int number)
{
    atomic_store(&scarce_left, number);
}

bool scarce_end(void)
{
    return atomic_exchange(&scarce_left, 0) <= 0;
}
