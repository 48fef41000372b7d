/* SPDX-License-Identifier: BSD-3-Clause */
/* Threads of the library. */
#ifndef DISTI_BASE_THREAD_H
#define DISTI_BASE_THREAD_H

#include <pthread.h>
#include <signal.h>

/* The least stack of a thread. The default may be less: it follows the limit of the process
 * (ulimit -s). */
#define DISTI_THREAD_STACK ((size_t)256 << 10)

/*
 * As pthread_create, with all signals blocked: they are the program's, and its own threads shall
 * get them. Here, not in a file of its own, as modules start threads too.
 */
static inline int disti_thread_create(pthread_t *thread, void *(*start)(void *), void *arg)
{
    pthread_attr_t attributes;
    sigset_t all, old;
    size_t stack;
    int error = pthread_attr_init(&attributes);

    if (error)
        return error;
    if (pthread_attr_getstacksize(&attributes, &stack) == 0 && stack < DISTI_THREAD_STACK)
        pthread_attr_setstacksize(&attributes, DISTI_THREAD_STACK);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    error = pthread_create(thread, &attributes, start, arg);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attributes);
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
