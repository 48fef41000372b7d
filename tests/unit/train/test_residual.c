/* SPDX-License-Identifier: BSD-3-Clause */
/* Layers of residual networks, compared with plain loops, and gradients, compared with finite
 * differences. */
#include "unit.h"

#include <math.h>

#include "train/layer.h"
#include "train/model.h"
#include "train/rng.h"

enum { MOST = 1 << 15, BATCH = 3, CHANNELS = 64 };

static float in[MOST], out[MOST], dout[MOST], din[MOST], side[MOST], dside[MOST], weight[MOST];
static float dweight[MOST], factors[MOST], scratch[4 * MOST];
static float bias[CHANNELS], dbias[CHANNELS], mean[CHANNELS], variance[CHANNELS];
static float stats[2 * CHANNELS];
static const struct pass training = {.batch = BATCH, .training = true};

static void fill(float *to, int count, uint64_t key)
{
    for (int i = 0; i < count; i++)
        to[i] = 2.0F * rng_uniform(key, (uint32_t)i) - 1.0F;
}

static struct layer make(const struct layer_kind *kind, struct shape from, struct shape to)
{
    return (struct layer){
        .kind = kind,
        .name = "x",
        .in = from,
        .out = to,
        .spatial = 1,
        .inputs = 1,
        .weight = weight,
        .bias = bias,
        .dweight = dweight,
        .dbias = dbias,
        .mean = mean,
        .variance = variance,
        .stats = stats,
        .side = side,
        .side_shape = from,
        .dside = dside,
        .scratch = scratch,
    };
}

static struct layer make_conv(struct shape from, int kernel, int stride, int padding, int channels)
{
    const struct shape to = {(from.height + 2 * padding - kernel) / stride + 1,
                             (from.width + 2 * padding - kernel) / stride + 1, channels};
    struct layer layer = make(&layer_conv, from, to);

    layer.kernel = kernel;
    layer.stride = stride;
    layer.padding = padding;
    layer.spatial = kernel * kernel;
    layer.inputs = from.channels;
    layer.no_bias = true;
    layer.bias = layer.dbias = NULL;
    assert_true(layer_scratch_size(&layer) <= 4 * MOST);
    return layer;
}

/* ---- gradients compared with finite differences ---- */

/* A number that depends on all of out; `factors` is its gradient. */
static double measure(const struct layer *layer)
{
    double sum = 0.0;

    layer->kind->forward(layer, &training, in, out);
    for (int i = 0; i < BATCH * shape_size(layer->out); i++)
        sum += (double)out[i] * factors[i];
    return sum;
}

/* A small step rarely crosses the kink of relu. About 500 of the values are tested. */
static void check_gradient(const struct layer *layer, float *values, const float *gradients,
                           int count)
{
    const float step = 1e-3F;
    const int every = 1 + count / 500;
    int wrong = 0;

    for (int i = 0; i < count; i += every) {
        const float value = values[i];
        double slope;

        values[i] = value + step;
        slope = measure(layer);
        values[i] = value - step;
        slope = (slope - measure(layer)) / (2.0 * step);
        values[i] = value;
        wrong += fabs(slope - gradients[i]) > 2e-2 * (1.0 + fabs(slope));
    }
    assert_in_range(wrong, 0, 1 + count / every / 50);
}

/* Runs the layer forward and backward on random data; its results must overwrite random
 * contents. */
static void run(const struct layer *layer)
{
    const int outputs = BATCH * shape_size(layer->out);

    assert_true(BATCH * shape_size(layer->in) <= MOST && outputs <= MOST);
    fill(in, BATCH * shape_size(layer->in), 11);
    fill(factors, outputs, 14);
    fill(din, MOST, 15);
    fill(dweight, MOST, 16);
    fill(dbias, CHANNELS, 17);
    measure(layer);
    memcpy(dout, factors, sizeof(dout));
    layer->kind->backward(layer, &training, in, out, dout, din);
}

/* With pass->add, gradients of parameters are added to the previous ones, so they double. */
static void check_add(const struct layer *layer, int count)
{
    struct pass more = training;
    float once[CHANNELS];

    more.add = true;
    memcpy(once, dweight, sizeof(once));
    memcpy(dout, factors, sizeof(dout));
    layer->kind->backward(layer, &more, in, out, dout, NULL);
    for (int i = 0; i < CHANNELS && i < count; i++)
        assert_float_equal(dweight[i], 2.0F * once[i], 1e-3 * (1.0F + fabsf(once[i])));
}

