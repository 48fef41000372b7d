/* SPDX-License-Identifier: BSD-3-Clause */
/* What can be measured: the table, and names of types and operations. */
#include "kind.h"

#include <string.h>
#include <strings.h>

const struct kind kind_table[KIND_COUNT] = {
#define KIND_ROW(name, title, in, out, reduces, rooted, place, layout)                             \
    {KIND_##name, #name,  title,        KIND_##in,    KIND_##out,                                  \
     reduces,     rooted, KIND_##place, KIND_##layout},
    KIND_MAP(KIND_ROW)
#undef KIND_ROW
};

const struct kind *kind_find(const char *name)
{
    for (int i = 0; i < KIND_COUNT; i++) {
        if (strcmp(kind_table[i].name, name) == 0)
            return &kind_table[i];
    }
    return NULL;
}

int kind_blocks(const struct kind *kind, int ranks)
{
    return kind->layout == KIND_BLOCKS ? ranks : 1;
}

/* The names that OSU's and NCCL's programs have for ours. */
static const struct {
    const char *name;
    dist_dtype dtype;
} kind_aliases[] = {
    {"mpi_char", DIST_INT8}, {"mpi_int", DIST_INT32},  {"mpi_float", DIST_FLOAT32},
    {"float", DIST_FLOAT32}, {"double", DIST_FLOAT64}, {"half", DIST_FLOAT16},
};

int kind_dtype(const char *name)
{
    for (int d = 0; d < DIST_DTYPE_COUNT; d++) {
        if (strcasecmp(dist_dtype_string((dist_dtype)d), name) == 0)
            return d;
    }
    for (size_t i = 0; i < sizeof(kind_aliases) / sizeof(kind_aliases[0]); i++) {
        if (strcasecmp(kind_aliases[i].name, name) == 0)
            return (int)kind_aliases[i].dtype;
    }
    return -1;
}

/* A function of the user's has no name that ranks could tell each other. */
int kind_op(const char *name)
{
    for (int op = 0; op < DIST_OP_COUNT; op++) {
        if (op != DIST_USER && strcasecmp(dist_op_string((dist_op)op), name) == 0)
            return op;
    }
    return -1;
}
