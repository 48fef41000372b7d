/* SPDX-License-Identifier: BSD-3-Clause */
/* The progress thread makes progress, yields to callers, sleeps, and ends. */
#include "fake.h"
#include "tests/unit/base/unit.h"

#include "base/clock.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int prepare(void **state)
{
    setenv("DIST_PROGRESS_THREAD", "1", 1);
    *state = calloc(2, sizeof(struct fake));
    return 0;
}

static int finish(void **state)
{
    struct fake *fakes = *state;
    int violations = atomic_load(&fakes[0].violations) + atomic_load(&fakes[1].violations);

    free(fakes);
    if (violations)
        fprintf(stderr, "%d violations of the backend contract\n", violations);
    return violations;
}

/* Returns the number of threads of this process that have the progress thread's name. */
static int count_threads(void)
{
    DIR *folder = opendir("/proc/self/task");
    struct dirent *entry;
    int count = 0;

    while ((entry = readdir(folder))) {
        char path[300], name[32] = "";
        FILE *file;

        snprintf(path, sizeof(path), "/proc/self/task/%s/comm", entry->d_name);
        file = fopen(path, "r");
        if (file && fgets(name, sizeof(name), file))
            count += strcmp(name, "dist-progress\n") == 0;
        if (file)
            fclose(file);
    }
    closedir(folder);
    return count;
}

static void set_flag(void *arg, dist_status status)
{
    (void)status;
    atomic_store((atomic_bool *)arg, true);
}

/* Waits for the flag without library calls, so that no call of this thread makes progress. */
static bool within(int ms, atomic_bool *flag)
{
    int64_t until = disti_deadline_ms(ms);

    while (!atomic_load(flag) && !disti_expired(until))
        fake_sleep(1);
    return atomic_load(flag);
}

static void requests_complete_while_the_program_computes(void **state)
{
    struct fake *fake = *state;
    struct dist_group *group = fake_open(fake);
    atomic_bool ended[20];

    for (int i = 0; i < 20; i++) {
        struct dist_work *work = fake_start(group, DIST_COLL_ALL_REDUCE);

        atomic_store(&ended[i], false);
        dist_on_complete(work, set_flag, &ended[i]);
        if (i % 3 == 0)
            fake_sleep(i * 10); /* so that the thread spins, sleeps, dozes or sleeps deeply */
        assert_false(atomic_load(&ended[i]));
        fake_release(fake, i);
        assert_true(within(UNIT_SOON_MS, &ended[i]));
        assert_int_equal(dist_wait(work), DIST_OK);
    }
    assert_int_equal(fake_close(fake, group), DIST_OK);
}

static void the_variable_disables_the_thread(void **state)
{
    struct fake *fake = *state;
    struct dist_group *group;
    atomic_bool ended = false;
    struct dist_work *work;

    setenv("DIST_PROGRESS_THREAD", "0", 1);
    group = fake_open(fake);
    work = fake_start(group, DIST_COLL_ALL_REDUCE);
    dist_on_complete(work, set_flag, &ended);
    fake_release(fake, 0);
    assert_int_equal(count_threads(), 0);
    assert_false(within(50, &ended));
    assert_int_equal(dist_wait(work), DIST_OK);
    assert_true(atomic_load(&ended));
    assert_int_equal(fake_close(fake, group), DIST_OK);
    setenv("DIST_PROGRESS_THREAD", "maybe", 1);
    assert_int_equal(disti_progress_check(), DIST_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(dist_last_error(), "DIST_PROGRESS_THREAD"));
}

static void the_thread_exists_only_while_needed(void **state)
{
    struct fake *fakes = *state;
    struct dist_group *one = fake_open(&fakes[0]), *two = fake_open(&fakes[1]);
    struct dist_work *works[2];

    assert_int_equal(count_threads(), 0);
    fake_release(&fakes[0], 0); /* ends immediately: needs no thread */
    assert_int_equal(dist_wait(fake_start(one, DIST_COLL_BARRIER)), DIST_OK);
    assert_int_equal(count_threads(), 0);
    works[0] = fake_start(one, DIST_COLL_BARRIER);
    works[1] = fake_start(two, DIST_COLL_BARRIER);
    assert_int_equal(count_threads(), 1);
    fake_release(&fakes[0], 1);
    fake_release(&fakes[1], 0);
    assert_int_equal(fake_close(&fakes[0], one), DIST_OK);
    assert_int_equal(count_threads(), 1);
    assert_int_equal(fake_close(&fakes[1], two), DIST_OK);
    assert_int_equal(count_threads(), 0);
    assert_int_equal(dist_wait(works[0]), DIST_OK);
    assert_int_equal(dist_wait(works[1]), DIST_OK);
}

