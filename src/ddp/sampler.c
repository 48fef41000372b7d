/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The distributed sampler: chooses the samples that a rank processes in an epoch.
 *
 * The shuffled order is computed by a Feistel network, which is a bijection of numbers with an even
 * number of bits for any round function (Luby and Rackoff, "How to construct pseudorandom
 * permutations from pseudorandom functions", SIAM Journal on Computing 17(2), 1988). If the result
 * is not below the number of samples, the network is applied again until it is (Black and Rogaway,
 * "Ciphers with arbitrary finite domains", CT-RSA 2002): at most four times on average, since it
 * uses as few bits as possible.
 *
 *      left   right
 *        |      |
 *        +-mix--+        6 rounds
 *        |      |
 *         \    /
 *          \  /
 *          /  \
 */
#include "base/log.h"
#include "ddp/ddp.h"

#include <dist/sampler.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { PERMUTE_ROUNDS = 6 };

/* A bijection of 64-bit numbers; each input bit changes half of the output bits (splitmix64). */
static uint64_t permute_mix(uint64_t x)
{
    x += UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

/* Returns the sample at position `at` of the order `key`, a permutation of 0 to count - 1. */
static uint64_t sampler_permute(uint64_t count, uint64_t key, uint64_t at)
{
    /* Half the number of bits: the smallest for which the bits can hold count - 1; at least 1. */
    unsigned half = 1;
    uint64_t mask;

    while (half < 32 && (count - 1) >> (2 * half) != 0)
        half++;
    mask = (UINT64_C(1) << half) - 1;
    do {
        uint64_t left = at >> half, right = at & mask;

        for (int round = 0; round < PERMUTE_ROUNDS; round++) {
            uint64_t mixed = permute_mix(permute_mix(right ^ key) + (uint64_t)round);
            uint64_t next = left ^ (mixed & mask);

            left = right;
            right = next;
        }
        at = left << half | right;
    } while (at >= count);
    return at;
}

/*
 *     order of the epoch   | seen before | rank 0 | rank 1 | rank 0 | rank 1 | rank 0 | (rank 1) |
 *                          0           start                                      count
 *
 * Positions from `count` on repeat the order from its first sample.
 */
struct dist_sampler {
    struct dist_sampler_options options;
    uint64_t epoch, key;
    uint64_t start; /* position in the order: all ranks together had processed the samples before
                     * it when the sampler was restored */
    uint64_t taken; /* samples that this rank has processed since then */
    bool destroyed;
};

static dist_status sampler_invalid(const char *what)
{
    return disti_fail(DIST_ERR_INVALID_ARGUMENT, "dist_sampler_create: %s", what);
}

/*
 * Checks and completes the program's options; fields that an older, smaller struct lacks are set as
 * in DIST_SAMPLER_OPTIONS_INIT.
 */
static dist_status sampler_options(const dist_group *group,
                                   const struct dist_sampler_options *given,
                                   struct dist_sampler_options *options)
{
    if (!given)
        return sampler_invalid(
            "options is NULL: initialise options with DIST_SAMPLER_OPTIONS_INIT");
    if (given->size < sizeof(given->size) || given->size > sizeof(*given))
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_sampler_create: options.size is %zu (at most %zu): initialise the "
                          "options with DIST_SAMPLER_OPTIONS_INIT",
                          given->size, sizeof(*given));
    *options = (struct dist_sampler_options)DIST_SAMPLER_OPTIONS_INIT;
    memcpy(options, given, given->size);
    if (options->count == 0)
        return sampler_invalid(
            "options.count is 0: set it to the number of samples in the data set");
    if (!group && (options->rank == -1 || options->world_size == -1))
        return sampler_invalid("pass a group, or set rank and world_size in the options");
    if (options->rank == -1)
        options->rank = dist_get_rank(group);
    if (options->world_size == -1)
        options->world_size = dist_get_world_size(group);
    if (group && (options->rank == -1 || options->world_size == -1))
        return sampler_invalid("the group was destroyed");
    if (options->world_size < 1)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_sampler_create: options.world_size is %d: set it to 1 or more, or "
                          "-1 for the group's",
                          options->world_size);
    if (options->rank < 0 || options->rank >= options->world_size)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_sampler_create: options.rank is %d: set it to 0 to %d, or -1 for "
                          "the group's",
                          options->rank, options->world_size - 1);
    if (!options->drop_last && options->count > UINT64_MAX - (uint64_t)options->world_size)
        return disti_fail(
            DIST_ERR_INVALID_ARGUMENT,
            "dist_sampler_create: options.count is %" PRIu64
            ", which overflows when padded for %d ranks: set drop_last, or reduce count",
            options->count, options->world_size);
    return DIST_OK;
}

