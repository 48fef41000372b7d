/* SPDX-License-Identifier: BSD-3-Clause */
/* The life of requests: order, completion functions, owned memory, failures, persistent
 * requests. */
#include "fake.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static bool is_done(struct dist_work *work)
{
    bool done = false;

    /* A dist_test may complete only one pending call, and up to 8 calls may be pending. */
    for (int i = 0; i < 8; i++)
        assert_int_equal(dist_test(work, &done), DIST_OK);
    return done;
}

static void collectives_end_in_order(void **state)
{
    struct fake *fake = *state;
    struct dist_group *group = fake_open(fake);
    struct dist_work *works[3];

    for (int i = 0; i < 3; i++)
        works[i] = fake_start(group, DIST_COLL_ALL_REDUCE);
    fake_release(fake, 2);
    fake_release(fake, 1);
    assert_false(is_done(works[2]));
    assert_false(is_done(works[1]));
    fake_release(fake, 0);
    for (int i = 2; i >= 0; i--)
        assert_true(is_done(works[i]));
    for (int i = 2; i >= 0; i--)
        assert_int_equal(dist_wait(works[i]), DIST_OK);
    assert_int_equal(fake_close(fake, group), DIST_OK);
}

static void messages_end_independently(void **state)
{
    struct fake *fake = *state;
    struct dist_group *group = fake_open(fake);
    const dist_collective kinds[] = {DIST_COLL_BROADCAST, DIST_COLL_RECV, DIST_COLL_BARRIER,
                                     DIST_COLL_SEND};
    struct dist_work *works[4];

    for (int i = 0; i < 4; i++)
        works[i] = fake_start(group, kinds[i]);
    fake_release(fake, 3);
    fake_release(fake, 2);
    assert_true(is_done(works[3]));
    assert_false(is_done(works[2]));
    assert_false(is_done(works[1]));
    fake_release(fake, 1);
    assert_true(is_done(works[1]));
    assert_false(is_done(works[2]));
    fake_release(fake, 0);
    assert_true(is_done(works[2]));
    for (int i = 0; i < 4; i++)
        assert_int_equal(dist_wait(works[i]), DIST_OK);
    assert_int_equal(fake_close(fake, group), DIST_OK);
}

static void collectives_and_messages_have_separate_numbers(void **state)
{
    struct fake *fake = *state;
    struct dist_group *group = fake_open(fake);
    const dist_collective kinds[] = {DIST_COLL_BARRIER, DIST_COLL_SEND, DIST_COLL_RECV,
                                     DIST_COLL_ALL_REDUCE, DIST_COLL_SEND};
    const uint64_t sequences[] = {0, 0, 1, 1, 2};

    for (int i = 0; i < 5; i++) {
        fake_release(fake, i);
        assert_int_equal(dist_wait(fake_start(group, kinds[i])), DIST_OK);
        assert_int_equal(fake->calls[i].sequence, sequences[i]);
    }
    assert_int_equal(fake_close(fake, group), DIST_OK);
}

/* The calls of a completion function. */
struct seen {
    int count;
    int order[8];
    dist_status status;
    char error[256];
};

struct mark {
    struct seen *seen;
    int number;
};

static void store_completion(void *arg, dist_status status)
{
    struct mark *mark = arg;

    mark->seen->order[mark->seen->count++] = mark->number;
    mark->seen->status = status;
    snprintf(mark->seen->error, sizeof(mark->seen->error), "%s", dist_last_error());
}

