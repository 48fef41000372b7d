/* SPDX-License-Identifier: BSD-3-Clause */
/* State and helpers of data-parallel training; private to this module. */
#ifndef DISTI_DDP_DDP_H
#define DISTI_DDP_DDP_H

#include <dist/ddp.h>
#include <dist/dist.h>
#include <dist/zero.h>
#include <stddef.h>
#include <stdint.h>

/* Shared by dist_ddp and dist_zero: creation, destruction, and names in messages. */

/*
 * Returns "'conv1.bias'", or "parameter 3" if name is NULL. The caller frees it. NULL: out of
 * memory.
 */
char *disti_ddp_quote(const char *name, int index);

/* Hashes of a rank's arguments, which the ranks compare before they start. */
struct ddp_hashes {
    uint64_t must_match; /* hash of the values that must be equal on all ranks */
    uint64_t may_differ; /* hash of the values that may differ between ranks */
};

/*
 * Compares the ranks' hashes. Every rank must call it, even one whose local part has failed:
 * `status` is the result of that part. Succeeds on all ranks or on none: a rank gets an error if
 * another rank failed or has a different `must_match`. `call` is for the message. *differs_p: true
 * if `may_differ` is not equal on all ranks. Collective; allocates nothing itself.
 */
dist_status disti_ddp_agree(dist_group *group, const char *call, dist_status status,
                            struct ddp_hashes mine, bool *differs_p);

/* True if dist_dup_group failed on all ranks: one of them declined, or the parent was aborted. */
static inline bool disti_ddp_is_declined(dist_status status)
{
    return status == DIST_ERR_INVALID_ARGUMENT || status == DIST_ERR_UNSUPPORTED ||
           status == DIST_ERR_ABORTED;
}

/*
 * Synchronizes the ranks before one destroys its handle. Otherwise ranks that are in a step and a
 * rank that leaves would wait for each other. The call is part of the sequence of collectives but
 * of no step: if another rank is in a step, both fail at once with a mismatch. After success no
 * rank accesses this rank's memory any more. Collective.
 */
dist_status disti_ddp_leave(dist_group *group);

/*
 * Keeps the structure of a destroyed handle, so that a later call with the handle finds it marked
 * as destroyed. Keeps the last DDP_DESTROYED structures and frees older ones. Any thread may call
 * it.
 */
#define DDP_DESTROYED 256
void disti_ddp_keep_destroyed(void *handle);

/*
 * Returns the sum of squares of float32 or float64 elements; the order of additions depends on the
 * count only. The caller has entered the library's floating-point environment.
 */
double disti_squares(const void *x, size_t count, dist_dtype dtype);

/* A list of names for a message: "'a', 'b' and 3 more". Initialize it with zeros. */
struct ddp_list {
    char text[256];
    size_t length;
    int count, shown;
};

void disti_ddp_list_add(struct ddp_list *list, const char *name);

/* Ends the list and returns its text. */
const char *disti_ddp_list_end(struct ddp_list *list);

/* Data-parallel training: private types of this module. */

/* A parameter or a buffer, at the program's index. */
struct ddp_parameter {
    char *name;
    void *values;
    size_t count;
    char *gradient; /* NULL: none */
    bool own;       /* the gradient is allocated in ddp->memory */
    int next;       /* the parameter whose gradient follows this one's in memory without a gap; -1:
                     * none */
    int bucket;
    bool ready;     /* marked ready in this step: the library owns the gradient */
    bool touched;   /* marked ready since the last reduced step */
    double squares; /* sum of the gradient's squares, if ddp->clips */
};

/*
 *              all its gradients are ready,           the request has completed, and the
 *              earlier buckets have started           compression starts no other request
 *     FILLING -----------------------------> MOVING ---------------------------------> REDUCED
 *        ^                                   |    ^                                       |
 *        |                                   +----+ the request has completed: next stage |
 *        +--------------------------------------------------------------------------------+
 *                                       the step has ended
 */
enum ddp_state { DDP_FILLING, DDP_MOVING, DDP_REDUCED };

struct ddp_bucket {
    enum ddp_state state; /* changed by ddp_bucket_next and ddp_begin */
    int stage;            /* stage of `work` */
    dist_work *work;
    int first, count;     /* range of its gradients in ddp->order */
    int missing;          /* number of gradients that are not ready */
    int64_t began, ended; /* times in the last reduced step; 0: none */
    struct dist_ddp_bucket shape;
    void *compressed; /* private data of the compression, made by its open function */
};

struct dist_ddp {
    dist_group *stages[DIST_DDP_STAGES_MAX]; /* one group per stage: see ddp_advance */
    int stage_count;
    int rank, world;
    struct dist_ddp_options options;
    const struct ddp_compression *compression;
    struct ddp_parameter *parameters;
    int count;
    void *memory;   /* gradients that the program did not allocate */
    bool device;    /* the gradients are in GPU memory */
    bool scattered; /* each gradient is a separate piece, since some are adjacent in memory only on
                     * some ranks */
    int *order;     /* parameters in the order in which buckets contain their gradients */
    int gradients;
    struct ddp_bucket *buckets;
    int bucket_count;
    int next;       /* first bucket that has not started */
    int *arrival;   /* parameters in the order in which their gradients became ready in the first
                     * step */
    int arrived;    /* -1: the order is final */
    bool local;     /* steps are not reduced: dist_ddp_set_sync */
    bool joined;    /* this rank has no more batches: dist_ddp_join */
    bool clips;     /* squares are summed as buckets complete */
    bool squared;   /* `squares` are valid for the current gradients */
    int32_t *tally; /* number of ranks that took part, then of ranks that had each gradient; NULL:
                     * not needed */
    dist_work *tally_work;
    dist_status failed;
    bool destroyed; /* all other fields are zero */
    struct dist_ddp_stats stats;
};

/* A compression: the format in which gradients are sent. compression.c has one row for each. */
struct ddp_compression {
    int stages; /* stages that start an operation; 0: options.hook_stages */
    /* Allocates bucket->compressed. May be NULL, as may close. */
    dist_status (*open)(struct dist_ddp *ddp, struct ddp_bucket *bucket);
    void (*close)(struct dist_ddp *ddp, struct ddp_bucket *bucket);
    /* Like dist_ddp_hook_fn, on ddp->stages[stage]. */
    dist_status (*next)(struct dist_ddp *ddp, struct ddp_bucket *bucket, int stage,
                        dist_work **work_p);
};

/* Returns the compression that the options select. */
const struct ddp_compression *disti_ddp_compression(const struct dist_ddp_options *options);

#endif
