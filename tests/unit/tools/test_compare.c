/* SPDX-License-Identifier: BSD-3-Clause */
/* dist_info doctor --job: the comparison of the ranks' reports. */
#include "tests/unit/base/unit.h"
#include "tools/doctor/doctor.h"

#include <stdlib.h>
#include <string.h>

enum { RANKS = 4 };

static struct doctor_report reports[RANKS];
static char *printed;

/* Two ranks on each of two hosts, with equal reports. */
static int begin(void **state)
{
    (void)state;
    memset(reports, 0, sizeof(reports));
    for (int rank = 0; rank < RANKS; rank++) {
        reports[rank].rank = rank;
        reports[rank].clock = 1e9;
        snprintf(reports[rank].host, sizeof(reports[rank].host), "node%d", rank / 2);
        doctor_ok(&reports[rank], "limit", "high");
    }
    return 0;
}

static int end(void **state)
{
    (void)state;
    free(printed);
    printed = NULL;
    return 0;
}

static int compare(void)
{
    size_t size;
    FILE *to = open_memstream(&printed, &size);
    int faults;

    assert_non_null(to);
    faults = doctor_compare(reports, RANKS, to);
    fclose(to);
    return faults;
}

static void test_equal_reports_are_merged(void **state)
{
    (void)state;
    assert_int_equal(compare(), 0);
    assert_string_equal(printed, "4 ranks on 2 hosts\nok     limit          high\n\n"
                                 "0 faults, 0 differences\n");
}

static void test_a_fault_of_a_host_is_attributed(void **state)
{
    (void)state;
    for (int rank = 2; rank < RANKS; rank++) {
        reports[rank].count = 0;
        doctor_fault(&reports[rank], "limit", "low");
        doctor_fix(&reports[rank], "raise %s", "it");
    }
    assert_int_equal(compare(), 1);
    assert_non_null(strstr(printed, "ok     limit          [node0] high\n"));
    assert_non_null(strstr(printed, "FAULT  limit          [node1] low\n    $ raise it\n"));
    assert_non_null(strstr(printed, "1 fault, 1 difference\n"));
}

static void test_a_fault_of_a_rank_is_attributed(void **state)
{
    (void)state;
    doctor_fault(&reports[3], "other", "there");
    assert_int_equal(compare(), 1);
    assert_non_null(strstr(printed, "FAULT  other          [rank 3 on node1] there\n"));
    assert_non_null(strstr(printed, "ok     limit          high\n"));
}

/* Addresses always differ, so that is not reported as a difference. */
static void test_own_values_may_differ(void **state)
{
    (void)state;
    for (int rank = 0; rank < RANKS; rank++) {
        doctor_ok(&reports[rank], "address", "10.0.0.%d", rank / 2);
        doctor_host_specific(&reports[rank]);
    }
    assert_int_equal(compare(), 0);
    assert_non_null(strstr(printed, "[node1] 10.0.0.1\n"));
    assert_non_null(strstr(printed, "0 differences\n"));
}

static void test_different_clocks_are_a_fault(void **state)
{
    (void)state;
    reports[2].clock += 7.5;
    assert_int_equal(compare(), 1);
    assert_non_null(strstr(printed, "the clock of node1 is 7.5 s ahead of that of node0\n"));
}

/* More findings than fit in a report. */
static void test_findings_are_limited(void **state)
{
    char last[16];

    (void)state;
    for (int i = 0; i < 2 * DOCTOR_FINDINGS; i++) {
        doctor_fault(&reports[1], "many", "%d", i);
        doctor_fix(&reports[1], "fix %d", i);
    }
    assert_int_equal(compare(), DOCTOR_FINDINGS - 1);
    snprintf(last, sizeof(last), "%d", DOCTOR_FINDINGS - 2);
    assert_string_equal(reports[1].findings[DOCTOR_FINDINGS - 1].text, last);
    assert_string_equal(reports[1].findings[DOCTOR_FINDINGS - 1].fix + strlen("fix "), last);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_equal_reports_are_merged, begin, end),
        cmocka_unit_test_setup_teardown(test_a_fault_of_a_host_is_attributed, begin, end),
        cmocka_unit_test_setup_teardown(test_a_fault_of_a_rank_is_attributed, begin, end),
        cmocka_unit_test_setup_teardown(test_own_values_may_differ, begin, end),
        cmocka_unit_test_setup_teardown(test_different_clocks_are_a_fault, begin, end),
        cmocka_unit_test_setup_teardown(test_findings_are_limited, begin, end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
