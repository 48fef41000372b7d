/* SPDX-License-Identifier: BSD-3-Clause */
/* Error messages: set by the function that detects the error, printed once by the program. */
#ifndef TRAIN_FAILURE_H
#define TRAIN_FAILURE_H

/*
 * Stores the message (per thread; at most 1023 bytes, no newline) and returns -1, so that a
 * function can end with `return failure(...)`. Its callers only pass the -1 on.
 */
__attribute__((format(printf, 1, 2))) int failure(const char *format, ...);

/* Like failure, for a failed call of libdist: "<what>: <dist_last_error()>". */
int failure_dist(const char *what);

/* Returns this thread's last message; never NULL, "" if there is none. */
const char *failure_text(void);

#endif
