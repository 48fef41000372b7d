/* SPDX-License-Identifier: BSD-3-Clause */
/* The memory of a process whose first thread has ended can be read and written like that of any
 * process. */
#include "base/process.h"
#include "unit.h"

#include "first_ended.h"

#include <errno.h>

/* A forked child has it at the same address. */
static int reach_word;

static ssize_t reach_get(pid_t pid, int *word_p)
{
    struct iovec here = {word_p, sizeof(*word_p)}, there = {&reach_word, sizeof(reach_word)};

    return disti_process_read((int)pid, &here, &there);
}

static ssize_t reach_put(pid_t pid, int word)
{
    struct iovec here = {&word, sizeof(word)}, there = {&reach_word, sizeof(reach_word)};

    return disti_process_write((int)pid, &here, &there);
}

static pid_t reach_fork(int word)
{
    pid_t pid;

    reach_word = word;
    pid = first_ended_fork(first_ended_sleep, NULL);
    reach_word = 0;
    return pid;
}

/* A container may forbid the access. */
static bool reach_is_forbidden(void)
{
    return errno == EPERM || errno == ENOSYS;
}

/* Accesses two processes alternately: their threads are not confused. */
static void test_memory_of_two_processes_is_accessed(void **state)
{
    pid_t first = reach_fork(7), second = reach_fork(8);
    int word = 0;

    (void)state;
    if (reach_get(first, &word) < 0 && reach_is_forbidden()) {
        first_ended_kill(first);
        first_ended_kill(second);
        skip();
    }
    for (int round = 0; round < 3; round++) {
        assert_int_equal(reach_get(first, &word), sizeof(word));
        assert_int_equal(word, round ? 9 : 7);
        assert_int_equal(reach_get(second, &word), sizeof(word));
        assert_int_equal(word, 8);
        assert_int_equal(reach_put(first, 9), sizeof(word));
    }
    assert_int_equal(reach_word, 0);
    first_ended_kill(first);
    first_ended_kill(second);
}

/* A zombie process, and then one that has been waited for. */
static void test_memory_of_an_ended_process_is_refused(void **state)
{
    pid_t pid = reach_fork(7);
    siginfo_t info;
    int word;

    (void)state;
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    assert_int_equal(disti_process_thread((int)pid), 0);
    for (int waited = 0; waited < 2; waited++) {
        assert_int_equal(reach_get(pid, &word), -1);
        assert_true(errno == ESRCH || reach_is_forbidden());
        if (!waited)
            assert_int_equal(waitpid(pid, NULL, 0), pid);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_of_two_processes_is_accessed),
        cmocka_unit_test(test_memory_of_an_ended_process_is_refused)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
