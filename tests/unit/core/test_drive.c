/* SPDX-License-Identifier: BSD-3-Clause */
/* Progress of a group: several waiting threads, deadlines, failures, the end of the group. */
#include "fake.h"
#include "tests/unit/base/unit.h"

#include "base/clock.h"

#include <stdio.h>
#include <string.h>

#define THREADS 6

/* A thread that makes one call or waits for one request, and the result. */
struct thread {
    pthread_t thread;
    struct dist_group *group;
    struct dist_work *work; /* the request to wait for; NULL: make a blocking call */
    dist_status status;
    char error[512];
    atomic_bool done;
};

static void *thread_main(void *arg)
{
    struct disti_start start = {.call = {.collective = DIST_COLL_BARRIER}};
    struct thread *thread = arg;

    thread->status = thread->work ? dist_wait(thread->work) : disti_work_run(thread->group, &start);
    snprintf(thread->error, sizeof(thread->error), "%s", dist_last_error());
    atomic_store(&thread->done, true);
    return NULL;
}

static void thread_start(struct thread *thread, struct dist_group *group, struct dist_work *work)
{
    *thread = (struct thread){.group = group, .work = work};
    assert_int_equal(pthread_create(&thread->thread, NULL, thread_main, thread), 0);
}

static void thread_join(struct thread *thread)
{
    pthread_join(thread->thread, NULL);
}

static bool within(int ms, atomic_bool *done)
{
    int64_t until = disti_deadline_ms(ms);

    while (!atomic_load(done) && !disti_expired(until))
        fake_sleep(1);
    return atomic_load(done);
}

static void threads_can_wait_for_different_requests(void **state)
{
    struct fake *fake = *state;
    struct dist_group *group = fake_open(fake);
    struct thread threads[THREADS];

    for (int i = 0; i < THREADS; i++)
        thread_start(&threads[i], group, fake_start(group, DIST_COLL_RECV));
    for (int i = THREADS - 1; i >= 0; i--) {
        assert_false(within(20, &threads[i].done));
        fake_release(fake, i);
        assert_true(within(UNIT_SOON_MS, &threads[i].done));
        for (int j = 0; j < i; j++)
            assert_false(atomic_load(&threads[j].done));
    }
    for (int i = 0; i < THREADS; i++) {
        thread_join(&threads[i]);
        assert_int_equal(threads[i].status, DIST_OK);
    }
    assert_int_equal(fake_close(fake, group), DIST_OK);
}

static void threads_can_make_blocking_calls_concurrently(void **state)
{
    struct fake *fake = *state;
    struct dist_group *group = fake_open(fake);
    struct thread threads[THREADS];

    for (int i = 0; i < THREADS; i++)
        thread_start(&threads[i], group, NULL);
    for (int i = 0; i < 2000 && atomic_load(&fake->posted) < THREADS; i++)
        fake_sleep(1);
    assert_int_equal(atomic_load(&fake->posted), THREADS); /* no thread blocks another one */
    for (int i = 0; i < THREADS; i++)
        fake_release(fake, i);
    for (int i = 0; i < THREADS; i++) {
        thread_join(&threads[i]);
        assert_int_equal(threads[i].status, DIST_OK);
    }
    assert_int_equal(fake_close(fake, group), DIST_OK);
}

static void a_spinning_progress_owner_lets_other_threads_in(void **state)
{
    struct fake *fake = *state;

    fake->spins = true;
    threads_can_make_blocking_calls_concurrently(state);
}

/* The progress owner sleeps on descriptors: a post must neither wait for it nor remain
 * unnoticed. */
static void starting_a_call_wakes_a_sleeping_progress_owner(void **state)
{
    struct fake *fake = *state;
    struct dist_group *group = fake_open(fake);
    struct thread waiter;
    struct dist_work *late;
    int64_t before;

    group->policy.sleep_ms = 2 * UNIT_SOON_MS;
    thread_start(&waiter, group, fake_start(group, DIST_COLL_RECV));
    fake_sleep(50); /* until the progress owner sleeps */
    fake_release(fake, 1);
    before = disti_now_ns();
    late = fake_start(group, DIST_COLL_RECV);
    assert_true(disti_now_ns() - before < UNIT_SOON_NS);
    assert_int_equal(dist_wait(late), DIST_OK);
    fake_release(fake, 0);
    thread_join(&waiter);
    assert_int_equal(waiter.status, DIST_OK);
    assert_int_equal(fake_close(fake, group), DIST_OK);
}

static void wait_for_that_times_out_keeps_the_request(void **state)
{
    struct fake *fake = *state;
    struct dist_group *group = fake_open(fake);
    struct dist_work *work = fake_start(group, DIST_COLL_BARRIER);
    int64_t before;

    assert_int_equal(dist_wait_for(work, 0), DIST_IN_PROGRESS);
    before = disti_now_ns();
    assert_int_equal(dist_wait_for(work, 60), DIST_IN_PROGRESS);
    assert_true(disti_now_ns() - before >= 59 * 1000 * 1000);
    assert_true(disti_now_ns() - before < UNIT_SOON_NS);
    fake_release(fake, 0);
    assert_int_equal(dist_wait_for(work, 5000), DIST_OK);
    assert_int_equal(fake_close(fake, group), DIST_OK);
}

