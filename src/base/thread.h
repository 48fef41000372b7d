/* SPDX-License-Identifier: BSD-3-Clause */
/* Creates threads of the library, and disables thread cancellation. */
#ifndef DISTI_BASE_THREAD_H
#define DISTI_BASE_THREAD_H

#include <pthread.h>
#include <signal.h>

/*
 * Minimum stack size of a thread. The default, which follows the process's limit (ulimit -s), may
 * be smaller.
 */
#define DISTI_THREAD_STACK ((size_t)256 << 10)

/*
 * As pthread_create, with all signals blocked, so that the program's own threads handle them.
 * Inline, since loadable modules start threads too.
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
 * Disables cancellation (pthread_cancel) of the calling thread until disti_cancel_let. Use it
 * around system calls, which are cancellation points, while the thread holds a lock or other
 * threads wait for it. Returns the state to restore.
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
