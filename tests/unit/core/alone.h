/* SPDX-License-Identifier: BSD-3-Clause */
/* Helpers for tests in a world of one rank. */
#ifndef TESTS_UNIT_CORE_ALONE_H
#define TESTS_UNIT_CORE_ALONE_H

/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */

#include <dist/dist.h>
#include <string.h>

static inline dist_group *single_rank_world(void)
{
    struct dist_options options = DIST_OPTIONS_INIT;
    dist_group *group = NULL;

    options.backend = "self";
    options.rank = 0;
    options.world_size = 1;
    assert_int_equal(dist_init_process_group(&options, &group), DIST_OK);
    return group;
}

/* Checks that a call failed with DIST_ERR_INVALID_ARGUMENT and that the error contains `text`. */
static inline void refused(dist_status status, const char *text)
{
    assert_int_equal(status, DIST_ERR_INVALID_ARGUMENT);
    if (!strstr(dist_last_error(), text))
        fail_msg("'%s' does not contain '%s'", dist_last_error(), text);
}

#endif
