/* SPDX-License-Identifier: BSD-3-Clause */
/* Sockets that are closed in a forked child, limits on descriptors, and doorbells. */
#ifndef DISTI_BASE_DESCRIPTOR_H
#define DISTI_BASE_DESCRIPTOR_H

#include <dist/dist.h>
#include <stdbool.h>
#include <stddef.h>

/*
 * Duplicates a descriptor whose number is that of a closed standard stream, so that the program's
 * output does not go to it. Accepts negative values. Returns the descriptor to use; the original
 * is closed. Does not set errno.
 */
int disti_descriptor_raise(int fd);

/*
 * Registers a descriptor to be closed in forked children. Otherwise a child that does not exec
 * would keep copies of all connections open, and a rank that dies would seem to be alive as long as
 * its child. Calls disti_descriptor_raise first. Accepts negative values, so it can wrap socket()
 * and accept(). Returns the descriptor to use. Thread-safe. Does not set errno.
 */
int disti_descriptor_own(int fd);

/*
 * Closes a descriptor. Required for all registered descriptors, since their numbers may be reused.
 * In a forked child, does nothing for the parent's descriptors, which are closed already.
 */
void disti_descriptor_close(int fd);

/*
 * True if errno means that a system call is denied by a seccomp filter, as in containers, or not
 * implemented by the kernel.
 */
bool disti_call_denied(int error);

/*
 * Reports that the system calls `calls` ("eventfd or epoll_create1") failed. The error has the
 * formatted text, errno's text, and a fix if no descriptor is left or the call is denied. Returns
 * ERR_SYSTEM.
 */
dist_status disti_fail_call(const char *calls, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/*
 * Raises the soft limit of open files to `count`, or to the hard limit if that is lower. Returns
 * the resulting limit. The usual soft limit of 1024 exists for programs that call select.
 */
size_t disti_descriptor_allow(size_t count);

/*
 * Returns how many of `count` descriptors unauthenticated connections may hold: at most a quarter
 * of the limit, so that enough remain for this process.
 */
int disti_descriptor_for_strangers(int count);

/* ---- doorbells: the eventfd of a thread that sleeps on descriptors ---- */

/*
 * Returns the calling thread's doorbell, created by the first call. It becomes readable when
 * another thread rings it, and exists until the thread ends. Returns -1 if no descriptor is left.
 */
int disti_doorbell(void);

/* Closes the calling thread's doorbell. The next call of disti_doorbell creates a new one. */
void disti_doorbell_close(void);

/* Resets the calling thread's doorbell. Call after each sleep, before checking for events. */
void disti_doorbell_reset(void);

/*
 * Rings another thread's doorbell; does nothing if it is -1. The caller ensures that the thread
 * still exists.
 */
void disti_doorbell_ring(int doorbell);

#endif
