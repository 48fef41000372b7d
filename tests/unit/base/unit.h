/* SPDX-License-Identifier: BSD-3-Clause */
/* Includes cmocka with the headers that it requires, and defines repeatable random numbers. */
#ifndef DISTI_TESTS_UNIT_BASE_UNIT_H
#define DISTI_TESTS_UNIT_BASE_UNIT_H

/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>
/* clang-format on */

/* Time limit for events that happen immediately, on a busy machine too. It is shorter than the
 * timeouts that the tests must not run into. */
#define UNIT_SOON_MS 15000
#define UNIT_SOON_NS (UNIT_SOON_MS * INT64_C(1000000))

/* Returns the factor for time limits: 10 under a checker such as Valgrind
 * (tests/support/watched.sh). */
static inline int unit_patience(void)
{
    return getenv("CHECK_WATCHED") ? 10 : 1;
}

/* Returns the next random number of a state (splitmix64). */
static inline uint64_t unit_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

#endif
