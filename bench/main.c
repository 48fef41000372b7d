/* SPDX-License-Identifier: BSD-3-Clause */
/* dist_bench: measures collective communication of libdist and other libraries. */
#include "bench/options.h"

int main(int argc, char **argv)
{
    return bench_main(argc, argv);
}
