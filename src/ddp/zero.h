/* SPDX-License-Identifier: BSD-3-Clause */
/* The sharded optimizer: what the files of this folder share. */
#ifndef DISTI_DDP_ZERO_H
#define DISTI_DDP_ZERO_H

#include <dist/zero.h>

/*
 * Values and gradients are two arrays of all parameters in their order. Buckets begin at the end,
 * where gradients come first. A bucket is cut into a share for each rank, which that rank owns:
 *
 *     |------------- bucket 1 -------------|------------- bucket 0 -------------|
 *     |   w0    |b0|     w1      |b1|   w2 |       w3        |b3|  w4   | b4    |
 *     | rank 0    | rank 1    | rank 2     | rank 0    | rank 1    | rank 2     |
 *
 * The state of what a rank owns lies bucket by bucket, an array for each of its numbers.
 */
struct zero_parameter {
    char *name;
    size_t count;
    const float *source; /* the program's gradient; NULL: it writes to ours */
    size_t at;           /* in values and gradients, in elements; as all offsets here */
    int bucket;
    bool ready; /* in this step: the gradient belongs to the library */
};

struct zero_bucket {
    size_t at, count;
    size_t *counts, *offsets; /* of each rank's share, from `at` on */
    size_t owned_at;          /* of this rank's share, in an array of the state */
    int first, last;          /* parameters */
    int missing;              /* gradients that are not ready */
    dist_work *work;          /* that moves it; NULL: none */
};

/* Some elements of a parameter that this rank owns. */
struct zero_block {
    int parameter;
    size_t first, count; /* of the parameter */
    size_t at;           /* in values and gradients */
    size_t owned_at;     /* in an array of the state */
};

/* How the ranks reach each other's gradients and values. */
struct zero_form {
    dist_status (*start)(struct dist_zero *zero); /* a gradient has become ready; may be NULL */
    dist_status (*finish)(struct dist_zero *zero);
    dist_status (*sync)(struct dist_zero *zero); /* values become rank 0's */
};

extern const struct zero_form disti_zero_machine; /* in memory that all of them see */
extern const struct zero_form disti_zero_network; /* by collectives */

/* Elements of a block, at most: it, its state and its sums stay in a core's own cache. */
#define ZERO_BLOCK 4096

struct dist_zero {
    dist_group *group;
    int rank, world;
    struct dist_zero_options options;
    const struct zero_form *form;
    struct zero_parameter *parameters;
    int count;
    struct zero_bucket *buckets;
    int bucket_count;
    int next;        /* the first bucket that has not started */
    size_t *shares;  /* counts and offsets of all buckets */
    size_t elements; /* of values, and of gradients */
    size_t owned;    /* of these by this rank */
    float *values, *gradients;
    void *memory;  /* both, in the form of the network */
    void **parts;  /* by rank, in that of the machine: what each rank has */
    float **peers; /* the gradients of all ranks, the same */
    float *tiles;  /* the same: sums of blocks */
    float *state;
    double squares;     /* of the reduced gradients that this rank owns */
    float scale;        /* of the gradients, by max_norm */
    uint64_t made;      /* steps, by the program's count */
    dist_status failed; /* what ended it */
    bool destroyed;     /* all other members are zero */
    struct dist_zero_stats stats;
};

/* Where this rank's share of a bucket begins. */
size_t disti_zero_own(const struct dist_zero *zero, const struct zero_bucket *bucket);

/* Calls visit for each block that this rank owns of a bucket, until one fails. */
typedef dist_status (*zero_visit_fn)(struct dist_zero *zero, const struct zero_block *block);
dist_status disti_zero_each(struct dist_zero *zero, const struct zero_bucket *bucket,
                            zero_visit_fn visit);

/* memory.c */

/* Waits for a work, of which the bucket then has none; there may be none. */
dist_status disti_zero_wait(struct dist_zero *zero, struct zero_bucket *bucket);

/* query.c */

/* Ends it after an error: aborts the group, and ends the works. Returns what ended it. */
dist_status disti_zero_fail(struct dist_zero *zero, dist_status status);
/* May it be used? `call` is for the message. */
dist_status disti_zero_check(const struct dist_zero *zero, const char *call);

#endif
