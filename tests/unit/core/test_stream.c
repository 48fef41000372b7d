/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls that a stream orders: the program goes on, and the library sees to their end. */
#include "fake.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int streamed(void **state)
{
    fake_unserved(state);
    ((struct fake *)*state)->streams = true;
    return 0;
}

static int streamed_and_served(void **state)
{
    fake_served(state);
    ((struct fake *)*state)->streams = true;
    ((struct fake *)*state)->timeout_ms = 300;
    return 0;
}

static float value;

static dist_status reduce(struct dist_group *group)
{
    return dist_all_reduce(group, &value, &value, 1, DIST_FLOAT32, DIST_SUM);
}

static void *stream_of(char *name)
{
    return name;
}

static void a_blocking_call_is_put_on_the_stream(void **state)
{
    struct fake *fake = *state;
    struct dist_group *group = fake_open(fake);
    char stream[] = "a stream";

    assert_int_equal(dist_set_stream(group, stream_of(stream)), DIST_OK);
    assert_int_equal(reduce(group), DIST_OK); /* though nothing has ended */
    assert_int_equal(reduce(group), DIST_OK);
    assert_true(fake->calls[0].waits);
    assert_ptr_equal(fake->calls[0].stream, stream);
    assert_int_equal(fake->calls[1].sequence, 1);
    assert_non_null(group->works); /* it is watched all the same */
    fake_release(fake, 1);
    fake_release(fake, 0);
    assert_int_equal(fake_close(fake, group), DIST_OK);
    assert_string_equal(fake->history, "..");
}

/* Without the library's thread, and though the program never waits. */
static void works_do_not_pile_up(void **state)
{
    struct fake *fake = *state;
    struct dist_group *group = fake_open(fake);

    for (int i = 0; i < 10; i++) {
        assert_int_equal(reduce(group), DIST_OK);
        fake_release(fake, i);
    }
    assert_int_equal(reduce(group), DIST_OK);
    assert_ptr_equal(group->works, group->last_work);
    fake_release(fake, 10);
    assert_int_equal(fake_close(fake, group), DIST_OK);
}

static void a_stream_that_differs_between_threads_is_refused(void **state)
{
    struct fake *fake = *state;
    struct dist_group *group = fake_open(fake);

    assert_int_equal(dist_set_stream(group, (void *)(uintptr_t)2), DIST_ERR_INVALID_ARGUMENT);
    assert_null(group->stream);
    assert_int_equal(fake_close(fake, group), DIST_OK);
}

static void to_wait_is_to_join_the_stream(void **state)
{
    struct fake *fake = *state;
    struct dist_group *group = fake_open(fake);
    char first[] = "one", second[] = "another";
    dist_work *work = NULL;

    dist_set_stream(group, stream_of(first));
    assert_int_equal(dist_all_reduce_async(group, &value, &value, 1, DIST_FLOAT32, DIST_SUM, &work),
                     DIST_OK);
    assert_false(fake->calls[0].waits);
    assert_ptr_equal(fake->calls[0].stream, first);
    dist_set_stream(group, stream_of(second));
    assert_int_equal(dist_wait(work), DIST_OK);
    assert_int_equal(fake->joined, 0);
    assert_ptr_equal(fake->join_stream, second);
    fake_release(fake, 0);
    assert_int_equal(fake_close(fake, group), DIST_OK);
}

static void what_has_ended_needs_no_join(void **state)
{
    struct fake *fake = *state;
    struct dist_group *group = fake_open(fake);
    dist_work *work = NULL;
    bool done = false;

    dist_all_reduce_async(group, &value, &value, 1, DIST_FLOAT32, DIST_SUM, &work);
    assert_int_equal(dist_test(work, &done), DIST_OK);
    assert_false(done);
    fake_release(fake, 0);
    assert_int_equal(dist_test(work, &done), DIST_OK);
    assert_true(done);
    assert_int_equal(dist_wait(work), DIST_OK);
    assert_int_equal(fake->joined, -1);
    assert_int_equal(fake_close(fake, group), DIST_OK);
}

static void a_join_that_fails_ends_the_group(void **state)
{
    struct fake *fake = *state;
    struct dist_group *group = fake_open(fake);
    dist_work *work = NULL;

    fake->refuse_join = DIST_ERR_SYSTEM;
    dist_all_reduce_async(group, &value, &value, 1, DIST_FLOAT32, DIST_SUM, &work);
    assert_int_equal(dist_wait(work), DIST_ERR_SYSTEM);
    assert_non_null(strstr(dist_last_error(), "does not join"));
    assert_int_equal(reduce(group), DIST_ERR_ABORTED);
    assert_int_equal(atomic_load(&fake->aborted), 1);
    fake_close(fake, group);
}

static void a_later_failure_meets_the_next_call(void **state)
{
    struct fake *fake = *state;
    struct dist_group *group = fake_open(fake);

    assert_int_equal(reduce(group), DIST_OK);
    fake_break(fake, DIST_ERR_PEER_LOST);
    assert_int_equal(dist_barrier(group), DIST_ERR_PEER_LOST);
    assert_int_equal(reduce(group), DIST_ERR_ABORTED);
    fake_close(fake, group);
}

