/* SPDX-License-Identifier: BSD-3-Clause */
/* DIST_CHECK_NUMERICS: the first NaN or infinity in the input or output of a call is reported. */
#include <dist/dist.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT 9

/* The group, and the last line of its log. */
struct numerics {
    dist_group *group;
    int lines;
    char line[512];
};

static void numerics_log(void *arg, dist_log_level level, const char *line)
{
    struct numerics *n = arg;

    if (level > DIST_LOG_WARN)
        return;
    n->lines++;
    snprintf(n->line, sizeof(n->line), "%s", line);
}

static void numerics_join(struct numerics *n, const char *value)
{
    struct dist_options options = DIST_OPTIONS_INIT;

    *n = (struct numerics){0};
    setenv("DIST_CHECK_NUMERICS", value, 1);
    options.backend = "self";
    options.rank = 0;
    options.world_size = 1;
    options.log = numerics_log;
    options.log_arg = n;
    assert_int_equal(dist_init_process_group(&options, &n->group), DIST_OK);
    unsetenv("DIST_CHECK_NUMERICS");
}

/* Sums COUNT elements. Element `at` has these bits; all other elements are 0. */
static void numerics_sum(const struct numerics *n, dist_dtype dtype, size_t at, uint64_t bits)
{
    char in[8 * COUNT] = {0}, out[8 * COUNT];
    const size_t bytes = dist_dtype_size(dtype);

    memcpy(in + at * bytes, &bits, bytes);
    assert_int_equal(dist_all_reduce(n->group, in, out, COUNT, dtype, DIST_SUM), DIST_OK);
}

static void each_floating_point_type_is_checked(void **state)
{
    static const struct {
        dist_dtype dtype;
        uint64_t nan, infinity, largest;
    } types[] = {{DIST_FLOAT32, 0x7fc00000, 0xff800000, 0x7f7fffff},
                 {DIST_FLOAT64, 0x7ff8000000000000, 0xfff0000000000000, 0x7fefffffffffffff},
                 {DIST_FLOAT16, 0x7e00, 0xfc00, 0x7bff},
                 {DIST_BFLOAT16, 0x7fc0, 0xff80, 0x7f7f}};
    struct numerics n;
    char text[64];

    (void)state;
    numerics_join(&n, "1");
    for (int i = 0; i < 4; i++) {
        n.lines = 0;
        numerics_sum(&n, types[i].dtype, 4, types[i].largest);
        assert_int_equal(n.lines, 0);
        numerics_sum(&n, types[i].dtype, 7, types[i].nan);
        assert_int_equal(n.lines, 2); /* input and output */
        snprintf(text, sizeof(text), "(%s x %d, sum): rank 0 received NaN at element 7",
                 dist_dtype_string(types[i].dtype), COUNT);
        assert_non_null(strstr(n.line, text));
        numerics_sum(&n, types[i].dtype, 7, types[i].nan);
        assert_int_equal(n.lines, 2); /* a repeated value is reported only the first time */
        numerics_sum(&n, types[i].dtype, 4, types[i].largest);
        numerics_sum(&n, types[i].dtype, 0, types[i].infinity);
        assert_int_equal(n.lines, 4);
        assert_non_null(strstr(n.line, "rank 0 received infinity at element 0"));
        numerics_sum(&n, types[i].dtype, 0, 0);
    }
    numerics_sum(&n, DIST_INT32, 3, 0x7fc00000);
    assert_int_equal(n.lines, 4);
    assert_int_equal(dist_destroy_process_group(n.group), DIST_OK);
}

static void nothing_is_checked_by_default(void **state)
{
    struct numerics n;

    (void)state;
    numerics_join(&n, "0");
    numerics_sum(&n, DIST_FLOAT32, 7, 0x7fc00000);
    assert_int_equal(n.lines, 0);
    assert_int_equal(dist_destroy_process_group(n.group), DIST_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_floating_point_type_is_checked),
                                       cmocka_unit_test(nothing_is_checked_by_default)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
