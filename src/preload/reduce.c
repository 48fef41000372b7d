/* SPDX-License-Identifier: BSD-3-Clause */
/* Preload: translates MPI's types and operations of reductions to libdist's. */
#include "preload/preload.h"

#include <limits.h>
#include <pthread.h>
#include <string.h>

/* FOREIGN: integer types of Fortran and MPI, to which MPI's logical operations do not apply. */
enum reduce_class { SIGNED, UNSIGNED, FOREIGN, FLOATING, COMPLEX, LOGICAL, BYTES, PAIR };

#define REDUCE_BIT(class) (1u << (class))
#define REDUCE_C_INTEGERS (REDUCE_BIT(SIGNED) | REDUCE_BIT(UNSIGNED))
#define REDUCE_INTEGERS (REDUCE_C_INTEGERS | REDUCE_BIT(FOREIGN))

/* The types that MPI's operations accept, the commonest first. MPI provides their sizes. */
static const struct reduce_type {
    MPI_Datatype type;
    enum reduce_class class;
} reduce_types[] = {
    {MPI_DOUBLE, FLOATING},
    {MPI_FLOAT, FLOATING},
    {MPI_INT, SIGNED},
    {MPI_LONG, SIGNED},
    {MPI_UNSIGNED, UNSIGNED},
    {MPI_UNSIGNED_LONG, UNSIGNED},
    {MPI_LONG_LONG, SIGNED},
    {MPI_UNSIGNED_LONG_LONG, UNSIGNED},
    {MPI_SIGNED_CHAR, SIGNED},
    {MPI_UNSIGNED_CHAR, UNSIGNED},
    {MPI_SHORT, SIGNED},
    {MPI_UNSIGNED_SHORT, UNSIGNED},
    {MPI_INT8_T, SIGNED},
    {MPI_INT16_T, SIGNED},
    {MPI_INT32_T, SIGNED},
    {MPI_INT64_T, SIGNED},
    {MPI_UINT8_T, UNSIGNED},
    {MPI_UINT16_T, UNSIGNED},
    {MPI_UINT32_T, UNSIGNED},
    {MPI_UINT64_T, UNSIGNED},
    {MPI_AINT, FOREIGN},
    {MPI_OFFSET, FOREIGN},
    {MPI_COUNT, FOREIGN},
    {MPI_LONG_DOUBLE, FLOATING},
    {MPI_C_FLOAT_COMPLEX, COMPLEX},
    {MPI_C_DOUBLE_COMPLEX, COMPLEX},
    {MPI_C_LONG_DOUBLE_COMPLEX, COMPLEX},
    {MPI_CXX_FLOAT_COMPLEX, COMPLEX},
    {MPI_CXX_DOUBLE_COMPLEX, COMPLEX},
    {MPI_C_BOOL, LOGICAL},
    {MPI_CXX_BOOL, LOGICAL},
    {MPI_BYTE, BYTES},
    {MPI_INTEGER, FOREIGN},
    {MPI_INTEGER1, FOREIGN},
    {MPI_INTEGER2, FOREIGN},
    {MPI_INTEGER4, FOREIGN},
    {MPI_INTEGER8, FOREIGN},
    {MPI_REAL, FLOATING},
    {MPI_DOUBLE_PRECISION, FLOATING},
    {MPI_REAL4, FLOATING},
    {MPI_REAL8, FLOATING},
    {MPI_COMPLEX, COMPLEX},
    {MPI_DOUBLE_COMPLEX, COMPLEX},
    {MPI_COMPLEX8, COMPLEX},
    {MPI_COMPLEX16, COMPLEX},
    {MPI_LOGICAL, LOGICAL},
    {MPI_FLOAT_INT, PAIR},
    {MPI_DOUBLE_INT, PAIR},
    {MPI_LONG_INT, PAIR},
    {MPI_2INT, PAIR},
    {MPI_SHORT_INT, PAIR},
    {MPI_LONG_DOUBLE_INT, PAIR},
    {MPI_2REAL, PAIR},
    {MPI_2DOUBLE_PRECISION, PAIR},
    {MPI_2INTEGER, PAIR},
};
#define REDUCE_TYPES (sizeof(reduce_types) / sizeof(reduce_types[0]))

