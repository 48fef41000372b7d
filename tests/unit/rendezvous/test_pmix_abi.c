/* SPDX-License-Identifier: BSD-3-Clause */
/* The copy of PMIx's binary interface in rendezvous/meet.h matches PMIx's header. */
#include "rendezvous/pmix_abi.h"

#include <pmix.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define SAME(ours, theirs) _Static_assert((ours) == (theirs), #theirs)
#define SAME_PLACE(ours, our_member, theirs, their_member)                                         \
    SAME(offsetof(ours, our_member), offsetof(theirs, their_member))

SAME(DISTI_PMIX_SUCCESS, PMIX_SUCCESS);
SAME(DISTI_PMIX_GLOBAL, PMIX_GLOBAL);
SAME(DISTI_PMIX_BOOL, PMIX_BOOL);
SAME(DISTI_PMIX_STRING, PMIX_STRING);
SAME(DISTI_PMIX_UINT16, PMIX_UINT16);
SAME(DISTI_PMIX_UINT32, PMIX_UINT32);
SAME(DISTI_PMIX_RANK_ALL, PMIX_RANK_WILDCARD);
SAME(sizeof(int), sizeof(pmix_status_t));
SAME(sizeof(uint8_t), sizeof(pmix_scope_t));

SAME(sizeof(struct disti_pmix_proc), sizeof(pmix_proc_t));
SAME_PLACE(struct disti_pmix_proc, rank, pmix_proc_t, rank);
SAME(sizeof(struct disti_pmix_value), sizeof(pmix_value_t));
SAME_PLACE(struct disti_pmix_value, type, pmix_value_t, type);
SAME_PLACE(struct disti_pmix_value, data, pmix_value_t, data);
SAME_PLACE(struct disti_pmix_value, data.envar.separator, pmix_value_t, data.envar.separator);
SAME(sizeof(struct disti_pmix_info), sizeof(pmix_info_t));
SAME_PLACE(struct disti_pmix_info, flags, pmix_info_t, flags);
SAME_PLACE(struct disti_pmix_info, value, pmix_info_t, value);

static void test_keys_match(void **state)
{
    (void)state;
    assert_string_equal(DISTI_PMIX_JOB_SIZE, PMIX_JOB_SIZE);
    assert_string_equal(DISTI_PMIX_LOCAL_RANK, PMIX_LOCAL_RANK);
    assert_string_equal(DISTI_PMIX_LOCAL_SIZE, PMIX_LOCAL_SIZE);
    assert_string_equal(DISTI_PMIX_COLLECT_DATA, PMIX_COLLECT_DATA);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_keys_match)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
