/* SPDX-License-Identifier: BSD-3-Clause */
/* The lock is exclusive, and a waiting thread is woken when it is released. */
#include "base/clock.h"
#include "base/lock.h"

#include "unit.h"

#include <pthread.h>
#include <sched.h>

#define THREADS 4
#define ROUNDS 20000
#define LONG_NS (20 * INT64_C(1000000000))

struct shared {
    struct disti_lock lock;
    struct disti_change change;
    long count; /* guarded by the lock */
};

static void *count_up(void *arg)
{
    struct shared *shared = arg;

    for (int i = 0; i < ROUNDS; i++) {
        if (i % 3 || !disti_lock_try(&shared->lock))
            disti_lock_acquire(&shared->lock);
        shared->count++;
        if (i % 64 == 0)
            sched_yield(); /* makes the other threads wait */
        disti_lock_release(&shared->lock);
    }
    return NULL;
}

static void test_the_lock_is_exclusive(void **state)
{
    struct shared shared = {0};
    pthread_t threads[THREADS];

    (void)state;
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, count_up, &shared), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(shared.count, (long)THREADS * ROUNDS);
    assert_true(disti_lock_try(&shared.lock));
    assert_false(disti_lock_try(&shared.lock));
}

/* Each thread waits for its turn, and wakes the other threads after it. */
static void *take_turns(void *arg)
{
    struct shared *shared = arg;
    long mine;

    disti_lock_acquire(&shared->lock);
    mine = shared->count++;
    disti_change_signal(&shared->change);
    for (int i = 0; i < 200; i++, mine += THREADS) {
        while (shared->count - THREADS < mine)
            disti_change_wait(&shared->change, &shared->lock, disti_now_ns() + LONG_NS);
        shared->count++;
        disti_change_signal(&shared->change);
    }
    disti_lock_release(&shared->lock);
    return NULL;
}

static void test_a_change_wakes_waiting_threads(void **state)
{
    struct shared shared = {0};
    pthread_t threads[THREADS];
    int64_t began = disti_now_ns();

    (void)state;
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, take_turns, &shared), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_true(disti_now_ns() - began < LONG_NS);
}

static void test_waiting_for_a_change_times_out(void **state)
{
    struct shared shared = {0};
    int64_t until = disti_now_ns() + 5 * 1000 * 1000;

    (void)state;
    disti_lock_acquire(&shared.lock);
    while (disti_now_ns() < until)
        disti_change_wait(&shared.change, &shared.lock, until);
    assert_false(disti_lock_try(&shared.lock));
    disti_lock_release(&shared.lock);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_lock_is_exclusive),
        cmocka_unit_test(test_a_change_wakes_waiting_threads),
        cmocka_unit_test(test_waiting_for_a_change_times_out),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
