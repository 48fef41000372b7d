/* SPDX-License-Identifier: BSD-3-Clause */
/* Tuning files: written files can be read, and errors name the invalid line. */
#include "tuning/tuning.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TITLE "libdist tuning 1\n"

static char why[512];

static dist_status parse(const char *text, struct disti_tuning *tuning)
{
    why[0] = '\0';
    return disti_tuning_parse(text, "FILE", NULL, tuning, why, sizeof(why));
}

static void test_defaults_are_valid(void **state)
{
    struct disti_tuning tuning;

    (void)state;
    disti_tuning_usual(&tuning);
    assert_true(disti_tuning_sane(&tuning));
    assert_memory_equal(&tuning.cost, &disti_cost_usual, sizeof(tuning.cost));
    assert_int_equal(parse(TITLE, &tuning), DIST_OK);
    assert_memory_equal(&tuning.cost, &disti_cost_usual, sizeof(tuning.cost));
    assert_int_equal(tuning.predict, 1);
    assert_int_equal(tuning.fixed_count, 0);
}

/* Each number of a file sets the cost that its key names, in its unit. */
static void test_costs_are_parsed(void **state)
{
    struct disti_tuning tuning;

    (void)state;
    assert_int_equal(parse(TITLE "# a comment\n\n"
                                 "key anything # at all\n"
                                 "same_numa_latency_ns 250\n"
                                 "  same_node_overhead_ns\t70  # behind\n"
                                 "other_node_bytes_per_second 12000000000\n"
                                 "copy_bytes_per_second 3000000000\r\n"
                                 "step_ns 45\n"
                                 "switch_ns 1234",
                           &tuning),
                     DIST_OK);
    assert_true(tuning.cost.links[DISTI_SAME_NUMA].latency_s == 250 * 1e-9);
    assert_true(tuning.cost.links[DISTI_SAME_NODE].overhead_s == 70 * 1e-9);
    assert_true(tuning.cost.links[DISTI_OTHER_NODE].bytes_per_second == 12e9);
    assert_true(tuning.cost.copy_bytes_per_second == 3e9);
    assert_true(tuning.cost.step_s == 45 * 1e-9);
    assert_true(tuning.cost.switch_s == 1234 * 1e-9);
    assert_true(tuning.cost.links[DISTI_OTHER_NODE].latency_s ==
                disti_cost_usual.links[DISTI_OTHER_NODE].latency_s);
}

/* A measured tuning is the same after it has been written and read. */
static void test_written_costs_are_read_unchanged(void **state)
{
    struct disti_tuning tuning, again;
    char text[DISTI_TUNING_TEXT];

    (void)state;
    disti_tuning_usual(&tuning);
    tuning.cost.links[DISTI_SAME_NUMA].latency_s = 4.5678912e-7;
    tuning.cost.links[DISTI_OTHER_NODE].bytes_per_second = 1234567890.123;
    tuning.cost.links[DISTI_OTHER_NODE].overhead_s = -1; /* an impossible value is corrected */
    tuning.cost.reduce_bytes_per_second = 1.0 / 0.0;
    tuning.cost.switch_s = 0.0 / 0.0;
    disti_tuning_round(&tuning);
    assert_true(disti_tuning_sane(&tuning));
    assert_true(disti_tuning_print(&tuning, "a machine", text, sizeof(text)) < sizeof(text));
    assert_int_equal(disti_tuning_parse(text, "FILE", "a machine", &again, why, sizeof(why)),
                     DIST_OK);
    assert_memory_equal(&tuning.cost, &again.cost, sizeof(tuning.cost));
    assert_int_not_equal(disti_tuning_parse(text, "FILE", "a machin", &again, why, sizeof(why)),
                         DIST_OK);
    assert_int_not_equal(disti_tuning_parse(text, "FILE", "a machine2", &again, why, sizeof(why)),
                         DIST_OK);
    assert_non_null(strstr(why, "a machine2"));
}