dist_status dist_sampler_create(const dist_group *group, const struct dist_sampler_options *given,
                                dist_sampler **sampler_p)
{
    struct dist_sampler_options options;
    dist_status status =
        sampler_p ? sampler_options(group, given, &options) : sampler_invalid("sampler_p is NULL");
    struct dist_sampler *sampler;

    if (status != DIST_OK)
        return status;
    sampler = calloc(1, sizeof(*sampler));
    if (!sampler)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for a sampler");
    sampler->options = options;
    dist_sampler_set_epoch(sampler, 0);
    *sampler_p = sampler;
    return DIST_OK;
}

/* True if the sampler is neither NULL nor destroyed. */
static inline bool sampler_is_valid(const struct dist_sampler *sampler)
{
    return sampler && !sampler->destroyed;
}

void dist_sampler_destroy(dist_sampler *sampler)
{
    if (!sampler_is_valid(sampler))
        return;
    sampler->destroyed = true;
    disti_ddp_keep_destroyed(sampler);
}

void dist_sampler_set_epoch(dist_sampler *sampler, uint64_t epoch)
{
    if (!sampler_is_valid(sampler))
        return;
    sampler->epoch = epoch;
    /* Mixes both numbers, so that nearby seeds and epochs have unrelated keys. */
    sampler->key = permute_mix(permute_mix(sampler->options.seed) ^ epoch);
    sampler->start = 0;
    sampler->taken = 0;
}

uint64_t dist_sampler_count(const dist_sampler *sampler)
{
    uint64_t world, left;

    if (!sampler_is_valid(sampler))
        return 0;
    world = (uint64_t)sampler->options.world_size;
    left = sampler->options.count - sampler->start;
    return left / world + (!sampler->options.drop_last && left % world != 0);
}

/* Returns the position of this rank's i-th sample in the order, which repeats after `count`. */
static uint64_t sampler_position(const struct dist_sampler *sampler, uint64_t i)
{
    return sampler->start + i * (uint64_t)sampler->options.world_size +
           (uint64_t)sampler->options.rank;
}

uint64_t dist_sampler_at(const dist_sampler *sampler, uint64_t i)
{
    uint64_t count, at;

    if (!sampler_is_valid(sampler))
        return 0;
    count = sampler->options.count;
    at = sampler_position(sampler, i) % count;
    return sampler->options.shuffle ? sampler_permute(count, sampler->key, at) : at;
}

bool dist_sampler_is_padding(const dist_sampler *sampler, uint64_t i)
{
    return sampler_is_valid(sampler) && sampler_position(sampler, i) >= sampler->options.count;
}

bool dist_sampler_next(dist_sampler *sampler, uint64_t *index_p)
{
    if (!sampler_is_valid(sampler) || !index_p || sampler->taken >= dist_sampler_count(sampler))
        return false;
    *index_p = dist_sampler_at(sampler, sampler->taken++);
    return true;
}

void dist_sampler_skip(dist_sampler *sampler, uint64_t samples)
{
    uint64_t left;

    if (!sampler_is_valid(sampler))
        return;
    left = dist_sampler_count(sampler) - sampler->taken;
    sampler->taken += samples < left ? samples : left;
}

void dist_sampler_save(const dist_sampler *sampler, struct dist_sampler_state *state_p)
{
    uint64_t left, seen;

    if (!sampler_is_valid(sampler) || !state_p)
        return;
    left = sampler->options.count - sampler->start;
    seen = sampler->taken * (uint64_t)sampler->options.world_size;
    *state_p = (struct dist_sampler_state){.seed = sampler->options.seed,
                                           .epoch = sampler->epoch,
                                           .seen = sampler->start + (seen < left ? seen : left)};
}

dist_status dist_sampler_restore(dist_sampler *sampler, const struct dist_sampler_state *state)
{
    if (!sampler_is_valid(sampler) || !state)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "dist_sampler_restore: %s",
                          !sampler             ? "sampler is NULL"
                          : sampler->destroyed ? "the sampler was destroyed"
                                               : "state is NULL");
    if (state->seen > sampler->options.count)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_sampler_restore: %llu samples of the epoch were seen, but the data "
                          "set has only %llu: the state was saved with another data set",
                          (unsigned long long)state->seen,
                          (unsigned long long)sampler->options.count);
    sampler->options.seed = state->seed;
    dist_sampler_set_epoch(sampler, state->epoch);
    sampler->start = state->seen;
    return DIST_OK;
}
