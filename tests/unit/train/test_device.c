/* SPDX-License-Identifier: BSD-3-Clause */
/* GPU kernels on the stand-in driver compute the same as the layers on the CPU. */
#include "unit.h"

#include <math.h>
#include <unistd.h>

#include "train/dataset.h"
#include "train/device.h"

enum { CAPACITY = 70 }; /* more samples than the windows of one product */

struct side {
    struct model *model;
    struct device *device;
};

static bool has_module;

/* Finds the stand-in driver and the kernels built for it. */
static int find_module(void **state)
{
    const char *build = getenv("builddir");
    char driver[4096], kernels[4096], module[8192];

    (void)state;
    build = build ? build : ".";
    snprintf(driver, sizeof(driver), "%s/.libs/standin_cuda.so", build);
    snprintf(kernels, sizeof(kernels), "%s/tests/standin/kernels/.libs", build);
    snprintf(module, sizeof(module), "%s/train_mnist_cuda.so", kernels);
    has_module = access(module, F_OK) == 0 && access(driver, F_OK) == 0;
    setenv("DIST_GPU_DRIVER", driver, 1);
    setenv("DIST_PLUGIN_PATH", kernels, 1);
    return 0;
}

static struct side open_side(const char *name, const char *arch, const char *optimizer)
{
    struct device_setup setup = {
        .capacity = CAPACITY,
        .grid = true,
        .world = 2,
        .optimizer = optimizer,
        .weight_decay = 0.01F,
    };
    struct side side;

    assert_int_equal(model_create(arch, dataset_mnist.shape,
                                  strcmp(name, "cpu") == 0 ? CAPACITY : 1, NULL, &side.model),
                     0);
    setup.model = side.model;
    model_init(side.model, 7);
    assert_int_equal(device_open(name, &setup, &side.device), 0);
    assert_int_equal(side.device->kind->put(side.device), 0);
    return side;
}

static void close_side(struct side *side)
{
    device_close(side->device);
    model_destroy(side->model);
}

/* Fills the batch with drawn digits, beginning with number `first`. */
static void fill(struct batch *batch, int first, int count)
{
    struct dataset dataset;

    dataset_draw(&dataset_mnist, 1000, true, 1, &dataset);
    batch->count = 0;
    for (int i = 0; i < count; i++)
        batch_add(batch, &dataset, (size_t)(first + i), (uint32_t)(2 * i + 1), 0);
}

static struct pass step_pass(const struct batch *batch)
{
    return (struct pass){.batch = batch->count,
                         .training = true,
                         .weight = 1.0F / (float)batch->count,
                         .seed = 3,
                         .step = 11,
                         .positions = batch->positions};
}

/* Makes a step in which this rank's sums are used as the mean. Returns the loss. */
static double step_on(struct side *side, const struct batch *batch, int micro_batches, float lr)
{
    const struct pass pass = step_pass(batch);
    const struct device_kind *kind = side->device->kind;
    double loss = 0.0;

    assert_int_equal(kind->gradients(side->device, &pass, batch, micro_batches, NULL), 0);
    assert_int_equal(kind->update(side->device, lr), 0);
    assert_int_equal(kind->losses(side->device, 1, &loss), 0);
    assert_int_equal(kind->get(side->device), 0);
    return loss;
}

static void assert_same_weights(const struct side *a, const struct side *b, double limit)
{
    double worst = 0.0, moved = 0.0;

    for (size_t i = 0; i < a->model->parameters; i++) {
        worst = fmax(worst, fabs((double)a->model->weights[i] - (double)b->model->weights[i]));
        moved = fmax(moved, fabs((double)a->model->weights[i]));
    }
    assert_true(moved > 0.0);
    if (worst > limit)
        fail_msg("weights differ by %g", worst);
}

/* With SGD, learning rate 1 and no momentum, the weights change by the gradients. In the first step
 * the grid is finer than the limit; later, a difference in the last bit can change a gradient by
 * one grid step. */
static void check_gradients(const char *arch, int count, int micro_batches)
{
    struct side cpu = open_side("cpu", arch, "sgd"), cuda = open_side("cuda", arch, "sgd");
    struct batch batch;
    double expected;

    assert_int_equal(batch_create(&dataset_mnist, CAPACITY, &batch), 0);
    fill(&batch, 0, count);
    expected = step_on(&cpu, &batch, micro_batches, 1.0F);
    assert_float_equal(step_on(&cuda, &batch, micro_batches, 1.0F), expected, 1e-5);
    assert_same_weights(&cpu, &cuda, 1e-5);
    batch_destroy(&batch);
    close_side(&cuda);
    close_side(&cpu);
}

