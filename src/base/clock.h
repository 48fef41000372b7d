/* SPDX-License-Identifier: BSD-3-Clause */
/* Time and deadlines, on the monotonic clock. */
#ifndef DISTI_BASE_CLOCK_H
#define DISTI_BASE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

/* Nanoseconds since some fixed point; never goes back. */
int64_t disti_now_ns(void);

/* Nanoseconds for which this thread has had a CPU, the kernel's work for it included. */
int64_t disti_thread_ns(void);

/* The point in time `ms` milliseconds from now; never overflows. */
int64_t disti_deadline_ms(int64_t ms);

bool disti_expired(int64_t deadline_ns);

/* Milliseconds left, rounded up, 0 if past, at most INT_MAX: what poll(2) wants. */
int disti_left_ms(int64_t deadline_ns);

void disti_sleep_ns(int64_t ns);

#endif
