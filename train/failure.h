/* SPDX-License-Identifier: BSD-3-Clause */
/* The text of what went wrong: set where it is found, printed once by the program. */
#ifndef TRAIN_FAILURE_H
#define TRAIN_FAILURE_H

/*
 * Remembers the message (this thread's; at most 1023 bytes, no newline) and returns
 * -1, so that a function ends with `return failure(...)`. Later functions only pass the
 * -1 on.
 */
__attribute__((format(printf, 1, 2))) int failure(const char *format, ...);

/* The same for a call of libdist: "<what>: <dist_last_error()>". */
int failure_dist(const char *what);

/* The last message; never NULL, "" if there is none. */
const char *failure_text(void);

#endif