static void wait_for_times_out_beside_a_progress_owner(void **state)
{
    struct fake *fake = *state;
    struct dist_group *group = fake_open(fake);
    struct thread waiter;
    struct dist_work *work;

    thread_start(&waiter, group, fake_start(group, DIST_COLL_RECV));
    work = fake_start(group, DIST_COLL_RECV);
    fake_sleep(20);
    assert_int_equal(dist_wait_for(work, 30), DIST_IN_PROGRESS);
    fake_release(fake, 1);
    assert_int_equal(dist_wait_for(work, 5000), DIST_OK);
    assert_false(atomic_load(&waiter.done));
    fake_release(fake, 0);
    thread_join(&waiter);
    assert_int_equal(fake_close(fake, group), DIST_OK);
}

static void a_timeout_fails_the_group_and_names_the_peer(void **state)
{
    struct fake *fake = *state;
    struct dist_group *group;
    struct thread threads[THREADS];

    fake->timeout_ms = 150 * unit_patience(); /* long enough for all threads to start */
    group = fake_open(fake);
    for (int i = 0; i < THREADS; i++)
        thread_start(&threads[i], group, fake_start(group, DIST_COLL_ALL_REDUCE));
    for (int i = 0; i < THREADS; i++) {
        thread_join(&threads[i]);
        assert_int_equal(threads[i].status, DIST_ERR_TIMEOUT);
        assert_non_null(strstr(threads[i].error, "all_reduce"));
        assert_non_null(strstr(threads[i].error, "rank 1"));
    }
    assert_null(fake_start(group, DIST_COLL_BARRIER));
    assert_int_equal(atomic_load(&fake->aborted), 1);
    fake_close(fake, group);
}

static void a_failure_ends_the_wait_of_every_thread(void **state)
{
    struct fake *fake = *state;
    struct dist_group *group = fake_open(fake);
    int64_t soon = disti_deadline_ms(UNIT_SOON_MS);
    struct thread threads[THREADS];

    for (int i = 0; i < THREADS; i++)
        thread_start(&threads[i], group, i % 2 ? fake_start(group, DIST_COLL_RECV) : NULL);
    while (atomic_load(&fake->posted) < THREADS && !disti_expired(soon))
        fake_sleep(1);
    fake_sleep(20);
    fake_break(fake, DIST_ERR_PEER_LOST);
    for (int i = 0; i < THREADS; i++) {
        assert_true(within(UNIT_SOON_MS, &threads[i].done));
        thread_join(&threads[i]);
        assert_int_equal(threads[i].status, DIST_ERR_PEER_LOST);
        assert_non_null(strstr(threads[i].error, "the fake broke"));
    }
    fake_close(fake, group);
}

/* If this rank computes for longer than the timeout, that is no failure of the other ranks. */
static void only_time_spent_waiting_counts_for_the_timeout(void **state)
{
    struct fake *fake = *state;
    struct dist_group *group;
    struct dist_work *work;
    bool done;

    fake->timeout_ms = 1000;
    group = fake_open(fake);
    work = fake_start(group, DIST_COLL_ALL_REDUCE);
    fake_sleep(1100);
    assert_int_equal(dist_test(work, &done), DIST_OK);
    assert_int_equal(dist_wait_for(work, 50), DIST_IN_PROGRESS);
    fake_release(fake, 0);
    assert_int_equal(dist_wait(work), DIST_OK);
    /* Calling dist_test now and then counts as waiting. */
    work = fake_start(group, DIST_COLL_ALL_REDUCE);
    done = false;
    for (int i = 0; i < 20 && !done; i++) {
        fake_sleep(120);
        assert_int_equal(dist_test(work, &done), DIST_OK);
    }
    assert_true(done);
    assert_int_equal(dist_wait(work), DIST_ERR_TIMEOUT);
    fake_close(fake, group);
}

struct later {
    struct fake *fake;
    int post, ms;
};

static void *release_later(void *arg)
{
    struct later *later = arg;

    fake_sleep(later->ms);
    fake_release(later->fake, later->post);
    return NULL;
}

static void closing_waits_for_pending_requests(void **state)
{
    struct fake *fake = *state;
    struct dist_group *group = fake_open(fake);
    struct dist_work *work = fake_start(group, DIST_COLL_ALL_REDUCE);
    struct later later = {fake, 0, 100};
    pthread_t thread;

    assert_int_equal(pthread_create(&thread, NULL, release_later, &later), 0);
    assert_int_equal(fake_close(fake, group), DIST_OK);
    pthread_join(thread, NULL);
    assert_int_equal(dist_wait(work), DIST_OK);
}

