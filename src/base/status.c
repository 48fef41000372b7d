/* SPDX-License-Identifier: BSD-3-Clause */
/* The names of statuses, dtypes, ops and collectives, from their tables in the headers. */
#include <dist/backend.h>

const char *dist_status_string(dist_status status)
{
    switch (status) {
#define STATUS_CASE(name, value, text)                                                             \
    case DIST_##name:                                                                              \
        return text;
        DIST_STATUS_MAP(STATUS_CASE)
#undef STATUS_CASE
    }
    return "unknown status";
}

const char *dist_dtype_string(dist_dtype dtype)
{
    static const char *const texts[] = {
#define DTYPE_TEXT(name, text, bytes) text,
        DIST_DTYPE_MAP(DTYPE_TEXT)
#undef DTYPE_TEXT
    };
    return (unsigned)dtype < DIST_DTYPE_COUNT ? texts[dtype] : "unknown dtype";
}

size_t dist_dtype_size(dist_dtype dtype)
{
    static const unsigned char sizes[] = {
#define DTYPE_SIZE(name, text, bytes) bytes,
        DIST_DTYPE_MAP(DTYPE_SIZE)
#undef DTYPE_SIZE
    };
    return (unsigned)dtype < DIST_DTYPE_COUNT ? sizes[dtype] : 0;
}

const char *dist_op_string(dist_op op)
{
    static const char *const texts[] = {
#define OP_TEXT(name, text) text,
        DIST_OP_MAP(OP_TEXT)
#undef OP_TEXT
    };
    if ((int)op >= DIST_OP_DYNAMIC)
        return "created";
    return (unsigned)op < DIST_OP_COUNT ? texts[op] : "unknown op";
}

const char *dist_collective_string(dist_collective collective)
{
    static const char *const texts[] = {
#define COLLECTIVE_TEXT(name, text) text,
        DIST_COLLECTIVE_MAP(COLLECTIVE_TEXT)
#undef COLLECTIVE_TEXT
    };
    return (unsigned)collective < DIST_COLL_COUNT ? texts[collective] : "unknown collective";
}

const char *dist_version(void)
{
    return DIST_VERSION_STRING;
}