static void completion_functions_are_called_once_in_order(void **state)
{
    struct fake *fake = *state;
    struct dist_group *group = fake_open(fake);
    struct seen seen = {0};
    struct mark marks[4];
    struct dist_work *works[4];

    for (int i = 0; i < 4; i++) {
        marks[i] = (struct mark){&seen, i};
        works[i] = fake_start(group, DIST_COLL_ALL_REDUCE);
        assert_int_equal(dist_on_complete(works[i], store_completion, &marks[i]), DIST_OK);
    }
    assert_int_equal(dist_on_complete(works[0], store_completion, &marks[0]),
                     DIST_ERR_INVALID_ARGUMENT);
    assert_int_equal(dist_on_complete(works[0], NULL, NULL), DIST_ERR_INVALID_ARGUMENT);
    assert_int_equal(dist_on_complete(NULL, store_completion, NULL), DIST_ERR_INVALID_ARGUMENT);
    for (int i = 3; i >= 0; i--)
        fake_release(fake, i);
    for (int i = 3; i >= 0; i--)
        assert_int_equal(dist_wait(works[i]), DIST_OK);
    assert_int_equal(seen.count, 4);
    for (int i = 0; i < 4; i++)
        assert_int_equal(seen.order[i], i);
    assert_int_equal(fake_close(fake, group), DIST_OK);
}

static void the_function_of_a_completed_request_is_called_immediately(void **state)
{
    struct fake *fake = *state;
    struct dist_group *group = fake_open(fake);
    struct seen seen = {0};
    struct mark mark = {&seen, 7};
    struct dist_work *work;

    fake_release(fake, 0);
    work = fake_start(group, DIST_COLL_BARRIER);
    assert_int_equal(dist_on_complete(work, store_completion, &mark), DIST_OK);
    assert_int_equal(seen.count, 1);
    assert_int_equal(dist_on_complete(work, store_completion, &mark), DIST_ERR_INVALID_ARGUMENT);
    assert_int_equal(seen.count, 1);
    assert_int_equal(fake_close(fake, group), DIST_OK);
    assert_int_equal(dist_wait(work), DIST_OK);
}

struct chain {
    struct dist_group *group;
    struct dist_work *first, *second;
    dist_status wait_status, run_status, destroy_status;
};

static void start_and_wait(void *arg, dist_status status)
{
    struct chain *chain = arg;
    struct disti_start start = {.call = {.collective = DIST_COLL_BARRIER}};

    (void)status;
    chain->second = fake_start(chain->group, DIST_COLL_ALL_REDUCE);
    chain->wait_status = dist_wait(chain->second);
    chain->run_status = disti_work_run(chain->group, &start);
    chain->destroy_status = dist_destroy_process_group(chain->group);
}

static void a_completion_function_may_start_but_not_wait(void **state)
{
    struct fake *fake = *state;
    struct dist_group *group = fake_open(fake);
    struct chain chain = {.group = group, .wait_status = DIST_OK, .run_status = DIST_OK};

    chain.first = fake_start(group, DIST_COLL_ALL_REDUCE);
    dist_on_complete(chain.first, start_and_wait, &chain);
    fake_release(fake, 0);
    assert_int_equal(dist_wait(chain.first), DIST_OK);
    assert_non_null(chain.second);
    assert_int_equal(chain.wait_status, DIST_ERR_INVALID_ARGUMENT);
    assert_int_equal(chain.run_status, DIST_ERR_INVALID_ARGUMENT);
    assert_int_equal(chain.destroy_status, DIST_ERR_INVALID_ARGUMENT);
    assert_int_equal(atomic_load(&fake->posted), 2);
    fake_release(fake, 1);
    assert_int_equal(dist_wait(chain.second), DIST_OK);
    assert_int_equal(fake_close(fake, group), DIST_OK);
}

static int finished;

static dist_status count_finish(void *owned)
{
    finished += *(int *)owned;
    return DIST_OK;
}

static void *make_owned(int value)
{
    int *owned = malloc(sizeof(*owned));

    *owned = value;
    return owned;
}

static void check_finished(void *arg, dist_status status)
{
    (void)status;
    *(int *)arg = finished;
}

