/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * File operations that respect RLIMIT_FSIZE (ulimit -f) without SIGXFSZ, safe opening of files,
 * memory files, and names of per-process files.
 */
#ifndef DISTI_BASE_FILE_H
#define DISTI_BASE_FILE_H

#include <dist/dist.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * As write(2), ftruncate(2) and fallocate(2), but beyond the file size limit they fail with EFBIG
 * and SIGXFSZ does not end the process. The limit applies to memfds too. The functions block only
 * as long as the system call.
 */
ssize_t disti_file_write(int fd, const void *data, size_t bytes);
int disti_file_truncate(int fd, uint64_t bytes);
int disti_file_reserve(int fd, uint64_t offset, uint64_t bytes);

/*
 * True if the owner is this user, root, or the kernel's overflow uid (65534) in a container that
 * has no user of that number. The kernel shows this uid for all users that the container does not
 * have, such as the host's root.
 */
bool disti_file_owner_is_safe(uid_t owner);

/*
 * Opens a file for reading, non-blocking (O_NONBLOCK). Returns -1 with errno set; EPERM: the path
 * contains a link whose owner is not safe. The caller closes the descriptor.
 */
int disti_file_open(const char *name);

/*
 * Creates a memfd that can be sealed and cannot be executed. Returns -1 with errno set. The caller
 * closes it.
 */
int disti_file_memory(void);

/*
 * As disti_file_memory; if memfd_create is denied, creates an unnamed file in /dev/shm, which
 * cannot be sealed.
 */
int disti_file_private(void);

/*
 * Reports from errno why a memory file could not be created, with the limit to raise. `what`:
 * "keep the store's secret". Returns ERR_SYSTEM.
 */
dist_status disti_file_memory_fail(const char *what);

/*
 * True if the limit allows files of this size. Otherwise sets *most_p, unless it is NULL, to the
 * limit.
 */
bool disti_file_may_have(uint64_t bytes, uint64_t *most_p);

/*
 * Reports that shared memory cannot be mapped (EAGAIN) because all mappings of this process are
 * locked.
 */
dist_status disti_file_locked_too_much(size_t bytes);

/*
 * Expands %h (host), %p (pid), %r (rank; "-" if negative, which means unknown) and %% in a file's
 * name. Truncates a name that is too long.
 */
void disti_file_name(const char *pattern, int rank, char *name, size_t size);

#endif
