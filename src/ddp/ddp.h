/* SPDX-License-Identifier: BSD-3-Clause */
/* State and helpers of data-parallel training; private to this module. */
#ifndef DISTI_DDP_DDP_H
#define DISTI_DDP_DDP_H

#include <dist/ddp.h>
#include <dist/dist.h>
#include <dist/zero.h>
#include <stddef.h>
#include <stdint.h>

/* The sum of squares of gradients; of DDP and of the sharded optimizer. */

/* The order of additions depends on the count alone. */
double disti_squares_f32(const float *x, size_t count);

/* Orders of any number of things, computed instead of stored. */

/* What a dist_ddp and a dist_zero have in common: how they begin, how they end, whom they name. */

/* "'conv1.bias'", or "parameter 3" where name is NULL. The caller frees it. NULL: no memory. */
char *disti_ddp_quote(const char *name, int index);

/* What a rank says before all begin. Both are hashes. */
struct ddp_word {
    uint64_t alike; /* of what has to be the same on all ranks */
    uint64_t apart; /* of what may differ */
};

/*
 * Every rank comes here, also one that has failed: with the status of what it did alone. OK on all
 * ranks, or on none: a rank learns of another's failure, or other word. `call` is for the message.
 * *apart_p: whether `apart` is not the same on all. Collective; allocates nothing itself.
 */
dist_status disti_ddp_agree(dist_group *group, const char *call, dist_status status,
                            struct ddp_word mine, bool *apart_p);

/* True if dist_dup_group failed on all ranks: one has declined it, or the parent was aborted. */
static inline bool disti_ddp_is_declined(dist_status status)
{
    return status == DIST_ERR_INVALID_ARGUMENT || status == DIST_ERR_UNSUPPORTED ||
           status == DIST_ERR_ABORTED;
}

/*
 * Ranks that are in a step would wait for one that leaves, and it for them. So this call stands in
 * the order of the steps, and is none of a step's: where another rank is at a step it ends both at
 * once. Behind it nobody uses the memory of this rank any more. Collective.
 */
dist_status disti_ddp_leave(dist_group *group);

/*
 * Keeps the structure of a destroyed handle, so that a later call with that handle finds it marked
 * as destroyed. Frees the oldest of the last DDP_DESTROYED structures. Any thread may call it.
 */
#define DDP_DESTROYED 256
void disti_ddp_keep_destroyed(void *handle);

/* "'a', 'b' and 3 more", name by name. Begins all zero. */
struct ddp_list {
    char text[256];
    size_t length;
    int count, shown;
};

void disti_ddp_list_add(struct ddp_list *list, const char *name);

/* The text, when all have been added. */
const char *disti_ddp_list_end(struct ddp_list *list);

/* Data-parallel training: what the files of this folder share. */

/* A parameter or a buffer, by the index that the program knows. */
struct ddp_parameter {
    char *name;
    void *values;
    size_t count;
    char *gradient; /* NULL: it has none */
    bool own;       /* the gradient is in ddp->memory */
    int next;       /* the one whose gradient begins where this one's ends; -1: none */
    int bucket;
    bool ready;     /* in this pass: it belongs to the library */
    bool touched;   /* since the last step that was reduced */
    double squares; /* the sum of them, if ddp->clips */
};

/*
 *              all its gradients are ready,           the work has ended, and the wire
 *              those before it have started           starts nothing more
 *     FILLING -----------------------------> MOVING ---------------------------------> REDUCED
 *        ^                                   |    ^                                       |
 *        |                                   +----+ the work has ended: the next stage    |
 *        +--------------------------------------------------------------------------------+
 *                                       the step has ended
 */
enum ddp_state { DDP_FILLING, DDP_MOVING, DDP_REDUCED };

struct ddp_bucket {
    enum ddp_state state; /* ddp_bucket_next and ddp_begin change it */
    int stage;            /* of the work that moves it */
    dist_work *work;
    int first, count;     /* its gradients in ddp->order */
    int missing;          /* gradients that are not ready */
    int64_t began, ended; /* in the last step that was reduced; 0: there was none */
    struct dist_ddp_bucket shape;
    void *wire; /* the wire's own; made by its open */
};

struct dist_ddp {
    dist_group *stages[DIST_DDP_STAGES_MAX]; /* a group each: see ddp_stages_move */
    int stage_count;
    int rank, world;
    struct dist_ddp_options options;
    const struct ddp_wire *wire;
    struct ddp_parameter *parameters;
    int count;
    void *memory;   /* of gradients that the program has no place for */
    bool device;    /* gradients are a GPU's */
    bool scattered; /* they lie next to others on some ranks only: each is a piece of its own */
    int *order;     /* the gradients, as buckets take them */
    int gradients;
    struct ddp_bucket *buckets;
    int bucket_count;
    int next;       /* the first bucket that has not started */
    int *came;      /* the order in which gradients became ready in the first step */
    int came_count; /* -1: the order is decided */
    bool local;     /* steps are not reduced: dist_ddp_set_sync */
    bool joined;    /* this rank has no more batches */
    bool clips;     /* the squares are added up as buckets arrive */
    bool squared;   /* they are those of the gradients */
    int32_t *tally; /* ranks that took part, then ranks that had each gradient; NULL: not asked */
    dist_work *tally_work;
    dist_status failed;
    bool destroyed; /* all other members are zero */
    struct dist_ddp_stats stats;
};

/* What travels. A row for each form in wire.c. */
struct ddp_wire {
    int stages; /* that start an operation; 0: as the options say */
    /* Memory for a bucket, at bucket->wire. May be NULL, close too. */
    dist_status (*open)(struct dist_ddp *ddp, struct ddp_bucket *bucket);
    void (*close)(struct dist_ddp *ddp, struct ddp_bucket *bucket);
    /* As dist_ddp_hook_fn, on ddp->stages[stage]. */
    dist_status (*next)(struct dist_ddp *ddp, struct ddp_bucket *bucket, int stage,
                        dist_work **work_p);
};

/* The row that the options ask for. */
const struct ddp_wire *disti_ddp_wire(const struct dist_ddp_options *options);

/* Ends it on all ranks. Returns status, which stays. */
dist_status disti_ddp_fail(struct dist_ddp *ddp, dist_status status);

/* Says why a call comes at the wrong time or with a wrong argument: failed, NULL, no such index. */
dist_status disti_ddp_check(const struct dist_ddp *ddp, const char *call);

/* The same for what only comes between steps. */
dist_status disti_ddp_check_between(const struct dist_ddp *ddp, const char *call);

/* Has any gradient of a step that is reduced been given? */
bool disti_ddp_is_in_step(const struct dist_ddp *ddp);

/* After the first step: rank 0's order for all. Collective. */
dist_status disti_ddp_decide_order(struct dist_ddp *ddp);

/* Reduces a step, whatever is ready. Blocks. */
dist_status disti_ddp_reduce(struct dist_ddp *ddp);

/* ---- the sharded optimizer ---- */

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

/* Waits for a work, of which the bucket then has none; there may be none. */
dist_status disti_zero_wait(struct dist_zero *zero, struct zero_bucket *bucket);

/* Ends it after an error: aborts the group, and ends the works. Returns what ended it. */
dist_status disti_zero_fail(struct dist_zero *zero, dist_status status);
/* May it be used? `call` is for the message. */
dist_status disti_zero_check(const struct dist_zero *zero, const char *call);

#endif
