/* SPDX-License-Identifier: BSD-3-Clause */
/* dist_spawn: exit codes, the first failure, signals, and that no process remains. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "rendezvous/rendezvous.h"

#define RANKS 4
#define WAIT_MS 20000

/* Results that the ranks store for the test, in shared memory. */
static struct shared {
    pid_t pids[RANKS];
    int signals[RANKS];
} * shared;

static int map_shared(void **state)
{
    (void)state;
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return shared == MAP_FAILED ? -1 : 0;
}

static int clear_shared(void **state)
{
    (void)state;
    memset(shared, 0, sizeof(*shared));
    return 0;
}

static bool has_exited(pid_t pid)
{
    return pid == 0 || (kill(pid, 0) != 0 && errno == ESRCH);
}

static void expect_all_exited(void)
{
    for (int r = 0; r < RANKS; r++)
        assert_true(has_exited(shared->pids[r]));
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
}

static int env_int(const char *name)
{
    const char *text = getenv(name);

    return text ? atoi(text) : -1;
}

/* Joins the other ranks, as a program that calls dist_init_process_group would. */
static int rank_meets(int rank, void *arg)
{
    struct disti_bootstrap bootstrap;
    int seen[RANKS];

    if (strcmp(arg, "argument") != 0 || env_int("RANK") != rank || env_int("LOCAL_RANK") != rank ||
        env_int("WORLD_SIZE") != RANKS || env_int("LOCAL_WORLD_SIZE") != RANKS)
        return 10;
    /* Twice: the launcher's store serves a second group after the first is closed. */
    for (int i = 0; i < 2; i++) {
        if (disti_rendezvous(NULL, WAIT_MS, &bootstrap) != DIST_OK)
            return 11;
        if (bootstrap.rank != rank || bootstrap.world_size != RANKS ||
            bootstrap.local_rank != rank || bootstrap.server)
            return 12;
        if (disti_store_all_gather(bootstrap.store, NULL, "ranks", &rank, seen, sizeof(rank),
                                   WAIT_MS))
            return 13;
        for (int r = 0; r < RANKS; r++) {
            if (seen[r] != r)
                return 14;
        }
        disti_bootstrap_close(&bootstrap, WAIT_MS);
    }
    shared->pids[rank] = getpid();
    return 0;
}

static void test_ranks_form_groups(void **state)
{
    int code = -1;

    (void)state;
    /* Variables of an outer launcher are ignored: the spawned ranks are a world of their own. */
    setenv("OMPI_COMM_WORLD_RANK", "0", 1);
    setenv("OMPI_COMM_WORLD_SIZE", "1", 1);
    assert_int_equal(dist_spawn(RANKS, rank_meets, (char[]){"argument"}, &code), DIST_OK);
    unsetenv("OMPI_COMM_WORLD_RANK");
    unsetenv("OMPI_COMM_WORLD_SIZE");
    assert_int_equal(code, 0);
    for (int r = 0; r < RANKS; r++)
        assert_true(shared->pids[r] > 0);
    expect_all_exited();
}

static int rank_fails(int rank, void *arg)
{
    (void)arg;
    shared->pids[rank] = getpid();
    if (rank == 2)
        return 37;
    disti_sleep_ns(60000000000);
    return 0;
}

static void test_the_first_failures_exit_code_is_returned(void **state)
{
    int64_t begin = disti_now_ns();
    int code = -1;

    (void)state;
    assert_int_equal(dist_spawn(RANKS, rank_fails, NULL, &code), DIST_OK);
    assert_int_equal(code, 37);
    assert_non_null(strstr(dist_last_error(), "rank 2"));
    assert_non_null(strstr(dist_last_error(), "exit code 37"));
    assert_true(disti_now_ns() - begin < 4000000000);
    expect_all_exited();
}

static int rank_is_killed(int rank, void *arg)
{
    (void)arg;
    shared->pids[rank] = getpid();
    if (rank == 1)
        raise(SIGKILL);
    disti_sleep_ns(60000000000);
    return 0;
}

static void test_a_killed_rank_is_reported(void **state)
{
    int code = -1;

    (void)state;
    assert_int_equal(dist_spawn(RANKS, rank_is_killed, NULL, &code), DIST_OK);
    assert_int_equal(code, 128 + SIGKILL);
    assert_non_null(strstr(dist_last_error(), "rank 1"));
    assert_non_null(strstr(dist_last_error(), "signal 9"));
    expect_all_exited();
}

/* Rank 0 is killed, then rank 1 fails. The remaining ranks shrink their group twice and return
 * 0. */
static int rank_shrinks(int rank, void *arg)
{
    struct dist_options options = DIST_OPTIONS_INIT;
    dist_group *group, *left;
    int ranks = RANKS;

    (void)arg;
    options.timeout_ms = WAIT_MS;
    if (dist_init_process_group(&options, &group) != DIST_OK)
        return 20;
    for (int failed = 0; failed < 2; failed++) {
        (void)dist_barrier(group); /* rank 0 is killed after all ranks have joined */
        if (rank == failed && rank == 0)
            raise(SIGKILL);
        if (rank == failed)
            _exit(7);
        while (ranks > RANKS - 1 - failed) {
            if (dist_barrier(group) != DIST_ERR_PEER_LOST)
                return 22;
            if (dist_shrink(group, NULL, &left) != DIST_OK)
                return 23;
            group = left;
            ranks = dist_get_world_size(group);
        }
    }
    if (dist_barrier(group) != DIST_OK)
        return 24;
    shared->pids[rank] = getpid();
    return 0;
}

