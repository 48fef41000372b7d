/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Data-parallel training with a sharded optimizer: each rank keeps the optimizer's state of its
 * share of the parameters only, and updates this share for all ranks.
 *
 *     struct dist_zero_adam adam = DIST_ZERO_ADAM_INIT;
 *     struct dist_zero_options options = DIST_ZERO_OPTIONS_INIT;
 *     dist_zero *zero = NULL;
 *
 *     options.step = dist_zero_adam_step;
 *     options.step_arg = &adam;
 *     options.state_floats = DIST_ZERO_ADAM_STATE;
 *     dist_zero_create(group, parameters, count, &options, &zero);
 *     for (each step) {
 *         forward(batch);                       reads dist_zero_values(zero, i)
 *         for (each layer, the last first) {
 *             backward(layer);                  writes to dist_zero_gradient(zero, i)
 *             dist_zero_ready(zero, i);
 *         }
 *         dist_zero_finish(zero);               reduces, and updates the parameters
 *     }
 *     dist_zero_destroy(zero);
 *
 * It does what PyTorch's ZeroRedundancyOptimizer does: stage 1 of ZeRO (Rajbhandari et al., "ZeRO:
 * Memory Optimizations Toward Training Trillion Parameter Models", SC 2020). Each of N ranks has an
 * N-th of the state. If all ranks are on one machine, they also share one copy of the parameters.
 *
 * float32 in host memory. One thread at a time calls functions with one dist_zero. All ranks make
 * the same steps. A failure of a rank or between ranks ends the dist_zero on all ranks, with the
 * statuses of collectives (see dist.h), and the parameters are then undefined; the program's own
 * group stays usable.
 */
#ifndef DIST_ZERO_H
#define DIST_ZERO_H

#include <dist/dist.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dist_zero dist_zero;

/* A parameter of the model. */
struct dist_zero_parameter {
    const char *name;      /* for messages; copied. NULL: "parameter 3" */
    const float *values;   /* count initial elements, overwritten by those of rank 0; NULL: zeros */
    size_t count;          /* elements */
    const float *gradient; /* count elements of the program's memory, which dist_zero_ready copies;
                              NULL: the program writes to dist_zero_gradient */
};

/* Elements of one parameter that this rank updates, at most a few thousand. */
struct dist_zero_slice {
    int parameter;       /* index of the parameter */
    size_t first;        /* index of the slice's first element in the parameter */
    size_t count;        /* elements */
    float *values;       /* the function updates them */
    float *gradients;    /* reduced, and clipped; the function may change them */
    float *const *state; /* state_floats arrays of count elements, kept from step to step */
    int state_floats;    /* as in the options */
    uint64_t step;       /* 1 in the first step */
};

/*
 * Updates the values and the state of a slice. dist_zero_finish calls it for each slice of this
 * rank, in the calling thread. The result for an element must not depend on how a parameter is
 * divided into slices. A result other than 0 ends the dist_zero. Must not call the library.
 */
typedef int (*dist_zero_step_fn)(void *arg, const struct dist_zero_slice *slice);

/* The largest number of state values of an element. */
#define DIST_ZERO_STATE_MAX 8

/* The same on all ranks. Initialise with DIST_ZERO_OPTIONS_INIT: `size` lets later versions add
 * members. */
struct dist_zero_options {
    size_t size;               /* sizeof(struct dist_zero_options) */
    dist_dtype dtype;          /* type of values and gradients: FLOAT32 */
    size_t first_bucket_bytes; /* as in dist_ddp_options; 0: 1 MiB */
    size_t bucket_bytes;       /* as in dist_ddp_options; 0: 25 MiB */
    bool sum;                  /* reduce to the sum over the ranks; else to the mean */
    double max_norm; /* all gradients are scaled such that the root of the sum of their squares (the
                        norm) is at most this; INFINITY: the norm is computed only; 0: neither */
    int state_floats;       /* numbers that the optimizer keeps for an element, zero at first; 0
                               to DIST_ZERO_STATE_MAX, and as many as `step` needs */
    dist_zero_step_fn step; /* the optimizer: dist_zero_sgd_step, dist_zero_adam_step, or a function
                               of the program */
    void *step_arg;         /* not copied, so that the program can change a rate between steps */
};

#define DIST_ZERO_OPTIONS_INIT                                                                     \
    {                                                                                              \
        sizeof(struct dist_zero_options), DIST_FLOAT32, 0, 0, false, 0.0, 0, NULL, NULL            \
    }

/*
 * Creates a dist_zero and copies rank 0's values to all ranks. Collective over group; blocks.
 *
 * The parameters are copied to the memory that dist_zero_values returns, and the program's `values`
 * are not used again. List them in the order of the forward pass: their gradients are expected in
 * the reverse order, and form buckets in that order. parameters, names and options are copied. The
 * group must outlive the dist_zero, which has a group of its own. The caller passes *zero_p to
 * dist_zero_destroy.
 *
 * Errors: ERR_INVALID_ARGUMENT (also if an argument is wrong on another rank, which dist_last_error
 * names), ERR_NO_MEMORY, ERR_UNSUPPORTED (another dtype, memory of a GPU),
 * ERR_MISMATCH (the ranks' lists or options differ; dist_last_error names a rank), and those of
 * collectives.
 */
DIST_API dist_status dist_zero_create(dist_group *group,
                                      const struct dist_zero_parameter *parameters, int count,
                                      const struct dist_zero_options *options, dist_zero **zero_p);

