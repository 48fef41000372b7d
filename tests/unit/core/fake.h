/* SPDX-License-Identifier: BSD-3-Clause */
/* A group whose backend ends a call when the test says so, and notices every breach of contract. */
#ifndef TESTS_UNIT_CORE_FAKE_H
#define TESTS_UNIT_CORE_FAKE_H

#include "core/group.h"

#define FAKE_CALLS 256

struct fake {
    /* Set by the test before the group is used. */
    int timeout_ms;
    bool spins;  /* drivers poll for ever, and never yield or sleep */
    bool blind;  /* the backend has nothing to sleep on */
    bool unable; /* it has neither arm nor disarm */
    dist_status refuse_post;
    int64_t poll_ns; /* what a poll takes, at least */
    bool lends;      /* it has memory of its own */
    bool spent;      /* it has none left */
    bool streams;    /* calls are ordered by streams; and several may be started together */
    bool stages;     /* with streams: it wants all calls staged */
    dist_status refuse_join;

    /* What happened. */
    atomic_int posted, aborted, polls;
    atomic_int polls_elsewhere; /* by other threads than the one that opened the group */
    int prepared, released_prepared;
    int lent;            /* allocations that are not freed */
    atomic_int breaches; /* calls that overlapped, or came while the backend was armed */
    struct dist_call calls[FAKE_CALLS];
    int joined;        /* post that was joined last, -1: none */
    void *join_stream; /* by this stream */
    char history[256]; /* "(" a batch begins, "." a post, ")" it ends, "j" join */

    /* The fake's own. */
    struct dist_ticket *tickets[FAKE_CALLS];
    atomic_bool released[FAKE_CALLS];
    atomic_int failure; /* what the next progress returns */
    atomic_flag busy;
    pthread_t opener;
    bool armed;
    int fd;
    struct disti_world world;
    struct dist_backend backend;
};

/* A group of two ranks, this one is 0; fake_close ends it. */
struct dist_group *fake_open(struct fake *fake);

/* Drains the group and frees it; returns what drain did. */
dist_status fake_close(struct fake *fake, struct dist_group *group);

/* Lets the call that was posted as number `post` end. From any thread. */
void fake_release(struct fake *fake, int post);

/* The next progress fails, with the text "the fake broke". */
void fake_break(struct fake *fake, dist_status status);

/* Starts a call without memory. Returns the work, or NULL and *status_p. */
struct dist_work *fake_start(struct dist_group *group, dist_collective collective);

/* For cmocka: *state becomes a struct fake. Without the progress thread, with it; and the end,
 * which fails if the backend was called wrongly. */
int fake_unserved(void **state);
int fake_served(void **state);
int fake_finish(void **state);

/* Sleeps. */
void fake_sleep(int ms);

#endif
