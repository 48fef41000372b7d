/* SPDX-License-Identifier: BSD-3-Clause */
/* Locks of the whole process, which a forked child finds free. */
#ifndef DISTI_BASE_PROCESS_LOCK_H
#define DISTI_BASE_PROCESS_LOCK_H

#include <pthread.h>

/*
 * A static mutex. The one thread that a forked child has would wait for ever for a lock that
 * another thread of the parent held: so in the child it is made anew. What it guards must bear
 * that: a pointer that is set last, or a number.
 */
#define DISTI_PROCESS_LOCK(name)                                                                   \
    static pthread_mutex_t name = PTHREAD_MUTEX_INITIALIZER;                                       \
    static void name##_forked(void)                                                                \
    {                                                                                              \
        pthread_mutex_init(&name, NULL);                                                           \
    }                                                                                              \
    __attribute__((constructor)) static void name##_watch_forks(void)                              \
    {                                                                                              \
        pthread_atfork(NULL, NULL, name##_forked);                                                 \
    }                                                                                              \
    static pthread_mutex_t name

#endif