/*
 * Destroys the dist_zero and frees its memory, including the parameters. Collective, unless the
 * dist_zero has failed. In the middle of a step, it ends the step of the other ranks, as
 * dist_ddp_destroy does. After an earlier failure it returns OK. NULL is accepted. Later calls with
 * the dist_zero return ERR_INVALID_ARGUMENT.
 */
DIST_API dist_status dist_zero_destroy(dist_zero *zero);

/*
 * Return the addresses of the values and of the gradient of parameter `index`, valid until the
 * dist_zero is destroyed. NULL: no such parameter. All values are one array, in the order of the
 * parameters, and so are all gradients.
 *
 * The ranks of a machine may share one copy of the values: a program that writes to them calls
 * dist_zero_sync_values afterwards. Each rank has its own gradients. They are zero at first, and
 * undefined after dist_zero_finish.
 */
DIST_API float *dist_zero_values(const dist_zero *zero, int index);
DIST_API float *dist_zero_gradient(const dist_zero *zero, int index);

/*
 * Marks a gradient as complete. Does not block.
 *
 * The gradient belongs to the library until dist_zero_finish returns. Call it once a step for each
 * gradient; a program that accumulates gradients over several passes calls it in the last pass.
 * Between machines the reduction of a bucket begins when all its gradients are ready, while the
 * backward pass goes on.
 */
DIST_API dist_status dist_zero_ready(dist_zero *zero, int index);

/*
 * Ends a step: blocks until all gradients are reduced and all parameters updated, on all ranks. On
 * one machine no parameter changes before all ranks have called it, and it returns when all ranks
 * have made their updates.
 *
 * If a gradient was omitted, the function returns ERR_INVALID_ARGUMENT, and dist_last_error names
 * the parameters. The other ranks get ERR_ABORTED.
 */
DIST_API dist_status dist_zero_finish(dist_zero *zero);

/* Sets all gradients to zero. Call it before a step that adds to them. */
DIST_API dist_status dist_zero_clear_gradients(dist_zero *zero);

/*
 * Copies rank 0's parameters to all ranks, after rank 0 has written to dist_zero_values. On one
 * machine only rank 0 may write to them. Collective; blocks. Call it between steps; no rank may
 * read the values between the end of its last step and this call.
 */
DIST_API dist_status dist_zero_sync_values(dist_zero *zero);

/*
 * Copy one state array of a parameter from the ranks that have it to root, or from root to these
 * ranks. Collective; block. Call them between steps.
 *
 * `which` is from 0 to state_floats - 1; `values` has as many elements as the parameter, and is
 * used at root only. A checkpoint made this way can be loaded with any number of ranks.
 */
DIST_API dist_status dist_zero_gather_state(dist_zero *zero, int index, int which, float *values,
                                            int root);
DIST_API dist_status dist_zero_scatter_state(dist_zero *zero, int index, int which,
                                             const float *values, int root);

/*
 * Get or set the number of steps made so far, for checkpoints. Pass the same number on all ranks.
 * ERR_INVALID_ARGUMENT: steps is more than INT64_MAX.
 */
DIST_API uint64_t dist_zero_get_steps(const dist_zero *zero);
DIST_API dist_status dist_zero_set_steps(dist_zero *zero, uint64_t steps);

/* Sizes, and totals since the dist_zero was created. */
struct dist_zero_stats {
    size_t size;          /* sizeof(struct dist_zero_stats), set by the caller */
    uint64_t steps;       /* steps made since the dist_zero was created */
    uint64_t state_bytes; /* optimizer state of this rank: an N-th of the whole state; may differ by
                             up to 128 bytes for each bucket and state array */
    uint64_t gradient_bytes; /* gradients of all parameters, which each rank has */
    uint64_t value_bytes;    /* values of all parameters; `sharers` ranks share one copy */
    int sharers;             /* the world size if all ranks are on one machine, else 1 */
    int buckets;             /* number of buckets */
    double waited;           /* seconds in which this rank waited for other ranks in
                                dist_zero_finish */
    double worked;           /* seconds in which this rank updated its own share */
    double norm; /* norm of the last step's gradients, before clipping; 0 without max_norm */
};

DIST_API dist_status dist_zero_get_stats(const dist_zero *zero, struct dist_zero_stats *stats_p);

/* ---- optimizers ---- */

/*
 * Stochastic gradient descent, as torch.optim.SGD. The state is the momentum: state_floats is
 * DIST_ZERO_SGD_STATE, or 0 with momentum 0.
 */
struct dist_zero_sgd {
    double rate, momentum, weight_decay;
    bool nesterov;
};

#define DIST_ZERO_SGD_STATE 1
#define DIST_ZERO_SGD_INIT                                                                         \
    {                                                                                              \
        0.01, 0.0, 0.0, false                                                                      \
    }

/* arg: a struct dist_zero_sgd. */
DIST_API int dist_zero_sgd_step(void *arg, const struct dist_zero_slice *slice);

/*
 * Adam (Kingma and Ba, ICLR 2015), as torch.optim.Adam; decoupled: AdamW (Loshchilov and Hutter,
 * ICLR 2019). The state is the mean of the gradients and that of their squares.
 */
struct dist_zero_adam {
    double rate, beta1, beta2, epsilon, weight_decay;
    bool decoupled;
};

#define DIST_ZERO_ADAM_STATE 2
#define DIST_ZERO_ADAM_INIT                                                                        \
    {                                                                                              \
        0.001, 0.9, 0.999, 1e-8, 0.0, false                                                        \
    }

/* arg: a struct dist_zero_adam. */
DIST_API int dist_zero_adam_step(void *arg, const struct dist_zero_slice *slice);

#ifdef __cplusplus
}
#endif
#endif