/* A key contains the name of the processor, which may have many words. */
static void test_long_keys_are_compared(void **state)
{
    static const char key[] =
        "kernel 6.1.0 on Intel(R) Xeon(R) Platinum 8370C CPU @ 2.80GHz, 2 of "
        "128 CPUs, sockets 2, no CMA, interfaces 3, shm+tcp, nodes 1, a b c d";
    struct disti_tuning tuning;
    char text[DISTI_TUNING_TEXT];

    (void)state;
    disti_tuning_usual(&tuning);
    assert_true(disti_tuning_print(&tuning, key, text, sizeof(text)) < sizeof(text));
    assert_int_equal(disti_tuning_parse(text, "f", key, &tuning, why, sizeof(why)), DIST_OK);
    assert_int_equal(disti_tuning_parse(text, "f", NULL, &tuning, why, sizeof(why)), DIST_OK);
    assert_int_equal(disti_tuning_parse(text, "f", "another", &tuning, why, sizeof(why)),
                     DIST_ERR_INVALID_ARGUMENT);
}

static void test_fixed_algorithms_are_parsed(void **state)
{
    struct disti_tuning tuning, again;
    const struct disti_fixed *fixed;
    char text[DISTI_TUNING_TEXT];

    (void)state;
    assert_int_equal(parse(TITLE "all_reduce bytes<=64K ranks<=8: ring segments 4\n"
                                 "all_reduce bytes<=65537: tree\n"
                                 "broadcast: chain\n",
                           &tuning),
                     DIST_OK);
    assert_true(disti_tuning_sane(&tuning));
    fixed = disti_tuning_fixed(&tuning, DIST_COLL_ALL_REDUCE, 65536, 8);
    assert_string_equal(disti_algorithms[fixed->algorithm].name, "ring");
    assert_int_equal(fixed->segments, 4);
    fixed = disti_tuning_fixed(&tuning, DIST_COLL_ALL_REDUCE, 65536, 9);
    assert_string_equal(disti_algorithms[fixed->algorithm].name, "tree");
    assert_int_equal(fixed->segments, 0);
    fixed = disti_tuning_fixed(&tuning, DIST_COLL_ALL_REDUCE, 65537, 2);
    assert_string_equal(disti_algorithms[fixed->algorithm].name, "tree");
    assert_null(disti_tuning_fixed(&tuning, DIST_COLL_ALL_REDUCE, 65538, 2));
    fixed = disti_tuning_fixed(&tuning, DIST_COLL_BROADCAST, SIZE_MAX, 100000);
    assert_int_equal(disti_algorithms[fixed->algorithm].collective, DIST_COLL_BROADCAST);
    assert_null(disti_tuning_fixed(&tuning, DIST_COLL_BARRIER, 0, 2));
    assert_true(disti_tuning_print(&tuning, "k", text, sizeof(text)) < sizeof(text));
    assert_int_equal(parse(text, &again), DIST_OK);
    assert_memory_equal(tuning.fixed, again.fixed, sizeof(tuning.fixed));
}

/* Checks that the error names line 3, where the text is inserted, and contains `word`. */
static void expect_rejected(const char *line, const char *word)
{
    struct disti_tuning tuning;
    char text[1024];

    memset(&tuning, 0x55, sizeof(tuning));
    snprintf(text, sizeof(text), TITLE "step_ns 50\n%s\n", line);
    assert_int_equal(parse(text, &tuning), DIST_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(why, "FILE, line 3"));
    assert_non_null(strstr(why, word));
    assert_int_equal(tuning.predict, 0x55555555); /* unchanged */
}

