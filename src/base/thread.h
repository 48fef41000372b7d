/* SPDX-License-Identifier: BSD-3-Clause */
/* Threads of the library. */
#ifndef DISTI_BASE_THREAD_H
#define DISTI_BASE_THREAD_H

#include <pthread.h>
#include <signal.h>

/*
 * As pthread_create, with all signals blocked: they are the program's, and its own threads shall
 * get them. Here, not in a file of its own, as modules start threads too.
 */
static inline int disti_thread_create(pthread_t *thread, void *(*start)(void *), void *arg)
{
    sigset_t all, old;
    int error;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    error = pthread_create(thread, NULL, start, arg);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return error;
}

/*
 * From here to disti_cancel_let, pthread_cancel does not end the calling thread: it has a lock, or
 * others wait for what it does. Around calls of the system, as a thread ends only within these.
 */
static inline int disti_cancel_hold(void)
{
    int held;

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &held);
    return held;
}

static inline void disti_cancel_let(int held)
{
    pthread_setcancelstate(held, &held);
}

#endif
