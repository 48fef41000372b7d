/* SPDX-License-Identifier: BSD-3-Clause */
/* Files that grow, where the limit on file sizes (RLIMIT_FSIZE, ulimit -f) may be below that; and
 * names of files that each process has of its own. */
#ifndef DISTI_BASE_FILE_H
#define DISTI_BASE_FILE_H

#include <dist/dist.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * As write(2), ftruncate(2), and fallocate(2), but beyond the limit they fail
 * with EFBIG, and no SIGXFSZ ends the process. The limit holds for memfds too. None blocks longer
 * than the system's call.
 */
ssize_t disti_file_write(int fd, const void *data, size_t bytes);
int disti_file_truncate(int fd, uint64_t bytes);
int disti_file_reserve(int fd, uint64_t offset, uint64_t bytes);

/*
 * Is that this user, root, or whoever stands for root in a container without it? There the kernel
 * gives all users whom it does not know one number.
 */
bool disti_file_owner_is_safe(uid_t owner);

/*
 * Opens a file for reading, without waiting (O_NONBLOCK). -1: errno says why; EPERM: the name, or
 * what it leads to, is a link whose owner is not safe. The caller closes it.
 */
int disti_file_open(const char *name);

/* A new memfd that can be sealed and not be executed; -1: errno says why. The caller closes it. */
int disti_file_memory(void);

/* The same, or if memfd_create is denied a file in /dev/shm without a name, which cannot be sealed.
 */
int disti_file_private(void);

/* Reports why a file in memory could not be made, from errno, with the limit to raise. `what`:
 * "keep the store's secret". Returns ERR_SYSTEM. */
dist_status disti_file_memory_fail(const char *what);

/* May files have so many bytes? Else *most_p, unless it is NULL, becomes the limit. */
bool disti_file_may_have(uint64_t bytes, uint64_t *most_p);

/* Reports that shared memory cannot be mapped (EAGAIN), as all mappings of this process are locked.
 */
dist_status disti_file_locked_too_much(size_t bytes);

/*
 * Expands %h (host), %p (pid), %r (rank; "-": unknown, negative) and %% in a file's name; too long
 * a name is cut.
 */
void disti_file_name(const char *pattern, int rank, char *name, size_t size);

#endif
