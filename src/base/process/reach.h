/* SPDX-License-Identifier: BSD-3-Clause */
/* Another process's memory and descriptors, also while only its first thread has ended. */
#ifndef DISTI_BASE_PROCESS_REACH_H
#define DISTI_BASE_PROCESS_REACH_H

#include <sys/types.h>
#include <sys/uio.h>

/*
 * As process_vm_readv(2) and process_vm_writev(2) with one piece on each side. ESRCH: the process
 * has ended, or its first thread has and /proc does not tell of the others. The kernel reads *there
 * as the copy begins. Do not block.
 */
ssize_t disti_process_read(int pid, const struct iovec *here, const struct iovec *there);
ssize_t disti_process_write(int pid, const struct iovec *here, const struct iovec *there);

/* Room for a path of disti_process_path. */
#define DISTI_PROCESS_PATH 64

/* Writes the path under which this process opens descriptor `fd` of that one, if there is such. */
void disti_process_path(int pid, int fd, char path[DISTI_PROCESS_PATH]);

#endif