static void closing_fails_requests_that_do_not_end(void **state)
{
    struct fake *fake = *state;
    struct dist_group *group;
    struct dist_work *work;
    bool done = false;

    fake->timeout_ms = 100;
    group = fake_open(fake);
    work = fake_start(group, DIST_COLL_ALL_REDUCE);
    assert_int_equal(fake_close(fake, group), DIST_ERR_TIMEOUT);
    assert_int_equal(dist_test(work, &done), DIST_OK);
    assert_true(done);
    assert_int_equal(dist_wait(work), DIST_ERR_TIMEOUT); /* the cause of the failure is kept */
    assert_non_null(strstr(dist_last_error(), "rank 1"));
}

static void closing_ends_the_waits_of_other_threads(void **state)
{
    struct fake *fake = *state;
    struct dist_group *group;
    struct thread threads[THREADS];

    fake->timeout_ms = 1000;
    group = fake_open(fake);
    for (int i = 0; i < THREADS; i++)
        thread_start(&threads[i], group, fake_start(group, DIST_COLL_ALL_REDUCE));
    assert_int_equal(fake_close(fake, group), DIST_ERR_TIMEOUT);
    for (int i = 0; i < THREADS; i++) {
        thread_join(&threads[i]);
        assert_int_equal(threads[i].status, DIST_ERR_TIMEOUT);
    }
}

static void a_busy_progress_owner_lets_other_threads_post(void **state)
{
    struct fake *fake = *state;
    struct dist_group *group = fake_open(fake);
    struct thread waiter;

    /* A progress owner that always has something to do must let other threads in. */
    thread_start(&waiter, group, fake_start(group, DIST_COLL_RECV));
    for (int i = 1; i < FAKE_CALLS; i++) {
        fake_release(fake, i);
        assert_int_equal(dist_wait(fake_start(group, DIST_COLL_RECV)), DIST_OK);
    }
    fake_release(fake, 0);
    thread_join(&waiter);
    assert_int_equal(waiter.status, DIST_OK);
    assert_int_equal(fake_close(fake, group), DIST_OK);
}

static void a_backend_without_descriptors_is_polled(void **state)
{
    struct fake *fake = *state;
    struct later later = {fake, 0, 50};
    struct dist_group *group;
    pthread_t thread;

    fake->blind = true;
    group = fake_open(fake);
    assert_int_equal(pthread_create(&thread, NULL, release_later, &later), 0);
    assert_int_equal(dist_wait(fake_start(group, DIST_COLL_BARRIER)), DIST_OK);
    pthread_join(thread, NULL);
    assert_int_equal(fake_close(fake, group), DIST_OK);
}

static void a_backend_that_cannot_be_armed_is_polled(void **state)
{
    struct fake *fake = *state;
    struct later later = {fake, 0, 50};
    struct dist_group *group;
    pthread_t thread;

    fake->cannot_arm = true;
    group = fake_open(fake);
    assert_int_equal(pthread_create(&thread, NULL, release_later, &later), 0);
    assert_int_equal(dist_wait(fake_start(group, DIST_COLL_BARRIER)), DIST_OK);
    pthread_join(thread, NULL);
    assert_int_equal(fake_close(fake, group), DIST_OK);
}

static void a_sleeping_progress_owner_uses_no_cpu(void **state)
{
    struct fake *fake = *state;
    struct dist_group *group = fake_open(fake);
    struct dist_work *work = fake_start(group, DIST_COLL_BARRIER);
    int before;

    dist_wait_for(work, 50);
    before = atomic_load(&fake->polls);
    assert_int_equal(dist_wait_for(work, 500), DIST_IN_PROGRESS);
    /* About 50 spins, some yields within 50 us, then a poll every 100 ms. */
    assert_true(atomic_load(&fake->polls) - before < 2000);
    fake_release(fake, 0);
    assert_int_equal(dist_wait(work), DIST_OK);
    assert_int_equal(fake_close(fake, group), DIST_OK);
}

#define test(name) cmocka_unit_test_setup_teardown(name, fake_without_thread, fake_finish)
/* Runs a test without and with the progress thread. */
#define both(name)                                                                                 \
    cmocka_unit_test_setup_teardown(name, fake_without_thread, fake_finish),                       \
        cmocka_unit_test_setup_teardown(name, fake_with_thread, fake_finish)

int main(void)
{
    const struct CMUnitTest tests[] = {
        both(threads_can_wait_for_different_requests),
        both(threads_can_make_blocking_calls_concurrently),
        both(a_spinning_progress_owner_lets_other_threads_in),
        both(starting_a_call_wakes_a_sleeping_progress_owner),
        both(wait_for_that_times_out_keeps_the_request),
        both(wait_for_times_out_beside_a_progress_owner),
        both(a_timeout_fails_the_group_and_names_the_peer),
        both(a_failure_ends_the_wait_of_every_thread),
        test(only_time_spent_waiting_counts_for_the_timeout),
        both(closing_waits_for_pending_requests),
        both(closing_fails_requests_that_do_not_end),
        both(closing_ends_the_waits_of_other_threads),
        both(a_busy_progress_owner_lets_other_threads_post),
        both(a_backend_without_descriptors_is_polled),
        both(a_backend_that_cannot_be_armed_is_polled),
        test(a_sleeping_progress_owner_uses_no_cpu),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
