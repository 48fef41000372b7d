/* SPDX-License-Identifier: BSD-3-Clause */
/* A process whose first thread has ended while another thread runs. */
#ifndef DISTI_TESTS_UNIT_BASE_FIRST_ENDED_H
#define DISTI_TESTS_UNIT_BASE_FIRST_ENDED_H

#include "base/process.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/* If the test fails, the process ends after this number of seconds. */
#define FIRST_ENDED_LIMIT 300

/* Sleeps until the process is killed. A normal exit would make memcheck report the first thread's
 * memory as leaked. */
static inline void *first_ended_sleep(void *arg)
{
    for (;;)
        pause();
    return arg;
}

/* Forks a process whose second thread runs fn(arg) after the first thread has ended. fn
 * must not use the stack of the first thread. */
static inline pid_t first_ended_fork(void *(*fn)(void *), void *arg)
{
    pthread_t thread;
    pid_t pid = fork();
    int status;

    if (pid == 0) {
        alarm(FIRST_ENDED_LIMIT);
        if (pthread_create(&thread, NULL, fn, arg) != 0)
            _exit(1);
        pthread_exit(NULL);
    }
    assert_true(pid > 0);
    while (!disti_process_first_ends((int)pid, &status))
        usleep(1000);
    return pid;
}

static inline void first_ended_kill(pid_t pid)
{
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

#endif
