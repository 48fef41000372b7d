/* SPDX-License-Identifier: BSD-3-Clause */
/* A process without memory for one of its allocations. */
#ifndef TESTS_JOBS_SCARCE_H
#define TESTS_JOBS_SCARCE_H

#include <stdbool.h>

/* False: the allocator is another one's here. */
bool scarce_works(void);

/* From now on the allocation of that number fails, counted from 1. */
void scarce_from(int number);

/* None fails any more. Returns whether one has. */
bool scarce_end(void);

#endif
