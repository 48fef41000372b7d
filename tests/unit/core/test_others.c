/* SPDX-License-Identifier: BSD-3-Clause */
/* Without the progress thread, a waiting thread makes progress on all groups. */
#include "core/work.h"
#include "fake.h"
#include "tests/unit/base/unit.h"

#include "base/clock.h"

#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define GROUPS 40

static int prepare(void **state)
{
    setenv("DIST_PROGRESS_THREAD", "0", 1);
    *state = calloc(GROUPS, sizeof(struct fake));
    return 0;
}

static int finish(void **state)
{
    struct fake *fakes = *state;
    int violations = atomic_load(&disti_others_count);

    for (int i = 0; i < GROUPS; i++)
        violations += atomic_load(&fakes[i].violations);
    free(fakes);
    return violations;
}

static void release_first(void *arg, dist_status status)
{
    (void)status;
    fake_release(arg, 0);
}

/* Starts a request in each group. Each request may end after that of the next group has ended, so
 * only the last may end now. */
static void chain(struct fake *fakes, struct dist_group **groups, struct dist_work **works)
{
    for (int i = 0; i < GROUPS; i++) {
        groups[i] = fake_open(&fakes[i]);
        works[i] = fake_start(groups[i], DIST_COLL_ALL_REDUCE);
        if (i > 0)
            dist_on_complete(works[i], release_first, &fakes[i - 1]);
    }
}

static void end_chain(struct fake *fakes, struct dist_group **groups, struct dist_work **works)
{
    for (int i = 0; i < GROUPS; i++) {
        assert_int_equal(dist_wait(works[i]), DIST_OK);
        assert_int_equal(fake_close(&fakes[i], groups[i]), DIST_OK);
    }
}

static void a_waiting_thread_makes_progress_on_every_group(void **state)
{
    struct dist_group *groups[GROUPS];
    struct dist_work *works[GROUPS];
    struct fake *fakes = *state;

    chain(fakes, groups, works);
    fake_release(&fakes[GROUPS - 1], 0);
    end_chain(fakes, groups, works);
}

static void *release_later(void *fake)
{
    fake_sleep(100);
    fake_release(fake, 0);
    return NULL;
}

/* The waiting thread sleeps when a completion in another group arrives. */
static void a_completion_in_another_group_wakes_a_waiting_thread(void **state)
{
    struct fake *fakes = *state;
    struct dist_group *one = fake_open(&fakes[0]), *two = fake_open(&fakes[1]);
    struct dist_work *works[2] = {fake_start(one, DIST_COLL_ALL_REDUCE),
                                  fake_start(two, DIST_COLL_ALL_REDUCE)};
    int64_t begun = disti_now_ns();
    pthread_t thread;

    one->policy.sleep_ms = two->policy.sleep_ms = 2 * UNIT_SOON_MS;
    dist_on_complete(works[1], release_first, &fakes[0]);
    pthread_create(&thread, NULL, release_later, &fakes[1]);
    assert_int_equal(dist_wait(works[0]), DIST_OK);
    assert_true(disti_now_ns() - begun < UNIT_SOON_NS);
    pthread_join(thread, NULL);
    assert_int_equal(dist_wait(works[1]), DIST_OK);
    assert_int_equal(fake_close(&fakes[0], one), DIST_OK);
    assert_int_equal(fake_close(&fakes[1], two), DIST_OK);
}

static void testing_makes_progress_on_every_group(void **state)
{
    struct dist_group *groups[GROUPS];
    struct dist_work *works[GROUPS];
    struct fake *fakes = *state;
    bool done = false;

    chain(fakes, groups, works);
    fake_release(&fakes[GROUPS - 1], 0);
    while (!done)
        assert_int_equal(dist_test(works[0], &done), DIST_OK);
    end_chain(fakes, groups, works);
}

