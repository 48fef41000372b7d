/* SPDX-License-Identifier: BSD-3-Clause */
/* Something that runs orders on all ranks: this job itself, or a library's processes. */
#ifndef BENCH_RUNNER_H
#define BENCH_RUNNER_H

#include "bench/measure/measure.h"

struct runner {
    int ranks;
    bool gone; /* it failed and is of no more use */
    /*
     * times: rank r's sample s at [r * order->samples + s], in ns. reason, MEASURE_REASON bytes, is
     * set unless it TOOK; then times may be half filled. Blocks, but not for ever.
     */
    enum outcome (*turn)(struct runner *runner, const struct order *order, double *times,
                         char *reason);
};

#endif
