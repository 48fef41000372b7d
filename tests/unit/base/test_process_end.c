/* SPDX-License-Identifier: BSD-3-Clause */
/* How a process ended, for children that have not been waited for. */
#include "base/net.h"
#include "base/process.h"
#include "unit.h"

#include "first_ended.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Forks a child that ends this way. It remains a zombie until the test waits for it. */
static pid_t process_fork_ended(int code, int signal_number)
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

static const char *process_end_of(const char *host, pid_t pid)
{
    static char text[96];

    return disti_process_end(host, disti_process_space(), (int)pid, text, sizeof(text));
}

static void test_the_end_of_a_child_is_described(void **state)
{
    const pid_t killed = process_fork_ended(0, SIGKILL), exited = process_fork_ended(3, 0);
    char host[DISTI_HOST_SIZE], text[96];

    (void)state;
    disti_host_name(host);
    assert_string_equal(process_end_of(host, killed), "was killed by signal 9 (SIGKILL)");
    assert_string_equal(process_end_of(host, exited), "exited with code 3 without leaving the job");
    assert_string_equal(process_end_of("elsewhere", killed),
                        "closed its connection without leaving the job");
    assert_string_equal(process_end_of(host, getpid()),
                        "closed its connection without leaving the job");
    /* In another PID namespace, the pid belongs to another process. */
    assert_string_equal(
        disti_process_end(host, disti_process_space() + 1, (int)killed, text, sizeof(text)),
        "closed its connection without leaving the job");
    assert_int_equal(waitpid(killed, NULL, 0), killed);
    assert_int_equal(waitpid(exited, NULL, 0), exited);
    assert_string_equal(process_end_of(host, killed),
                        "closed its connection without leaving the job");
}

/* A process that has closed its connection and whose first thread has ended, but that still
 * runs. */
static void test_a_process_without_its_first_thread_still_runs(void **state)
{
    const pid_t pid = first_ended_fork(first_ended_sleep, NULL);
    siginfo_t info;
    char host[DISTI_HOST_SIZE];

    (void)state;
    disti_host_name(host);
    assert_string_equal(process_end_of(host, pid), "closed its connection without leaving the job");
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    assert_string_not_equal(process_end_of(host, pid),
                            "closed its connection without leaving the job");
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* The names are those of glibc's own table, if glibc is 2.32 or later. */
static void test_signals_have_names(void **state)
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

static void write_text(const char *folder, const char *name, const char *text)
{
    char path[256];
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static int64_t oom_kills(const char *folder, const char *membership)
{
    char self[256], vmstat[256];

    write_text(folder, "self", membership);
    snprintf(self, sizeof(self), "%s/self", folder);
    snprintf(vmstat, sizeof(vmstat), "%s/vmstat", folder);
    return disti_process_oom_kills_in(self, folder, vmstat);
}

/* cgroups v1 and v2, a container whose own cgroup is its root, and no cgroup. */
static void test_OOM_kills_are_counted(void **state)
{
    static const char *const names[] = {"self", "vmstat", "memory/a/memory.oom_control",
                                        "memory.events", "a/memory.events"};
    char folder[] = "/tmp/dist-test-XXXXXX", path[256];

    (void)state;
    assert_non_null(mkdtemp(folder));
    for (size_t i = 0; i < 3; i++) {
        snprintf(path, sizeof(path), "%s/%s", folder,
                 (const char *[]){"a", "memory", "memory/a"}[i]);
        assert_int_equal(mkdir(path, 0700), 0);
    }
    write_text(folder, "vmstat", "pgfault 7\noom_kill 11\n");
    assert_int_equal(oom_kills(folder, "4:cpu:/a\n0::/a\n"), 11);
    write_text(folder, "memory/a/memory.oom_control", "under_oom 0\noom_kill 2\n");
    assert_int_equal(oom_kills(folder, "4:cpu:/a\n5:memory:/a\n0::/\n"), 2);
    write_text(folder, "memory.events", "oom 5\noom_kill 3\noom_group_kill 0\n");
    assert_int_equal(oom_kills(folder, "0::/a\n"), 3);
    write_text(folder, "a/memory.events", "oom 5\noom_kill 4\n");
    assert_int_equal(oom_kills(folder, "0::/a\n"), 4);
    assert_string_equal(disti_process_oom_text(false), "");
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
        assert_int_equal(unlink(path), 0);
    }
    for (size_t i = 0; i < 4; i++) {
        snprintf(path, sizeof(path), "%s/%s", folder,
                 (const char *[]){"memory/a", "memory", "a", ""}[i]);
        assert_int_equal(rmdir(path), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_end_of_a_child_is_described),
        cmocka_unit_test(test_a_process_without_its_first_thread_still_runs),
        cmocka_unit_test(test_OOM_kills_are_counted), cmocka_unit_test(test_signals_have_names)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
