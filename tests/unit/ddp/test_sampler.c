/* SPDX-License-Identifier: BSD-3-Clause */
/* The sampler: the ranks' parts together are the whole data set, in the order of a single rank. */
/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */

#include <dist/sampler.h>
#include <stdlib.h>
#include <string.h>

static dist_sampler *make(uint64_t count, int rank, int world, bool drop_last)
{
    struct dist_sampler_options options = DIST_SAMPLER_OPTIONS_INIT;
    dist_sampler *sampler = NULL;

    options.count = count;
    options.rank = rank;
    options.world_size = world;
    options.seed = 7;
    options.drop_last = drop_last;
    assert_int_equal(dist_sampler_create(NULL, &options, &sampler), DIST_OK);
    dist_sampler_set_epoch(sampler, 3);
    return sampler;
}

/* Checks that each sample occurs once, and again only as padding. */
static void check_partition(uint64_t count, int world)
{
    const uint64_t each = (count + (uint64_t)world - 1) / (uint64_t)world;
    int *seen = calloc(count, sizeof(*seen));
    uint64_t index, padding = 0;

    for (int rank = 0; rank < world; rank++) {
        dist_sampler *sampler = make(count, rank, world, false);

        assert_int_equal(dist_sampler_count(sampler), each);
        for (uint64_t i = 0; i < each; i++) {
            assert_true(dist_sampler_next(sampler, &index) && index < count);
            assert_int_equal(index, dist_sampler_at(sampler, i));
            if (dist_sampler_is_padding(sampler, i))
                padding++;
            else
                seen[index]++;
        }
        assert_false(dist_sampler_next(sampler, &index));
        dist_sampler_destroy(sampler);
    }
    for (uint64_t i = 0; i < count; i++)
        assert_int_equal(seen[i], 1);
    assert_int_equal(padding, each * (uint64_t)world - count);
    free(seen);
}

static void test_ranks_partition_the_samples(void **state)
{
    static const uint64_t counts[] = {1, 2, 3, 4, 5, 10, 16, 17, 64, 101, 1000};

    (void)state;
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
        for (int world = 1; world <= 65; world++)
            check_partition(counts[i], world);
}

/* Sample i of rank r is sample i * world + r of a single rank. */
static void test_the_global_order_does_not_depend_on_ranks(void **state)
{
    dist_sampler *single = make(96, 0, 1, false);

    (void)state;
    for (int world = 2; world <= 8; world++) {
        for (int rank = 0; rank < world; rank++) {
            dist_sampler *part = make(96, rank, world, true);

            assert_int_equal(dist_sampler_count(part), 96 / world);
            for (uint64_t i = 0; i < 96 / (uint64_t)world; i++)
                assert_int_equal(dist_sampler_at(part, i),
                                 dist_sampler_at(single, i * (uint64_t)world + (uint64_t)rank));
            dist_sampler_destroy(part);
        }
    }
    dist_sampler_destroy(single);
}

/* Saved by three ranks in the middle of an epoch and restored by five: the remaining samples follow
 * in the same order. */
static void test_a_position_is_restored_by_other_ranks(void **state)
{
    dist_sampler *single = make(96, 0, 1, false);
    struct dist_sampler_state saved, again;

    (void)state;
    for (uint64_t taken = 0; taken <= 32; taken += 8) {
        dist_sampler *first = make(96, 1, 3, false);

        dist_sampler_skip(first, taken);
        dist_sampler_save(first, &saved);
        assert_int_equal(saved.seen, 3 * taken);
        dist_sampler_destroy(first);
        for (int rank = 0; rank < 5; rank++) {
            dist_sampler *part = make(96, rank, 5, false);
            const uint64_t left = 96 - saved.seen;

            dist_sampler_set_epoch(part, 9);
            assert_int_equal(dist_sampler_restore(part, &saved), DIST_OK);
            dist_sampler_save(part, &again);
            assert_memory_equal(&again, &saved, sizeof(saved));
            assert_int_equal(dist_sampler_count(part), (left + 4) / 5);
            for (uint64_t i = 0; i < dist_sampler_count(part); i++)
                if (!dist_sampler_is_padding(part, i))
                    assert_int_equal(dist_sampler_at(part, i),
                                     dist_sampler_at(single, saved.seen + 5 * i + (uint64_t)rank));
            dist_sampler_destroy(part);
        }
    }
    dist_sampler_destroy(single);
}

static void test_the_order_depends_on_seed_and_epoch(void **state)
{
    dist_sampler *a = make(1000, 0, 1, false), *b = make(1000, 0, 1, false);
    int same = 0;

    (void)state;
    dist_sampler_set_epoch(b, 9);
    for (uint64_t i = 0; i < 1000; i++)
        same += dist_sampler_at(a, i) == dist_sampler_at(b, i);
    assert_in_range(same, 0, 10);
    dist_sampler_set_epoch(b, 3);
    for (uint64_t i = 0; i < 1000; i++)
        assert_int_equal(dist_sampler_at(a, i), dist_sampler_at(b, i));
    dist_sampler_destroy(a);
    dist_sampler_destroy(b);
}

/* The position of a sample is uniformly distributed over the epochs: chi-squared test over 16
 * positions. */
