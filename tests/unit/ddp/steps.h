/* SPDX-License-Identifier: BSD-3-Clause */
/* Helpers for tests of data-parallel training. */
#ifndef TESTS_UNIT_DDP_STEPS_H
#define TESTS_UNIT_DDP_STEPS_H

#include "../core/alone.h"

#include <dist/ddp.h>

/* Makes one step: reports the gradients from index `first` to `last`, in either direction, as
 * ready, and finishes the step. */
static inline void step(dist_ddp *ddp, int first, int last)
{
    const int by = first < last ? 1 : -1;

    for (int i = first; i != last + by; i += by)
        assert_int_equal(dist_ddp_ready(ddp, i), DIST_OK);
    assert_int_equal(dist_ddp_finish(ddp), DIST_OK);
}

#endif