static void owned_memory_is_finished_and_freed(void **state)
{
    struct fake *fake = *state;
    struct dist_group *group = fake_open(fake);
    struct disti_start start = {.call = {.collective = DIST_COLL_BARRIER}, .finish = count_finish};
    struct dist_work *work;
    int before = 0;

    finished = 0;
    start.owned = make_owned(1);
    assert_int_equal(disti_work_post(group, &start, &work), DIST_OK);
    assert_false(is_done(work));
    assert_int_equal(finished, 0);
    dist_on_complete(work, check_finished, &before);
    fake_release(fake, 0);
    assert_true(is_done(work));
    assert_int_equal(before, 1);
    assert_int_equal(dist_wait(work), DIST_OK);
    start.owned = make_owned(10); /* blocking */
    fake_release(fake, 1);
    assert_int_equal(disti_work_run(group, &start), DIST_OK);
    assert_int_equal(finished, 11);
    start.owned = make_owned(100); /* detached */
    start.detached = true;
    assert_int_equal(disti_work_post(group, &start, NULL), DIST_OK);
    fake_release(fake, 2);
    assert_int_equal(fake_close(fake, group), DIST_OK);
    assert_int_equal(finished, 111);
}

static void a_failed_request_is_not_finished(void **state)
{
    struct fake *fake = *state;
    struct dist_group *group = fake_open(fake);
    struct disti_start start = {.call = {.collective = DIST_COLL_BARRIER}, .finish = count_finish};
    void *owned = make_owned(1);
    struct dist_work *work;

    finished = 0;
    start.owned = make_owned(1);
    assert_int_equal(disti_work_post(group, &start, &work), DIST_OK);
    fake_break(fake, DIST_ERR_SYSTEM);
    start.owned = owned;
    assert_int_equal(disti_work_run(group, &start), DIST_ERR_SYSTEM);
    assert_non_null(strstr(dist_last_error(), "the fake broke"));
    assert_int_equal(disti_work_run(group, &start), DIST_ERR_ABORTED);
    free(owned); /* after a failure, the caller owns it */
    assert_int_equal(dist_wait(work), DIST_ERR_SYSTEM);
    assert_int_equal(finished, 0);
    assert_int_equal(atomic_load(&fake->aborted), 1);
    fake_close(fake, group);
}

static void the_function_of_a_failed_request_gets_the_cause(void **state)
{
    struct fake *fake = *state;
    struct dist_group *group = fake_open(fake);
    struct seen seen = {0};
    struct mark mark = {&seen, 1};
    struct dist_work *work = fake_start(group, DIST_COLL_BARRIER);

    dist_on_complete(work, store_completion, &mark);
    fake_break(fake, DIST_ERR_SYSTEM);
    assert_true(is_done(work));
    assert_int_equal(seen.status, DIST_ERR_SYSTEM);
    assert_non_null(strstr(seen.error, "the fake broke"));
    assert_int_equal(dist_wait(work), DIST_ERR_SYSTEM);
    fake_close(fake, group);
}

static void unsupported_calls_do_not_change_the_group(void **state)
{
    struct fake *fake = *state;
    struct dist_group *group = fake_open(fake);

    fake->refuse_post = DIST_ERR_UNSUPPORTED;
    assert_null(fake_start(group, DIST_COLL_BARRIER));
    assert_null(fake_start(group, DIST_COLL_SEND));
    fake->refuse_post = DIST_OK;
    fake_release(fake, 0);
    fake_release(fake, 1);
    assert_int_equal(dist_wait(fake_start(group, DIST_COLL_BARRIER)), DIST_OK);
    assert_int_equal(dist_wait(fake_start(group, DIST_COLL_SEND)), DIST_OK);
    assert_int_equal(fake->calls[0].sequence, 0);
    assert_int_equal(fake->calls[1].sequence, 0);
    assert_int_equal(fake_close(fake, group), DIST_OK);
}

static void a_call_that_cannot_be_started_fails_the_group(void **state)
{
    struct fake *fake = *state;
    struct dist_group *group = fake_open(fake);
    struct seen seen = {0};
    struct mark mark = {&seen, 1};
    struct dist_work *work = fake_start(group, DIST_COLL_BARRIER);

    dist_on_complete(work, store_completion, &mark);
    fake->refuse_post = DIST_ERR_NO_MEMORY;
    assert_null(fake_start(group, DIST_COLL_BARRIER));
    assert_int_equal(seen.count, 1); /* called by this thread, because no other one waits */
    assert_int_equal(dist_wait(work), DIST_ERR_NO_MEMORY);
    assert_null(fake_start(group, DIST_COLL_BARRIER));
    assert_non_null(strstr(dist_last_error(), "the fake refuses"));
    fake_close(fake, group);
}

