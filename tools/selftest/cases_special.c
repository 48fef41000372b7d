/* SPDX-License-Identifier: BSD-3-Clause */
/* Reductions of special values: NaNs, infinities, signed zeros. */
#include "battery.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Elements of a block: longer than a vector of the CPU, and not a whole number of them. */
#define SPECIAL_COUNT 83
/* Elements behind the result, for a backend that writes too much: the battery reports it. */
#define SPECIAL_SPARE 8

/* What element i holds is i % SPECIAL_KINDS. */
enum {
    SPECIAL_NAN,        /* NaN on rank `who`, 1 on all others */
    SPECIAL_INFINITY,   /* infinity there, 1 on all others */
    SPECIAL_INFINITIES, /* infinity there, -infinity on the next rank, 1 on all others */
    SPECIAL_NANS,       /* NaN on every rank, with other bits on each */
    SPECIAL_ZEROS,      /* 0 on even ranks, -0 on odd ranks */
    SPECIAL_KINDS
};

struct special {
    struct battery *b;
    dist_collective collective;
    dist_dtype dtype;
    dist_op op;
    int who; /* also the root */
};

/* ---- the values ---- */

static unsigned special_mantissa(dist_dtype dtype)
{
    switch (dtype) {
    case DIST_FLOAT32:
        return 23;
    case DIST_FLOAT64:
        return 52;
    case DIST_FLOAT16:
        return 10;
    default:
        return 7;
    }
}

/* The bits of rank's element i. */
static uint64_t special_bits(const struct special *s, int rank, size_t i)
{
    unsigned bits = 8 * (unsigned)dist_dtype_size(s->dtype), mantissa = special_mantissa(s->dtype);
    uint64_t minus = UINT64_C(1) << (bits - 1);
    uint64_t infinity = minus - (UINT64_C(1) << mantissa);
    uint64_t one = (minus >> 1) - (UINT64_C(1) << mantissa);
    uint64_t nan = infinity | UINT64_C(1) << (mantissa - 1);

    switch (i % SPECIAL_KINDS) {
    case SPECIAL_NAN:
        return rank == s->who ? nan : one;
    case SPECIAL_INFINITY:
        return rank == s->who ? infinity : one;
    case SPECIAL_INFINITIES:
        if (rank == s->who)
            return infinity;
        return rank == (s->who + 1) % s->b->ranks ? infinity | minus : one;
    case SPECIAL_NANS:
        return nan | (uint64_t)(rank + 1) % 32 | (rank % 2 ? minus : 0);
    default:
        return rank % 2 ? minus : 0;
    }
}

/* -0 is less than 0. */
static bool special_less(double a, double b)
{
    return a < b || (a == b && signbit(a) && !signbit(b));
}

static double special_step(dist_op op, double a, double b)
{
    if (isnan(a) || isnan(b))
        return (double)NAN;
    switch (op) {
    case DIST_PROD:
        return a * b;
    case DIST_MIN:
        return special_less(b, a) ? b : a;
    case DIST_MAX:
        return special_less(a, b) ? b : a;
    default:
        return a + b;
    }
}

static double special_expected(const struct special *s, size_t i)
{
    double result = data_float(s->dtype, special_bits(s, 0, i));

    for (int r = 1; r < s->b->ranks; r++)
        result = special_step(s->op, result, data_float(s->dtype, special_bits(s, r, i)));
    return s->op == DIST_AVG ? result / s->b->ranks : result;
}

/* ---- the calls ---- */

static bool special_blocks(const struct special *s)
{
    return s->collective == DIST_COLL_REDUCE_SCATTER;
}

static dist_status special_call(const struct special *s, const void *in, void *out)
{
    switch (s->collective) {
    case DIST_COLL_ALL_REDUCE:
        return dist_all_reduce(s->b->group, in, out, SPECIAL_COUNT, s->dtype, s->op);
    case DIST_COLL_REDUCE:
        return dist_reduce(s->b->group, in, out, SPECIAL_COUNT, s->dtype, s->op, s->who);
    default:
        return dist_reduce_scatter(s->b->group, in, out, SPECIAL_COUNT, s->dtype, s->op);
    }
}

static const char *special_name(const struct special *s)
{
    static char name[80];

    snprintf(name, sizeof(name), "%s %s %s of special values",
             dist_collective_string(s->collective), dist_dtype_string(s->dtype),
             dist_op_string(s->op));
    return name;
}

/* A backend that says so may lose NaNs, and signs of zeros, in minima and maxima. */
static bool special_right(const struct special *s, double expected, double is)
{
    bool loses = (s->b->lacks & DIST_LACKS_NAN) && (s->op == DIST_MIN || s->op == DIST_MAX);

    if (isnan(expected))
        return isnan(is) || loses;
    return is == expected && (loses || !signbit(is) == !signbit(expected));
}

static void special_check(const struct special *s, const unsigned char *out)
{
    size_t first = special_blocks(s) ? (size_t)s->b->rank * SPECIAL_COUNT : 0;
    size_t size = dist_dtype_size(s->dtype);

    s->b->checks++;
    for (size_t i = 0; i < SPECIAL_COUNT; i++) {
        double expected = special_expected(s, first + i), is;
        uint64_t bits = 0;

        memcpy(&bits, out + i * size, size);
        is = data_float(s->dtype, bits);
        if (special_right(s, expected, is))
            continue;
        battery_fault(s->b, "%s, those of rank %d: element %zu is %g, should be %g",
                      special_name(s), s->who, first + i, is, expected);
        return;
    }
}

static void special_run(const struct special *s)
{
    size_t size = dist_dtype_size(s->dtype);
    size_t count = SPECIAL_COUNT * (special_blocks(s) ? (size_t)s->b->ranks : 1);
    unsigned char *in = battery_alloc(count, size);
    unsigned char *out = battery_alloc(SPECIAL_COUNT + SPECIAL_SPARE, size);

    s->b->cases++;
    battery_begin(s->b, special_name(s));
    for (size_t i = 0; i < count; i++) {
        uint64_t bits = special_bits(s, s->b->rank, i);

        memcpy(in + i * size, &bits, size);
    }
    battery_ok(s->b, special_call(s, in, out), special_name(s));
    if (s->collective != DIST_COLL_REDUCE || s->b->rank == s->who)
        special_check(s, out);
    free(in);
    free(out);
}

/* ---- all of them ---- */

void cases_special(struct battery *b)
{
    static const dist_collective collectives[] = {DIST_COLL_ALL_REDUCE, DIST_COLL_REDUCE,
                                                  DIST_COLL_REDUCE_SCATTER};
    struct special s = {.b = b};

    for (int i = 0; i < 3 * DIST_DTYPE_COUNT * DIST_OP_COUNT; i++) {
        s.collective = collectives[i % 3];
        s.op = (dist_op)(i / 3 % DIST_OP_COUNT);
        s.dtype = (dist_dtype)(i / 3 / DIST_OP_COUNT);
        if (!data_is_float(s.dtype) || s.op > DIST_MAX ||
            dist_backend_query(b->backend, s.collective, s.dtype, s.op) != DIST_OK)
            continue;
        for (s.who = 0; s.who<b->ranks; s.who += b->ranks> 3 ? 2 : 1)
            special_run(&s);
    }
}
