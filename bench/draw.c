/* SPDX-License-Identifier: BSD-3-Clause */
/* draw FILE: draws curves of the output of dist_bench --format csv, as SVG on standard output. */
#include "bench/report.h"

#include <errno.h>
#include <string.h>

int main(int argc, char **argv)
{
    const char *failure;
    struct result *result;
    int status;

    if (argc != 2) {
        fprintf(stderr, "usage: draw FILE.csv >FILE.svg\n");
        return 2;
    }
    result = csv_read(argv[1], &failure);
    if (!result) {
        fprintf(stderr, "draw: %s\n", failure);
        return 1;
    }
    status = svg_write(result, stdout);
    if (status != 0)
        fprintf(stderr, "draw: %s\n", strerror(errno));
    result_free(result);
    return status != 0;
}