/* ---- convolution ---- */

static double conv_plain(const struct layer *layer, const float *sample, int y, int x, int channel)
{
    double sum = 0.0;

    for (int k = 0; k < layer->spatial; k++) {
        const int at_y = y * layer->stride + k / layer->kernel - layer->padding;
        const int at_x = x * layer->stride + k % layer->kernel - layer->padding;

        if (at_y < 0 || at_x < 0 || at_y >= layer->in.height || at_x >= layer->in.width)
            continue;
        for (int c = 0; c < layer->inputs; c++)
            sum += (double)sample[(at_y * layer->in.width + at_x) * layer->inputs + c] *
                   weight[(k * layer->inputs + c) * layer->out.channels + channel];
    }
    return sum;
}

static void check_conv(struct shape from, int kernel, int stride, int padding, int channels)
{
    const struct layer layer = make_conv(from, kernel, stride, padding, channels);
    const int size = shape_size(layer.out), weights = (int)layer_weight_size(&layer);

    assert_true(weights <= MOST);
    fill(weight, weights, 12);
    run(&layer);
    for (int i = 0; i < BATCH * size; i++) {
        const int pixel = i % size / channels;
        const double plain =
            conv_plain(&layer, in + i / size * shape_size(from), pixel / layer.out.width,
                       pixel % layer.out.width, i % channels);

        assert_float_equal(out[i], plain, 1e-4 * (1.0 + fabs(plain)));
    }
    check_gradient(&layer, in, din, BATCH * shape_size(from));
    check_gradient(&layer, weight, dweight, weights);
    check_add(&layer, weights);
}

/* Sizes for both multiplication methods, with complete and partial tiles. */
static void test_convolution_and_its_gradients(void **state)
{
    (void)state;
    check_conv((struct shape){6, 7, 3}, 3, 1, 1, 4);
    check_conv((struct shape){7, 6, 2}, 3, 2, 1, 5);
    check_conv((struct shape){8, 8, 16}, 3, 1, 1, 16);
    check_conv((struct shape){9, 11, 16}, 3, 1, 1, 32);
    check_conv((struct shape){16, 18, 8}, 3, 2, 1, 16);
    check_conv((struct shape){10, 10, 16}, 3, 1, 0, 16);
    check_conv((struct shape){9, 9, 16}, 1, 1, 0, 16);
    check_conv((struct shape){8, 9, 16}, 2, 1, 1, 16);
    check_conv((struct shape){9, 8, 4}, 1, 2, 0, 16);
    check_conv((struct shape){4, 5, 3}, 1, 1, 2, 3); /* padding beyond the window */
}

/* ---- batch normalisation ---- */

static struct layer make_batchnorm(struct shape shape, bool relu)
{
    struct layer layer = make(&layer_batchnorm, shape, shape);

    layer.relu = relu;
    fill(weight, shape.channels, 12);
    fill(bias, shape.channels, 13);
    for (int c = 0; c < shape.channels; c++) {
        mean[c] = 0.5F;
        variance[c] = 2.0F;
    }
    return layer;
}

/* Checks one channel, computed in float64. */
static void check_channel(const struct layer *layer, int c)
{
    const int channels = layer->in.channels, rows = BATCH * shape_size(layer->in) / channels;
    double sum = 0.0, squares = 0.0, middle, square;

    for (int r = 0; r < rows; r++)
        sum += in[r * channels + c];
    middle = sum / rows;
    for (int r = 0; r < rows; r++)
        squares += (in[r * channels + c] - middle) * (in[r * channels + c] - middle);
    square = squares / rows;
    for (int r = 0; r < rows; r++) {
        const double x =
            (in[r * channels + c] - middle) / sqrt(square + 1e-5) * weight[c] + bias[c];

        assert_float_equal(out[r * channels + c], layer->relu && x < 0.0 ? 0.0 : x, 1e-5);
    }
    assert_float_equal(mean[c], 0.9 * 0.5 + 0.1 * middle, 1e-6);
    assert_float_equal(variance[c], 0.9 * 2.0 + 0.1 * squares / (rows - 1), 1e-6);
}