static void test_errors_name_the_line(void **state)
{
    struct disti_tuning tuning;

    (void)state;
    expect_rejected("steps_ns 50", "steps_ns");
    expect_rejected("step_ns", "step_ns");
    expect_rejected("step_ns 0", "0");
    expect_rejected("step_ns -5", "step_ns");
    expect_rejected("step_ns 5.5", "step_ns");
    expect_rejected("step_ns 1e3", "step_ns");
    expect_rejected("step_ns nan", "step_ns");
    expect_rejected("step_ns 1000000001", "1000000001");
    expect_rejected("step_ns 99999999999999999999999999", "9999999");
    expect_rejected("step_ns 5 5", "step_ns");
    expect_rejected("copy_bytes_per_second 999999", "999999");
    expect_rejected("all_reduce ring", "ring");
    expect_rejected("all_reduce bytes<=8", "all_reduce");
    expect_rejected("all_reduce:", "all_reduce");
    expect_rejected("all_reduce: chain", "chain");
    expect_rejected("all_reduce: ring 4", "4");
    expect_rejected("all_reduce: ring segments", "segments");
    expect_rejected("all_reduce: ring segments 0", "segments");
    expect_rejected("all_reduce: ring segments 1025", "segments");
    expect_rejected("all_reduce: ring segments 4 5", "segments");
    expect_rejected("all_reduce byte<=5: ring", "byte<=5");
    expect_rejected("all_reduce bytes<=5x: ring", "bytes<=5x");
    expect_rejected("all_reduce ranks<=0: ring", "ranks<=0");
    expect_rejected("send: ring", "ring");
    assert_int_equal(parse("", &tuning), DIST_ERR_INVALID_ARGUMENT);
    assert_int_equal(parse("libdist tuning 2\n", &tuning), DIST_ERR_INVALID_ARGUMENT);
    assert_int_equal(parse("libdist tuning 12\n", &tuning), DIST_ERR_INVALID_ARGUMENT);
}

static void test_too_many_or_long_lines_are_rejected(void **state)
{
    struct disti_tuning tuning;
    char text[4096] = TITLE;

    (void)state;
    for (int i = 0; i < DISTI_FIXED_MAX; i++)
        strcat(text, "broadcast: chain\n");
    assert_int_equal(parse(text, &tuning), DIST_OK);
    strcat(text, "broadcast: tree\n");
    assert_int_equal(parse(text, &tuning), DIST_ERR_INVALID_ARGUMENT);
    memset(text + strlen(TITLE), 'x', 2000);
    assert_int_equal(parse(text, &tuning), DIST_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(why, "too long"));
}

/* Tunings from other processes are checked. */
static void test_invalid_tunings_are_detected(void **state)
{
    struct disti_tuning good, bad;

    (void)state;
    assert_int_equal(parse(TITLE "broadcast: chain\n", &good), DIST_OK);
    bad = good;
    bad.cost.step_s = 0.0 / 0.0;
    assert_false(disti_tuning_sane(&bad));
    bad = good;
    bad.cost.links[1].bytes_per_second = 0;
    assert_false(disti_tuning_sane(&bad));
    bad = good;
    bad.fixed_count = DISTI_FIXED_MAX + 1;
    assert_false(disti_tuning_sane(&bad));
    bad = good;
    bad.fixed[0].algorithm = 100000;
    assert_false(disti_tuning_sane(&bad));
    bad = good;
    bad.fixed[0].collective = DIST_COLL_REDUCE;
    assert_false(disti_tuning_sane(&bad));
    bad = good;
    bad.fixed[0].segments = 1025;
    assert_false(disti_tuning_sane(&bad));
    bad = good;
    memset(bad.source, 'x', sizeof(bad.source));
    assert_false(disti_tuning_sane(&bad));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults_are_valid),
        cmocka_unit_test(test_costs_are_parsed),
        cmocka_unit_test(test_written_costs_are_read_unchanged),
        cmocka_unit_test(test_long_keys_are_compared),
        cmocka_unit_test(test_fixed_algorithms_are_parsed),
        cmocka_unit_test(test_errors_name_the_line),
        cmocka_unit_test(test_too_many_or_long_lines_are_rejected),
        cmocka_unit_test(test_invalid_tunings_are_detected),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
