/* SPDX-License-Identifier: BSD-3-Clause */
/* Batches that are loaded in advance are the same and in order for any number of threads. */
#include "unit.h"

#include "train/dataset.h"
#include "train/rng.h"

enum { SAMPLES = 500, CAPACITY = 7 };

/* Plans a batch of number % CAPACITY + 1 samples, beginning at a place that depends on the
 * number. */
static int plan(void *arg, int64_t number, struct loader_item *items)
{
    int64_t *last = arg;
    const int count = (int)(number % CAPACITY) + 1;

    assert_int_equal(number, *last + 1);
    *last = number;
    for (int i = 0; i < count; i++)
        items[i] = (struct loader_item){.index = (size_t)(number * 31 + i) % SAMPLES,
                                        .position = (uint32_t)i,
                                        .augment_key = i % 2 ? (uint64_t)number + 1 : 0};
    return count;
}

/* Returns a hash of the first `taken` of `batches` batches, in order. */
static uint64_t load(struct loader *loader, int64_t batches, int64_t taken)
{
    const size_t pixels = (size_t)shape_size(dataset_mnist.shape);
    int64_t last = -1;
    uint64_t hash = 0;

    loader_begin(loader, batches, plan, &last);
    for (int64_t i = 0; i < taken; i++) {
        const struct batch *batch = loader_next(loader);

        assert_non_null(batch);
        assert_int_equal(batch->count, i % CAPACITY + 1);
        hash = hash * 31 + hash_floats(batch->images, (size_t)batch->count * pixels);
        for (int j = 0; j < batch->count; j++)
            hash = hash * 31 + batch->labels[j] + batch->positions[j];
    }
    if (taken == batches)
        assert_null(loader_next(loader));
    return hash;
}

static void test_any_number_of_threads_loads_the_same_batches(void **state)
{
    static const int workers[] = {0, 1, 2, 7};
    struct dataset dataset;
    uint64_t expected = 0;

    (void)state;
    dataset_draw(&dataset_mnist, SAMPLES, true, 1, &dataset);
    for (size_t i = 0; i < sizeof(workers) / sizeof(workers[0]); i++) {
        struct loader *loader = NULL;
        uint64_t hash;

        assert_int_equal(loader_create(&dataset, workers[i], CAPACITY, &loader), 0);
        hash = load(loader, 40, 40);
        expected = expected ? expected : hash;
        assert_true(hash == expected);
        load(loader, 40, 3); /* stopped in the middle, as by --max-steps */
        assert_true(load(loader, 40, 40) == expected);
        load(loader, 0, 0);
        load(loader, 20, 1);
        loader_destroy(loader);
    }
    loader_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_number_of_threads_loads_the_same_batches),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
