/* SPDX-License-Identifier: BSD-3-Clause */
/* Makes one allocation of this process fail. */
#ifndef TESTS_JOBS_SCARCE_H
#define TESTS_JOBS_SCARCE_H

#include <stdbool.h>

/* Returns false if the allocator has been replaced, for example by a sanitizer. */
bool scarce_works(void);

/* Makes the allocation with that number, counted from 1, fail. */
void scarce_from(int number);

/* Ends that. Returns whether an allocation has failed. */
bool scarce_end(void);

#endif
