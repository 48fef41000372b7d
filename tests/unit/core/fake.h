/* SPDX-License-Identifier: BSD-3-Clause */
/* A group with a fake backend, whose calls end when the test says so, and which counts violations
 * of the backend contract. */
#ifndef TESTS_UNIT_CORE_FAKE_H
#define TESTS_UNIT_CORE_FAKE_H

#include "core/group.h"

#define FAKE_CALLS 256

struct fake {
    /* Set by the test before the group is used. */
    int timeout_ms;
    bool spins;      /* progress owners poll forever, and never yield or sleep */
    bool blind;      /* the backend has no descriptor to sleep on */
    bool cannot_arm; /* the backend has neither arm nor disarm */
    dist_status refuse_post;
    int64_t poll_ns;    /* minimum duration of a poll */
    bool has_memory;    /* the backend has alloc and free */
    bool out_of_memory; /* the backend's alloc fails */
    bool streams;       /* calls are ordered by streams, and several may be started together */
    bool stages;        /* with streams: the backend requires that all calls are staged */
    dist_status refuse_join;

    /* Results. */
    atomic_int posted, aborted, polls;
    atomic_int polls_elsewhere; /* by threads other than the one that opened the group */
    int prepared, released_prepared;
    int allocations;       /* allocations that have not been freed */
    atomic_int violations; /* calls that overlapped, or were made while the backend was armed */
    struct dist_call calls[FAKE_CALLS];
    int joined;        /* number of the last joined post; -1: none */
    void *join_stream; /* the stream that joined it */
    char history[256]; /* "(" a batch begins, "." a post, ")" the batch ends, "j" a join */

    /* Internal state of the fake. */
    struct dist_ticket *tickets[FAKE_CALLS];
    atomic_bool released[FAKE_CALLS];
    atomic_int failure; /* the next progress returns this */
    atomic_flag busy;
    pthread_t opener;
    bool armed;
    int fd;
    struct disti_world world;
    struct dist_backend backend;
};

/* Opens a group of two ranks in which this process is rank 0. Close it with fake_close. */
struct dist_group *fake_open(struct fake *fake);

/* Drains the group and frees it. Returns the status of the drain. */
dist_status fake_close(struct fake *fake, struct dist_group *group);

/* Lets call number `post` end. Any thread may call it. */
void fake_release(struct fake *fake, int post);

/* Lets the next progress fail, with the error text "the fake broke". */
void fake_break(struct fake *fake, dist_status status);

/* Starts a call without data. Returns its request; NULL if it could not be started. */
struct dist_work *fake_start(struct dist_group *group, dist_collective collective);

/* Setup and teardown for cmocka: *state becomes a struct fake. Setup without and with the progress
 * thread. The teardown fails if the contract was violated. */
int fake_without_thread(void **state);
int fake_with_thread(void **state);
int fake_finish(void **state);

/* Sleeps for `ms`. */
void fake_sleep(int ms);

#endif