static void check_batchnorm(struct shape shape, bool relu)
{
    const struct layer layer = make_batchnorm(shape, relu);

    run(&layer);
    fill(in, BATCH * shape_size(shape), 11);
    make_batchnorm(shape, relu);
    layer.kind->forward(&layer, &training, in, out);
    for (int c = 0; c < shape.channels; c++)
        check_channel(&layer, c);
    check_gradient(&layer, in, din, BATCH * shape_size(shape));
    check_gradient(&layer, weight, dweight, shape.channels);
    check_gradient(&layer, bias, dbias, shape.channels);
}

static void test_batch_normalization_and_its_gradients(void **state)
{
    (void)state;
    check_batchnorm((struct shape){5, 3, 7}, false);
    check_batchnorm((struct shape){9, 9, 16}, true); /* more rows than a block has */
    check_batchnorm((struct shape){2, 2, 3}, true);
}

/* Far from 0, the variance must not be lost by cancellation with the square of the mean. */
static void test_batch_normalization_far_from_0(void **state)
{
    const struct shape shape = {8, 8, 2};
    const struct layer layer = make_batchnorm(shape, false);

    (void)state;
    fill(in, BATCH * shape_size(shape), 1);
    for (int i = 0; i < BATCH * shape_size(shape); i++)
        in[i] = 1000.0F + in[i] * 0.01F;
    layer.kind->forward(&layer, &training, in, out);
    for (int i = 0; i < BATCH * shape_size(shape); i++)
        assert_in_range((int)(1000.0F * fabsf(out[i] - bias[i % 2])), 0, 1900);
    assert_float_equal(stats[2] * 0.01F, sqrt(3.0), 0.4);
}

/* A test pass uses the running statistics and does not change them. */
static void test_a_test_pass_uses_running_statistics(void **state)
{
    const struct shape shape = {2, 2, 5};
    const struct layer layer = make_batchnorm(shape, false);
    const struct pass test = {.batch = BATCH};

    (void)state;
    fill(in, BATCH * shape_size(shape), 1);
    layer.kind->forward(&layer, &test, in, out);
    for (int i = 0; i < BATCH * shape_size(shape); i++)
        assert_float_equal(out[i], (in[i] - 0.5) / sqrt(2.0 + 1e-5) * weight[i % 5] + bias[i % 5],
                           1e-5);
    assert_true(mean[0] == 0.5F && variance[4] == 2.0F);
}

/* ---- addition, mean ---- */

static void check_add_layer(struct shape from, struct shape to, bool relu)
{
    struct layer layer = make(&layer_add, to, to);
    float expected[4];
    int sum = 0;

    layer.side_shape = from;
    layer.relu = relu;
    fill(side, BATCH * shape_size(from), 21);
    run(&layer);
    if (from.width == 7) /* for odd sizes, the first and the last element are used */
        assert_float_equal(out[0 + 3 * 4 + 1], in[3 * 4 + 1] + side[6 * 2 + 0], 1e-6);
    check_gradient(&layer, in, din, BATCH * shape_size(to));
    fill(side, BATCH * shape_size(from), 21);
    fill(factors, BATCH * shape_size(to), 14);
    fill(expected, 4, 22);
    for (int i = 0; i < BATCH * shape_size(from); i++)
        din[i] = expected[i % 4];
    add_join(&layer, &training, din);
    for (int i = 0; i < BATCH * shape_size(from); i++) {
        sum += din[i] != expected[i % 4];
        din[i] -= expected[i % 4];
    }
    assert_true(sum > 0);
    check_gradient(&layer, side, din, BATCH * shape_size(from));
}

static void test_addition_and_its_gradients(void **state)
{
    (void)state;
    check_add_layer((struct shape){3, 5, 4}, (struct shape){3, 5, 4}, false);
    check_add_layer((struct shape){3, 5, 4}, (struct shape){3, 5, 4}, true);
    check_add_layer((struct shape){6, 4, 3}, (struct shape){3, 2, 7}, true);
    check_add_layer((struct shape){5, 7, 2}, (struct shape){3, 4, 4}, false); /* odd sizes */
}

