/* SPDX-License-Identifier: BSD-3-Clause */
/* The arithmetic of several ranks, simulated in one process, has the same result as a single
 * rank. */
#include "unit.h"

#include <math.h>

#include "train/rng.h"
#include "train/trainer.h"

enum { STEPS = 12, MOST_RANKS = 8 };

/* Does what an all-reduce does, beginning with another rank each time, because any order must give
 * the same result. */
static void average(struct trainer *trainers, int world, int first)
{
    const size_t count = trainers[0].model->parameters + GRID_TAIL;

    for (size_t i = 0; i < count; i++) {
        float sum = 0.0F;

        for (int rank = 0; rank < world; rank++)
            sum += trainers[(first + rank) % world].device->sums[i];
        for (int rank = 0; rank < world; rank++)
            trainers[rank].device->sums[i] = sum / (float)world;
    }
}

/* Trains with `world` ranks. Returns the hash of the parameters, which must be the same on all
 * ranks. */
static uint64_t train(const char *arch, int world, double losses[STEPS])
{
    char *const argv[] = {(char *)"train_mnist",
                          (char *)"--train-samples=168",
                          (char *)"--batch-size=16",
                          (char *)"--augment",
                          (char *)"--reproducible",
                          (char *)"--arch",
                          (char *)arch,
                          NULL};
    struct trainer *trainers = calloc((size_t)world, sizeof(*trainers));
    struct comm comms[MOST_RANKS];
    struct options options;
    uint64_t hash = 0;

    assert_int_equal(options_parse(&task_mnist, 7, argv, &options), 0);
    for (int rank = 0; rank < world; rank++) {
        comms[rank] = (struct comm){.rank = rank, .world = world};
        assert_int_equal(trainer_prepare(&options, &comms[rank], &trainers[rank]), 0);
        trainers[rank].lr = 1.0;
    }
    for (int step = 0; step < STEPS; step++) {
        /* step 10 is the last of the epoch, with half a batch */
        for (int rank = 0; rank < world; rank++)
            assert_int_equal(trainer_gradients(&trainers[rank], step % 11), 0);
        average(trainers, world, step);
        for (int rank = 0; rank < world; rank++)
            assert_int_equal(trainer_update(&trainers[rank]), 0);
        assert_int_equal(device_cpu.losses(trainers[0].device, 1, &losses[step]), 0);
    }
    for (int rank = world - 1; rank >= 0; rank--) {
        const uint64_t own =
            hash_floats(trainers[rank].model->weights, trainers[rank].model->parameters);

        assert_true(rank == world - 1 || own == hash);
        hash = own;
        trainer_close(&trainers[rank]);
    }
    free(trainers);
    return hash;
}

/* One, two, four and eight ranks give the same bits. */
static void check_arch(const char *arch)
{
    double single[STEPS], several[STEPS];
    const uint64_t hash = train(arch, 1, single);

    assert_true(single[STEPS - 1] < single[0]);
    for (int world = 2; world <= MOST_RANKS; world *= 2) {
        const uint64_t other = train(arch, world, several);

        assert_true(other == hash);
        for (int step = 0; step < STEPS; step++)
            assert_float_equal(several[step], single[step], 1e-3 * single[step]);
    }
}

static void test_the_result_does_not_depend_on_ranks(void **state)
{
    (void)state;
    check_arch("mlp");
    check_arch("cnn");
}

/* Numbers rounded to the grid have the same sum in any order; unrounded ones do not. */
static void test_sums_on_the_grid_are_exact(void **state)
{
    const struct grid none = {.count = 0};
    struct model *model;
    struct grid grid;
    size_t differ[2] = {0, 0};

    (void)state;
    assert_int_equal(model_create("mlp", dataset_mnist.shape, 1, NULL, &model), 0);
    grid_start(model, &grid);
    for (int round = 0; round < 2; round++) {
        float *up = calloc(model->parameters + GRID_TAIL, sizeof(*up));
        float *down = calloc(model->parameters + GRID_TAIL, sizeof(*down));

        for (uint32_t k = 0; k < 8; k++) {
            for (size_t i = 0; i < model->parameters; i++)
                model->gradients[i] = 0.2F * rng_uniform(k, (uint32_t)i) - 0.1F;
            grid_add(round ? &grid : &none, model, 1, 0.0F, k > 0, up);
        }
        for (uint32_t k = 8; k-- > 0;) {
            for (size_t i = 0; i < model->parameters; i++)
                model->gradients[i] = 0.2F * rng_uniform(k, (uint32_t)i) - 0.1F;
            grid_add(round ? &grid : &none, model, 1, 0.0F, k < 7, down);
        }
        for (size_t i = 0; i < model->parameters; i++)
            differ[round] += up[i] != down[i];
        free(up);
        free(down);
    }
    assert_true(differ[0] > 1000);
    assert_int_equal(differ[1], 0);
    model_destroy(model);
}

/* The error of a rounded gradient is at most half a grid step, and the step is adapted to the
 * largest gradient. */
