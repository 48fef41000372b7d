/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls that are ordered by a stream: the program continues, and the library completes them. */
#include "fake.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int setup_streams(void **state)
{
    fake_without_thread(state);
    ((struct fake *)*state)->streams = true;
    return 0;
}

static int setup_streams_with_thread(void **state)
{
    fake_with_thread(state);
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

static void a_blocking_call_is_enqueued_on_the_stream(void **state)
{
    struct fake *fake = *state;
    struct dist_group *group = fake_open(fake);
    char stream[] = "a stream";

    assert_int_equal(dist_set_stream(group, stream_of(stream)), DIST_OK);
    assert_int_equal(reduce(group), DIST_OK); /* returns although no call has ended on the device */
    assert_int_equal(reduce(group), DIST_OK);
    assert_true(fake->calls[0].waits);
    assert_ptr_equal(fake->calls[0].stream, stream);
    assert_int_equal(fake->calls[1].sequence, 1);
    assert_non_null(group->works); /* the library still monitors the calls */
    fake_release(fake, 1);
    fake_release(fake, 0);
    assert_int_equal(fake_close(fake, group), DIST_OK);
    assert_string_equal(fake->history, "..");
}

/* There is no progress thread, and the program never waits. */
static void completed_requests_are_freed_without_waiting(void **state)
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

static void per_thread_streams_are_rejected(void **state)
{
    struct fake *fake = *state;
    struct dist_group *group = fake_open(fake);

    assert_int_equal(dist_set_stream(group, (void *)(uintptr_t)2), DIST_ERR_INVALID_ARGUMENT);
    assert_null(group->stream);
    assert_int_equal(fake_close(fake, group), DIST_OK);
}

static void waiting_joins_the_stream(void **state)
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

static void completed_requests_are_not_joined(void **state)
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

static void a_failed_join_fails_the_group(void **state)
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

static void a_later_failure_is_returned_by_the_next_call(void **state)
{
    struct fake *fake = *state;
    struct dist_group *group = fake_open(fake);

    assert_int_equal(reduce(group), DIST_OK);
    fake_break(fake, DIST_ERR_PEER_LOST);
    assert_int_equal(dist_barrier(group), DIST_ERR_PEER_LOST);
    assert_int_equal(reduce(group), DIST_ERR_ABORTED);
    fake_close(fake, group);
}

/* No thread waits for it; only the progress thread polls. */
static void a_call_that_does_not_end_times_out(void **state)
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

static void calls_without_stream_order_block(void **state)
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

static void a_batch_is_posted_as_one(void **state)
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

static void a_batch_fails_for_a_destroyed_group(void **state)
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

/* Only memory of a device is copied to the host. */
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

static void a_persistent_call_is_enqueued_on_the_stream(void **state)
{
    struct fake *fake = *state;
    struct dist_group *group = fake_open(fake);
    dist_work *work = NULL;
    bool done = true;

    assert_int_equal(dist_all_reduce_init(group, &value, &value, 1, DIST_FLOAT32, DIST_SUM, &work),
                     DIST_OK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(dist_start(work), DIST_OK);
        /* The request cannot be started again before it has been waited for. */
        assert_int_equal(dist_start(work), DIST_ERR_INVALID_ARGUMENT);
        assert_int_equal(dist_test(work, &done), DIST_OK);
        assert_false(done);
        if (i == 1) { /* the call ends on the device before the wait */
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
        cmocka_unit_test_setup_teardown(a_blocking_call_is_enqueued_on_the_stream, setup_streams,
                                        fake_finish),
        cmocka_unit_test_setup_teardown(completed_requests_are_freed_without_waiting, setup_streams,
                                        fake_finish),
        cmocka_unit_test_setup_teardown(per_thread_streams_are_rejected, setup_streams,
                                        fake_finish),
        cmocka_unit_test_setup_teardown(waiting_joins_the_stream, setup_streams, fake_finish),
        cmocka_unit_test_setup_teardown(completed_requests_are_not_joined, setup_streams,
                                        fake_finish),
        cmocka_unit_test_setup_teardown(a_failed_join_fails_the_group, setup_streams, fake_finish),
        cmocka_unit_test_setup_teardown(a_later_failure_is_returned_by_the_next_call, setup_streams,
                                        fake_finish),
        cmocka_unit_test_setup_teardown(a_call_that_does_not_end_times_out,
                                        setup_streams_with_thread, fake_finish),
        cmocka_unit_test_setup_teardown(calls_without_stream_order_block, setup_streams,
                                        fake_finish),
        cmocka_unit_test_setup_teardown(a_batch_is_posted_as_one, setup_streams, fake_finish),
        cmocka_unit_test_setup_teardown(a_batch_fails_for_a_destroyed_group, setup_streams,
                                        fake_finish),
        cmocka_unit_test_setup_teardown(host_memory_is_not_staged, setup_streams, fake_finish),
        cmocka_unit_test_setup_teardown(a_persistent_call_is_enqueued_on_the_stream, setup_streams,
                                        fake_finish),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