/* A thread that waits for a descriptor, as the store's client does, makes progress meanwhile. */
static void waiting_for_a_descriptor_makes_progress_on_every_group(void **state)
{
    struct dist_group *groups[GROUPS];
    struct dist_work *works[GROUPS];
    struct fake *fakes = *state;
    int fd = eventfd(0, EFD_NONBLOCK);
    bool done = false;

    chain(fakes, groups, works);
    fake_release(&fakes[GROUPS - 1], 0);
    for (int i = 0; i < 100 && disti_others_wait(NULL); i++)
        disti_others_poll(fd, disti_deadline_ms(10));
    assert_false(disti_others_wait(NULL));
    assert_int_equal(dist_test(works[0], &done), DIST_OK);
    assert_true(done);
    end_chain(fakes, groups, works);
    close(fd);
}

static bool no_threads(const void *state)
{
    (void)state;
    return false;
}

static void *wait_elsewhere(void *work)
{
    return (void *)(intptr_t)dist_wait_for(work, 100);
}

/* A backend that supports only one thread is called only by the thread that posted. */
static void single_threaded_backends_are_polled_by_their_thread(void **state)
{
    struct fake *fakes = *state;
    struct dist_group *one = fake_open(&fakes[0]), *two = fake_open(&fakes[1]);
    struct dist_work *works[2];
    pthread_t thread;
    void *result;

    fakes[0].backend.threads = no_threads;
    works[0] = fake_start(one, DIST_COLL_ALL_REDUCE);
    works[1] = fake_start(two, DIST_COLL_ALL_REDUCE);
    pthread_create(&thread, NULL, wait_elsewhere, works[1]);
    pthread_join(thread, &result);
    assert_int_equal((intptr_t)result, DIST_IN_PROGRESS);
    assert_int_equal(atomic_load(&fakes[0].polls_elsewhere), 0);
    fake_release(&fakes[0], 0);
    assert_int_equal(dist_wait_for(works[1], 50), DIST_IN_PROGRESS);
    assert_true(atomic_load(&fakes[0].polls) > 0);
    fake_release(&fakes[1], 0);
    assert_int_equal(dist_wait(works[0]), DIST_OK);
    assert_int_equal(dist_wait(works[1]), DIST_OK);
    assert_int_equal(fake_close(&fakes[0], one), DIST_OK);
    assert_int_equal(fake_close(&fakes[1], two), DIST_OK);
}

static void *wait_for_ever(void *work)
{
    return (void *)(intptr_t)dist_wait(work);
}

/* A thread that calls the library makes progress, although another thread sleeps in a wait. */
static void a_caller_takes_over_from_a_sleeping_thread(void **state)
{
    struct fake *fakes = *state;
    struct dist_group *one = fake_open(&fakes[0]), *two = fake_open(&fakes[1]);
    struct dist_work *works[2] = {fake_start(one, DIST_COLL_ALL_REDUCE),
                                  fake_start(two, DIST_COLL_ALL_REDUCE)};
    pthread_t thread;
    void *result;

    pthread_create(&thread, NULL, wait_for_ever, works[1]);
    fake_sleep(50);
    for (int i = 1; i < 20; i++) {
        fake_release(&fakes[0], i);
        assert_int_equal(dist_wait_for(works[0], 1), DIST_IN_PROGRESS);
    }
    fake_release(&fakes[0], 0);
    assert_int_equal(dist_wait(works[0]), DIST_OK);
    fake_release(&fakes[1], 0);
    pthread_join(thread, &result);
    assert_int_equal((intptr_t)result, DIST_OK);
    assert_int_equal(fake_close(&fakes[0], one), DIST_OK);
    assert_int_equal(fake_close(&fakes[1], two), DIST_OK);
}

/* A thread goes to sleep while another thread holds the lock of a group, so the first thread could
 * not poll that group. */
