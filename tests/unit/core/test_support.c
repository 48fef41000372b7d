/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls that a backend does not support are rejected, and other calls are not. */
#include "core/call.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

/* Supports everything except broadcast. */
static dist_status support_query(const void *state, dist_collective collective, dist_dtype dtype,
                                 dist_op op)
{
    (void)state;
    (void)dtype;
    (void)op;
    return collective == DIST_COLL_BROADCAST ? DIST_ERR_UNSUPPORTED : DIST_OK;
}

static dist_status support_of(uint32_t lacks, dist_collective collective, int root, int tag)
{
    const struct dist_backend backend = {.name = "odd", .query = support_query, .lacks = lacks};
    const struct dist_group group = {.rank = 1, .world_size = 4, .backend = &backend};
    const struct dist_call call = {
        .collective = collective, .dtype = DIST_FLOAT32, .root = root, .tag = tag};

    return disti_call_support(&group, &call);
}

static void assert_error_contains(const char *text)
{
    if (!strstr(dist_last_error(), text))
        fail_msg("'%s' is not in: %s", text, dist_last_error());
}

static void a_full_backend_gets_all_calls(void **state)
{
    (void)state;
    assert_int_equal(support_of(0, DIST_COLL_RECV, DIST_ANY_SOURCE, 5), DIST_OK);
    assert_int_equal(support_of(0, DIST_COLL_SEND, 3, DIST_TAG_MAX), DIST_OK);
    assert_int_equal(support_of(DIST_LACKS_NAN, DIST_COLL_RECV, DIST_ANY_SOURCE, 5), DIST_OK);
    assert_int_equal(support_of(0, DIST_COLL_BROADCAST, 0, 0), DIST_ERR_UNSUPPORTED);
    assert_error_contains("backend odd does not support broadcast");
}

static void receives_from_any_source_may_be_unsupported(void **state)
{
    (void)state;
    assert_int_equal(support_of(DIST_LACKS_ANY_SOURCE, DIST_COLL_RECV, DIST_ANY_SOURCE, 0),
                     DIST_ERR_UNSUPPORTED);
    assert_error_contains("rank 1, recv: backend odd cannot receive from any source");
    assert_error_contains("pass the source rank");
    assert_int_equal(support_of(DIST_LACKS_ANY_SOURCE, DIST_COLL_RECV, 3, 9), DIST_OK);
    assert_int_equal(support_of(DIST_LACKS_ANY_SOURCE, DIST_COLL_ALL_GATHER, -1, 0), DIST_OK);
}

static void tags_may_be_unsupported(void **state)
{
    (void)state;
    assert_int_equal(support_of(DIST_LACKS_TAGS, DIST_COLL_SEND, 0, 12), DIST_ERR_UNSUPPORTED);
    assert_error_contains(
        "rank 1, send: backend odd does not support tags: pass tag 0 instead of 12");
    assert_int_equal(support_of(DIST_LACKS_TAGS, DIST_COLL_RECV, 0, 1), DIST_ERR_UNSUPPORTED);
    assert_int_equal(support_of(DIST_LACKS_TAGS, DIST_COLL_RECV, DIST_ANY_SOURCE, 0), DIST_OK);
    assert_int_equal(support_of(DIST_LACKS_TAGS, DIST_COLL_SEND, 0, 0), DIST_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_full_backend_gets_all_calls),
        cmocka_unit_test(receives_from_any_source_may_be_unsupported),
        cmocka_unit_test(tags_may_be_unsupported),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
