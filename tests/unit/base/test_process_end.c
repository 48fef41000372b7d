/* SPDX-License-Identifier: BSD-3-Clause */
/* How a process ended: children that nobody has waited for yet. */
#include "base/host_name.h"
#include "base/process/end.h"
#include "base/process/signal_name.h"
#include "base/process/space.h"
#include "unit.h"

#include "first_ended.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* A child that ends so; it stays a zombie until its parent waits for it. */
static pid_t process_ended(int code, int signal_number)
{
    siginfo_t info;
    pid_t pid = fork();

    if (pid == 0) {
        if (signal_number)
            raise(signal_number);
        _exit(code);
    }
    assert_true(pid > 0);
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    return pid;
}

static const char *process_says(const char *host, pid_t pid)
{
    static char text[96];

    return disti_process_end(host, disti_process_space(), (int)pid, text, sizeof(text));
}

static void test_process_end(void **state)
{
    const pid_t killed = process_ended(0, SIGKILL), exited = process_ended(3, 0);
    char host[DISTI_HOST_SIZE];

    (void)state;
    disti_host_name(host);
    assert_string_equal(process_says(host, killed), "was killed by signal 9 (SIGKILL)");
    assert_string_equal(process_says(host, exited), "exited with code 3 without leaving the job");
    assert_string_equal(process_says("elsewhere", killed),
                        "closed its connection without leaving the job");
    assert_string_equal(process_says(host, getpid()),
                        "closed its connection without leaving the job");
    assert_int_equal(waitpid(killed, NULL, 0), killed);
    assert_int_equal(waitpid(exited, NULL, 0), exited);
    assert_string_equal(process_says(host, killed),
                        "closed its connection without leaving the job");
}

/* One that has closed its connection, whose first thread has ended, and which goes on. */
static void test_first_ended(void **state)
{
    const pid_t pid = first_ended_fork(first_ended_rests, NULL);
    siginfo_t info;
    char host[DISTI_HOST_SIZE];

    (void)state;
    disti_host_name(host);
    assert_string_equal(process_says(host, pid), "closed its connection without leaving the job");
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    assert_string_not_equal(process_says(host, pid),
                            "closed its connection without leaving the job");
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* glibc's own table names each signal, if it is 2.32 or later. */
static void test_signal_names(void **state)
{
    (void)state;
    assert_string_equal(disti_signal_name(SIGTERM), "TERM");
    assert_string_equal(disti_signal_name(SIGIO), "POLL");
    for (int number = SIGRTMIN; number <= SIGRTMAX + 1; number++)
        assert_null(disti_signal_name(number));
    assert_null(disti_signal_name(0));
    assert_null(disti_signal_name(-1));
#if defined(__GLIBC__)
    for (int number = 1; number < SIGRTMIN; number++) {
        if (sigabbrev_np(number))
            assert_string_equal(disti_signal_name(number), sigabbrev_np(number));
        else
            assert_null(disti_signal_name(number));
    }
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_process_end),
                                       cmocka_unit_test(test_first_ended),
                                       cmocka_unit_test(test_signal_names)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
