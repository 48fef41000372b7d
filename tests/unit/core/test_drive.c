/* SPDX-License-Identifier: BSD-3-Clause */
/* Driving a group: threads that wait beside each other, deadlines, failures, the end of a group. */
#include "fake.h"
#include "tests/unit/base/unit.h"

#include "base/clock.h"

#include <stdio.h>
#include <string.h>

#define THREADS 6

/* A thread that does one thing with the group and tells what came of it. */
struct thread {
    pthread_t thread;
    struct dist_group *group;
    struct dist_work *work; /* to wait for; NULL: make a blocking call */
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

static void threads_wait_for_different_works(void **state)
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

static void threads_block_beside_each_other(void **state)
{
    struct fake *fake = *state;
    struct dist_group *group = fake_open(fake);
    struct thread threads[THREADS];

    for (int i = 0; i < THREADS; i++)
        thread_start(&threads[i], group, NULL);
    for (int i = 0; i < 2000 && atomic_load(&fake->posted) < THREADS; i++)
        fake_sleep(1);
    assert_int_equal(atomic_load(&fake->posted), THREADS); /* nobody keeps the others out */
    for (int i = 0; i < THREADS; i++)
        fake_release(fake, i);
    for (int i = 0; i < THREADS; i++) {
        thread_join(&threads[i]);
        assert_int_equal(threads[i].status, DIST_OK);
    }
    assert_int_equal(fake_close(fake, group), DIST_OK);
}

static void a_spinning_driver_lets_others_in(void **state)
{
    struct fake *fake = *state;

    fake->spins = true;
    threads_block_beside_each_other(state);
}

/* The driver sleeps on descriptors; a post must neither wait for that nor go unseen. */
static void starting_wakes_a_sleeping_driver(void **state)
{
    struct fake *fake = *state;
    struct dist_group *group = fake_open(fake);
    struct thread waiter;
    struct dist_work *late;
    int64_t before;

    group->policy.sleep_ms = 2 * UNIT_SOON_MS;
    thread_start(&waiter, group, fake_start(group, DIST_COLL_RECV));
    fake_sleep(50); /* by now it sleeps */
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

static void waiting_for_a_while_leaves_the_work_as_it_was(void **state)
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

static void waiting_for_a_while_beside_a_driver(void **state)
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

static void a_deadline_ends_the_group_and_says_whom_it_waited_for(void **state)
{
    struct fake *fake = *state;
    struct dist_group *group;
    struct thread threads[THREADS];

    fake->timeout_ms = 150 * unit_patience(); /* they all have started by then */
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

static void a_failure_ends_every_waiting_thread(void **state)
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

/* Computing for longer than the timeout is no failure of the other ranks. */
static void time_without_a_driver_does_not_count(void **state)
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
    /* But looking now and then is waiting. */
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

static void leaving_waits_for_pending_works(void **state)
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

static void leaving_ends_what_does_not_end(void **state)
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
    assert_int_equal(dist_wait(work), DIST_ERR_TIMEOUT); /* the group is gone, the cause is not */
    assert_non_null(strstr(dist_last_error(), "rank 1"));
}

static void leaving_beside_threads_that_wait(void **state)
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

static void posts_go_on_without_a_pause(void **state)
{
    struct fake *fake = *state;
    struct dist_group *group = fake_open(fake);
    struct thread waiter;

    /* A driver that always has something to do must let others in all the same. */
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

    fake->unable = true;
    group = fake_open(fake);
    assert_int_equal(pthread_create(&thread, NULL, release_later, &later), 0);
    assert_int_equal(dist_wait(fake_start(group, DIST_COLL_BARRIER)), DIST_OK);
    pthread_join(thread, NULL);
    assert_int_equal(fake_close(fake, group), DIST_OK);
}

static void a_sleeping_driver_burns_no_cpu(void **state)
{
    struct fake *fake = *state;
    struct dist_group *group = fake_open(fake);
    struct dist_work *work = fake_start(group, DIST_COLL_BARRIER);
    int before;

    dist_wait_for(work, 50);
    before = atomic_load(&fake->polls);
    assert_int_equal(dist_wait_for(work, 500), DIST_IN_PROGRESS);
    /* Some 50 spins, some yields within 50 us, then a look every 100 ms. */
    assert_true(atomic_load(&fake->polls) - before < 2000);
    fake_release(fake, 0);
    assert_int_equal(dist_wait(work), DIST_OK);
    assert_int_equal(fake_close(fake, group), DIST_OK);
}

#define test(name) cmocka_unit_test_setup_teardown(name, fake_unserved, fake_finish)
/* With and without the progress thread. */
#define both(name)                                                                                 \
    cmocka_unit_test_setup_teardown(name, fake_unserved, fake_finish),                             \
        cmocka_unit_test_setup_teardown(name, fake_served, fake_finish)

int main(void)
{
    const struct CMUnitTest tests[] = {
        both(threads_wait_for_different_works),
        both(threads_block_beside_each_other),
        both(a_spinning_driver_lets_others_in),
        both(starting_wakes_a_sleeping_driver),
        both(waiting_for_a_while_leaves_the_work_as_it_was),
        both(waiting_for_a_while_beside_a_driver),
        both(a_deadline_ends_the_group_and_says_whom_it_waited_for),
        both(a_failure_ends_every_waiting_thread),
        test(time_without_a_driver_does_not_count),
        both(leaving_waits_for_pending_works),
        both(leaving_ends_what_does_not_end),
        both(leaving_beside_threads_that_wait),
        both(posts_go_on_without_a_pause),
        both(a_backend_without_descriptors_is_polled),
        both(a_backend_that_cannot_be_armed_is_polled),
        test(a_sleeping_driver_burns_no_cpu),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
