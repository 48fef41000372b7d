/* SPDX-License-Identifier: BSD-3-Clause */
/* Sockets that belong to this process alone, and are closed in a child that it forks; and how many
 * descriptors there may be. */
#ifndef DISTI_BASE_DESCRIPTOR_H
#define DISTI_BASE_DESCRIPTOR_H

#include <dist/dist.h>
#include <stdbool.h>
#include <stddef.h>

/*
 * What gets the number of a standard stream that the program has closed gets another one: whatever
 * the program prints would go there. Takes the descriptor, negative ones too, and returns the one
 * to use. Does not set errno.
 */
int disti_descriptor_raise(int fd);

/*
 * A connection ends for its other side when the last process closes it. A child that was forked
 * and runs no other program has copies of all, so without this a rank that dies would seem to live
 * as long as its child does.
 *
 * Takes the descriptor, negative ones too, raises it, and returns it: so it goes round socket() and
 * accept().
 * May be called by any thread. Does not set errno.
 */
int disti_descriptor_own(int fd);

/*
 * Closes a descriptor; for all that were taken, since their numbers may come again. In a forked
 * child nothing happens for the parent's, which are closed there.
 */
void disti_descriptor_close(int fd);

/* True if errno says that a system call is denied: by a seccomp filter, as containers have, or by a
 * kernel without it. */
bool disti_call_denied(int error);

/*
 * Reports that the system calls of that name ("eventfd or epoll_create1") failed: the text, the
 * cause by errno, and what to do about it. For calls that fail when descriptors are used up or
 * calls are denied. Returns ERR_SYSTEM.
 */
dist_status disti_fail_call(const char *calls, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/*
 * Raises the soft limit of open files to `count`, or as near to it as the hard limit allows.
 * Returns how many there may be. The usual soft limit, 1024, is there for programs that call
 * select.
 */
size_t disti_descriptor_allow(size_t count);

/*
 * How many of `count` descriptors strangers may hold, who call and have not said who they are: a
 * quarter of all that there may be, so that this process keeps enough for itself.
 */
int disti_descriptor_for_strangers(int count);

/* ---- doorbells: the eventfd of a thread that sleeps on descriptors ---- */

/*
 * The calling thread's doorbell, made when it is first asked for; it becomes readable when somebody
 * rings it. It is the thread's until its end, whatever it sleeps for. -1: no descriptor is left.
 */
int disti_doorbell(void);

/* Closes the calling thread's doorbell, which is made again when it is needed. */
void disti_doorbell_close(void);

/* Silences the calling thread's doorbell; after each sleep, and before the look at what has
 * happened.
 */
void disti_doorbell_hear(void);

/* Rings another thread's doorbell. The caller knows that this thread is still there. -1: nothing.
 */
void disti_doorbell_ring(int doorbell);

#endif