static void rank_has_failed(int rank, int exit_code, void *arg)
{
    int *codes = arg;

    codes[rank] = exit_code;
}

static void test_continue_on_failure_lets_ranks_shrink(void **state)
{
    struct dist_spawn_options options = DIST_SPAWN_OPTIONS_INIT;
    int code = -1, codes[RANKS] = {0};

    (void)state;
    options.continue_on_failure = true;
    options.failed = rank_has_failed;
    options.failed_arg = codes;
    assert_int_equal(dist_spawn_with(RANKS, rank_shrinks, NULL, &options, &code), DIST_OK);
    assert_int_equal(code, 128 + SIGKILL);
    assert_non_null(strstr(dist_last_error(), "rank 0"));
    assert_int_equal(codes[0], 128 + SIGKILL);
    assert_int_equal(codes[1], 7);
    for (int r = 2; r < RANKS; r++) {
        assert_int_equal(codes[r], 0);
        assert_true(shared->pids[r] > 0);
    }
    expect_all_exited();
    options.size = 0;
    assert_int_equal(dist_spawn_with(RANKS, rank_shrinks, NULL, &options, &code),
                     DIST_ERR_INVALID_ARGUMENT);
}

/* Ignores SIGTERM, so that it must be ended by SIGKILL some seconds later. */
static int rank_is_stubborn(int rank, void *arg)
{
    (void)arg;
    signal(SIGTERM, SIG_IGN);
    shared->pids[rank] = getpid();
    if (rank == 0) {
        disti_sleep_ns(300000000);
        return 5;
    }
    if (rank == 3)
        raise(SIGSTOP);
    for (int i = 0; i < 60; i++)
        disti_sleep_ns(1000000000);
    return 0;
}

static void test_ranks_that_ignore_SIGTERM_are_killed(void **state)
{
    int64_t begin = disti_now_ns();
    int code = -1;

    (void)state;
    assert_int_equal(dist_spawn(RANKS, rank_is_stubborn, NULL, &code), DIST_OK);
    assert_int_equal(code, 5);
    assert_true(disti_now_ns() - begin < 10000000000);
    expect_all_exited();
}

static volatile sig_atomic_t rank_signal;
static void on_signal(int number)
{
    rank_signal = number;
}

static int rank_listens(int rank, void *arg)
{
    struct sigaction action = {.sa_handler = on_signal};

    (void)arg;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    shared->pids[rank] = getpid();
    for (int i = 0; i < 2000 && !rank_signal; i++)
        disti_sleep_ns(5000000);
    shared->signals[rank] = rank_signal;
    return 0;
}

/* Calls dist_spawn in a child process and sends a signal to that process. Returns its wait
 * status. */
static int signal_the_parent(int (*fn)(int rank, void *arg), int number)
{
    int how = 0, code = -1;
    pid_t parent;

    fflush(NULL);
    parent = fork();
    assert_true(parent >= 0);
    if (parent == 0) {
        /* Background jobs of a shell ignore the signal, and so do their children. */
        signal(number, SIG_DFL);
        _exit(dist_spawn(RANKS, fn, NULL, &code) == DIST_OK ? code : 99);
    }
    for (int i = 0; i < 2000; i++) {
        int ready = 0;

        for (int r = 0; r < RANKS; r++)
            ready += shared->pids[r] != 0;
        if (ready == RANKS)
            break;
        disti_sleep_ns(5000000);
    }
    assert_int_equal(kill(parent, number), 0);
    assert_int_equal(waitpid(parent, &how, 0), parent);
    return how;
}

static void test_signals_are_forwarded_to_the_ranks(void **state)
{
    int numbers[] = {SIGINT, SIGTERM};

    (void)state;
    for (int i = 0; i < 2; i++) {
        int how;

        memset(shared, 0, sizeof(*shared));
        how = signal_the_parent(rank_listens, numbers[i]);
        assert_true(WIFEXITED(how));
        assert_int_equal(WEXITSTATUS(how), 128 + numbers[i]);
        for (int r = 0; r < RANKS; r++)
            assert_int_equal(shared->signals[r], numbers[i]);
        expect_all_exited();
    }
}

static int rank_sleeps(int rank, void *arg)
{
    (void)arg;
    signal(SIGTERM, SIG_IGN);
    shared->pids[rank] = getpid();
    for (int i = 0; i < 60; i++)
        disti_sleep_ns(1000000000);
    return 0;
}

