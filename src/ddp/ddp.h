/* SPDX-License-Identifier: BSD-3-Clause */
/* State and helpers of data-parallel training; private to this module. */
#ifndef DISTI_DDP_DDP_H
#define DISTI_DDP_DDP_H

#include <dist/ddp.h>
#include <dist/dist.h>
#include <dist/zero.h>
#include <stddef.h>
#include <stdint.h>

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

/*
 * The sum of squares of float32 or float64; the order of additions depends on the count alone.
 * Called in the library's floating-point environment.
 */
double disti_squares(const void *x, size_t count, dist_dtype dtype);

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
    dist_group *stages[DIST_DDP_STAGES_MAX]; /* a group each: see ddp_advance */
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

#endif