static void test_gradients_match_the_CPUs(void **state)
{
    (void)state;
    if (!has_module)
        skip();
    check_gradients("mlp", 16, 4);
    check_gradients("cnn", 16, 4);
    check_gradients("mlp", 13, 1); /* like the last batch of an epoch */
    check_gradients("cnn", 13, 1);
}

static void test_Adadelta_matches_the_CPUs(void **state)
{
    struct side cpu, cuda;
    struct batch batch;

    (void)state;
    if (!has_module)
        skip();
    cpu = open_side("cpu", "mlp", "adadelta");
    cuda = open_side("cuda", "mlp", "adadelta");
    assert_int_equal(batch_create(&dataset_mnist, CAPACITY, &batch), 0);
    for (int step = 0; step < 4; step++) {
        fill(&batch, 16 * step, 16);
        step_on(&cpu, &batch, 4, 0.1F);
        step_on(&cuda, &batch, 4, 0.1F);
    }
    assert_same_weights(&cpu, &cuda, 1e-5);
    batch_destroy(&batch);
    close_side(&cuda);
    close_side(&cpu);
}

/* Without dropout, and with more samples than the windows of one product. */
static void test_a_test_pass_matches_the_CPUs(void **state)
{
    struct loss expected, found;
    struct side cpu, cuda;
    struct batch batch;
    struct pass pass = {.batch = CAPACITY};

    (void)state;
    if (!has_module)
        skip();
    cpu = open_side("cpu", "cnn", "sgd");
    cuda = open_side("cuda", "cnn", "sgd");
    assert_int_equal(batch_create(&dataset_mnist, CAPACITY, &batch), 0);
    fill(&batch, 0, CAPACITY);
    pass.positions = batch.positions;
    assert_int_equal(cpu.device->kind->test(cpu.device, &pass, &batch, &expected), 0);
    assert_int_equal(cuda.device->kind->test(cuda.device, &pass, &batch, &found), 0);
    assert_float_equal(found.total, expected.total, 1e-5 * expected.total);
    assert_int_equal(found.correct, expected.correct);
    batch_destroy(&batch);
    close_side(&cuda);
    close_side(&cpu);
}

/* The host may be ahead of the device: the losses of all steps are available at the end, in
 * order. */
static void test_losses_can_be_fetched_later(void **state)
{
    struct side now, later;
    struct batch batch;
    double losses[6], expected;

    (void)state;
    if (!has_module)
        skip();
    now = open_side("cuda", "mlp", "sgd");
    later = open_side("cuda", "mlp", "sgd");
    assert_int_equal(batch_create(&dataset_mnist, CAPACITY, &batch), 0);
    for (int step = 0; step < 6; step++) {
        struct pass pass;

        fill(&batch, 16 * step, 16);
        pass = step_pass(&batch);
        assert_int_equal(later.device->kind->gradients(later.device, &pass, &batch, 4, NULL), 0);
        assert_int_equal(later.device->kind->update(later.device, 0.1F), 0);
    }
    assert_int_equal(later.device->kind->losses(later.device, 6, losses), 0);
    for (int step = 0; step < 6; step++) {
        fill(&batch, 16 * step, 16);
        expected = step_on(&now, &batch, 4, 0.1F);
        assert_true(losses[step] == expected);
    }
    batch_destroy(&batch);
    close_side(&now);
    close_side(&later);
}

static void test_device_names_are_parsed(void **state)
{
    static const char *const wrong[] = {
        "", "gpu", "cpu:0", "cuda:", "cuda:x", "cuda:-1", "cuda:1x", "cuda:99999999999999999999"};
    int number = 5;
    bool cuda = true;

    (void)state;
    assert_int_equal(device_parse("cpu", &cuda, &number), 0);
    assert_false(cuda);
    assert_int_equal(device_parse("cuda", &cuda, &number), 0);
    assert_true(cuda && number == -1);
    assert_int_equal(device_parse("cuda:12", &cuda, &number), 0);
    assert_true(cuda && number == 12);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_int_equal(device_parse(wrong[i], &cuda, &number), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_device_names_are_parsed),
        cmocka_unit_test(test_gradients_match_the_CPUs),
        cmocka_unit_test(test_Adadelta_matches_the_CPUs),
        cmocka_unit_test(test_a_test_pass_matches_the_CPUs),
        cmocka_unit_test(test_losses_can_be_fetched_later),
    };

    return cmocka_run_group_tests(tests, find_module, NULL);
}
