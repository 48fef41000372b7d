/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which samples of a data set a rank sees in an epoch.
 *
 *     dist_sampler_create(group, &options, &sampler);
 *     for (epoch = 0; epoch < epochs; epoch++) {
 *         dist_sampler_set_epoch(sampler, epoch);
 *         while (dist_sampler_next(sampler, &index))
 *             use(index);
 *     }
 *     dist_sampler_destroy(sampler);
 *
 * As torch's DistributedSampler: all samples stand in an order that is the same on every rank, and
 * rank r takes the samples r, r + world_size, r + 2 * world_size, ... of it. So the ranks' batches
 * of n samples together are the batch of n * world_size that one rank alone would see. The order is
 * not stored but computed, so a data set may have any size.
 *
 * No function blocks or communicates. One thread at a time uses a sampler.
 */
#ifndef DIST_SAMPLER_H
#define DIST_SAMPLER_H

#include <dist/dist.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dist_sampler dist_sampler;

/* Initialise with DIST_SAMPLER_OPTIONS_INIT: `size` lets the struct grow. */
struct dist_sampler_options {
    size_t size;    /* sizeof(struct dist_sampler_options) */
    uint64_t count; /* samples in the data set, at least 1 */
    int rank;       /* -1: that of the group; MindSpore's shard_id */
    int world_size; /* -1: that of the group; MindSpore's num_shards */
    bool shuffle;   /* another order in each epoch; else that of the data set */
    uint64_t seed;  /* of the orders: the same on all ranks */
    bool drop_last; /* samples at the end that are too few for every rank to have one are left out;
                       else the first ones of the order are seen again, so that no rank has fewer */
};

#define DIST_SAMPLER_OPTIONS_INIT                                                                  \
    {                                                                                              \
        sizeof(struct dist_sampler_options), 0, -1, -1, true, 0, false                             \
    }

/*
 * Makes a sampler, which begins with epoch 0. group may be NULL if the options have rank and
 * world_size. The caller gives *sampler_p to dist_sampler_destroy.
 *
 * Errors: ERR_INVALID_ARGUMENT, ERR_NO_MEMORY.
 */
DIST_API dist_status dist_sampler_create(const dist_group *group,
                                         const struct dist_sampler_options *options,
                                         dist_sampler **sampler_p);

/*
 * NULL is accepted. For a sampler that is NULL or destroyed, the other functions return 0 or false,
 * and dist_sampler_restore ERR_INVALID_ARGUMENT.
 */
DIST_API void dist_sampler_destroy(dist_sampler *sampler);

/* Begins an epoch, at its first sample. The order depends on seed and epoch only. */
DIST_API void dist_sampler_set_epoch(dist_sampler *sampler, uint64_t epoch);

/* Samples of this rank in what dist_sampler_set_epoch or _restore began: the same on every rank. */
DIST_API uint64_t dist_sampler_count(const dist_sampler *sampler);

/* Returns the index in the data set of this rank's i-th sample there, i < dist_sampler_count. */
DIST_API uint64_t dist_sampler_at(const dist_sampler *sampler, uint64_t i);

/*
 * Whether this rank's i-th sample stands in for one that is not there: another rank, or this one,
 * has it in this epoch too. What is counted once (a test's hits) leaves it out.
 */
DIST_API bool dist_sampler_is_padding(const dist_sampler *sampler, uint64_t i);

/* Sets *index_p to the next sample's index. False, and nothing is set: the epoch has ended. */
DIST_API bool dist_sampler_next(dist_sampler *sampler, uint64_t *index_p);

/* Where in which epoch all ranks are together: fixed numbers, for a checkpoint. */
struct dist_sampler_state {
    uint64_t seed, epoch;
    uint64_t seen; /* samples of the epoch that the ranks have taken together */
};

/*
 * Save where the sampler is when all ranks have taken as many samples as this one, and restore it,
 * also with another number of ranks: they share what is left of the epoch. dist_sampler_next
 * counts what it gave; with dist_sampler_at, say so by dist_sampler_skip.
 *
 * Errors of _restore: ERR_INVALID_ARGUMENT (more seen than there are samples).
 */
DIST_API void dist_sampler_save(const dist_sampler *sampler, struct dist_sampler_state *state_p);
DIST_API dist_status dist_sampler_restore(dist_sampler *sampler,
                                          const struct dist_sampler_state *state);

/* This rank has taken so many more samples, at most those that are left. */
DIST_API void dist_sampler_skip(dist_sampler *sampler, uint64_t samples);

#ifdef __cplusplus
}
#endif
#endif
