/* SPDX-License-Identifier: BSD-3-Clause */
/* DIST_FAULT is parsed completely, or the error names the invalid part. */
#include "base/faults.h"

#include "unit.h"

#include <stdlib.h>
#include <string.h>

static void test_faults_are_parsed(void **state)
{
    struct disti_faults faults;
    const struct disti_fault *f = faults.all;

    (void)state;
    assert_int_equal(disti_faults_parse("kill:2@5", &faults), DIST_OK);
    assert_int_equal(faults.count, 1);
    assert_true(f->kind == DISTI_FAULT_KILL && f->rank == 2 && f->operation == 5);
    assert_true(f->place == DISTI_FAULT_OPERATION && f->step == DISTI_FAULT_NO_STEP);
    assert_int_equal(disti_faults_parse("flip:*@3/7:p=0.25:seed=9,slow:0@*:time=3s", &faults),
                     DIST_OK);
    assert_int_equal(faults.count, 2);
    assert_true(f[0].rank == DISTI_FAULT_ANY && f[0].operation == 3 && f[0].step == 7);
    assert_true(f[0].p == 0.25 && f[0].seed == 9);
    assert_true(f[1].operation == DISTI_FAULT_ANY && f[1].time_ns == INT64_C(3000000000));
    assert_int_equal(disti_faults_parse("drop:1@4:time=7ms", &faults), DIST_OK);
    assert_true(f->step == DISTI_FAULT_ANY && f->time_ns == 7000000);
    assert_int_equal(disti_faults_parse("stop:1@close", &faults), DIST_OK);
    assert_true(f->place == DISTI_FAULT_CLOSE);
}

/* Invalid values, each with the part that the error names. */
static void test_errors_name_the_invalid_part(void **state)
{
    static const char *const bad[][2] = {
        {"", "''"},
        {"kil:2@5", "'kil'"},
        {"kill", "'kill'"},
        {"kill:2", "'kill:2'"},
        {"kill:@5", "''"},
        {"kill:-1@5", "'-1'"},
        {"kill:two@5", "'two'"},
        {"kill:4294967296@5", "'4294967296'"},
        {"kill:2@", "''"},
        {"kill:2@5x", "'5x'"},
        {"kill:2@start", "'start'"},
        {"kill:2@5/", "''"},
        {"kill:2@5/a", "'a'"},
        {"kill:2@join/1", "'join'"},
        {"drop:2@close", "'close'"},
        {"kill:2@5:p=2", "'p=2'"},
        {"kill:2@5:p=nan", "'p=nan'"},
        {"kill:2@5:p=", "'p='"},
        {"kill:2@5:time=5", "'5'"},
        {"kill:2@5:time=ms", "'ms'"},
        {"kill:2@5:time=-1s", "'-1s'"},
        {"kill:2@5:time=86401s", "'86401s'"},
        {"kill:2@5:seed=*", "'seed=*'"},
        {"kill:2@5:sede=1", "'sede=1'"},
        {"kill:2@5,", "''"},
        {"kill:2@5,,kill:2@5", "''"},
    };
    struct disti_faults faults = {.count = 77};

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(disti_faults_parse(bad[i][0], &faults), DIST_ERR_INVALID_ARGUMENT);
        assert_non_null(strstr(dist_last_error(), "DIST_FAULT"));
        if (!strstr(dist_last_error(), bad[i][1]))
            fail_msg("%s: %s", bad[i][0], dist_last_error());
        assert_int_equal(faults.count, 77);
    }
}

static void test_too_many_faults_are_rejected(void **state)
{
    struct disti_faults faults;
    char text[9 * (DISTI_FAULTS_MAX + 1) + 1] = "";

    (void)state;
    for (int i = 0; i < DISTI_FAULTS_MAX; i++)
        strcat(text, i ? ",kill:2@5" : "kill:2@5");
    assert_int_equal(disti_faults_parse(text, &faults), DIST_OK);
    strcat(text, ",kill:2@5");
    assert_int_equal(disti_faults_parse(text, &faults), DIST_ERR_INVALID_ARGUMENT);
    memset(text, 'k', sizeof(text) - 1);
    assert_int_equal(disti_faults_parse(text, &faults), DIST_ERR_INVALID_ARGUMENT);
}

/* Which faults apply to a rank, and to which of its messages. */
static void test_faults_apply_to_their_rank_operation_and_step(void **state)
{
    const struct disti_fault *fault;

    (void)state;
    setenv("DIST_FAULT", "drop:1@2/1,flip:1@4", 1);
    assert_int_equal(disti_faults_read(), DIST_OK);
    assert_true(disti_faults_are_set() && disti_faults_need_messages());
    disti_faults_rank(1);
    assert_null(disti_faults_at_message()); /* no operation has begun */
    for (uint64_t operation = 0; operation < 6; operation++) {
        disti_faults_at_operation(operation);
        for (int step = 0; step < 3; step++) {
            fault = disti_faults_at_message();
            if (operation == 4)
                assert_true(fault && fault->kind == DISTI_FAULT_FLIP);
            else if (operation == 2 && step == 1)
                assert_true(fault && fault->kind == DISTI_FAULT_DROP);
            else
                assert_null(fault);
        }
    }
    disti_faults_rank(0);
    disti_faults_at_operation(4);
    assert_null(disti_faults_at_message());
    setenv("DIST_FAULT", "kill:7@3", 1);
    assert_int_equal(disti_faults_read(), DIST_OK);
    assert_false(disti_faults_need_messages());
    unsetenv("DIST_FAULT");
    assert_int_equal(disti_faults_read(), DIST_OK);
    assert_false(disti_faults_are_set());
}

static void test_faults_occur_with_their_probability(void **state)
{
    int hit[2] = {0, 0};

    (void)state;
    setenv("DIST_FAULT", "drop:*@*:p=0.25:seed=3", 1);
    for (int round = 0; round < 2; round++) {
        assert_int_equal(disti_faults_read(), DIST_OK);
        disti_faults_rank(round);
        disti_faults_at_operation(0);
        for (int i = 0; i < 4000; i++)
            hit[round] += disti_faults_at_message() != NULL;
        assert_in_range(hit[round], 800, 1200);
    }
    unsetenv("DIST_FAULT");
    assert_int_equal(disti_faults_read(), DIST_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_faults_are_parsed),
        cmocka_unit_test(test_errors_name_the_invalid_part),
        cmocka_unit_test(test_too_many_faults_are_rejected),
        cmocka_unit_test(test_faults_apply_to_their_rank_operation_and_step),
        cmocka_unit_test(test_faults_occur_with_their_probability),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
