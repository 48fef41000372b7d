/* SPDX-License-Identifier: BSD-3-Clause */
/* For tests of data-parallel training. */
#ifndef TESTS_UNIT_DDP_STEPS_H
#define TESTS_UNIT_DDP_STEPS_H

#include "../core/alone.h"

#include <dist/ddp.h>

/* One step, in the order of the indices from first to last. */
static inline void step(dist_ddp *ddp, int first, int last)
{
    const int by = first < last ? 1 : -1;

    for (int i = first; i != last + by; i += by)
        assert_int_equal(dist_ddp_ready(ddp, i), DIST_OK);
    assert_int_equal(dist_ddp_finish(ddp), DIST_OK);
}

#endif
