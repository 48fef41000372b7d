/* SPDX-License-Identifier: BSD-3-Clause */
/* What wakes a thread that sleeps on descriptors: an eventfd, one a thread. */
#ifndef DISTI_BASE_DOORBELL_H
#define DISTI_BASE_DOORBELL_H

/*
 * The calling thread's doorbell, made when it is first asked for; it becomes readable when somebody
 * rings it. It is the thread's until its end, whatever it sleeps for. -1: no descriptor is left.
 */
int disti_doorbell(void);

/* Closes the calling thread's doorbell, which is made again when it is needed. */
void disti_doorbell_close(void);

/* Silences the calling thread's doorbell; after each sleep, and before the look at what has
 * happened.
 */
void disti_doorbell_hear(void);

/* Rings another thread's doorbell. The caller knows that this thread is still there. -1: nothing.
 */
void disti_doorbell_ring(int doorbell);

#endif
