/* SPDX-License-Identifier: BSD-3-Clause */
/* The random collectives of any_order. */
#ifndef TESTS_JOBS_ANY_ORDER_H
#define TESTS_JOBS_ANY_ORDER_H

#include <dist/dist.h>

#define ORDER_GROUPS 8
#define ORDER_RANKS 16

struct order_group {
    dist_group *group; /* NULL if this rank is not a member */
    int rank, size;    /* this rank in the group, and the group's size; -1 if not a member */
};

/* The kind of memory that a call uses. */
enum order_memory { ORDER_ORDINARY, ORDER_ALLOCATED, ORDER_REGISTERED, ORDER_MEMORIES };

/* A collective; only the memory differs between ranks. */
struct order_call {
    struct order_group *group;
    int kind, number, root;
    dist_dtype dtype;
    dist_op op;
    size_t count; /* elements of a block, or of the longest block if they are uneven */
    bool uneven;  /* use the v-form */
    enum order_memory kind_of_memory;
    char *memory, *data; /* data: in and out, with bytes around them that must not change */
    size_t bytes;        /* length of data */
    void *in, *out;
    dist_work *work;
};

/* Returns the next random number of a state. */
uint64_t order_next(uint64_t *state);
int order_below(uint64_t *state, int most);

/* Draws a call, and allocates and fills its memory if this rank is in the group. */
dist_status order_draw(uint64_t *shared, uint64_t *own, struct order_group *group, int number,
                       struct order_call *call);

/* Starts it, if this rank is in the group. */
dist_status order_post(struct order_call *call);

/* Compares the results with the expected ones, checks the bytes around the data, and frees the
 * memory. Returns 0 if all is right, otherwise 1. */
int order_check(struct order_call *call);

#endif