static void the_thread_makes_progress_on_several_groups(void **state)
{
    struct fake *fakes = *state;
    struct dist_group *groups[] = {fake_open(&fakes[0]), fake_open(&fakes[1])};
    struct dist_work *works[2];

    for (int round = 0; round < 30; round++) {
        atomic_bool ended[2] = {false, false};

        for (int g = 0; g < 2; g++) {
            works[g] = fake_start(groups[g], DIST_COLL_ALL_REDUCE);
            dist_on_complete(works[g], set_flag, &ended[g]);
        }
        if (round % 5 == 0)
            fake_sleep(10); /* until the progress thread sleeps on both groups */
        for (int g = 1; g >= 0; g--) {
            assert_false(atomic_load(&ended[g]));
            fake_release(&fakes[g], round);
            assert_true(within(UNIT_SOON_MS, &ended[g]));
        }
        assert_int_equal(dist_wait(works[0]), DIST_OK);
        assert_int_equal(dist_wait(works[1]), DIST_OK);
    }
    assert_int_equal(fake_close(&fakes[0], groups[0]), DIST_OK);
    assert_int_equal(fake_close(&fakes[1], groups[1]), DIST_OK);
}

static int64_t cpu_ns(void)
{
    struct timespec used;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return used.tv_sec * 1000000000LL + used.tv_nsec;
}

static void a_sleeping_thread_uses_no_cpu(void **state)
{
    struct fake *fake = *state;
    struct dist_group *group = fake_open(fake);
    struct dist_work *work = fake_start(group, DIST_COLL_BARRIER);
    int64_t before;
    int polls;

    fake_sleep(20);
    before = cpu_ns();
    polls = atomic_load(&fake->polls);
    fake_sleep(500); /* a request is pending but does not complete: one poll every 100 ms */
    assert_true(cpu_ns() - before < 50 * 1000 * 1000);
    assert_true(atomic_load(&fake->polls) - polls < 2000);
    fake_release(fake, 0);
    assert_int_equal(dist_wait(work), DIST_OK);
    polls = atomic_load(&fake->polls);
    before = cpu_ns();
    fake_sleep(500); /* nothing is pending */
    assert_true(cpu_ns() - before < 50 * 1000 * 1000 && atomic_load(&fake->polls) == polls);
    assert_int_equal(fake_close(fake, group), DIST_OK);
}

/* If each poll is a system call, frequent polls would take the CPU from the program. */
static void slow_polls_are_limited(void **state)
{
    struct fake *fake = *state;
    struct dist_group *group;
    struct dist_work *work;

    fake->poll_ns = 10000;
    group = fake_open(fake);
    work = fake_start(group, DIST_COLL_ALL_REDUCE);
    fake_sleep(60);
    assert_in_range(atomic_load(&fake->polls_elsewhere), 1, 300);
    fake_release(fake, 0);
    assert_int_equal(dist_wait(work), DIST_OK);
    assert_int_equal(fake_close(fake, group), DIST_OK);
}

/* The program's thread waits for a pending request and takes over from the progress thread. */
static void callers_take_over_and_return_progress(void **state)
{
    struct fake *fake = *state;
    struct dist_group *group = fake_open(fake);
    struct disti_start start = {.call = {.collective = DIST_COLL_RECV}};
    atomic_bool ended = false;
    struct dist_work *pending = fake_start(group, DIST_COLL_RECV);

    dist_on_complete(pending, set_flag, &ended);
    for (int i = 1; i < 60; i++) {
        fake_release(fake, i);
        if (i % 10 == 0)
            fake_sleep(15); /* until the progress thread is the progress owner and sleeps */
        assert_int_equal(disti_work_run(group, &start), DIST_OK);
    }
    assert_false(atomic_load(&ended));
    fake_release(fake, 0);
    assert_true(within(UNIT_SOON_MS, &ended));
    assert_int_equal(dist_wait(pending), DIST_OK);
    assert_int_equal(fake_close(fake, group), DIST_OK);
}

/* A loop of dist_test makes progress itself, and the progress thread does not interfere until the
 * loop ends. */
