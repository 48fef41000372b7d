/* SPDX-License-Identifier: BSD-3-Clause */
/* The random collectives of any_order. */
#ifndef TESTS_JOBS_ANY_ORDER_H
#define TESTS_JOBS_ANY_ORDER_H

#include <dist/dist.h>

#define ORDER_GROUPS 8
#define ORDER_RANKS 16

struct order_group {
    dist_group *group; /* NULL: this rank is not in it */
    int rank, size;    /* rank -1 then */
};

/* Whose memory a call uses. */
enum order_memory { ORDER_ORDINARY, ORDER_ALLOCATED, ORDER_REGISTERED, ORDER_MEMORIES };

/* A collective, the same on all ranks but for where this one's memory is. */
struct order_call {
    struct order_group *group;
    int kind, number, root;
    dist_dtype dtype;
    dist_op op;
    size_t count; /* elements of a block, or of the longest if they are uneven */
    bool uneven;  /* the v-form */
    enum order_memory kind_of_memory;
    char *memory, *data; /* data: IN and OUT, with bytes around that nobody may touch */
    size_t bytes;        /* of data */
    void *in, *out;
    dist_work *work;
};

/* Random numbers, the same everywhere for the same state. */
uint64_t order_next(uint64_t *state);
int order_below(uint64_t *state, int most);

/* Draws a call, and fills its memory if this rank is in the group. */
dist_status order_draw(uint64_t *shared, uint64_t *own, struct order_group *group, int number,
                       struct order_call *call);

/* Starts it; a rank outside the group has nothing to start. */
dist_status order_post(struct order_call *call);

/* Compares what has come with what must have, looks at the bytes around, and frees the memory.
 * Returns 0 or 1. */
int order_check(struct order_call *call);

#endif