/* MPI's operations: the classes that each accepts, and those that libdist's operation supports. */
#define REDUCE_NUMBERS (REDUCE_INTEGERS | REDUCE_BIT(FLOATING))
static const struct reduce_op {
    MPI_Op op;
    unsigned accepts, native;
    dist_op dist;
} reduce_ops[] = {
    {MPI_SUM, REDUCE_NUMBERS | REDUCE_BIT(COMPLEX), REDUCE_NUMBERS | REDUCE_BIT(COMPLEX), DIST_SUM},
    {MPI_MAX, REDUCE_NUMBERS, REDUCE_NUMBERS, DIST_MAX},
    {MPI_MIN, REDUCE_NUMBERS, REDUCE_NUMBERS, DIST_MIN},
    {MPI_PROD, REDUCE_NUMBERS | REDUCE_BIT(COMPLEX), REDUCE_NUMBERS, DIST_PROD},
    {MPI_BAND, REDUCE_INTEGERS | REDUCE_BIT(BYTES), REDUCE_INTEGERS | REDUCE_BIT(BYTES), DIST_BAND},
    {MPI_BOR, REDUCE_INTEGERS | REDUCE_BIT(BYTES), REDUCE_INTEGERS | REDUCE_BIT(BYTES), DIST_BOR},
    {MPI_BXOR, REDUCE_INTEGERS | REDUCE_BIT(BYTES), REDUCE_INTEGERS | REDUCE_BIT(BYTES), DIST_BXOR},
    {MPI_LAND, REDUCE_C_INTEGERS | REDUCE_BIT(LOGICAL), 0, DIST_USER},
    {MPI_LOR, REDUCE_C_INTEGERS | REDUCE_BIT(LOGICAL), 0, DIST_USER},
    {MPI_LXOR, REDUCE_C_INTEGERS | REDUCE_BIT(LOGICAL), 0, DIST_USER},
    {MPI_MINLOC, REDUCE_BIT(PAIR), 0, DIST_USER},
    {MPI_MAXLOC, REDUCE_BIT(PAIR), 0, DIST_USER},
};
#define REDUCE_OPS (sizeof(reduce_ops) / sizeof(reduce_ops[0]))

static const struct reduce_type *reduce_type_find(MPI_Datatype type)
{
    for (size_t i = 0; i < REDUCE_TYPES; i++) {
        if (reduce_types[i].type == type)
            return &reduce_types[i];
    }
    return NULL;
}

static const struct reduce_op *reduce_op_find(MPI_Op op)
{
    for (size_t i = 0; i < REDUCE_OPS; i++) {
        if (reduce_ops[i].op == op)
            return &reduce_ops[i];
    }
    return NULL;
}

/* Returns the extent of an element; 0: unknown. */
static size_t reduce_bytes(MPI_Datatype type)
{
    MPI_Aint lower, extent;

    return PMPI_Type_get_extent(type, &lower, &extent) == MPI_SUCCESS && lower == 0 && extent > 0
               ? (size_t)extent
               : 0;
}

/* ---- native reductions of libdist ---- */

static bool reduce_native(const struct reduce_type *type, const struct reduce_op *op, size_t bytes,
                          struct disti_reduction *reduction)
{
    static const struct {
        enum reduce_class class;
        size_t bytes;
        dist_dtype dtype;
    } rows[] = {
        {FLOATING, 8, DIST_FLOAT64}, {FLOATING, 4, DIST_FLOAT32}, {SIGNED, 4, DIST_INT32},
        {SIGNED, 8, DIST_INT64},     {UNSIGNED, 4, DIST_UINT32},  {UNSIGNED, 8, DIST_UINT64},
        {SIGNED, 1, DIST_INT8},      {UNSIGNED, 1, DIST_UINT8},   {BYTES, 1, DIST_UINT8},
    };
    enum reduce_class class = type->class;

    reduction->parts = class == COMPLEX ? 2 : 1; /* complex: the parts are added separately */
    reduction->op = op->dist;
    class = class == COMPLEX ? FLOATING : class == FOREIGN ? SIGNED : class;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (op->native & REDUCE_BIT(type->class) && rows[i].class == class &&
            rows[i].bytes == bytes / reduction->parts) {
            reduction->dtype = rows[i].dtype;
            return true;
        }
    }
    return false;
}

/* ---- reductions with MPI's arithmetic, as user-defined operations ---- */

/*
 * Returns the dtype that transfers elements of this size; only MPI interprets them. False: there is
 * none.
 */
static bool reduce_carrier(size_t bytes, dist_dtype *dtype_p)
{
    static const dist_dtype carriers[] = {
        [1] = DIST_UINT8, [2] = DIST_FLOAT16, [4] = DIST_INT32, [8] = DIST_INT64};

    if (bytes != 1 && bytes != 2 && bytes != 4 && bytes != 8)
        return false;
    *dtype_p = carriers[bytes];
    return true;
}

