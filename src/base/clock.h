/* SPDX-License-Identifier: BSD-3-Clause */
/* Time and deadlines, on the monotonic clock. */
#ifndef DISTI_BASE_CLOCK_H
#define DISTI_BASE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/*
 * Returns nanoseconds since a fixed point in time; never decreases. Stops while the job is
 * suspended.
 */
int64_t disti_now_ns(void);

/* Converts a time of disti_now_ns for system calls that use CLOCK_MONOTONIC. */
struct timespec disti_clock_timespec(int64_t time_ns);

/*
 * A launcher that suspends its job (SIGTSTP) stops the job's clock, so that no deadline expires
 * meanwhile. Launcher and ranks share a number: if n >= 0, the job has been suspended for n ns so
 * far; if n < 0, the job is suspended and its clock shows -n. The launcher calls these functions,
 * which return the new number.
 */
int64_t disti_clock_suspend(int64_t number);
int64_t disti_clock_resume(int64_t number);

/*
 * Called by a rank: makes the clock of this process follow the launcher's number. NULL: the clock
 * no longer follows one.
 */
void disti_clock_follow(_Atomic int64_t *number);

/* Returns the time in `ms` milliseconds; does not overflow. */
int64_t disti_deadline_ms(int64_t ms);

bool disti_expired(int64_t deadline_ns);

/*
 * Returns the remaining milliseconds, rounded up, 0 after the deadline, at most INT_MAX, as
 * poll(2) requires.
 */
int disti_left_ms(int64_t deadline_ns);

void disti_sleep_ns(int64_t ns);

#endif