/* Nobody waits for it, and nobody looks but the library's own thread. */
static void a_call_that_never_ends_meets_its_deadline(void **state)
{
    struct fake *fake = *state;
    struct dist_group *group = fake_open(fake);

    assert_int_equal(reduce(group), DIST_OK);
    for (int i = 0; i < 500 && !atomic_load(&fake->aborted); i++)
        fake_sleep(10);
    assert_int_equal(atomic_load(&fake->aborted), 1);
    assert_int_equal(reduce(group), DIST_ERR_ABORTED);
    assert_non_null(strstr(dist_last_error(), ": rank 0 waited "));
    fake_close(fake, group);
}

static void host_calls_wait_on_the_host(void **state)
{
    struct fake *fake = *state;
    struct dist_group *group = fake_open(fake);

    assert_int_equal(reduce(group), DIST_OK);
    fake_release(fake, 0);
    fake_release(fake, 1);
    assert_int_equal(dist_barrier(group), DIST_OK);
    assert_null(group->works);
    assert_int_equal(fake_close(fake, group), DIST_OK);
}

static void a_batch_is_started_as_one(void **state)
{
    struct fake *fake = *state;
    struct dist_group *group = fake_open(fake);

    assert_int_equal(dist_group_start(), DIST_OK);
    assert_int_equal(dist_send(group, &value, 1, DIST_FLOAT32, 1, 0), DIST_OK);
    assert_int_equal(dist_recv(group, &value, 1, DIST_FLOAT32, 1, 0, NULL), DIST_OK);
    assert_string_equal(fake->history, "");
    assert_int_equal(dist_group_end(), DIST_OK);
    assert_string_equal(fake->history, "(..)");
    assert_true(fake->calls[1].waits);
    fake_release(fake, 0);
    fake_release(fake, 1);
    assert_int_equal(fake_close(fake, group), DIST_OK);
}

static void a_batch_lets_a_group_be_that_is_gone(void **state)
{
    struct fake *fake = *state;
    struct dist_group *group = fake_open(fake);

    assert_int_equal(dist_group_start(), DIST_OK);
    assert_int_equal(reduce(group), DIST_OK);
    atomic_store(&group->destroyed, true);
    assert_int_equal(dist_group_end(), DIST_ERR_INVALID_ARGUMENT);
    assert_string_equal(fake->history, "");
    atomic_store(&group->destroyed, false);
    assert_int_equal(fake_close(fake, group), DIST_OK);
}

/* What is to be copied to the host is copied from a device only. */
static void host_memory_is_not_staged(void **state)
{
    struct fake *fake = *state;
    struct dist_group *group;

    fake->stages = true;
    group = fake_open(fake);
    fake_release(fake, 0);
    assert_int_equal(reduce(group), DIST_OK);
    assert_ptr_equal(fake->calls[0].in, &value);
    assert_int_equal(fake_close(fake, group), DIST_OK);
}

static void a_persistent_call_is_put_on_the_stream(void **state)
{
    struct fake *fake = *state;
    struct dist_group *group = fake_open(fake);
    dist_work *work = NULL;
    bool done = true;

    assert_int_equal(dist_all_reduce_init(group, &value, &value, 1, DIST_FLOAT32, DIST_SUM, &work),
                     DIST_OK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(dist_start(work), DIST_OK);
        assert_int_equal(dist_start(work), DIST_ERR_INVALID_ARGUMENT); /* not waited for */
        assert_int_equal(dist_test(work, &done), DIST_OK);
        assert_false(done);
        if (i == 1) { /* has it ended on the device? */
            fake_release(fake, i);
            assert_int_equal(dist_test(work, &done), DIST_OK);
            assert_true(done);
        }
        assert_int_equal(dist_wait(work), DIST_OK);
        fake_release(fake, i);
    }
    assert_string_equal(fake->history, "...");
    assert_int_equal(fake->prepared, 0);
    assert_int_equal(dist_start(work), DIST_OK);
    fake_break(fake, DIST_ERR_SYSTEM);
    assert_int_equal(dist_barrier(group), DIST_ERR_SYSTEM);
    assert_int_equal(dist_wait(work), DIST_ERR_SYSTEM);
    assert_int_equal(dist_work_free(work), DIST_OK);
    fake_close(fake, group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_blocking_call_is_put_on_the_stream, streamed,
                                        fake_finish),
        cmocka_unit_test_setup_teardown(works_do_not_pile_up, streamed, fake_finish),
        cmocka_unit_test_setup_teardown(a_stream_that_differs_between_threads_is_refused, streamed,
                                        fake_finish),
        cmocka_unit_test_setup_teardown(to_wait_is_to_join_the_stream, streamed, fake_finish),
        cmocka_unit_test_setup_teardown(what_has_ended_needs_no_join, streamed, fake_finish),
        cmocka_unit_test_setup_teardown(a_join_that_fails_ends_the_group, streamed, fake_finish),
        cmocka_unit_test_setup_teardown(a_later_failure_meets_the_next_call, streamed, fake_finish),
        cmocka_unit_test_setup_teardown(a_call_that_never_ends_meets_its_deadline,
                                        streamed_and_served, fake_finish),
        cmocka_unit_test_setup_teardown(host_calls_wait_on_the_host, streamed, fake_finish),
        cmocka_unit_test_setup_teardown(a_batch_is_started_as_one, streamed, fake_finish),
        cmocka_unit_test_setup_teardown(a_batch_lets_a_group_be_that_is_gone, streamed,
                                        fake_finish),
        cmocka_unit_test_setup_teardown(host_memory_is_not_staged, streamed, fake_finish),
        cmocka_unit_test_setup_teardown(a_persistent_call_is_put_on_the_stream, streamed,
                                        fake_finish),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
