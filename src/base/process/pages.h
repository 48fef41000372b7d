/* SPDX-License-Identifier: BSD-3-Clause */
/* Mappings of this process, changed by system calls that no library has replaced. */
#ifndef DISTI_BASE_PROCESS_PAGES_H
#define DISTI_BASE_PROCESS_PAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/*
 * UCX, Open MPI and libfabric replace mmap, munmap, mremap and madvise of libc in the whole
 * process, so that their caches of pinned pages learn which pages go. Code in this project calls
 * libc for memory that such a cache may know. The functions below are for these cases:
 *
 * - mremap to a given address: the replacement in UCX drops that address.
 * - signal handlers and forked children: the replacements wait for locks that the interrupted
 *   thread, or a thread that the child does not have, may hold.
 *
 * All four may be called from a signal handler. They set errno as the calls of libc do.
 */
void *disti_pages_map(void *at, size_t bytes, int protection, int flags, int fd, off_t offset);
void disti_pages_unmap(void *memory, size_t bytes);

/* Returns the new address of the pages, or MAP_FAILED. */
void *disti_pages_grow(void *memory, size_t bytes, size_t new_bytes);

/* Moves pages to `to`, in place of the pages there. Returns where they are now, or MAP_FAILED: then
 * they are still at `from`. Callers check for an address other than `to`. */
void *disti_pages_move(void *from, size_t bytes, void *to);

/*
 * True if the CPU can read the bytes, or write them. This includes pages of devices, for which
 * process_vm_readv(2) fails with EFAULT. disti_pages_writable zeroes the first byte of each page.
 */
bool disti_pages_readable(const void *memory, size_t bytes);
bool disti_pages_writable(void *memory, size_t bytes);

#endif
