/* SPDX-License-Identifier: BSD-3-Clause */
/* What can be measured: the table, and names of types and operations. */
#include "operation.h"

#include <string.h>
#include <strings.h>

const struct operation operation_table[OPERATION_COUNT] = {
#define OPERATION_ROW(name, title, in, out, reduces, rooted, in_place, layout)                     \
    {OPERATION_##name,    #name,          title, PART_##in, PART_##out, reduces, rooted,           \
     IN_PLACE_##in_place, LAYOUT_##layout},
    OPERATION_MAP(OPERATION_ROW)
#undef OPERATION_ROW
};

const struct operation *operation_find(const char *name)
{
    for (int i = 0; i < OPERATION_COUNT; i++) {
        if (strcmp(operation_table[i].name, name) == 0)
            return &operation_table[i];
    }
    return NULL;
}

int operation_blocks(const struct operation *operation, int ranks)
{
    return operation->layout == LAYOUT_BLOCKS ? ranks : 1;
}

/* The names that OSU's and NCCL's programs have for ours. */
static const struct {
    const char *name;
    dist_dtype dtype;
} operation_aliases[] = {
    {"mpi_char", DIST_INT8}, {"mpi_int", DIST_INT32},  {"mpi_float", DIST_FLOAT32},
    {"float", DIST_FLOAT32}, {"double", DIST_FLOAT64}, {"half", DIST_FLOAT16},
};

int operation_dtype(const char *name)
{
    for (int d = 0; d < DIST_DTYPE_COUNT; d++) {
        if (strcasecmp(dist_dtype_string((dist_dtype)d), name) == 0)
            return d;
    }
    for (size_t i = 0; i < sizeof(operation_aliases) / sizeof(operation_aliases[0]); i++) {
        if (strcasecmp(operation_aliases[i].name, name) == 0)
            return (int)operation_aliases[i].dtype;
    }
    return -1;
}

/* A function of the user's has no name that ranks could tell each other. */
int operation_op(const char *name)
{
    for (int op = 0; op < DIST_OP_COUNT; op++) {
        if (op != DIST_USER && strcasecmp(dist_op_string((dist_op)op), name) == 0)
            return op;
    }
    return -1;
}
