/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Names and sizes of types and operators, from the tables of dist.h, for workers that do not link
 * libdist.
 */
#include <dist/dist.h>

const char *dist_dtype_string(dist_dtype dtype)
{
#define DTYPE_TEXT(name, text, bytes) text,
    static const char *const texts[] = {DIST_DTYPE_MAP(DTYPE_TEXT)};
#undef DTYPE_TEXT
    return texts[dtype];
}

size_t dist_dtype_size(dist_dtype dtype)
{
#define DTYPE_SIZE(name, text, bytes) bytes,
    static const unsigned char sizes[] = {DIST_DTYPE_MAP(DTYPE_SIZE)};
#undef DTYPE_SIZE
    return sizes[dtype];
}

const char *dist_op_string(dist_op op)
{
#define OP_TEXT(name, text) text,
    static const char *const texts[] = {DIST_OP_MAP(OP_TEXT)};
#undef OP_TEXT
    return texts[op];
}
