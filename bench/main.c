/* SPDX-License-Identifier: BSD-3-Clause */
/* dist_bench: measures collective communication, libdist's and others', in turns. */
#include "bench/options.h"

int main(int argc, char **argv)
{
    return bench_main(argc, argv);
}
