/* SPDX-License-Identifier: BSD-3-Clause */
/* The battery's case about sinks that reduce received data. */
#include "base/dtype.h"
#include "base/kernels/half.h"
#include "transport_battery_rank.h"

#include <stdlib.h>
#include <string.h>

/* Stores the value `number` as an element of dtype. All numbers here are exact in every dtype. */
static void reduce_store(void *array, size_t i, dist_dtype dtype, int number)
{
    uint16_t half = dtype == DIST_BFLOAT16 ? disti_bfloat16_from_float((float)number)
                                           : disti_float16_from_float((float)number);

    switch (dtype) {
    case DIST_FLOAT32:
        ((float *)array)[i] = (float)number;
        break;
    case DIST_FLOAT64:
        ((double *)array)[i] = number;
        break;
    case DIST_FLOAT16:
    case DIST_BFLOAT16:
        ((uint16_t *)array)[i] = half;
        break;
    case DIST_BOOL:
        ((uint8_t *)array)[i] = number != 0;
        break;
    case DIST_INT8:
    case DIST_UINT8:
        ((uint8_t *)array)[i] = (uint8_t)number;
        break;
    case DIST_INT32:
    case DIST_UINT32:
        ((uint32_t *)array)[i] = (uint32_t)number;
        break;
    default:
        ((uint64_t *)array)[i] = (uint64_t)number;
    }
}

static int reduce_combine(dist_op op, int a, int b)
{
    switch (op) {
    case DIST_SUM:
    case DIST_PREMUL_SUM: /* the sender has scaled */
        return a + b;
    case DIST_AVG:
        return (a + b) / 2;
    case DIST_PROD:
        return a * b;
    case DIST_MIN:
        return a < b ? a : b;
    case DIST_BAND:
        return a & b;
    case DIST_BOR:
        return a | b;
    case DIST_BXOR:
        return a ^ b;
    default:
        return a > b ? a : b;
    }
}

/* A user-defined reduction: exclusive or of all bits. */
static void reduce_user(void *arg, void *dst, const void *a, const void *b, size_t count,
                        dist_dtype dtype)
{
    (void)arg;
    for (size_t i = 0; i < count * dist_dtype_size(dtype); i++)
        ((uint8_t *)dst)[i] = ((const uint8_t *)a)[i] ^ ((const uint8_t *)b)[i];
}

/* Fills this rank's data, the data to send, and the expected result. */
static void reduce_fill(char *src, char *out, char *expected, size_t count, dist_dtype dtype,
                        dist_op op)
{
    for (size_t i = 0; i < count; i++) {
        int mine = 2 * (int)(i % 5), theirs = 2 * (int)(i % 3);

        if (dtype == DIST_BOOL) {
            mine = mine != 0;
            theirs = theirs != 0;
        }
        reduce_store(src, i, dtype, mine);
        reduce_store(out, i, dtype, theirs);
        reduce_store(expected, i, dtype, reduce_combine(op, mine, theirs));
    }
    for (size_t i = 0; op == DIST_USER && i < count * dist_dtype_size(dtype); i++)
        expected[i] = (char)(src[i] ^ out[i]);
}

/* Both ranks send to each other and reduce the received data, in place or into another array. */
static bool reduce_once(struct battery_rank *rank, dist_dtype dtype, dist_op op, size_t count,
                        bool in_place)
{
    static const struct dist_reduction user = {.fn = reduce_user};
    size_t bytes = count * dist_dtype_size(dtype);
    char *out = battery_alloc(bytes), *src = battery_alloc(bytes);
    char *dst = in_place ? src : battery_alloc(bytes), *expected = battery_alloc(bytes);
    struct dist_sink sink = {.dst = dst,
                             .src = src,
                             .bytes = bytes,
                             .dtype = dtype,
                             .op = op,
                             .finish_ranks = op == DIST_AVG ? 2 : 0,
                             .reduction = op == DIST_USER ? &user : NULL};
    struct dist_request request[2];
    bool ok;

    reduce_fill(src, out, expected, count, dtype, op);
    battery_recv_sink(rank, &request[0], 1 - rank->rank, 3, &sink);
    battery_send(rank, &request[1], 1 - rank->rank, 3, out, bytes);
    ok = battery_wait_ok(rank, request, 2) &&
         battery_expect(rank, memcmp(dst, expected, bytes) == 0, "%s of %zu %s is wrong",
                        dist_op_string(op), count, dist_dtype_string(dtype));
    free(out);
    free(expected);
    if (!in_place)
        free(dst);
    free(src);
    return ok;
}

/* Reduces every dtype with some counts, and with every op some dtypes. */
static bool reduce_all(struct battery_rank *rank)
{
    static const size_t counts[] = {0, 1, 7, 1000, 4097, 70001, 1000003};
    int op = 0;

    for (int dtype = 0; dtype < DIST_DTYPE_COUNT; dtype++) {
        for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
            do
                op = (op + 1) % DIST_OP_COUNT;
            while (!disti_op_fits((dist_op)op, (dist_dtype)dtype));
            if (!reduce_once(rank, (dist_dtype)dtype, (dist_op)op, counts[i], i % 2 == 0))
                return false;
        }
    }
    return true;
}

const struct battery_case battery_reduce_cases[] = {
    {.name = "reduce", .run = reduce_all, .ranks = 2, .opened = true},
    {.name = NULL},
};
