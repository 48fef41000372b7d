/* SPDX-License-Identifier: BSD-3-Clause */
/* Handles of works that are gone are refused, by every call, and never stand for another work. */
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

static void gone(dist_status status, const char *name)
{
    assert_int_equal(status, DIST_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(dist_last_error(), name));
    assert_non_null(strstr(dist_last_error(), "the work no longer exists"));
}

static void all_refuse(dist_work *work)
{
    bool done = true;

    gone(dist_wait(work), "dist_wait");
    gone(dist_wait_for(work, 10), "dist_wait");
    gone(dist_test(work, &done), "dist_test");
    gone(dist_on_complete(work, ignore, NULL), "dist_on_complete");
    gone(dist_start(work), "dist_start");
    gone(dist_work_free(work), "dist_work_free");
}

static dist_work *prepare(struct dist_group *group)
{
    const struct disti_start start = {.call = {.collective = DIST_COLL_ALL_REDUCE}};
    dist_work *work = NULL;

    assert_int_equal(disti_work_prepare(group, &start, &work), DIST_OK);
    return work;
}

static void works_are_waited_for_once(void **state)
{
    struct fake *fake = *state;
    struct dist_group *group = fake_open(fake);
    dist_work *work = fake_start(group, DIST_COLL_BARRIER);

    fake_release(fake, 0);
    assert_int_equal(dist_wait(work), DIST_OK);
    all_refuse(work);
    assert_int_equal(fake_close(fake, group), DIST_OK);
    all_refuse(work);
}

static void works_that_failed_are_gone_too(void **state)
{
    struct fake *fake = *state;
    struct dist_group *group = fake_open(fake);
    dist_work *work = fake_start(group, DIST_COLL_BARRIER);

    fake_break(fake, DIST_ERR_SYSTEM);
    assert_int_equal(dist_wait(work), DIST_ERR_SYSTEM);
    all_refuse(work);
    fake_close(fake, group);
}

static void handles_do_not_come_again(void **state)
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
        all_refuse(old[i]);
    }
    assert_int_equal(dist_test(work, &done), DIST_OK);
    assert_false(done);
    fake_release(fake, 100);
    assert_int_equal(dist_wait(work), DIST_OK);
    assert_int_equal(fake_close(fake, group), DIST_OK);
}

static void persistent_works_are_freed_once(void **state)
{
    struct fake *fake = *state;
    struct dist_group *group = fake_open(fake);
    dist_work *work = prepare(group), *other;

    assert_int_equal(dist_work_free(work), DIST_OK);
    all_refuse(work);
    other = prepare(group);
    all_refuse(work);
    assert_int_equal(dist_start(other), DIST_OK);
    assert_int_equal(dist_work_free(other), DIST_ERR_INVALID_ARGUMENT);
    fake_release(fake, 0);
    assert_int_equal(dist_wait(other), DIST_OK);
    assert_int_equal(fake_close(fake, group), DIST_OK);
    assert_int_equal(dist_start(other), DIST_ERR_INVALID_ARGUMENT);
    assert_int_equal(dist_work_free(other), DIST_OK);
    all_refuse(other);
}

static void no_work_is_no_handle(void **state)
{
    const uintptr_t wild[] = {1, 64, 65, 0xffffff, 0x1000000, 0x1000041, UINTPTR_MAX};
    bool done;

    (void)state;
    for (size_t i = 0; i < sizeof(wild) / sizeof(wild[0]); i++)
        all_refuse((dist_work *)wild[i]);
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

static void one_of_many_waiters_gets_it(void **state)
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
    assert_int_equal(dist_test(work, &done), DIST_OK); /* it may be looked at meanwhile */
    assert_false(done);
    fake_release(fake, 0);
    for (int i = 0; i < 4; i++) {
        pthread_join(waiters[i].thread, NULL);
        assert_true(waiters[i].status == DIST_OK || waiters[i].status == DIST_ERR_INVALID_ARGUMENT);
        good += waiters[i].status == DIST_OK;
    }
    assert_int_equal(good, 1);
    all_refuse(work);
    assert_int_equal(fake_close(fake, group), DIST_OK);
}

/* ---- functions of the program ---- */

struct own {
    dist_work *work;
    dist_status status;
};

static void wait_for_oneself(void *arg, dist_status status)
{
    struct own *own = arg;

    (void)status;
    own->status = dist_wait(own->work);
}

static void a_work_does_not_wait_for_itself(void **state)
{
    struct fake *fake = *state;
    struct dist_group *group = fake_open(fake);
    struct own own = {.work = fake_start(group, DIST_COLL_BARRIER), .status = DIST_OK};
    bool done = false;

    assert_int_equal(dist_on_complete(own.work, wait_for_oneself, &own), DIST_OK);
    fake_release(fake, 0);
    while (!done)
        assert_int_equal(dist_test(own.work, &done), DIST_OK);
    assert_int_equal(own.status, DIST_ERR_INVALID_ARGUMENT);
    assert_int_equal(dist_wait(own.work), DIST_OK);
    assert_int_equal(fake_close(fake, group), DIST_OK);
}

/* ---- memory ---- */

static void waits_of_real_works(dist_group *group, int times)
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

static void memory_does_not_grow(void **state)
{
    dist_group *group = alone();
    size_t before;

    (void)state;
    waits_of_real_works(group, 10);
    before = mallinfo2().uordblks;
    waits_of_real_works(group, 20000);
    assert_true(mallinfo2().uordblks < before + 100000);
    assert_int_equal(dist_destroy_process_group(group), DIST_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(works_are_waited_for_once, fake_unserved, fake_finish),
        cmocka_unit_test_setup_teardown(works_that_failed_are_gone_too, fake_unserved, fake_finish),
        cmocka_unit_test_setup_teardown(handles_do_not_come_again, fake_unserved, fake_finish),
        cmocka_unit_test_setup_teardown(persistent_works_are_freed_once, fake_unserved,
                                        fake_finish),
        cmocka_unit_test(no_work_is_no_handle),
        cmocka_unit_test_setup_teardown(one_of_many_waiters_gets_it, fake_unserved, fake_finish),
        cmocka_unit_test_setup_teardown(one_of_many_waiters_gets_it, fake_served, fake_finish),
        cmocka_unit_test_setup_teardown(a_work_does_not_wait_for_itself, fake_unserved,
                                        fake_finish),
        cmocka_unit_test(memory_does_not_grow),
    };

    alarm(30);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
