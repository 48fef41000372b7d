/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of algorithms. */
#include "collectives/algorithms.h"

#include <string.h>

const struct disti_algorithm disti_algorithms[] = {
#define ALGORITHM(which, folder, row, ...)                                                         \
    {.collective = DIST_COLL_##which, .name = #row, .write = disti_##folder##_##row, __VA_ARGS__},
#include "collectives/algorithms.def"
#undef ALGORITHM
    {.name = NULL},
};

const struct disti_algorithm *disti_algorithm_find(dist_collective collective, const char *name)
{
    for (const struct disti_algorithm *a = disti_algorithms; a->name; a++)
        if (a->collective == collective && strcmp(a->name, name) == 0)
            return a;
    return NULL;
}
