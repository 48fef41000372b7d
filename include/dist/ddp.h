/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Data-parallel training: gradients are averaged over the ranks while the rest of them is still
 * computed.
 *
 *     dist_ddp *ddp = NULL;
 *
 *     dist_ddp_create(group, parameters, count, NULL, &ddp);
 *     for (each step) {
 *         forward(batch);
 *         for (each layer, the last first) {
 *             backward(layer);                  writes to dist_ddp_gradient(ddp, i)
 *             dist_ddp_ready(ddp, i);
 *         }
 *         dist_ddp_finish(ddp);
 *         update();
 *     }
 *     dist_ddp_destroy(ddp);
 *
 * What DistributedDataParallel of PyTorch does, and by the same means: gradients travel in buckets,
 * a bucket as soon as all of its gradients are there (Li et al., "PyTorch Distributed: Experiences
 * on Accelerating Data Parallel Training", VLDB 2020).
 *
 * One thread at a time calls functions with one dist_ddp. All ranks make the same steps. A failure
 * of a rank or between ranks ends the dist_ddp on all ranks, with the statuses of collectives (see
 * dist.h); the program's own group goes on.
 */
#ifndef DIST_DDP_H
#define DIST_DDP_H

#include <dist/dist.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dist_ddp dist_ddp;

/* A parameter of the model, or with `buffer` set something that travels with them. */
struct dist_ddp_parameter {
    const char *name; /* for messages; copied. NULL: "parameter 3" */
    void *values;     /* count elements, which become rank 0's. NULL: they are equal already */
    size_t count;     /* elements */
    void *gradient;   /* count elements, which no other parameter has; NULL: memory of the dist_ddp,
                         zeroed, next to the others */
    bool buffer;      /* no gradient, such as a running mean: see dist_ddp_sync_buffers */
};

/* What travels instead of the gradients. All but SAME are for float32 in host memory. */
typedef enum dist_ddp_wire {
    DIST_DDP_WIRE_SAME,     /* the gradients themselves */
    DIST_DDP_WIRE_FLOAT16,  /* rounded, half the bytes; beyond 65504 infinite */
    DIST_DDP_WIRE_BFLOAT16, /* rounded, half the bytes */
    DIST_DDP_WIRE_INT8 /* 256 of them share a scale, about a quarter of the bytes; what rounding
                          takes is added to the next step (error feedback: Seide et al.,
                          "1-bit stochastic gradient descent", Interspeech 2014), but of a
                          gradient that no rank has then: there it is lost */
} dist_ddp_wire;

/*
 * Some gradients that travel together: piece_count pieces of memory, the same on all ranks.
 * Gradients that lie next to each other, as in one array of a program, are one piece. Between those
 * of the dist_ddp's memory are a few elements of zeros, which must stay zero.
 */
struct dist_ddp_bucket {
    int index; /* 0 is the first that starts */
    dist_dtype dtype;
    int piece_count;
    void *const *pieces;
    const size_t *counts; /* elements of each piece */
    size_t count;         /* of all pieces */
};

/*
 * A way of the program's own to reduce a bucket. Must not block.
 *
 * Called with stage 0 once the bucket's gradients are there, in the order of the buckets. It starts
 * an operation on `group` and sets *work_p. When that has ended well it is called with stage 1, and
 * so on, each time with another group, until it leaves *work_p NULL: then the pieces must have the
 * result. It starts the same operations on all ranks. Every status but OK ends the dist_ddp.
 */
typedef dist_status (*dist_ddp_hook_fn)(void *arg, dist_group *group,
                                        const struct dist_ddp_bucket *bucket, int stage,
                                        dist_work **work_p);

/* Stages of a hook that start an operation, at most. */
#define DIST_DDP_STAGES_MAX 4

/* The same on all ranks. Initialise with DIST_DDP_OPTIONS_INIT: `size` lets the struct grow. */
struct dist_ddp_options {
    size_t size;               /* sizeof(struct dist_ddp_options) */
    dist_dtype dtype;          /* of values and gradients: FLOAT32, FLOAT64, FLOAT16 or BFLOAT16 */
    size_t first_bucket_bytes; /* of the first bucket; 0: 1 MiB, so that sending begins early */
    size_t bucket_bytes;       /* of the others; 0: a sixteenth of the gradients, but 1 MiB to
                                  25 MiB. A bucket ends with the gradient that reaches this */
    bool sum;         /* the sum over the ranks; else the mean: the sum divided by the world
                         size, whatever the ranks have as samples */
    bool find_unused; /* a step may leave out gradients: see dist_ddp_is_used */
    bool uneven;      /* ranks may have different numbers of steps: see dist_ddp_join */
    dist_ddp_wire wire;
    dist_ddp_hook_fn hook; /* NULL: what `wire` says */
    void *hook_arg;
    int hook_stages; /* in which the hook starts an operation, 1 to DIST_DDP_STAGES_MAX; 0: 1 */
};

#define DIST_DDP_OPTIONS_INIT                                                                      \
    {                                                                                              \
        sizeof(struct dist_ddp_options), DIST_FLOAT32, 0, 0, false, false, false,                  \
            DIST_DDP_WIRE_SAME, NULL, NULL, 0                                                      \
    }

/*
 * Makes the ranks' models one: values become rank 0's. Collective over group; blocks.
 *
 * List the parameters in the order of the forward pass: their gradients are expected the other way
 * round. After the first step the buckets follow the order in which rank 0's gradients really came.
 * Gradients of which the program says nothing lie in one allocation of dist_alloc. A weight that
 * two layers share is listed once, and is ready after the second. Values of another type than the
 * gradients (weights in bfloat16, gradients in float32) are NULL, and the program broadcasts them;
 * gradients of two types are two dist_ddp. parameters,
 * names and options are copied. The group must outlive the dist_ddp, which makes groups of its own
 * from it: the program's calls on the group may come at any time. The caller gives *ddp_p to
 * dist_ddp_destroy.
 *
 * Errors: ERR_INVALID_ARGUMENT (also if an argument is wrong on another rank, which dist_last_error
 * names), ERR_NO_MEMORY, ERR_MISMATCH (the ranks' lists or options differ; dist_last_error names a
 * rank), ERR_UNSUPPORTED, and those of collectives.
 */
DIST_API dist_status dist_ddp_create(dist_group *group, const struct dist_ddp_parameter *parameters,
                                     int count, const struct dist_ddp_options *options,
                                     dist_ddp **ddp_p);

/*
 * Ends it at once. Destroys its groups, as dist_destroy_process_group does, and frees its memory.
 * Collective, unless it failed. In the middle of a step it ends the other ranks' step with
 * ERR_ABORTED, before a step that others have begun with ERR_MISMATCH or ERR_PEER_LOST: their
 * message says that this rank called a barrier. After an earlier failure it returns OK. NULL is
 * accepted. Later calls with the dist_ddp return ERR_INVALID_ARGUMENT.
 */
DIST_API dist_status dist_ddp_destroy(dist_ddp *ddp);

/* Returns where gradient `index` is, for as long as the dist_ddp lives. NULL: there is none. */
DIST_API void *dist_ddp_gradient(const dist_ddp *ddp, int index);

/*
 * Says that a gradient is complete. Does not block.
 *
 * From then on it belongs to the library, until dist_ddp_finish. At most once a step for each.
 */
DIST_API dist_status dist_ddp_ready(dist_ddp *ddp, int index);

/*
 * Ends a step: blocks until all gradients are reduced. With a GPU's gradients the host does not
 * wait: what comes behind it on the stream does.
 *
 * Where a gradient was left out, and the options do not have find_unused: ERR_INVALID_ARGUMENT, and
 * dist_last_error names the parameters. The other ranks get ERR_ABORTED.
 */
DIST_API dist_status dist_ddp_finish(dist_ddp *ddp);

/*
 * With sync false, later steps stay on this rank: their dist_ddp_ready and dist_ddp_finish send
 * nothing, and the program adds up gradients over them, until it sets it back to true before the
 * backward pass of a step that is reduced. Not in the middle of a step.
 */
DIST_API dist_status dist_ddp_set_sync(dist_ddp *ddp, bool sync);

/* Sets all gradients to zero: before a step that adds to them. Host memory only. */
DIST_API dist_status dist_ddp_zero_gradients(dist_ddp *ddp);

/*
 * Scales all gradients such that their norm (the root of the sum of all squares) is at most
 * max_norm. Local; all ranks get the same norm and the same gradients. For after dist_ddp_finish.
 *
 * *norm_p, which may be NULL, becomes the norm before. A norm that is no finite number is returned,
 * and nothing is scaled. Where it is used in each step, the squares are added up while later
 * buckets travel: so the program changes no gradient between dist_ddp_finish and this. Gradients
 * that are S times too large (loss scaling) are clipped to S * max_norm, and divided in the update.
 * For float32 and float64 in host memory.
 */
DIST_API dist_status dist_ddp_clip(dist_ddp *ddp, double max_norm, double *norm_p);

/*
 * Whether any rank had this gradient in the last step that was reduced. Where no rank had it, it is
 * zero, and the optimizer leaves the parameter alone. Needs find_unused; without it always true. A
 * rank that leaves out a gradient contributes zeros, which the library writes there.
 */
DIST_API bool dist_ddp_is_used(const dist_ddp *ddp, int index);

/*
 * Makes every buffer (see dist_ddp_parameter) a copy of rank 0's. Collective; blocks. Between
 * steps: PyTorch does it before each forward pass of training. With `uneven` only where no rank has
 * joined: after dist_ddp_join.
 */
DIST_API dist_status dist_ddp_sync_buffers(dist_ddp *ddp);

/*
 * For a rank that has no more batches while others have: takes part in their steps with zeros, also
 * if it has added up gradients for a step that it did not make.
 * Blocks until all ranks have called it. Needs `uneven`, and is then called by all ranks at the end
 * of each epoch, by those with the most batches too.
 *
 * After each of those steps it calls step(arg), which updates the parameters from the gradients
 * just as the others do and makes no step itself; a result other than 0 ends the dist_ddp. step may
 * be NULL.
 */
DIST_API dist_status dist_ddp_join(dist_ddp *ddp, int (*step)(void *arg), void *arg);

/*
 * Ranks that gave gradients in the last step that was reduced; the world size without `uneven`. 0
 * after dist_ddp_join.
 */
DIST_API int dist_ddp_active(const dist_ddp *ddp);

/* Puts later steps in the order of this stream, as dist_set_stream does for a group's calls. */
DIST_API dist_status dist_ddp_set_stream(dist_ddp *ddp, void *stream);

/* What it did since it was created. */
struct dist_ddp_stats {
    size_t size;    /* sizeof(struct dist_ddp_stats), set by the caller */
    uint64_t steps; /* that were reduced */
    uint64_t bytes; /* of gradients that were reduced, as the program has them */
    double waited;  /* seconds in dist_ddp_finish: communication that nothing hid */
    int buckets;    /* in a step */
};

DIST_API dist_status dist_ddp_get_stats(const dist_ddp *ddp, struct dist_ddp_stats *stats_p);

/* When a bucket travelled, on CLOCK_MONOTONIC of this host. */
struct dist_ddp_bucket_times {
    size_t size;      /* sizeof(struct dist_ddp_bucket_times), set by the caller */
    int64_t began_ns; /* its operation was started */
    int64_t ended_ns; /* its end was seen, by a later dist_ddp_ready or by dist_ddp_finish: it may
                         have been there before. With a GPU's gradients: it was put on the stream */
    uint64_t bytes;   /* of its gradients, as the program has them */
};

/*
 * The last step that was reduced, for timelines; `bucket` counts from 0 to stats.buckets - 1. Both
 * times are 0 where there was none: before the first step, and after that in which the buckets
 * followed the order of the gradients and were made anew. Local. Errors: ERR_INVALID_ARGUMENT.
 */
DIST_API dist_status dist_ddp_get_bucket_times(const dist_ddp *ddp, int bucket,
                                               struct dist_ddp_bucket_times *times_p);

#ifdef __cplusplus
}
#endif
#endif
