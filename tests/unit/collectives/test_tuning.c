/* SPDX-License-Identifier: BSD-3-Clause */
/* Tuning files: what is written is read again; what is strange is refused with its line. */
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

static void test_usual(void **state)
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

/* Each number of a file comes where its word says, in its unit. */
static void test_costs(void **state)
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

/* A tuning that was measured and one that was read from what it was written to are the same. */
static void test_round_trip(void **state)
{
    struct disti_tuning tuning, again;
    char text[DISTI_TUNING_TEXT];

    (void)state;
    disti_tuning_usual(&tuning);
    tuning.cost.links[DISTI_SAME_NUMA].latency_s = 4.5678912e-7;
    tuning.cost.links[DISTI_OTHER_NODE].bytes_per_second = 1234567890.123;
    tuning.cost.links[DISTI_OTHER_NODE].overhead_s = -1; /* nonsense becomes possible */
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

/* A key names the processor, in as many words as its maker likes. */
static void test_long_key(void **state)
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

static void test_fixed(void **state)
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

/* The error names the line, the last one, and the word. */
static void refused(const char *line, const char *word)
{
    struct disti_tuning tuning;
    char text[1024];

    memset(&tuning, 0x55, sizeof(tuning));
    snprintf(text, sizeof(text), TITLE "step_ns 50\n%s\n", line);
    assert_int_equal(parse(text, &tuning), DIST_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(why, "FILE, line 3"));
    assert_non_null(strstr(why, word));
    assert_int_equal(tuning.predict, 0x55555555); /* untouched */
}

static void test_refuses(void **state)
{
    struct disti_tuning tuning;

    (void)state;
    refused("steps_ns 50", "steps_ns");
    refused("step_ns", "step_ns");
    refused("step_ns 0", "0");
    refused("step_ns -5", "step_ns");
    refused("step_ns 5.5", "step_ns");
    refused("step_ns 1e3", "step_ns");
    refused("step_ns nan", "step_ns");
    refused("step_ns 1000000001", "1000000001");
    refused("step_ns 99999999999999999999999999", "9999999");
    refused("step_ns 5 5", "step_ns");
    refused("copy_bytes_per_second 999999", "999999");
    refused("all_reduce ring", "ring");
    refused("all_reduce bytes<=8", "all_reduce");
    refused("all_reduce:", "all_reduce");
    refused("all_reduce: chain", "chain");
    refused("all_reduce: ring 4", "4");
    refused("all_reduce: ring segments", "segments");
    refused("all_reduce: ring segments 0", "segments");
    refused("all_reduce: ring segments 1025", "segments");
    refused("all_reduce: ring segments 4 5", "segments");
    refused("all_reduce byte<=5: ring", "byte<=5");
    refused("all_reduce bytes<=5x: ring", "bytes<=5x");
    refused("all_reduce ranks<=0: ring", "ranks<=0");
    refused("send: ring", "ring");
    assert_int_equal(parse("", &tuning), DIST_ERR_INVALID_ARGUMENT);
    assert_int_equal(parse("libdist tuning 2\n", &tuning), DIST_ERR_INVALID_ARGUMENT);
    assert_int_equal(parse("libdist tuning 12\n", &tuning), DIST_ERR_INVALID_ARGUMENT);
}

static void test_many(void **state)
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

/* What another process sent is not believed. */
static void test_sane(void **state)
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
        cmocka_unit_test(test_usual),      cmocka_unit_test(test_costs),
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_long_key),
        cmocka_unit_test(test_fixed),      cmocka_unit_test(test_refuses),
        cmocka_unit_test(test_many),       cmocka_unit_test(test_sane),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