static void a_group_that_was_locked_is_polled_again(void **state)
{
    struct fake *fakes = *state;
    struct dist_group *one = fake_open(&fakes[0]), *two = fake_open(&fakes[1]);
    struct dist_work *works[2] = {fake_start(one, DIST_COLL_ALL_REDUCE),
                                  fake_start(two, DIST_COLL_ALL_REDUCE)};
    int64_t begun = disti_now_ns();
    pthread_t thread;
    void *result;

    one->policy.sleep_ms = two->policy.sleep_ms = 2 * UNIT_SOON_MS;
    dist_on_complete(works[1], release_first, &fakes[0]);
    disti_group_lock(two);
    pthread_create(&thread, NULL, wait_for_ever, works[0]);
    fake_sleep(100);
    disti_group_unlock(two);
    fake_release(&fakes[1], 0);
    pthread_join(thread, &result);
    assert_int_equal((intptr_t)result, DIST_OK);
    assert_true(disti_now_ns() - begun < UNIT_SOON_NS);
    assert_int_equal(dist_wait(works[1]), DIST_OK);
    assert_int_equal(fake_close(&fakes[0], one), DIST_OK);
    assert_int_equal(fake_close(&fakes[1], two), DIST_OK);
}

static void *poll_elsewhere(void *fd)
{
    disti_others_poll(*(int *)fd, disti_deadline_ms(2 * UNIT_SOON_MS));
    return NULL;
}

/* Two threads sleep, and the later one leaves. A group that neither of them may poll must not
 * prevent the notification. */
static void a_new_group_is_polled_after_another_thread_left(void **state)
{
    struct fake *fakes = *state;
    struct dist_group *groups[3];
    struct dist_work *works[3];
    int64_t begun = disti_now_ns();
    int fd = eventfd(0, EFD_NONBLOCK);
    pthread_t threads[2];

    for (int i = 0; i < 3; i++) {
        groups[i] = fake_open(&fakes[i]);
        groups[i]->policy.sleep_ms = 2 * UNIT_SOON_MS;
    }
    fakes[1].backend.threads = no_threads;
    works[0] = fake_start(groups[0], DIST_COLL_ALL_REDUCE);
    works[1] = fake_start(groups[1], DIST_COLL_ALL_REDUCE);
    pthread_create(&threads[0], NULL, wait_for_ever, works[0]);
    fake_sleep(100);
    pthread_create(&threads[1], NULL, poll_elsewhere, &fd);
    fake_sleep(100);
    assert_int_equal(eventfd_write(fd, 1), 0);
    pthread_join(threads[1], NULL);
    works[2] = fake_start(groups[2], DIST_COLL_ALL_REDUCE);
    dist_on_complete(works[2], release_first, &fakes[0]);
    fake_release(&fakes[2], 0);
    pthread_join(threads[0], NULL);
    assert_true(disti_now_ns() - begun < UNIT_SOON_NS);
    fake_release(&fakes[1], 0);
    for (int i = 1; i < 3; i++)
        assert_int_equal(dist_wait(works[i]), DIST_OK);
    for (int i = 0; i < 3; i++)
        assert_int_equal(fake_close(&fakes[i], groups[i]), DIST_OK);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_waiting_thread_makes_progress_on_every_group, prepare,
                                        finish),
        cmocka_unit_test_setup_teardown(a_completion_in_another_group_wakes_a_waiting_thread,
                                        prepare, finish),
        cmocka_unit_test_setup_teardown(testing_makes_progress_on_every_group, prepare, finish),
        cmocka_unit_test_setup_teardown(waiting_for_a_descriptor_makes_progress_on_every_group,
                                        prepare, finish),
        cmocka_unit_test_setup_teardown(single_threaded_backends_are_polled_by_their_thread,
                                        prepare, finish),
        cmocka_unit_test_setup_teardown(a_caller_takes_over_from_a_sleeping_thread, prepare,
                                        finish),
        cmocka_unit_test_setup_teardown(a_group_that_was_locked_is_polled_again, prepare, finish),
        cmocka_unit_test_setup_teardown(a_new_group_is_polled_after_another_thread_left, prepare,
                                        finish),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