static void the_thread_does_not_interfere_with_a_loop_of_tests(void **state)
{
    struct fake *fake = *state;
    struct dist_group *group = fake_open(fake);
    struct dist_work *work = fake_start(group, DIST_COLL_RECV);
    int64_t soon = disti_deadline_ms(UNIT_SOON_MS), until;
    atomic_bool ended = false;
    int tests = 0, elsewhere;
    bool done = false;

    while (atomic_load(&fake->polls_elsewhere) == 0 && !disti_expired(soon))
        fake_sleep(1);
    fake_sleep(20); /* until the progress thread, which is the progress owner, sleeps */
    elsewhere = atomic_load(&fake->polls_elsewhere);
    assert_true(elsewhere > 0);
    until = disti_deadline_ms(200);
    for (; tests < 1000 || !disti_expired(until); tests++)
        assert_int_equal(dist_test(work, &done), DIST_OK);
    assert_false(done);
    assert_true(atomic_load(&fake->polls_elsewhere) - elsewhere < tests / 2);
    dist_on_complete(work, set_flag, &ended);
    fake_release(fake, 0);
    assert_true(within(UNIT_SOON_MS, &ended));
    assert_int_equal(dist_wait(work), DIST_OK);
    assert_int_equal(fake_close(fake, group), DIST_OK);
}

struct slow {
    atomic_bool entered, go_on, left;
};

static void run_slowly(void *arg, dist_status status)
{
    struct slow *slow = arg;

    (void)status;
    atomic_store(&slow->entered, true);
    while (!atomic_load(&slow->go_on))
        fake_sleep(1);
    fake_sleep(100); /* until the other thread waits */
    atomic_store(&slow->left, true);
}

static void wait_returns_after_the_completion_function(void **state)
{
    struct fake *fake = *state;
    struct dist_group *group = fake_open(fake);
    struct slow slow = {false, false, false};
    struct dist_work *work = fake_start(group, DIST_COLL_BARRIER), *other;
    bool done = true;

    dist_on_complete(work, run_slowly, &slow);
    fake_release(fake, 0);
    assert_true(within(UNIT_SOON_MS, &slow.entered));
    assert_int_equal(dist_test(work, &done), DIST_OK);
    assert_false(done);
    other = fake_start(group, DIST_COLL_BARRIER); /* starting a call does not wait */
    assert_false(atomic_load(&slow.left));
    assert_int_equal(dist_wait_for(work, 5), DIST_IN_PROGRESS);
    atomic_store(&slow.go_on, true);
    assert_int_equal(dist_wait(work), DIST_OK);
    assert_true(atomic_load(&slow.left));
    fake_release(fake, 1);
    assert_int_equal(dist_wait(other), DIST_OK);
    assert_int_equal(fake_close(fake, group), DIST_OK);
}

static void the_thread_detects_failures(void **state)
{
    struct fake *fakes = *state;
    struct dist_group *broken = fake_open(&fakes[0]), *late;
    atomic_bool ended[2] = {false, false};
    struct dist_work *works[2];

    fakes[1].timeout_ms = 100;
    late = fake_open(&fakes[1]);
    works[0] = fake_start(broken, DIST_COLL_BARRIER);
    works[1] = fake_start(late, DIST_COLL_BARRIER);
    dist_on_complete(works[0], set_flag, &ended[0]);
    dist_on_complete(works[1], set_flag, &ended[1]);
    fake_break(&fakes[0], DIST_ERR_SYSTEM);
    assert_true(within(UNIT_SOON_MS, &ended[0]) && within(UNIT_SOON_MS, &ended[1]));
    assert_int_equal(dist_wait(works[0]), DIST_ERR_SYSTEM);
    assert_non_null(strstr(dist_last_error(), "the fake broke"));
    assert_int_equal(dist_wait(works[1]), DIST_ERR_TIMEOUT);
    assert_non_null(strstr(dist_last_error(), "rank 1"));
    fake_close(&fakes[0], broken);
    fake_close(&fakes[1], late);
}

static atomic_bool signalled_main;
static pthread_t main_thread;

static void on_signal(int number)
{
    (void)number;
    atomic_store(&signalled_main, pthread_equal(pthread_self(), main_thread));
}

static void signals_are_handled_by_the_programs_threads(void **state)
{
    struct fake *fake = *state;
    struct dist_group *group = fake_open(fake);
    struct sigaction action = {.sa_handler = on_signal}, old;
    struct dist_work *work = fake_start(group, DIST_COLL_BARRIER);

    main_thread = pthread_self();
    sigaction(SIGUSR1, &action, &old);
    for (int i = 0; i < 20; i++) {
        atomic_store(&signalled_main, false);
        kill(getpid(), SIGUSR1);
        fake_sleep(2);
        assert_true(atomic_load(&signalled_main));
    }
    sigaction(SIGUSR1, &old, NULL);
    fake_release(fake, 0);
    assert_int_equal(dist_wait(work), DIST_OK);
    assert_int_equal(fake_close(fake, group), DIST_OK);
}