/* If the parent is killed, its ranks end too. */
static void test_ranks_end_with_their_parent(void **state)
{
    int how = signal_the_parent(rank_sleeps, SIGKILL);
    int64_t deadline = disti_deadline_ms(5000);
    int exited = 0;

    (void)state;
    assert_true(WIFSIGNALED(how));
    while (exited < RANKS && !disti_expired(deadline)) {
        disti_sleep_ns(5000000);
        exited = 0;
        for (int r = 0; r < RANKS; r++)
            exited += has_exited(shared->pids[r]);
    }
    assert_int_equal(exited, RANKS);
}

static int rank_prints(int rank, void *arg)
{
    (void)arg;
    printf("rank %d\n", rank);
    return 0;
}

/* Buffered output of the parent is written once, although it forks; so is the output of the
 * ranks. */
static void test_buffered_output_is_written_once(void **state)
{
    char text[200] = "";
    int ends[2], kept = dup(STDOUT_FILENO), code;

    (void)state;
    fflush(stdout);
    assert_int_equal(pipe(ends), 0);
    dup2(ends[1], STDOUT_FILENO);
    printf("before\n");
    assert_int_equal(dist_spawn(2, rank_prints, NULL, &code), DIST_OK);
    fflush(stdout);
    dup2(kept, STDOUT_FILENO);
    close(kept);
    close(ends[1]);
    for (size_t at = 0; at < sizeof(text) - 1;) {
        ssize_t n = read(ends[0], text + at, sizeof(text) - 1 - at);

        if (n <= 0)
            break;
        at += (size_t)n;
    }
    close(ends[0]);
    assert_true(strcmp(text, "before\nrank 0\nrank 1\n") == 0 ||
                strcmp(text, "before\nrank 1\nrank 0\n") == 0);
}

static int rank_returns_zero(int rank, void *arg)
{
    (void)rank;
    (void)arg;
    return 0;
}

/* dist_spawn leaves the program's own children, signal handlers and descriptors as they were. */
static void test_children_signals_and_descriptors_are_kept(void **state)
{
    struct sigaction before = {.sa_handler = SIG_IGN}, after;
    sigset_t mask_before, mask_after;
    siginfo_t info;
    int fd_before, fd_after, code, how;
    pid_t own;

    (void)state;
    fflush(NULL);
    own = fork();
    if (own == 0)
        _exit(23);
    /* The program's child has exited and is not reaped; dist_spawn must not reap it. */
    assert_int_equal(waitid(P_PID, (id_t)own, &info, WEXITED | WNOWAIT), 0);
    sigaction(SIGCHLD, &before, NULL);
    sigprocmask(SIG_SETMASK, NULL, &mask_before);
    fd_before = open("/dev/null", O_RDONLY);
    close(fd_before);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(dist_spawn(2, rank_returns_zero, NULL, &code), DIST_OK);
        assert_int_equal(code, 0);
    }
    fd_after = open("/dev/null", O_RDONLY);
    close(fd_after);
    assert_int_equal(fd_after, fd_before);
    sigprocmask(SIG_SETMASK, NULL, &mask_after);
    for (int i = 1; i < SIGRTMAX; i++)
        assert_int_equal(sigismember(&mask_before, i), sigismember(&mask_after, i));
    sigaction(SIGCHLD, NULL, &after);
    assert_true(after.sa_handler == SIG_IGN);
    signal(SIGCHLD, SIG_DFL);
    assert_int_equal(waitpid(own, &how, 0), own);
    assert_int_equal(WEXITSTATUS(how), 23);
}

static void test_bad_arguments_are_rejected(void **state)
{
    int code = 77;

    (void)state;
    assert_int_equal(dist_spawn(0, rank_prints, NULL, &code), DIST_ERR_INVALID_ARGUMENT);
    assert_int_equal(dist_spawn(-3, rank_prints, NULL, &code), DIST_ERR_INVALID_ARGUMENT);
    assert_int_equal(dist_spawn(1 << 30, rank_prints, NULL, &code), DIST_ERR_INVALID_ARGUMENT);
    assert_int_equal(dist_spawn(1, NULL, NULL, &code), DIST_ERR_INVALID_ARGUMENT);
    assert_int_equal(dist_spawn(1, rank_prints, NULL, NULL), DIST_ERR_INVALID_ARGUMENT);
    assert_int_equal(code, 77);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_ranks_form_groups, clear_shared),
        cmocka_unit_test_setup(test_the_first_failures_exit_code_is_returned, clear_shared),
        cmocka_unit_test_setup(test_a_killed_rank_is_reported, clear_shared),
        cmocka_unit_test_setup(test_continue_on_failure_lets_ranks_shrink, clear_shared),
        cmocka_unit_test_setup(test_ranks_that_ignore_SIGTERM_are_killed, clear_shared),
        cmocka_unit_test_setup(test_signals_are_forwarded_to_the_ranks, clear_shared),
        cmocka_unit_test_setup(test_ranks_end_with_their_parent, clear_shared),
        cmocka_unit_test(test_buffered_output_is_written_once),
        cmocka_unit_test(test_children_signals_and_descriptors_are_kept),
        cmocka_unit_test(test_bad_arguments_are_rejected),
    };

    return cmocka_run_group_tests(tests, map_shared, NULL);
}
