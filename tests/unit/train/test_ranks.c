/* SPDX-License-Identifier: BSD-3-Clause */
/* The arithmetic of many ranks, played in one process: the result of one rank alone. */
#include "unit.h"

#include <math.h>

#include "train/rng.h"
#include "train/trainer.h"

enum { STEPS = 12, MOST_RANKS = 8 };

/* What an all-reduce does; from another rank on each time, since any order must do. */
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

/* Trains with `world` ranks. Returns the hash of rank 0's parameters; all must have the same. */
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

/* One, two, four and eight ranks: the same bits. */
static void check_arch(const char *arch)
{
    double alone[STEPS], together[STEPS];
    const uint64_t hash = train(arch, 1, alone);

    assert_true(alone[STEPS - 1] < alone[0]);
    for (int world = 2; world <= MOST_RANKS; world *= 2) {
        const uint64_t other = train(arch, world, together);

        assert_true(other == hash);
        for (int step = 0; step < STEPS; step++)
            assert_float_equal(together[step], alone[step], 1e-3 * alone[step]);
    }
}

static void test_result_does_not_depend_on_ranks(void **state)
{
    (void)state;
    check_arch("mlp");
    check_arch("cnn");
}

/* Numbers that the grid has rounded add up to the same in any order; unrounded they do not. */
static void test_grid_makes_sums_exact(void **state)
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

/* A rounded gradient is off by half a step at most, and the step follows the largest. */
static void test_grid_steps(void **state)
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
    model->gradients[model->parameters - 1] = 2e-6F; /* of the last bias */
    grid_add(&grid, model, 1, 1.5F, false, sums);
    assert_float_equal(sums[5], -0.3, grid.steps[0] / 2);
    assert_true(sums[model->parameters] == 1.5F);
    grid_advance(&grid, model, sums);
    assert_true(grid.steps[0] ==
                0x1p-17F); /* 0.3 is below 2^-1, twice that has room for it to grow */
    assert_true(grid.steps[1] == 0.0F);
    assert_true(grid.steps[3] == 0x1p-34F); /* 2e-6 is below 2^-18 */
    grid_add(&grid, model, 1, 1.5F, false, sums);
    assert_float_equal(sums[model->parameters - 1], 2e-6, 0x1p-35);
    free(sums);
    model_destroy(model);
}

/* The drawn digits: a function of seed, set and index; every digit about as often. */
static void test_digits(void **state)
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

/* One changed bit, or two exchanged values, change the hash. */
static void test_hash(void **state)
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

/* An input's bound is one over the square root of how many there are. */
static void test_initialisation(void **state)
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
        cmocka_unit_test(test_result_does_not_depend_on_ranks),
        cmocka_unit_test(test_grid_makes_sums_exact),
        cmocka_unit_test(test_grid_steps),
        cmocka_unit_test(test_digits),
        cmocka_unit_test(test_hash),
        cmocka_unit_test(test_initialisation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
