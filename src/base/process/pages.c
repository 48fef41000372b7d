/* SPDX-License-Identifier: BSD-3-Clause */
/* Mappings of this process, changed by system calls that no library has replaced. */
#include "base/process/pages.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGES_OFFSET_UNIT 4096 /* of SYS_mmap2, whatever the size of a page */

void *disti_pages_map(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
#if defined(SYS_mmap2)
    return (void *)syscall(SYS_mmap2, at, bytes, protection, flags, fd,
                           (long)(offset / PAGES_OFFSET_UNIT));
#elif defined(SYS_mmap) && !defined(__s390__) /* there it has one argument, a structure */
    return (void *)syscall(SYS_mmap, at, bytes, (long)protection, (long)flags, (long)fd, offset);
#else
    return mmap(at, bytes, protection, flags, fd, offset);
#endif
}

void disti_pages_unmap(void *memory, size_t bytes)
{
    (void)syscall(SYS_munmap, memory, bytes);
}

void *disti_pages_grow(void *memory, size_t bytes, size_t new_bytes)
{
    return (void *)syscall(SYS_mremap, memory, bytes, new_bytes, (long)MREMAP_MAYMOVE, NULL);
}

void *disti_pages_move(void *from, size_t bytes, void *to)
{
    return (void *)syscall(SYS_mremap, from, bytes, bytes, (long)(MREMAP_MAYMOVE | MREMAP_FIXED),
                           to);
}