static void test_grid_steps_follow_the_gradients(void **state)
{
    struct model *model;
    struct grid grid;
    float *sums;

    (void)state;
    assert_int_equal(model_create("mlp", dataset_mnist.shape, 1, NULL, &model), 0);
    grid_start(model, &grid);
    assert_int_equal(grid.count, 4);
    sums = calloc(model->parameters + GRID_TAIL, sizeof(*sums));
    model->gradients[5] = -0.3F;
    model->gradients[model->parameters - 1] = 2e-6F; /* the last bias */
    grid_add(&grid, model, 1, 1.5F, false, sums);
    assert_float_equal(sums[5], -0.3, grid.steps[0] / 2);
    assert_true(sums[model->parameters] == 1.5F);
    grid_advance(&grid, model, sums);
    assert_true(grid.steps[0] == 0x1p-17F); /* 0.3 < 2^-1, and may double */
    assert_true(grid.steps[1] == 0.0F);
    assert_true(grid.steps[3] == 0x1p-34F); /* 2e-6 is below 2^-18 */
    grid_add(&grid, model, 1, 1.5F, false, sums);
    assert_float_equal(sums[model->parameters - 1], 2e-6, 0x1p-35);
    free(sums);
    model_destroy(model);
}

/* Drawn digits depend on seed, set and index; all digits are about equally frequent. */
static void test_drawn_digits_are_reproducible(void **state)
{
    uint8_t image[DIGITS_SIDE * DIGITS_SIDE], again[DIGITS_SIDE * DIGITS_SIDE];
    struct dataset train_set, test_set, other;
    int seen[MODEL_CLASSES] = {0};
    uint8_t label;

    (void)state;
    dataset_draw(&dataset_mnist, 5000, true, 1, &train_set);
    dataset_draw(&dataset_mnist, 5000, false, 1, &test_set);
    dataset_draw(&dataset_mnist, 5000, true, 2, &other);
    for (size_t i = 0; i < 5000; i++) {
        label = dataset_get(&train_set, i, image);
        assert_in_range(label, 0, 9);
        seen[label]++;
    }
    for (int i = 0; i < MODEL_CLASSES; i++)
        assert_in_range(seen[i], 400, 600);
    label = dataset_get(&train_set, 77, image);
    assert_int_equal(dataset_get(&train_set, 77, again), label);
    assert_memory_equal(image, again, DIGITS_SIDE * DIGITS_SIDE);
    dataset_get(&test_set, 77, again);
    assert_memory_not_equal(image, again, DIGITS_SIDE * DIGITS_SIDE);
    dataset_get(&other, 77, again);
    assert_memory_not_equal(image, again, DIGITS_SIDE * DIGITS_SIDE);
}

/* A changed bit, or two exchanged values, change the hash. */
static void test_the_hash_detects_changes(void **state)
{
    float values[100];
    uint64_t hash;

    (void)state;
    for (int i = 0; i < 100; i++)
        values[i] = (float)i;
    hash = hash_floats(values, 100);
    assert_true(hash_floats(values, 100) == hash);
    assert_true(hash_floats(values, 99) != hash);
    values[50] = nextafterf(values[50], 99.0F);
    assert_true(hash_floats(values, 100) != hash);
    values[50] = 51.0F;
    values[51] = 50.0F;
    assert_true(hash_floats(values, 100) != hash);
}

/* Weights are bounded by 1 over the square root of the number of inputs. */
static void test_weights_are_initialized_within_bounds(void **state)
{
    struct model *model, *again;
    double square = 0.0, most = 0.0;
    const struct layer *fc1;

    (void)state;
    assert_int_equal(model_create("cnn", dataset_mnist.shape, 1, NULL, &model), 0);
    assert_int_equal(model_create("cnn", dataset_mnist.shape, 1, NULL, &again), 0);
    model_init(model, 5);
    model_init(again, 5);
    assert_memory_equal(model->weights, again->weights, model->parameters * sizeof(float));
    model_init(again, 6);
    assert_memory_not_equal(model->weights, again->weights, model->parameters * sizeof(float));
    assert_int_equal(model->parameters, 1199882); /* as in the PyTorch example */
    fc1 = &model->layers[4];
    for (int i = 0; i < 9216 * 128; i++) {
        most = fmax(most, fabs((double)fc1->weight[i]));
        square += (double)fc1->weight[i] * fc1->weight[i];
    }
    assert_float_equal(most, 1.0 / 96.0, 1e-5);
    assert_float_equal(sqrt(square / (9216 * 128)), 1.0 / 96.0 / sqrt(3.0), 1e-5);
    model_destroy(model);
    model_destroy(again);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_result_does_not_depend_on_ranks),
        cmocka_unit_test(test_sums_on_the_grid_are_exact),
        cmocka_unit_test(test_grid_steps_follow_the_gradients),
        cmocka_unit_test(test_drawn_digits_are_reproducible),
        cmocka_unit_test(test_the_hash_detects_changes),
        cmocka_unit_test(test_weights_are_initialized_within_bounds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
