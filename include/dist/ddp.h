/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Data-parallel training: gradients are averaged over the ranks during the backward pass.
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
 * It does what PyTorch's DistributedDataParallel does, in the same way: gradients are reduced in
 * buckets, each as soon as all of its gradients are ready (Li et al., "PyTorch Distributed:
 * Experiences on Accelerating Data Parallel Training", VLDB 2020).
 *
 * One thread at a time calls functions with one dist_ddp. All ranks make the same steps. A failure
 * of a rank or between ranks ends the dist_ddp on all ranks, with the statuses of collectives (see
 * dist.h); the program's own group stays usable.
 */
#ifndef DIST_DDP_H
#define DIST_DDP_H

#include <dist/dist.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dist_ddp dist_ddp;

/* A parameter of the model, or a buffer that belongs to it. */
struct dist_ddp_parameter {
    const char *name; /* for messages; copied. NULL: "parameter 3" */
    void *values;     /* count elements, overwritten by those of rank 0. NULL: the ranks have equal
                         values already */
    size_t count;     /* elements */
    void *gradient;   /* count elements, not shared with another parameter; NULL: the dist_ddp
                         allocates them, zeroed, next to the other gradients */
    bool buffer;      /* it is a buffer, such as a running mean, and has no gradient: see
                         dist_ddp_sync_buffers */
};

/* The format in which gradients are sent. All but SAME need float32 gradients in host memory. */
typedef enum dist_ddp_wire {
    DIST_DDP_WIRE_SAME,     /* the gradients themselves */
    DIST_DDP_WIRE_FLOAT16,  /* rounded, half the bytes; values beyond 65504 become infinite */
    DIST_DDP_WIRE_BFLOAT16, /* rounded, half the bytes */
    DIST_DDP_WIRE_INT8 /* 256 values share a scale, about a quarter of the bytes; the rounding error
                          is added to the gradient in the next step (error feedback: Seide et al.,
                          "1-bit stochastic gradient descent", Interspeech 2014), and is lost if no
                          rank has that gradient in the next step */
} dist_ddp_wire;

/*
 * A bucket: gradients that are reduced together, in piece_count pieces of memory, with the same
 * sizes on all ranks. Adjacent gradients, such as those in one array of a program, are one piece.
 * Gradients that the dist_ddp allocated have a few zero elements between them, which must stay
 * zero.
 */
struct dist_ddp_bucket {
    int index; /* 0 is the first that starts */
    dist_dtype dtype;
    int piece_count;
    void *const *pieces;
    const size_t *counts; /* elements of each piece */
    size_t count;         /* elements of all pieces */
};

/*
 * The program's own reduction of a bucket. Must not block.
 *
 * The library calls it with stage 0 when the bucket's gradients are ready, in the order of the
 * buckets. It starts an operation on `group` and sets *work_p. When this operation has succeeded,
 * it is called with stage 1, and so on, each time with another group, until it leaves *work_p NULL:
 * the pieces must then contain the result. It must start the same operations on all ranks. Any
 * status other than OK ends the dist_ddp.
 */
typedef dist_status (*dist_ddp_hook_fn)(void *arg, dist_group *group,
                                        const struct dist_ddp_bucket *bucket, int stage,
                                        dist_work **work_p);

/* The largest number of stages in which a hook starts an operation. */
#define DIST_DDP_STAGES_MAX 4

/* The same on all ranks. Initialise with DIST_DDP_OPTIONS_INIT: `size` lets later versions add
 * members. */
struct dist_ddp_options {
    size_t size;      /* sizeof(struct dist_ddp_options) */
    dist_dtype dtype; /* type of values and gradients: FLOAT32, FLOAT64, FLOAT16 or BFLOAT16 */
    size_t first_bucket_bytes; /* size of the first bucket; 0: 1 MiB: sending begins early */
    size_t bucket_bytes; /* size of the other buckets; 0: a sixteenth of the gradients, but at least
                            1 MiB and at most 25 MiB. A bucket ends with the gradient that reaches
                            this size */
    bool sum; /* reduce to the sum over the ranks; else to the mean: the sum divided by the world
                 size, even if the ranks have different numbers of samples */
    bool find_unused; /* a step may omit gradients: see dist_ddp_is_used */
    bool uneven;      /* ranks may have different numbers of steps: see dist_ddp_join */
    dist_ddp_wire wire;
    dist_ddp_hook_fn hook; /* NULL: reduce as `wire` says */
    void *hook_arg;
    int hook_stages; /* number of stages in which the hook starts an operation, 1 to
                        DIST_DDP_STAGES_MAX; 0: 1 */
};

#define DIST_DDP_OPTIONS_INIT                                                                      \
    {                                                                                              \
        sizeof(struct dist_ddp_options), DIST_FLOAT32, 0, 0, false, false, false,                  \
            DIST_DDP_WIRE_SAME, NULL, NULL, 0                                                      \
    }

/*
 * Creates a dist_ddp and copies rank 0's values to all ranks. Collective over group; blocks.
 *
 * List the parameters in the order of the forward pass: their gradients are expected in the reverse
 * order. After the first step the buckets follow the order in which rank 0's gradients became
 * ready. Gradients for which the program passes no memory are in one allocation of dist_alloc. List
 * a weight that two layers share once; its gradient is ready after the backward passes of both
 * layers. If the values have another type than the gradients (weights in bfloat16, gradients in
 * float32), pass NULL as values and broadcast them in the program. For gradients of two types
 * create two dist_ddp. parameters, names and options are copied. The group must outlive the
 * dist_ddp, which makes groups of its own from it, so the program may call collectives on the group
 * at any time. The caller passes *ddp_p to dist_ddp_destroy.
 *
 * Errors: ERR_INVALID_ARGUMENT (also if an argument is wrong on another rank, which dist_last_error
 * names), ERR_NO_MEMORY, ERR_MISMATCH (the ranks' lists or options differ; dist_last_error names a
 * rank), ERR_UNSUPPORTED, and those of collectives.
 */
DIST_API dist_status dist_ddp_create(dist_group *group, const struct dist_ddp_parameter *parameters,
                                     int count, const struct dist_ddp_options *options,
                                     dist_ddp **ddp_p);

/*
 * Destroys the dist_ddp and its groups, as dist_destroy_process_group does, and frees its memory.
 * Collective, unless the dist_ddp has failed. In the middle of a step, it ends the step of the
 * other ranks with ERR_ABORTED. If the other ranks have begun a step that this rank has not, their
 * step ends with ERR_MISMATCH or ERR_PEER_LOST, and the message says that this rank called a
 * barrier. After an earlier failure it returns OK. NULL is accepted. Later calls with the dist_ddp
 * return ERR_INVALID_ARGUMENT.
 */
DIST_API dist_status dist_ddp_destroy(dist_ddp *ddp);

/* Returns the address of gradient `index`, valid until the dist_ddp is destroyed. NULL: no such
 * gradient. */
DIST_API void *dist_ddp_gradient(const dist_ddp *ddp, int index);

/*
 * Marks a gradient as complete. Does not block.
 *
 * The gradient belongs to the library until dist_ddp_finish returns. Call it at most once a step
 * for each gradient.
 */
DIST_API dist_status dist_ddp_ready(dist_ddp *ddp, int index);

/*
 * Ends a step: blocks until all gradients are reduced. With gradients on a GPU the host does not
 * wait; later work on the stream does.
 *
 * If a gradient was omitted and the options do not have find_unused, the function returns
 * ERR_INVALID_ARGUMENT, and dist_last_error names the parameters. The other ranks get ERR_ABORTED.
 */
DIST_API dist_status dist_ddp_finish(dist_ddp *ddp);

/*
 * With sync false, later steps are local: their dist_ddp_ready and dist_ddp_finish send nothing,
 * and the program accumulates gradients. Set sync to true before the backward pass of the step that
 * is to be reduced. Must not be called in the middle of a step.
 */
DIST_API dist_status dist_ddp_set_sync(dist_ddp *ddp, bool sync);

/* Sets all gradients to zero. Call it before a step that adds to them. Host memory only. */
DIST_API dist_status dist_ddp_zero_gradients(dist_ddp *ddp);

/*
 * Scales all gradients such that their norm (the root of the sum of all squares) is at most
 * max_norm. Local; all ranks get the same norm and the same gradients. Call it after
 * dist_ddp_finish.
 *
 * *norm_p, which may be NULL, becomes the norm before scaling. If the norm is not finite, it is
 * returned and nothing is scaled. If the program calls this function in every step, the squares are
 * added up while later buckets are reduced, so the program must not change a gradient between
 * dist_ddp_finish and this call. With loss scaling by S, clip to S * max_norm and divide in the
 * update. For float32 and float64 in host memory.
 */
DIST_API dist_status dist_ddp_clip(dist_ddp *ddp, double max_norm, double *norm_p);

/*
 * Returns true if any rank had this gradient in the last step that was reduced. If no rank had it,
 * it is zero, and the optimizer should not change the parameter. Needs find_unused; without it the
 * result is always true. A rank that omits a gradient contributes zeros, which the library writes
 * to the gradient.
 */
DIST_API bool dist_ddp_is_used(const dist_ddp *ddp, int index);

/*
 * Makes every buffer (see dist_ddp_parameter) a copy of rank 0's. Collective; blocks. Call it
 * between steps; PyTorch copies buffers before each forward pass of training. With `uneven`, call
 * it only after dist_ddp_join.
 */
DIST_API dist_status dist_ddp_sync_buffers(dist_ddp *ddp);

/*
 * Takes part with zeros in the steps of ranks that still have batches, even if this rank has
 * accumulated gradients for a step that it did not finish. Blocks until all ranks have called it.
 * Needs `uneven`; all ranks then call it at the end of each epoch, including the ranks with the
 * most batches.
 *
 * After each of these steps it calls step(arg), which updates the parameters from the gradients as
 * the other ranks do, and must not begin a step. A result other than 0 ends the dist_ddp. step may
 * be NULL.
 */
DIST_API dist_status dist_ddp_join(dist_ddp *ddp, int (*step)(void *arg), void *arg);

/*
 * Returns the number of ranks that contributed gradients to the last step that was reduced; the
 * world size without `uneven`. 0 after dist_ddp_join.
 */
DIST_API int dist_ddp_active(const dist_ddp *ddp);

/* Sets the stream that orders later steps, as dist_set_stream does for a group's calls. */
DIST_API dist_status dist_ddp_set_stream(dist_ddp *ddp, void *stream);

/* Totals since the dist_ddp was created. */
struct dist_ddp_stats {
    size_t size;    /* sizeof(struct dist_ddp_stats), set by the caller */
    uint64_t steps; /* reduced steps */
    uint64_t bytes; /* size of all gradients that were reduced, before compression */
    double waited;  /* seconds in dist_ddp_finish: communication that did not overlap with
                       computation */
    int buckets;    /* number of buckets */
};

DIST_API dist_status dist_ddp_get_stats(const dist_ddp *ddp, struct dist_ddp_stats *stats_p);

/* Times at which a bucket was reduced, on CLOCK_MONOTONIC of this host. */
struct dist_ddp_bucket_times {
    size_t size;      /* sizeof(struct dist_ddp_bucket_times), set by the caller */
    int64_t began_ns; /* when its operation was started */
    int64_t ended_ns; /* when dist_ddp_ready or dist_ddp_finish detected the end of the operation,
                         perhaps some time after it. With gradients on a GPU: when the operation was
                         put on the stream */
    uint64_t bytes;   /* size of its gradients, before compression */
};

/*
 * Returns the times of a bucket in the last step that was reduced, for timelines; `bucket` is from
 * 0 to stats.buckets - 1. Both times are 0 before the first step, and after the step in which the
 * buckets were reordered. Local. Errors: ERR_INVALID_ARGUMENT.
 */
DIST_API dist_status dist_ddp_get_bucket_times(const dist_ddp *ddp, int bucket,
                                               struct dist_ddp_bucket_times *times_p);

#ifdef __cplusplus
}
#endif
#endif
