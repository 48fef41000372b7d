/* SPDX-License-Identifier: BSD-3-Clause */
/* Handles of requests that no longer exist are rejected by every call, and are not reused. */
#include "alone.h"
#include "fake.h"

#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void ignore(void *arg, dist_status status)
{
    (void)arg;
    (void)status;
}

static void expect_invalid_error(dist_status status, const char *name)
{
    assert_int_equal(status, DIST_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(dist_last_error(), name));
    assert_non_null(strstr(dist_last_error(), "the work no longer exists"));
}

static void expect_invalid(dist_work *work)
{
    bool done = true;

    expect_invalid_error(dist_wait(work), "dist_wait");
    expect_invalid_error(dist_wait_for(work, 10), "dist_wait");
    expect_invalid_error(dist_test(work, &done), "dist_test");
    expect_invalid_error(dist_on_complete(work, ignore, NULL), "dist_on_complete");
    expect_invalid_error(dist_start(work), "dist_start");
    expect_invalid_error(dist_work_free(work), "dist_work_free");
}

static dist_work *prepare(struct dist_group *group)
{
    const struct disti_start start = {.call = {.collective = DIST_COLL_ALL_REDUCE}};
    dist_work *work = NULL;

    assert_int_equal(disti_work_prepare(group, &start, &work), DIST_OK);
    return work;
}

static void a_request_can_be_waited_for_once(void **state)
{
    struct fake *fake = *state;
    struct dist_group *group = fake_open(fake);
    dist_work *work = fake_start(group, DIST_COLL_BARRIER);

    fake_release(fake, 0);
    assert_int_equal(dist_wait(work), DIST_OK);
    expect_invalid(work);
    assert_int_equal(fake_close(fake, group), DIST_OK);
    expect_invalid(work);
}

static void failed_requests_no_longer_exist(void **state)
{
    struct fake *fake = *state;
    struct dist_group *group = fake_open(fake);
    dist_work *work = fake_start(group, DIST_COLL_BARRIER);

    fake_break(fake, DIST_ERR_SYSTEM);
    assert_int_equal(dist_wait(work), DIST_ERR_SYSTEM);
    expect_invalid(work);
    fake_close(fake, group);
}

static void handles_are_not_reused(void **state)
{
    struct fake *fake = *state;
    struct dist_group *group = fake_open(fake);
    dist_work *old[100], *work;
    bool done = true;

    for (int i = 0; i < 100; i++) {
        old[i] = fake_start(group, DIST_COLL_BARRIER);
        fake_release(fake, i);
        assert_int_equal(dist_wait(old[i]), DIST_OK);
    }
    work = fake_start(group, DIST_COLL_BARRIER);
    for (int i = 0; i < 100; i++) {
        assert_ptr_not_equal(old[i], work);
        expect_invalid(old[i]);
    }
    assert_int_equal(dist_test(work, &done), DIST_OK);
    assert_false(done);
    fake_release(fake, 100);
    assert_int_equal(dist_wait(work), DIST_OK);
    assert_int_equal(fake_close(fake, group), DIST_OK);
}

static void persistent_requests_are_freed_once(void **state)
{
    struct fake *fake = *state;
    struct dist_group *group = fake_open(fake);
    dist_work *work = prepare(group), *other;

    assert_int_equal(dist_work_free(work), DIST_OK);
    expect_invalid(work);
    other = prepare(group);
    expect_invalid(work);
    assert_int_equal(dist_start(other), DIST_OK);
    assert_int_equal(dist_work_free(other), DIST_ERR_INVALID_ARGUMENT);
    fake_release(fake, 0);
    assert_int_equal(dist_wait(other), DIST_OK);
    assert_int_equal(fake_close(fake, group), DIST_OK);
    assert_int_equal(dist_start(other), DIST_ERR_INVALID_ARGUMENT);
    assert_int_equal(dist_work_free(other), DIST_OK);
    expect_invalid(other);
}

static void arbitrary_values_are_no_handles(void **state)
{
    const uintptr_t wild[] = {1, 64, 65, 0xffffff, 0x1000000, 0x1000041, UINTPTR_MAX};
    bool done;

    (void)state;
    for (size_t i = 0; i < sizeof(wild) / sizeof(wild[0]); i++)
        expect_invalid((dist_work *)wild[i]);
    assert_int_equal(dist_wait(NULL), DIST_ERR_INVALID_ARGUMENT);
    assert_int_equal(dist_wait_for(NULL, 1), DIST_ERR_INVALID_ARGUMENT);
    assert_int_equal(dist_test(NULL, &done), DIST_ERR_INVALID_ARGUMENT);
    assert_int_equal(dist_on_complete(NULL, ignore, NULL), DIST_ERR_INVALID_ARGUMENT);
    assert_int_equal(dist_start(NULL), DIST_ERR_INVALID_ARGUMENT);
    assert_int_equal(dist_work_free(NULL), DIST_OK);
}

