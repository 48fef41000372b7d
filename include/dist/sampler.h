/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Chooses the samples of a data set that each rank uses in an epoch.
 *
 *     dist_sampler_create(group, &options, &sampler);
 *     for (epoch = 0; epoch < epochs; epoch++) {
 *         dist_sampler_set_epoch(sampler, epoch);
 *         while (dist_sampler_next(sampler, &index))
 *             use(index);
 *     }
 *     dist_sampler_destroy(sampler);
 *
 * It works like torch's DistributedSampler: the samples have an order that is the same on every
 * rank, and rank r gets samples r, r + world_size, r + 2 * world_size, ... of this order. So the
 * batches of n samples of all ranks together are the batch of n * world_size samples that a single
 * rank would get. The order is not stored but computed, so a data set may have any size.
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

/* Initialise with DIST_SAMPLER_OPTIONS_INIT: `size` lets later versions add members. */
struct dist_sampler_options {
    size_t size;    /* sizeof(struct dist_sampler_options) */
    uint64_t count; /* samples in the data set, at least 1 */
    int rank;       /* -1: that of the group; MindSpore's shard_id */
    int world_size; /* -1: that of the group; MindSpore's num_shards */
    bool shuffle;   /* another order in each epoch; else that of the data set */
    uint64_t seed;  /* seed of the shuffled orders; the same on all ranks */
    /* Leave out the last samples of the order if there are too few for every rank; else use the
     * first samples again, so that every rank has the same number. */
    bool drop_last;
};

#define DIST_SAMPLER_OPTIONS_INIT                                                                  \
    {                                                                                              \
        sizeof(struct dist_sampler_options), 0, -1, -1, true, 0, false                             \
    }

/*
 * Makes a sampler, which begins with epoch 0. group may be NULL if the options have rank and
 * world_size. The caller passes *sampler_p to dist_sampler_destroy.
 *
 * Errors: ERR_INVALID_ARGUMENT, ERR_NO_MEMORY.
 */
DIST_API dist_status dist_sampler_create(const dist_group *group,
                                         const struct dist_sampler_options *options,
                                         dist_sampler **sampler_p);

/*
 * Frees a sampler; NULL is accepted. For a sampler that is NULL or destroyed, dist_sampler_restore
 * returns ERR_INVALID_ARGUMENT, and the other functions return 0 or false or do nothing.
 */
DIST_API void dist_sampler_destroy(dist_sampler *sampler);

/* Begins an epoch, at its first sample. The order depends on seed and epoch only. */
DIST_API void dist_sampler_set_epoch(dist_sampler *sampler, uint64_t epoch);

/* Returns the number of this rank's samples in the epoch that dist_sampler_set_epoch began, or in
 * the rest of the epoch after dist_sampler_restore. The same on every rank. */
DIST_API uint64_t dist_sampler_count(const dist_sampler *sampler);

/* Returns the index in the data set of this rank's i-th sample, i < dist_sampler_count. */
DIST_API uint64_t dist_sampler_at(const dist_sampler *sampler, uint64_t i);

/*
 * Returns true if this rank's i-th sample is a repetition: it also occurs elsewhere in this epoch,
 * on this rank or another. Leave it out of counts, such as the hits of a test.
 */
DIST_API bool dist_sampler_is_padding(const dist_sampler *sampler, uint64_t i);

/* Sets *index_p to the next sample's index. Returns false and sets nothing if the epoch has ended.
 */
DIST_API bool dist_sampler_next(dist_sampler *sampler, uint64_t *index_p);

/* The position of all ranks together, for a checkpoint. */
struct dist_sampler_state {
    uint64_t seed, epoch;
    uint64_t seen; /* samples of the epoch that all ranks together have used */
};

/*
 * Save the position, assuming that all ranks have used as many samples as this one, and restore it,
 * possibly with another number of ranks, which share the remaining samples of the epoch.
 * dist_sampler_next counts the samples that it returns; a program that uses dist_sampler_at calls
 * dist_sampler_skip.
 *
 * Errors of _restore: ERR_INVALID_ARGUMENT (seen is larger than the number of samples).
 */
DIST_API void dist_sampler_save(const dist_sampler *sampler, struct dist_sampler_state *state_p);
DIST_API dist_status dist_sampler_restore(dist_sampler *sampler,
                                          const struct dist_sampler_state *state);

/* Records that this rank has used `samples` more samples, at most the remaining ones. */
DIST_API void dist_sampler_skip(dist_sampler *sampler, uint64_t samples);

#ifdef __cplusplus
}
#endif
#endif
