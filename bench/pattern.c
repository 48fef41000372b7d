/* SPDX-License-Identifier: BSD-3-Clause */
/* Table of operations, names of types and operators, test data. */
#include "bench/measure.h"
#include "tools/common/number.h"

#include <math.h>
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

/* Names of types in OSU's and NCCL's programs. */
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

/* DIST_USER is excluded: a user's function has no name that could be sent to other ranks. */
int operation_op(const char *name)
{
    for (int op = 0; op < DIST_OP_COUNT; op++) {
        if (op != DIST_USER && strcasecmp(dist_op_string((dist_op)op), name) == 0)
            return op;
    }
    return -1;
}

/* Conversion between double and an element of any dtype. */

void number_write(dist_dtype dtype, double value, void *element)
{
    uint64_t bits = number_bits(dtype, value);

    memcpy(element, &bits, dist_dtype_size(dtype));
}

double number_read(dist_dtype dtype, const void *element)
{
    uint64_t bits = 0;

    memcpy(&bits, element, dist_dtype_size(dtype));
    return number_of(dtype, bits);
}

/* Test data with a known result. */

enum { PATTERN_PERIOD = 61, PATTERN_STEP = 17 };

#define PATTERN_ELEMENT_MAX 8

/*
 * A value is active if it changes the result, for example a value other than 0 in a sum. Returns
 * how many of the 61 values of a period are active, so that at each position about `most` ranks
 * have an active value.
 */
static int pattern_active(int ranks, int most)
{
    int active = PATTERN_PERIOD * most / ranks;

    return active < 1 ? 1 : active > PATTERN_PERIOD ? PATTERN_PERIOD : active;
}

/* Returns element i of that rank: one of the 61 values. */
static double pattern_value(const struct pattern *pattern, int rank, size_t i)
{
    int t = (int)((i + (size_t)rank * PATTERN_STEP + pattern->seed) % PATTERN_PERIOD);
    int ranks = pattern->ranks;
    dist_op op = pattern->op;

    if (!pattern->reduces)
        return pattern->dtype == DIST_BOOL ? t % 2 : t;
    if (pattern->dtype == DIST_BOOL)
        return (t < pattern_active(ranks, 1)) !=
               (op == DIST_PROD || op == DIST_MIN || op == DIST_BAND);
    switch (op) {
    case DIST_PROD:
        return t < pattern_active(ranks, 6) ? 2 : 1;
    case DIST_SUM:
    case DIST_AVG:
    case DIST_PREMUL_SUM: /* at most 3 x 40 x 2: bfloat16 represents integers up to 256 exactly */
        return t < pattern_active(ranks, 40) ? t % 3 + 1 : 0;
    default:
        return t;
    }
}

/* Returns a op b for integers; for a bool, sum is logical or, and so on. */
static int64_t pattern_combine(const struct pattern *pattern, int64_t a, int64_t b)
{
    switch (pattern->op) {
    case DIST_PROD:
        return a * b;
    case DIST_MIN:
        return a < b ? a : b;
    case DIST_MAX:
        return a > b ? a : b;
    case DIST_BAND:
        return a & b;
    case DIST_BOR:
        return a | b;
    case DIST_BXOR:
        return a ^ b;
    default:
        return pattern->dtype == DIST_BOOL ? a | b : a + b;
    }
}

/* Returns element i of the result, as converted to the dtype. */
static double pattern_expected(const struct pattern *pattern, size_t i)
{
    unsigned char element[PATTERN_ELEMENT_MAX];
    int64_t total = (int64_t)pattern_value(pattern, 0, i);
    double expected;

    for (int r = 1; r < pattern->ranks; r++)
        total = pattern_combine(pattern, total, (int64_t)pattern_value(pattern, r, i));
    expected = (double)total;
    if (pattern->op == DIST_PREMUL_SUM)
        expected *= PATTERN_FACTOR;
    number_write(pattern->dtype, expected, element);
    expected = number_read(pattern->dtype, element);
    if (pattern->op != DIST_AVG)
        return expected;
    expected /= pattern->ranks;
    return number_is_float(pattern->dtype) ? expected : trunc(expected);
}

void pattern_fill(const struct pattern *pattern, int rank, size_t first, void *data, size_t count)
{
    size_t size = dist_dtype_size(pattern->dtype), done = 0;
    char *to = data;

    for (; done < count && done < PATTERN_PERIOD; done++)
        number_write(pattern->dtype, pattern_value(pattern, rank, first + done), to + done * size);
    while (done < count) {
        size_t more = done < count - done ? done : count - done;

        memcpy(to + done * size, to, more * size);
        done += more;
    }
}

/* Checks that the elements after the first 61 repeat the previous ones. */
static bool pattern_repeats(const char *data, size_t count, size_t size, size_t *bad_p)
{
    size_t i = PATTERN_PERIOD;

    if (count <= i || memcmp(data, data + i * size, (count - i) * size) == 0)
        return true;
    while (memcmp(data + (i - PATTERN_PERIOD) * size, data + i * size, size) == 0)
        i++;
    *bad_p = i;
    return false;
}

bool pattern_is(const struct pattern *pattern, int rank, size_t first, const void *data,
                size_t count, size_t *bad_p)
{
    size_t size = dist_dtype_size(pattern->dtype);
    char expected[PATTERN_PERIOD * PATTERN_ELEMENT_MAX];
    const char *from = data;

    pattern_fill(pattern, rank, first, expected, count < PATTERN_PERIOD ? count : PATTERN_PERIOD);
    for (size_t i = 0; i < count && i < PATTERN_PERIOD; i++) {
        if (memcmp(from + i * size, expected + i * size, size) != 0) {
            *bad_p = i;
            return false;
        }
    }
    return pattern_repeats(from, count, size, bad_p);
}

bool pattern_is_reduced(const struct pattern *pattern, size_t first, const void *data, size_t count,
                        size_t *bad_p)
{
    size_t size = dist_dtype_size(pattern->dtype);
    const char *from = data;
    /*
     * Only averages are rounded: by one unit in the last place of bfloat16, or of the type if that
     * is larger.
     */
    bool rounded = pattern->op == DIST_AVG && number_is_float(pattern->dtype);
    double unit = rounded ? fmax(0x1p-7, ldexp(1, -number_mantissa(pattern->dtype))) : 0;

    for (size_t i = 0; i < count && i < PATTERN_PERIOD; i++) {
        double expected = pattern_expected(pattern, first + i);
        double value = number_read(pattern->dtype, from + i * size);

        if (value != expected && !(rounded && fabs(value - expected) <= fabs(expected) * unit)) {
            *bad_p = i;
            return false;
        }
    }
    return pattern_repeats(from, count, size, bad_p);
}