static struct dist_work *prepare(struct dist_group *group)
{
    const struct disti_start start = {.call = {.collective = DIST_COLL_ALL_REDUCE}};
    struct dist_work *work = NULL;

    assert_int_equal(disti_work_prepare(group, &start, &work), DIST_OK);
    return work;
}

static void persistent_requests_are_started_repeatedly(void **state)
{
    struct fake *fake = *state;
    struct dist_group *group = fake_open(fake);
    struct dist_work *work = prepare(group);
    bool done = false;

    assert_int_equal(dist_wait(work), DIST_OK); /* a request that was not started needs no wait */
    assert_int_equal(atomic_load(&fake->posted), 0);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(dist_start(work), DIST_OK);
        assert_int_equal(dist_test(work, &done), DIST_OK);
        assert_false(done);
        assert_int_equal(dist_start(work), DIST_ERR_INVALID_ARGUMENT);
        assert_int_equal(dist_work_free(work), DIST_ERR_INVALID_ARGUMENT);
        fake_release(fake, i);
        assert_int_equal(dist_wait(work), DIST_OK);
        assert_int_equal(fake->calls[i].sequence, i);
        assert_ptr_equal(fake->calls[i].prepared, fake);
    }
    assert_int_equal(dist_on_complete(work, store_completion, NULL), DIST_ERR_INVALID_ARGUMENT);
    assert_int_equal(fake->released_prepared, 0);
    assert_int_equal(dist_work_free(work), DIST_OK);
    assert_int_equal(fake->prepared, 1);
    assert_int_equal(fake->released_prepared, 1);
    assert_int_equal(dist_work_free(NULL), DIST_OK);
    assert_int_equal(dist_start(NULL), DIST_ERR_INVALID_ARGUMENT);
    assert_int_equal(fake_close(fake, group), DIST_OK);
}

static void a_persistent_request_may_outlive_its_group(void **state)
{
    struct fake *fake = *state;
    struct dist_group *group = fake_open(fake);
    struct dist_work *work = prepare(group), *other = fake_start(group, DIST_COLL_BARRIER);

    assert_int_equal(dist_work_free(other), DIST_ERR_INVALID_ARGUMENT);
    assert_int_equal(dist_start(other), DIST_ERR_INVALID_ARGUMENT);
    fake_release(fake, 0);
    fake_release(fake, 1);
    assert_int_equal(dist_start(work), DIST_OK);
    assert_int_equal(fake_close(fake, group), DIST_OK);
    assert_int_equal(dist_wait(other), DIST_OK);
    assert_int_equal(dist_wait(work), DIST_OK);
    assert_int_equal(dist_start(work), DIST_ERR_INVALID_ARGUMENT);
    assert_int_equal(dist_work_free(work), DIST_OK);
    assert_int_equal(fake->released_prepared, 0); /* the backend was closed before */
}

/* Runs a test without the progress thread, so that only calls of the test make progress. */
#define test(name) cmocka_unit_test_setup_teardown(name, fake_without_thread, fake_finish)

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(collectives_end_in_order),
        test(messages_end_independently),
        test(collectives_and_messages_have_separate_numbers),
        test(completion_functions_are_called_once_in_order),
        test(the_function_of_a_completed_request_is_called_immediately),
        test(a_completion_function_may_start_but_not_wait),
        test(owned_memory_is_finished_and_freed),
        test(a_failed_request_is_not_finished),
        test(the_function_of_a_failed_request_gets_the_cause),
        test(unsupported_calls_do_not_change_the_group),
        test(a_call_that_cannot_be_started_fails_the_group),
        test(persistent_requests_are_started_repeatedly),
        test(a_persistent_request_may_outlive_its_group),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