/* Waiting threads, one of which is delayed by a signal handler. */
static atomic_bool is_delayed, may_continue;

static void delay_thread(int number)
{
    (void)number;
    atomic_store(&is_delayed, true);
    while (!atomic_load(&may_continue))
        fake_sleep(1);
}

static void *wait_for_it(void *work)
{
    return (void *)(intptr_t)dist_wait(work);
}

static bool has_waiter(struct dist_group *group)
{
    bool has;

    disti_group_lock(group);
    has = group->drive.waiters > 0;
    disti_group_unlock(group);
    return has;
}

static bool is_driven_by_a_caller(struct dist_group *group)
{
    enum disti_drive_state state = atomic_load(&group->drive.state);

    return state != DISTI_DRIVE_IDLE && !disti_drive_by_thread(state);
}

/* The progress owner has returned, and the waiting thread's request has completed: the remaining
 * requests must still make progress. */
static void the_thread_takes_over_from_a_delayed_waiter(void **state)
{
    struct fake *fake = *state;
    struct dist_group *group = fake_open(fake);
    struct sigaction action = {.sa_handler = delay_thread}, old;
    pthread_t driver, waiter;
    struct dist_work *works[3];
    atomic_bool ended = false;

    atomic_store(&is_delayed, false);
    atomic_store(&may_continue, false);
    sigaction(SIGUSR1, &action, &old);
    for (int i = 0; i < 3; i++)
        works[i] = fake_start(group, DIST_COLL_RECV);
    dist_on_complete(works[2], set_flag, &ended);
    pthread_create(&driver, NULL, wait_for_it, works[0]);
    while (!is_driven_by_a_caller(group))
        fake_sleep(1);
    pthread_create(&waiter, NULL, wait_for_it, works[1]);
    while (!has_waiter(group))
        fake_sleep(1);
    pthread_kill(waiter, SIGUSR1);
    assert_true(within(UNIT_SOON_MS, &is_delayed));
    fake_release(fake, 1);
    fake_sleep(20);
    fake_release(fake, 0);
    pthread_join(driver, NULL);
    fake_sleep(500); /* until the progress thread has found nothing to do and sleeps deeply */
    atomic_store(&may_continue, true);
    pthread_join(waiter, NULL);
    sigaction(SIGUSR1, &old, NULL);
    fake_release(fake, 2);
    assert_true(within(UNIT_SOON_MS, &ended));
    assert_int_equal(dist_wait(works[2]), DIST_OK);
    assert_int_equal(fake_close(fake, group), DIST_OK);
}

#ifndef __SANITIZE_THREAD__
static int child_main(void)
{
    struct fake *fake = calloc(1, sizeof(*fake));
    struct dist_group *group = fake_open(fake);
    struct dist_work *work = fake_start(group, DIST_COLL_BARRIER);
    atomic_bool ended = false;
    bool fine = count_threads() == 1;

    dist_on_complete(work, set_flag, &ended);
    fake_release(fake, 0);
    fine = fine && within(UNIT_SOON_MS, &ended) && dist_wait(work) == DIST_OK;
    fine = fake_close(fake, group) == DIST_OK && fine;
    free(fake);
    return fine && count_threads() == 0 ? 0 : 1;
}
#endif

static void a_forked_child_has_its_own_thread(void **state)
{
#ifdef __SANITIZE_THREAD__
    (void)state;
    print_message(
        "ThreadSanitizer does not let the child of a process with threads start a thread\n");
    skip();
#else
    struct fake *fake = *state;
    struct dist_group *group = fake_open(fake);
    struct dist_work *work = fake_start(group, DIST_COLL_BARRIER);
    int status;
    pid_t child;

    fflush(NULL);
    child = fork();
    if (child == 0)
        _exit(child_main());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    fake_release(fake, 0);
    assert_int_equal(dist_wait(work), DIST_OK);
    assert_int_equal(fake_close(fake, group), DIST_OK);
#endif
}

#define test(name) cmocka_unit_test_setup_teardown(name, prepare, finish)

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(requests_complete_while_the_program_computes),
        test(the_variable_disables_the_thread),
        test(the_thread_exists_only_while_needed),
        test(the_thread_makes_progress_on_several_groups),
        test(a_sleeping_thread_uses_no_cpu),
        test(slow_polls_are_limited),
        test(callers_take_over_and_return_progress),
        test(the_thread_does_not_interfere_with_a_loop_of_tests),
        test(wait_returns_after_the_completion_function),
        test(the_thread_detects_failures),
        test(signals_are_handled_by_the_programs_threads),
        test(the_thread_takes_over_from_a_delayed_waiter),
        test(a_forked_child_has_its_own_thread),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
