/* SPDX-License-Identifier: BSD-3-Clause */
/* The sampler: the ranks' parts together are the whole set, in the order of one rank alone. */
#include "unit.h"

#include "train/data/sampler.h"

static void check_partition(size_t count, int world)
{
    const size_t each = (count + (size_t)world - 1) / (size_t)world;
    int *seen = calloc(count, sizeof(*seen));
    struct sampler sampler;

    for (int rank = 0; rank < world; rank++) {
        assert_int_equal(sampler_create(count, rank, world, &sampler), 0);
        sampler_shuffle(&sampler, 7, 3);
        assert_int_equal(sampler_size(&sampler), each);
        for (size_t i = 0; i < each; i++) {
            assert_true(sampler_at(&sampler, i) < count);
            seen[sampler_at(&sampler, i)]++;
        }
        sampler_destroy(&sampler);
    }
    /* each sample once, and as many again as the padding repeats, as evenly as can be */
    for (size_t i = 0; i < count; i++) {
        const size_t most = (each * (size_t)world + count - 1) / count;

        assert_in_range(seen[i], most > 1 ? most - 1 : 1, most);
    }
    free(seen);
}

static void test_partition(void **state)
{
    static const size_t counts[] = {1, 2, 3, 10, 64, 101, 1000};

    (void)state;
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        for (int world = 1; world <= 65; world++)
            check_partition(counts[i], world);
    }
}

/* Sample i of rank r is sample i * world + r of one rank alone. */
static void test_same_global_order(void **state)
{
    struct sampler alone, part;

    (void)state;
    assert_int_equal(sampler_create(96, 0, 1, &alone), 0);
    sampler_shuffle(&alone, 1, 1);
    for (int world = 2; world <= 8; world++) {
        for (int rank = 0; rank < world; rank++) {
            assert_int_equal(sampler_create(96, rank, world, &part), 0);
            sampler_shuffle(&part, 1, 1);
            for (size_t i = 0; i < 96 / (size_t)world; i++)
                assert_int_equal(sampler_at(&part, i),
                                 sampler_at(&alone, i * (size_t)world + (size_t)rank));
            sampler_destroy(&part);
        }
    }
    sampler_destroy(&alone);
}

static int orders_differ(uint64_t seed, uint64_t epoch)
{
    struct sampler a, b;
    int differ;

    assert_int_equal(sampler_create(1000, 0, 1, &a), 0);
    assert_int_equal(sampler_create(1000, 0, 1, &b), 0);
    sampler_shuffle(&a, 1, 1);
    sampler_shuffle(&b, 9, 9); /* the order before must leave no trace */
    sampler_shuffle(&b, seed, epoch);
    differ = memcmp(a.order, b.order, 1000 * sizeof(*a.order)) != 0;
    sampler_destroy(&a);
    sampler_destroy(&b);
    return differ;
}

static void test_order_comes_from_seed_and_epoch(void **state)
{
    (void)state;
    assert_false(orders_differ(1, 1));
    assert_true(orders_differ(1, 2));
    assert_true(orders_differ(2, 1));
}

/* The rest of an epoch, by any number of ranks, is what the ranks before had not seen. */
static void test_goes_on_in_the_middle(void **state)
{
    struct sampler alone, part;

    (void)state;
    assert_int_equal(sampler_create(96, 0, 1, &alone), 0);
    sampler_shuffle(&alone, 1, 1);
    for (size_t start = 0; start <= 96; start += 16) {
        for (int rank = 0; rank < 3; rank++) {
            assert_int_equal(sampler_create(96, rank, 3, &part), 0);
            sampler_shuffle(&part, 1, 1);
            part.start = start;
            assert_int_equal(sampler_size(&part), (96 - start + 2) / 3);
            for (size_t i = 0; 3 * i + (size_t)rank < 96 - start; i++)
                assert_int_equal(sampler_at(&part, i),
                                 sampler_at(&alone, start + 3 * i + (size_t)rank));
            sampler_destroy(&part);
        }
    }
    sampler_destroy(&alone);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_partition),
        cmocka_unit_test(test_same_global_order),
        cmocka_unit_test(test_goes_on_in_the_middle),
        cmocka_unit_test(test_order_comes_from_seed_and_epoch),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
