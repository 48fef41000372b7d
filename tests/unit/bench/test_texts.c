/* SPDX-License-Identifier: BSD-3-Clause */
/* Parsing of command lines, orders and libraries. */
#include "bench/jobs.h"
#include "bench/measure.h"
#include "bench/options.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- command lines ---- */

static int parse(struct options *options, const char *line)
{
    static char copy[256];
    char *argv[32] = {"dist_bench"};
    const char *failure;
    int argc = 1;

    strcpy(copy, line);
    for (char *word = strtok(copy, " "); word; word = strtok(NULL, " "))
        argv[argc++] = word;
    return options_parse(argc, argv, options, &failure);
}

static void test_options_are_parsed(void **state)
{
    struct options options;

    (void)state;
    assert_int_equal(parse(&options, "-m 8:64M -x 3 -i 7 -f -c -T mpi_int all_reduce bw"), 0);
    assert_true(options.least == 8 && options.most == 64 << 20 && options.warmup == 3);
    assert_true(options.iterations == 7 && options.full && options.check);
    assert_true(options.dtype == DIST_INT32 && options.operations[OPERATION_bw]);
    assert_true(options.operations[OPERATION_all_reduce] && !options.operations[OPERATION_bibw]);
    assert_string_equal(options.format, "osu");
    assert_int_equal(parse(&options, "-b 1K -e 1G --stepfactor 4 --iters 9 --check=0 --op max "
                                     "--datatype half -n 2 --limit all"),
                     0);
    assert_true(options.least == 1024 && options.most == 1 << 30 && options.factor == 4);
    assert_true(options.op == DIST_MAX && options.dtype == DIST_FLOAT16 && !options.check);
    assert_true(options.limit && options_compares(&options) &&
                options.operations[OPERATION_scatter_v]);
    assert_string_equal(options.format, "table");
    assert_int_equal(parse(&options, "--warmup_iters 3 --in_place --mem-lim 1.5K all"), 0);
    assert_true(options.warmup == 3 && options.in_place && options.memory_limit == 1536);
}

static void test_bad_options_are_rejected(void **state)
{
    static const char *const lines[] = {"",
                                        "-m 8: all",
                                        "-m x all",
                                        "-m 8:4 all",
                                        "-i 0 all",
                                        "-i 1.5 all",
                                        "--op user all",
                                        "--format x all",
                                        "-n 0 all",
                                        "--compare gloo all",
                                        "-t nan all",
                                        "--check=2 all",
                                        "-W 100000 bw",
                                        "-n 2 -k 2 reduce",
                                        "--mem heap all",
                                        "--min 1.5 all",
                                        "--minbytes 8KB all",
                                        "--save= all",
                                        "--buffers 0 all",
                                        "--timing slow all",
                                        "--nothing",
                                        "all_reduce x",
                                        "-m",
                                        "-n 2 --limit -W 1 bw"};
    struct options options;

    (void)state;
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
        assert_int_equal(parse(&options, lines[i]), -1);
}

/* ---- orders ---- */

static void test_orders_are_written_and_read(void **state)
{
    struct order order = {.operation = operation_find("all_to_all"),
                          .bytes = 4800,
                          .dtype = DIST_BFLOAT16,
                          .op = DIST_MAX,
                          .root = 2,
                          .in_place = true,
                          .warmup = 3,
                          .samples = 4,
                          .batch = 5,
                          .check = true,
                          .window = 64};
    struct order back;
    char line[ORDER_LINE];

    (void)state;
    order_write(&order, line);
    assert_string_equal(line, "run all_to_all 4800 bfloat16 max 2 1 3 4 5 1\n");
    assert_int_equal(order_read(line, 3, &back), 0);
    assert_true(back.operation == order.operation && back.bytes == 4800 &&
                back.dtype == DIST_BFLOAT16);
    assert_true(back.op == DIST_MAX && back.root == 2 && back.in_place && back.check);
    assert_true(back.warmup == 3 && back.samples == 4 && back.batch == 5 && back.window == 64);
    assert_int_equal(order_count(&back, 3), 800);
    assert_int_equal(order_read(line, 2, &back), -1); /* there is no rank 2 */
    assert_int_equal(order_read(line, 7, &back), -1); /* blocks would not be whole */
    order.buffers = 32;
    order_write(&order, line);
    assert_string_equal(line, "run all_to_all 4800 bfloat16 max 2 1 3 4 5 1 64 32\n");
    assert_int_equal(order_read(line, 3, &back), 0);
    assert_true(back.window == 64 && back.buffers == 32 && !back.apart);
    order.apart = true;
    order_write(&order, line);
    assert_string_equal(line, "run all_to_all 4800 bfloat16 max 2 1 3 4 5 1 64 32 1\n");
    assert_int_equal(order_read(line, 3, &back), 0);
    assert_true(back.apart);
    assert_int_equal(order_read("run all_reduce 8 float32 sum 0 0 1 1 1 1 64 -1\n", 2, &back), -1);
    assert_int_equal(order_read("run all_reduce 8 float32 sum 0 0 1 0 1 1\n", 2, &back), -1);
    assert_int_equal(order_read("run all_reduce 8 float32 sum 0 0 1 1\n", 2, &back), -1);
    assert_int_equal(order_read("run nothing 8 float32 sum 0 0 1 1 1 1\n", 2, &back), -1);
    assert_int_equal(order_read("quit\n", 2, &back), -1);
}

/* ---- libraries ---- */

static void test_libraries_are_parsed(void **state)
{
    const char *failure;
    struct spec spec;

    (void)state;
    assert_int_equal(spec_read("gloo/dist+A=b:c+D=", &spec, &failure), 0);
    assert_string_equal(spec.backend, "gloo");
    assert_string_equal(spec.memory, "dist");
    assert_int_equal(spec.variable_count, 2);
    assert_string_equal(spec.variables[0], "A=b:c");
    assert_false(spec.launched || spec.limit);
    spec_free(&spec);
    assert_int_equal(spec_read("mpi-native", &spec, &failure), 0);
    assert_true(spec.launched);
    assert_string_equal(spec.backend, "mpi");
    assert_string_equal(spec.variables[0], "DIST_MPI_COLL=native");
    spec_free(&spec);
    assert_int_equal(spec_read("gloo/heap", &spec, &failure), -1);
    assert_int_equal(spec_read("gloo+A", &spec, &failure), -1);
    assert_int_equal(spec_read("/malloc", &spec, &failure), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options_are_parsed),
        cmocka_unit_test(test_bad_options_are_rejected),
        cmocka_unit_test(test_orders_are_written_and_read),
        cmocka_unit_test(test_libraries_are_parsed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
