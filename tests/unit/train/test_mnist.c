/* SPDX-License-Identifier: BSD-3-Clause */
/* The real MNIST data set, if $DIST_TEST_MNIST has it: reading and training. */
#include "../base/unit.h"
#include "unit.h"

#include <dist/sampler.h>

#include "train/dataset.h"
#include "train/device.h"
#include "train/model.h"

enum { BATCH = 64, SKIPPED = 77 };

static struct dataset train_set, test_set;

static void test_MNIST_is_read(void **state)
{
    static const uint8_t train_labels[] = {5, 0, 4, 1, 9}, test_labels[] = {7, 2, 1, 0, 4};

    (void)state;
    assert_int_equal(train_set.count, 60000);
    assert_int_equal(test_set.count, 10000);
    assert_memory_equal(train_set.labels, train_labels, sizeof(train_labels));
    assert_memory_equal(test_set.labels, test_labels, sizeof(test_labels));
}

/* Trains one epoch, or a part of it under a checker such as Valgrind. */
static void train_epoch(struct model *model, struct batch *batch)
{
    struct optimizer *optimizer;
    struct dist_sampler_options order = DIST_SAMPLER_OPTIONS_INIT;
    dist_sampler *sampler;

    assert_int_equal(optimizer_create("adadelta", model->parameters, 0, 0, &optimizer), 0);
    order.count = train_set.count;
    order.rank = 0;
    order.world_size = 1;
    order.seed = 1;
    assert_int_equal(dist_sampler_create(NULL, &order, &sampler), DIST_OK);
    for (size_t step = 0; step < train_set.count / BATCH / unit_patience(); step++) {
        struct pass pass = {.batch = BATCH,
                            .training = true,
                            .weight = 1.0F / BATCH,
                            .seed = 1,
                            .step = step,
                            .positions = batch->positions};

        batch->count = 0;
        for (uint32_t i = 0; i < BATCH; i++)
            batch_add(batch, &train_set, dist_sampler_at(sampler, step * BATCH + i), i, 0);
        loss_nll(BATCH, MODEL_CLASSES, model_forward(model, &pass, batch->images), batch->labels,
                 pass.weight, model_output_gradient(model));
        model_backward(model, &pass, batch->images, NULL);
        optimizer_step(optimizer, 1.0F, model->weights, model->gradients);
    }
    dist_sampler_destroy(sampler);
    optimizer_destroy(optimizer);
}

static int64_t count_correct(struct model *model, struct batch *batch)
{
    int64_t correct = 0;

    for (size_t begin = 0; begin < test_set.count; begin += BATCH) {
        struct pass pass = {.seed = 1, .positions = batch->positions};

        batch->count = 0;
        for (size_t i = begin; i < begin + BATCH && i < test_set.count; i++)
            batch_add(batch, &test_set, i, 0, 0);
        pass.batch = batch->count;
        correct += loss_nll(pass.batch, MODEL_CLASSES, model_forward(model, &pass, batch->images),
                            batch->labels, 0.0F, NULL)
                       .correct;
    }
    return correct;
}

static void test_mlp_learns(void **state)
{
    struct model *model;
    struct batch batch;

    (void)state;
    assert_int_equal(model_create("mlp", dataset_mnist.shape, BATCH, NULL, &model), 0);
    assert_int_equal(batch_create(&dataset_mnist, BATCH, &batch), 0);
    model_init(model, 1);
    train_epoch(model, &batch);
    assert_in_range(count_correct(model, &batch), unit_patience() > 1 ? 8500 : 9500, 10000);
    batch_destroy(&batch);
    model_destroy(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_MNIST_is_read),
        cmocka_unit_test(test_mlp_learns),
    };
    const char *folder = getenv("DIST_TEST_MNIST");
    int failed;

    if (!folder || access(folder, F_OK) < 0) {
        puts("1..0 # SKIP no MNIST: set DIST_TEST_MNIST to the folder that has it");
        return SKIPPED;
    }
    if (dataset_read(&dataset_mnist, folder, true, &train_set) < 0 ||
        dataset_read(&dataset_mnist, folder, false, &test_set) < 0) {
        fprintf(stderr, "%s\n", failure_text());
        return 1;
    }
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    dataset_destroy(&train_set);
    dataset_destroy(&test_set);
    return failed;
}
