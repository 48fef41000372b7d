/* SPDX-License-Identifier: BSD-3-Clause */
/* For tests of data-parallel training in a world of one rank. */
#ifndef TESTS_UNIT_DDP_ALONE_H
#define TESTS_UNIT_DDP_ALONE_H

/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */

#include <dist/ddp.h>
#include <string.h>

static inline dist_group *alone(void)
{
    struct dist_options options = DIST_OPTIONS_INIT;
    dist_group *group = NULL;

    options.backend = "self";
    options.rank = 0;
    options.world_size = 1;
    assert_int_equal(dist_init_process_group(&options, &group), DIST_OK);
    return group;
}

/* The call was refused, and says why. */
static inline void refused(dist_status status, const char *text)
{
    assert_int_equal(status, DIST_ERR_INVALID_ARGUMENT);
    if (!strstr(dist_last_error(), text))
        fail_msg("'%s' does not say '%s'", dist_last_error(), text);
}

/* One step, in the order of the indices from first to last. */
static inline void step(dist_ddp *ddp, int first, int last)
{
    const int by = first < last ? 1 : -1;

    for (int i = first; i != last + by; i += by)
        assert_int_equal(dist_ddp_ready(ddp, i), DIST_OK);
    assert_int_equal(dist_ddp_finish(ddp), DIST_OK);
}

#endif