static void test_the_mean_and_its_gradients(void **state)
{
    struct layer layer = make(&layer_mean, (struct shape){3, 5, 4}, (struct shape){1, 1, 4});

    (void)state;
    run(&layer);
    for (int i = 0; i < BATCH * 4; i++) {
        double sum = 0.0;

        for (int p = 0; p < 15; p++)
            sum += in[i / 4 * 60 + p * 4 + i % 4];
        assert_float_equal(out[i], sum / 15.0, 1e-6);
    }
    check_gradient(&layer, in, din, BATCH * 60);
}

/* ---- the whole network ---- */

static double network_loss(struct model *model, const struct pass *pass, const uint8_t *labels)
{
    return loss_nll(BATCH, 10, model_forward(model, pass, in), labels, 1.0F,
                    model_output_gradient(model))
        .total;
}

/* Checks one parameter of each tensor, which includes gradients through the shortcuts around
 * blocks. */
static void test_gradients_of_the_whole_network(void **state)
{
    static const uint8_t labels[BATCH] = {1, 7, 4};
    struct model *model;
    int wrong = 0, all = 0;

    (void)state;
    assert_int_equal(model_create("resnet20", (struct shape){8, 8, 3}, BATCH, NULL, &model), 0);
    assert_int_equal(model->parameters, 269722); /* 0.27M in the paper's table 6 */
    assert_true(model->buffer_count > 0);
    model_init(model, 3);
    fill(in, BATCH * 8 * 8 * 3, 1);
    network_loss(model, &training, labels);
    model_backward(model, &training, in, NULL);
    for (int t = 0; t < model->tensor_count; t++) {
        float *value = &model->weights[model->tensors[t].offset + model->tensors[t].count / 2];
        const float kept = *value, step = 2e-3F;
        const double slope = model->gradients[value - model->weights];
        double found;

        *value = kept + step;
        found = network_loss(model, &training, labels);
        *value = kept - step;
        found = (found - network_loss(model, &training, labels)) / (2.0 * step);
        *value = kept;
        wrong += fabs(found - slope) > 5e-2 * (0.1 + fabs(slope));
        all++;
    }
    assert_int_equal(all, 19 + 2 * 19 + 2);
    assert_in_range(wrong, 0, all / 8); /* kinks and rounding */
    model_destroy(model);
}

/* Weights before batch normalization are initialized as by He et al., with variance 2 / inputs. */
static void test_initial_weights_have_He_variance(void **state)
{
    struct model *model = NULL;

    (void)state;
    assert_int_equal(model_create("resnet20", (struct shape){32, 32, 3}, 1, NULL, &model), 0);
    model_init(model, 1);
    for (int i = 1; i < model->count; i++) {
        const struct layer *layer = &model->layers[i];
        const size_t count = layer_weight_size(layer);
        double squares = 0.0;

        if (layer->kind != &layer_conv)
            continue;
        for (size_t w = 0; w < count; w++)
            squares += (double)layer->weight[w] * layer->weight[w];
        squares *= layer->spatial * layer->inputs / (double)count;
        assert_true(squares > 1.8 && squares < 2.2);
    }
    model_destroy(model);
}

static void test_too_small_images_and_unknown_models_are_rejected(void **state)
{
    struct model *model;

    (void)state;
    assert_int_equal(model_create("cnn", (struct shape){4, 4, 1}, 1, NULL, &model), -1);
    unit_failed_with("images of 4 x 4 are too small");
    assert_int_equal(model_create("vgg", (struct shape){32, 32, 3}, 1, NULL, &model), -1);
    unit_failed_with("expected cnn, mlp or resnet20");
}

/* Runs all tests for each kind of tiles that this CPU can run. */
int main(void)
{
    int failed = 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_convolution_and_its_gradients),
        cmocka_unit_test(test_batch_normalization_and_its_gradients),
        cmocka_unit_test(test_batch_normalization_far_from_0),
        cmocka_unit_test(test_a_test_pass_uses_running_statistics),
        cmocka_unit_test(test_addition_and_its_gradients),
        cmocka_unit_test(test_the_mean_and_its_gradients),
        cmocka_unit_test(test_gradients_of_the_whole_network),
        cmocka_unit_test(test_initial_weights_have_He_variance),
        cmocka_unit_test(test_too_small_images_and_unknown_models_are_rejected),
    };

    for (int i = 0; failed == 0 && tile_use(i); i++)
        failed = cmocka_run_group_tests_name(tile_use(i), tests, NULL, NULL);
    return failed;
}