/* ---- several threads ---- */

struct waiter {
    pthread_t thread;
    dist_work *work;
    dist_status status;
};

static void *wait_in_thread(void *arg)
{
    struct waiter *waiter = arg;

    waiter->status = dist_wait(waiter->work);
    return NULL;
}

static void one_of_several_waiting_threads_gets_the_result(void **state)
{
    struct fake *fake = *state;
    struct dist_group *group = fake_open(fake);
    dist_work *work = fake_start(group, DIST_COLL_BARRIER);
    struct waiter waiters[4];
    bool done = false;
    int good = 0;

    for (int i = 0; i < 4; i++) {
        waiters[i] = (struct waiter){.work = work};
        assert_int_equal(pthread_create(&waiters[i].thread, NULL, wait_in_thread, &waiters[i]), 0);
    }
    fake_sleep(50);
    assert_int_equal(dist_test(work, &done), DIST_OK); /* testing is allowed while threads wait */
    assert_false(done);
    fake_release(fake, 0);
    for (int i = 0; i < 4; i++) {
        pthread_join(waiters[i].thread, NULL);
        assert_true(waiters[i].status == DIST_OK || waiters[i].status == DIST_ERR_INVALID_ARGUMENT);
        good += waiters[i].status == DIST_OK;
    }
    assert_int_equal(good, 1);
    expect_invalid(work);
    assert_int_equal(fake_close(fake, group), DIST_OK);
}

/* ---- completion functions ---- */

struct own {
    dist_work *work;
    dist_status status;
};

static void wait_for_own_request(void *arg, dist_status status)
{
    struct own *own = arg;

    (void)status;
    own->status = dist_wait(own->work);
}

static void a_completion_function_cannot_wait_for_its_request(void **state)
{
    struct fake *fake = *state;
    struct dist_group *group = fake_open(fake);
    struct own own = {.work = fake_start(group, DIST_COLL_BARRIER), .status = DIST_OK};
    bool done = false;

    assert_int_equal(dist_on_complete(own.work, wait_for_own_request, &own), DIST_OK);
    fake_release(fake, 0);
    while (!done)
        assert_int_equal(dist_test(own.work, &done), DIST_OK);
    assert_int_equal(own.status, DIST_ERR_INVALID_ARGUMENT);
    assert_int_equal(dist_wait(own.work), DIST_OK);
    assert_int_equal(fake_close(fake, group), DIST_OK);
}

/* ---- memory ---- */

static void wait_for_requests(dist_group *group, int times)
{
    for (int i = 0; i < times; i++) {
        dist_work *works[3];

        for (int k = 0; k < 3; k++)
            assert_int_equal(dist_barrier_async(group, &works[k]), DIST_OK);
        for (int k = 0; k < 3; k++)
            assert_int_equal(dist_wait(works[k]), DIST_OK);
        assert_int_equal(dist_wait(works[i % 3]), DIST_ERR_INVALID_ARGUMENT);
    }
}

static void memory_of_requests_is_reused(void **state)
{
    dist_group *group = single_rank_world();
    size_t before;

    (void)state;
    wait_for_requests(group, 10);
    before = mallinfo2().uordblks;
    wait_for_requests(group, 20000);
    assert_true(mallinfo2().uordblks < before + 100000);
    assert_int_equal(dist_destroy_process_group(group), DIST_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_request_can_be_waited_for_once, fake_without_thread,
                                        fake_finish),
        cmocka_unit_test_setup_teardown(failed_requests_no_longer_exist, fake_without_thread,
                                        fake_finish),
        cmocka_unit_test_setup_teardown(handles_are_not_reused, fake_without_thread, fake_finish),
        cmocka_unit_test_setup_teardown(persistent_requests_are_freed_once, fake_without_thread,
                                        fake_finish),
        cmocka_unit_test(arbitrary_values_are_no_handles),
        cmocka_unit_test_setup_teardown(one_of_several_waiting_threads_gets_the_result,
                                        fake_without_thread, fake_finish),
        cmocka_unit_test_setup_teardown(one_of_several_waiting_threads_gets_the_result,
                                        fake_with_thread, fake_finish),
        cmocka_unit_test_setup_teardown(a_completion_function_cannot_wait_for_its_request,
                                        fake_without_thread, fake_finish),
        cmocka_unit_test(memory_of_requests_is_reused),
    };

    alarm(30);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
