/* SPDX-License-Identifier: BSD-3-Clause */
/* The arithmetic of many ranks, played in one process: the same losses as one rank alone. */
#include "unit.h"

#include <math.h>

#include "train/batch.h"
#include "train/hash.h"
#include "train/loss.h"
#include "train/optimizer.h"
#include "train/rng.h"
#include "train/sampler.h"

enum { GLOBAL = 16, STEPS = 12, SAMPLES = 160 };

/* The gradients and loss of one rank for one step, added to sum. */
static void rank_step(struct model *model, struct sampler *sampler, struct batch *batch,
                      const struct dataset *dataset, int step, float *sum)
{
    const int local = GLOBAL / sampler->world;
    struct loss loss;
    struct pass pass = {local, true, 1, (uint64_t)step, batch->positions};

    batch->count = 0;
    for (int i = 0; i < local; i++) {
        const uint32_t position = (uint32_t)(i * sampler->world + sampler->rank);

        batch_add(batch, dataset, sampler_at(sampler, (size_t)(step % 10 * local + i)), position,
                  rng_key(1, RNG_AUGMENT, (uint64_t)step, position) | 1);
    }
    loss = loss_nll(local, MODEL_CLASSES, model_forward(model, &pass, batch->images), batch->labels,
                    model_output_gradient(model));
    model_backward(model, &pass, batch->images);
    model->gradients[model->parameters] = (float)(loss.total / local);
    for (size_t i = 0; i <= model->parameters; i++)
        sum[i] += model->gradients[i] / (float)sampler->world;
}

/* Trains with `world` ranks that share one set of parameters, as they are after each step. */
static void train(const char *arch, int world, double losses[STEPS])
{
    struct sampler samplers[GLOBAL];
    struct optimizer *optimizer;
    struct dataset dataset;
    struct model *model;
    struct batch batch;
    float *sum;

    dataset_draw(SAMPLES, true, 1, &dataset);
    assert_int_equal(model_create(arch, GLOBAL, &model), 0);
    assert_int_equal(batch_create(GLOBAL, &batch), 0);
    assert_int_equal(optimizer_create("adadelta", model->parameters, 0, 0, &optimizer), 0);
    model_init(model, 1);
    for (int rank = 0; rank < world; rank++) {
        assert_int_equal(sampler_create(SAMPLES, rank, world, &samplers[rank]), 0);
        sampler_shuffle(&samplers[rank], 1, 0);
    }
    for (int step = 0; step < STEPS; step++) {
        sum = calloc(model->parameters + 1, sizeof(*sum));
        for (int rank = 0; rank < world; rank++)
            rank_step(model, &samplers[rank], &batch, &dataset, step, sum);
        optimizer_step(optimizer, 1.0F, model->weights, sum);
        losses[step] = sum[model->parameters];
        free(sum);
    }
    for (int rank = 0; rank < world; rank++)
        sampler_destroy(&samplers[rank]);
    optimizer_destroy(optimizer);
    batch_destroy(&batch);
    model_destroy(model);
}

static void check_arch(const char *arch)
{
    double alone[STEPS], together[STEPS];

    train(arch, 1, alone);
    assert_true(alone[STEPS - 1] < alone[0]);
    for (int world = 2; world <= GLOBAL; world *= 2) {
        train(arch, world, together);
        for (int step = 0; step < STEPS; step++)
            assert_float_equal(together[step], alone[step], 1e-3 * alone[step]);
    }
}

static void test_losses_do_not_depend_on_ranks(void **state)
{
    (void)state;
    check_arch("mlp");
    check_arch("cnn");
}

/* The drawn digits: a function of seed, set and index; every digit about as often. */
static void test_digits(void **state)
{
    uint8_t image[MODEL_PIXELS], again[MODEL_PIXELS];
    struct dataset train_set, test_set, other;
    int seen[MODEL_CLASSES] = {0};
    uint8_t label;

    (void)state;
    dataset_draw(5000, true, 1, &train_set);
    dataset_draw(5000, false, 1, &test_set);
    dataset_draw(5000, true, 2, &other);
    for (size_t i = 0; i < 5000; i++) {
        label = dataset_get(&train_set, i, image);
        assert_in_range(label, 0, 9);
        seen[label]++;
    }
    for (int i = 0; i < MODEL_CLASSES; i++)
        assert_in_range(seen[i], 400, 600);
    label = dataset_get(&train_set, 77, image);
    assert_int_equal(dataset_get(&train_set, 77, again), label);
    assert_memory_equal(image, again, MODEL_PIXELS);
    dataset_get(&test_set, 77, again);
    assert_memory_not_equal(image, again, MODEL_PIXELS);
    dataset_get(&other, 77, again);
    assert_memory_not_equal(image, again, MODEL_PIXELS);
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
    assert_int_equal(model_create("cnn", 1, &model), 0);
    assert_int_equal(model_create("cnn", 1, &again), 0);
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
        cmocka_unit_test(test_losses_do_not_depend_on_ranks),
        cmocka_unit_test(test_digits),
        cmocka_unit_test(test_hash),
        cmocka_unit_test(test_initialisation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
