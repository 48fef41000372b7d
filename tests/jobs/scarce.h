/* SPDX-License-Identifier: BSD-3-Clause */
/* Makes one allocation of this process fail. */
#ifndef TESTS_JOBS_SCARCE_H
#define TESTS_JOBS_SCARCE_H

#include <stdbool.h>

/* Returns false if the allocator has been replaced, for example by a sanitizer. */
bool scarce_works(void);

/* Makes the number-th allocation from this call on fail; 1 is the next one. */
void scarce_from(int number);

/* Cancels scarce_from if no allocation has failed yet. Returns true if one has failed. */
bool scarce_end(void);

#endif