static void test_orders_are_uniform(void **state)
{
    enum { COUNT = 16, EPOCHS = 16000 };
    int places[COUNT][COUNT] = {{0}};
    dist_sampler *sampler = make(COUNT, 0, 1, false);
    double chi = 0.0;

    (void)state;
    for (uint64_t epoch = 0; epoch < EPOCHS; epoch++) {
        dist_sampler_set_epoch(sampler, epoch);
        for (uint64_t i = 0; i < COUNT; i++)
            places[i][dist_sampler_at(sampler, i)]++;
    }
    for (int i = 0; i < COUNT; i++)
        for (int j = 0; j < COUNT; j++) {
            const double off = places[i][j] - (double)EPOCHS / COUNT;

            chi += off * off / ((double)EPOCHS / COUNT);
        }
    /* 225 degrees of freedom: 225 on average; more than 320 once in 30 000 tries. */
    assert_true(chi < 320.0);
    dist_sampler_destroy(sampler);
}

/* More samples than fit in memory. */
static void test_more_samples_than_memory(void **state)
{
    static const uint64_t counts[] = {UINT64_C(1) << 40, UINT64_MAX, (UINT64_C(1) << 62) + 1};

    (void)state;
    for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
        dist_sampler *sampler = make(counts[c], 2, 3, true);

        for (uint64_t i = 0; i < 1000; i++)
            assert_true(dist_sampler_at(sampler, i) < counts[c]);
        dist_sampler_destroy(sampler);
    }
}

static void test_bad_options_are_rejected(void **state)
{
    struct dist_sampler_options options = DIST_SAMPLER_OPTIONS_INIT;
    dist_sampler *sampler = NULL;

    (void)state;
    assert_int_equal(dist_sampler_create(NULL, &options, &sampler), DIST_ERR_INVALID_ARGUMENT);
    options.count = 4;
    assert_int_equal(dist_sampler_create(NULL, &options, &sampler), DIST_ERR_INVALID_ARGUMENT);
    options.rank = options.world_size = 2;
    assert_int_equal(dist_sampler_create(NULL, &options, &sampler), DIST_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(dist_last_error(), "options.rank is 2: set it to 0 to 1"));
    options.rank = -2;
    assert_int_equal(dist_sampler_create(NULL, &options, &sampler), DIST_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(dist_last_error(), "options.rank is -2"));
    options.rank = 0;
    options.world_size = -5;
    assert_int_equal(dist_sampler_create(NULL, &options, &sampler), DIST_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(dist_last_error(), "options.world_size is -5"));
    options.world_size = 2;
    options.count = UINT64_MAX;
    assert_int_equal(dist_sampler_create(NULL, &options, &sampler), DIST_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(dist_last_error(), "drop_last"));
    options.count = 4;
    assert_null(sampler);
    options.size = sizeof(options) + 1;
    assert_int_equal(dist_sampler_create(NULL, &options, &sampler), DIST_ERR_INVALID_ARGUMENT);
    options.rank = 0;
    options.size = offsetof(struct dist_sampler_options, drop_last); /* an older header's size */
    assert_int_equal(dist_sampler_create(NULL, &options, &sampler), DIST_OK);
    dist_sampler_destroy(sampler);
    sampler = make(4, 0, 1, false);
    assert_int_equal(dist_sampler_restore(sampler, &(struct dist_sampler_state){.seen = 5}),
                     DIST_ERR_INVALID_ARGUMENT);
    assert_int_equal(dist_sampler_restore(sampler, NULL), DIST_ERR_INVALID_ARGUMENT);
    dist_sampler_destroy(sampler);
    dist_sampler_destroy(NULL);
}

/* Every function ignores or rejects a sampler that is NULL or destroyed. */
static void test_NULL_and_destroyed_samplers_are_rejected(void **state)
{
    dist_sampler *destroyed = make(4, 0, 1, false), *none[] = {NULL, destroyed};
    struct dist_sampler_state saved = {.seen = 3};
    uint64_t index = 7;

    (void)state;
    dist_sampler_destroy(destroyed);
    for (int i = 0; i < 2; i++) {
        dist_sampler_set_epoch(none[i], 1);
        dist_sampler_skip(none[i], 1);
        dist_sampler_save(none[i], &saved);
        assert_int_equal(dist_sampler_count(none[i]), 0);
        assert_int_equal(dist_sampler_at(none[i], 0), 0);
        assert_false(dist_sampler_is_padding(none[i], 0));
        assert_false(dist_sampler_next(none[i], &index));
        assert_int_equal(dist_sampler_restore(none[i], &saved), DIST_ERR_INVALID_ARGUMENT);
        dist_sampler_destroy(none[i]);
    }
    assert_int_equal(index, 7);
    assert_int_equal(saved.seen, 3);
    assert_non_null(strstr(dist_last_error(), "destroyed"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks_partition_the_samples),
        cmocka_unit_test(test_the_global_order_does_not_depend_on_ranks),
        cmocka_unit_test(test_a_position_is_restored_by_other_ranks),
        cmocka_unit_test(test_the_order_depends_on_seed_and_epoch),
        cmocka_unit_test(test_orders_are_uniform),
        cmocka_unit_test(test_more_samples_than_memory),
        cmocka_unit_test(test_bad_options_are_rejected),
        cmocka_unit_test(test_NULL_and_destroyed_samplers_are_rejected),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
