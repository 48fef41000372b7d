/* SPDX-License-Identifier: BSD-3-Clause */
/* Time and deadlines, on the monotonic clock. */
#ifndef DISTI_BASE_CLOCK_H
#define DISTI_BASE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* Nanoseconds since some fixed point; never goes back. Stands still while the job is suspended. */
int64_t disti_now_ns(void);

/* The same point in time for system calls that take a time of CLOCK_MONOTONIC. */
struct timespec disti_clock_timespec(int64_t time_ns);

/*
 * A launcher that suspends its job (SIGTSTP) stops the job's clock, so that no deadline passes
 * meanwhile. Launcher and ranks share a number:
 *
 *     n >= 0    the job has been suspended for n ns so far
 *     n < 0     the job is suspended, and its clock shows -n
 *
 * The launcher: returns the new number from the old one.
 */
int64_t disti_clock_suspend(int64_t number);
int64_t disti_clock_resume(int64_t number);

/* The rank: from now on the clock of this process follows that number; NULL: none. */
void disti_clock_follow(_Atomic int64_t *number);

/* The point in time `ms` milliseconds from now; never overflows. */
int64_t disti_deadline_ms(int64_t ms);

bool disti_expired(int64_t deadline_ns);

/* Milliseconds left, rounded up, 0 if past, at most INT_MAX: what poll(2) wants. */
int disti_left_ms(int64_t deadline_ns);

void disti_sleep_ns(int64_t ns);

#endif
