/* SPDX-License-Identifier: BSD-3-Clause */
/* What a backend says that it does not do is refused, and nothing else is. */
#include "core/call.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

/* It has everything but broadcasts. */
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

static void assert_says(const char *text)
{
    if (!strstr(dist_last_error(), text))
        fail_msg("'%s' is not in: %s", text, dist_last_error());
}

static void who_lacks_nothing_is_asked_for_all(void **state)
{
    (void)state;
    assert_int_equal(support_of(0, DIST_COLL_RECV, DIST_ANY_SOURCE, 5), DIST_OK);
    assert_int_equal(support_of(0, DIST_COLL_SEND, 3, DIST_TAG_MAX), DIST_OK);
    assert_int_equal(support_of(DIST_LACKS_NAN, DIST_COLL_RECV, DIST_ANY_SOURCE, 5), DIST_OK);
    assert_int_equal(support_of(0, DIST_COLL_BROADCAST, 0, 0), DIST_ERR_UNSUPPORTED);
    assert_says("backend odd does not support broadcast");
}

static void who_lacks_any_source_wants_the_peer(void **state)
{
    (void)state;
    assert_int_equal(support_of(DIST_LACKS_ANY_SOURCE, DIST_COLL_RECV, DIST_ANY_SOURCE, 0),
                     DIST_ERR_UNSUPPORTED);
    assert_says("rank 1, recv: backend odd cannot receive from any source");
    assert_says("pass the source rank");
    assert_int_equal(support_of(DIST_LACKS_ANY_SOURCE, DIST_COLL_RECV, 3, 9), DIST_OK);
    assert_int_equal(support_of(DIST_LACKS_ANY_SOURCE, DIST_COLL_ALL_GATHER, -1, 0), DIST_OK);
}

static void who_lacks_tags_wants_none(void **state)
{
    (void)state;
    assert_int_equal(support_of(DIST_LACKS_TAGS, DIST_COLL_SEND, 0, 12), DIST_ERR_UNSUPPORTED);
    assert_says("rank 1, send: backend odd does not support tags: pass tag 0 instead of 12");
    assert_int_equal(support_of(DIST_LACKS_TAGS, DIST_COLL_RECV, 0, 1), DIST_ERR_UNSUPPORTED);
    assert_int_equal(support_of(DIST_LACKS_TAGS, DIST_COLL_RECV, DIST_ANY_SOURCE, 0), DIST_OK);
    assert_int_equal(support_of(DIST_LACKS_TAGS, DIST_COLL_SEND, 0, 0), DIST_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_lacks_nothing_is_asked_for_all),
        cmocka_unit_test(who_lacks_any_source_wants_the_peer),
        cmocka_unit_test(who_lacks_tags_wants_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
