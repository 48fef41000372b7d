/* SPDX-License-Identifier: BSD-3-Clause */
/* cmocka with what it must have before it, and random numbers that repeat. */
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

/* What comes at once has come by then, on a machine with much else to do as well; what the same
 * test would wait for otherwise takes longer. */
#define UNIT_SOON_MS 15000
#define UNIT_SOON_NS (UNIT_SOON_MS * INT64_C(1000000))

/* How much longer all takes where something watches the test (tests/support/watched.sh). */
static inline int unit_patience(void)
{
    return getenv("CHECK_WATCHED") ? 10 : 1;
}

/* splitmix64. */
static inline uint64_t unit_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

#endif
