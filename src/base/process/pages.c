/* SPDX-License-Identifier: BSD-3-Clause */
/* Mappings of this process, changed by system calls that no library has replaced. */
#include "base/process/pages.h"

#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
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

/* Pages that one system call checks. */
#define PAGES_BATCH 64

typedef ssize_t (*pages_call)(pid_t pid, const struct iovec *here, unsigned long here_count,
                              const struct iovec *there, unsigned long there_count,
                              unsigned long flags);

/* Copies one byte of each page between this process and itself, as the CPU would on the near side:
 * so pages of devices pass. If the kernel denies the call, the memory counts as usable. */
static bool pages_pass(const void *memory, size_t bytes, pages_call call)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uintptr_t at = (uintptr_t)memory;
    const uintptr_t end = at + bytes;
    unsigned char own[PAGES_BATCH] = {0};
    struct iovec here[PAGES_BATCH], there = {.iov_base = own};

    while (at < end) {
        size_t count = 0;
        ssize_t copied;

        for (; at < end && count < PAGES_BATCH; at += page - at % page)
            here[count++] = (struct iovec){.iov_base = (void *)at, .iov_len = 1};
        there.iov_len = count;
        copied = call(getpid(), here, count, &there, 1, 0);
        if (copied < 0 ? errno == EFAULT : (size_t)copied < count)
            return false;
    }
    return true;
}

bool disti_pages_readable(const void *memory, size_t bytes)
{
    return pages_pass(memory, bytes, process_vm_writev);
}

bool disti_pages_writable(void *memory, size_t bytes)
{
    return pages_pass(memory, bytes, process_vm_readv);
}
