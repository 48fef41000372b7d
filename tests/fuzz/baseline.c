/* SPDX-License-Identifier: BSD-3-Clause */
/* Saved results of dist_bench, with which a later run is compared. */
#include "tests/fuzz/fuzz.h"

#include "bench/report.h"

void fuzz_baseline(struct fuzz_input *input)
{
    struct result_time time = {.measured = true, .median = 1000};
    struct result_measurement measurement = {.collective = "all_reduce",
                                             .dtype = "float32",
                                             .op = "sum",
                                             .root = -1,
                                             .bytes = 4096,
                                             .buffers = 1,
                                             .times = &time};
    struct result_library library = {.name = "gloo/dist"};
    struct result result = {.ranks = 2,
                            .libraries = &library,
                            .library_count = 1,
                            .measurements = &measurement,
                            .measurement_count = 1};

    baseline_compare(&result, fuzz_file(input), 10, true);
}