/*
 * User-defined operations by type and MPI operation, made when needed; they exist until the process
 * ends.
 */
static struct reduce_own {
    MPI_Datatype type;
    MPI_Op op;
    dist_op dist;
    bool made;
} reduce_own[REDUCE_TYPES][REDUCE_OPS];
static pthread_mutex_t reduce_lock = PTHREAD_MUTEX_INITIALIZER;

/* Reduces with MPI_Reduce_local. It only computes, so any thread may call it. */
static void reduce_local(void *arg, void *dst, const void *a, const void *b, size_t count,
                         dist_dtype dtype)
{
    const struct reduce_own *own = arg;
    const char *other = dst == a ? b : a;
    char *result = dst;
    size_t bytes = dist_dtype_size(dtype);

    if (dst != a && dst != b)
        memcpy(dst, b, count * bytes);
    while (count) {
        int n = count < INT_MAX ? (int)count : INT_MAX;

        PMPI_Reduce_local(other, result, n, own->type, own->op);
        other += (size_t)n * bytes;
        result += (size_t)n * bytes;
        count -= (size_t)n;
    }
}

/* ---- native or not ---- */

/*
 * The last reduction of this thread. Its type and operation are predefined. Their handles are never
 * freed, so equal handles mean the same reduction.
 */
static DISTI_THREAD_LOCAL struct {
    MPI_Datatype type;
    MPI_Op op;
    struct disti_reduction reduction;
    bool known, exact;
} reduce_last;

static bool reduce_is_last(MPI_Datatype type, MPI_Op op)
{
    return reduce_last.known && reduce_last.type == type && reduce_last.op == op;
}

enum disti_why disti_reduction_is_eligible(MPI_Datatype type, MPI_Op op)
{
    const struct reduce_type *our_type;
    const struct reduce_op *our_op;
    struct disti_reduction reduction;
    size_t bytes;

    if (reduce_is_last(type, op) || type == MPI_DATATYPE_NULL || op == MPI_OP_NULL)
        return DISTI_WHY_SERVED; /* NULL handles are rejected later: see call.c */
    our_type = reduce_type_find(type);
    our_op = reduce_op_find(op);
    if (!our_op)
        return DISTI_WHY_OPERATION;
    if (!our_type || !(our_op->accepts & REDUCE_BIT(our_type->class)))
        return DISTI_WHY_TYPE;
    bytes = reduce_bytes(type);
    return reduce_native(our_type, our_op, bytes, &reduction) ||
                   reduce_carrier(bytes, &reduction.dtype)
               ? DISTI_WHY_SERVED
               : DISTI_WHY_TYPE;
}

dist_status disti_reduction_find(MPI_Datatype type, MPI_Op op, struct disti_reduction *reduction_p)
{
    struct disti_reduction *found = &reduce_last.reduction;

    if (!reduce_is_last(type, op)) {
        const struct reduce_type *our_type = reduce_type_find(type);
        const struct reduce_op *our_op = reduce_op_find(op);
        size_t bytes = reduce_bytes(type);
        dist_status status = DIST_OK;

        if (!reduce_native(our_type, our_op, bytes, found)) {
            struct reduce_own *own = &reduce_own[our_type - reduce_types][our_op - reduce_ops];

            found->parts = 1;
            reduce_carrier(bytes, &found->dtype);
            pthread_mutex_lock(&reduce_lock);
            if (!own->made) {
                own->type = our_type->type;
                own->op = our_op->op;
                status = dist_op_create(reduce_local, own, &own->dist);
                own->made = status == DIST_OK;
            }
            found->op = own->dist;
            pthread_mutex_unlock(&reduce_lock);
        }
        reduce_last.known = status == DIST_OK;
        if (status != DIST_OK)
            return status;
        reduce_last.type = type;
        reduce_last.op = op;
        /* Only native integer reductions are exact: reductions with MPI's arithmetic may round. */
        reduce_last.exact = found->op < DIST_OP_COUNT && found->dtype != DIST_FLOAT32 &&
                            found->dtype != DIST_FLOAT64;
    }
    *reduction_p = *found;
    return DIST_OK;
}

bool disti_reduction_is_exact(MPI_Datatype type, MPI_Op op)
{
    struct disti_reduction reduction;

    if (reduce_is_last(type, op))
        return reduce_last.exact;
    return type != MPI_DATATYPE_NULL && op != MPI_OP_NULL &&
           disti_reduction_find(type, op, &reduction) == DIST_OK && reduce_last.exact;
}
