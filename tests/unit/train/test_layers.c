/* SPDX-License-Identifier: BSD-3-Clause */
/* Layers, compared with plain loops, and gradients, compared with finite differences. */
#include "unit.h"

#include <math.h>

#include "train/gemm.h"
#include "train/layer.h"
#include "train/model.h"
#include "train/rng.h"

enum { MOST = 8192 };

static float in[MOST], out[MOST], dout[MOST], din[MOST], weight[MOST], bias[64], scratch[MOST];
static float dweight[MOST], dbias[64], factors[MOST];
static uint32_t positions[4] = {0, 1, 2, 3};
static const struct pass training = {
    .batch = 4, .training = true, .seed = 1, .step = 5, .positions = positions};

static void fill(float *to, int count, uint64_t key)
{
    for (int i = 0; i < count; i++)
        to[i] = 2.0F * rng_uniform(key, (uint32_t)i) - 1.0F;
}

static struct layer make(const struct layer_kind *kind, struct shape from, struct shape to,
                         int kernel)
{
    struct layer layer = {
        .kind = kind,
        .name = "x",
        .in = from,
        .out = to,
        .kernel = kernel,
        .stride = 1,
        .spatial = kind == &layer_conv ? kernel * kernel : from.height * from.width,
        .inputs = from.channels,
        .weight = weight,
        .bias = bias,
        .dweight = dweight,
        .dbias = dbias,
        .scratch = scratch,
    };

    assert_true(layer_scratch_size(&layer) <= MOST);
    return layer;
}

/* ---- compared with plain loops ---- */

static float conv_plain(const struct layer *layer, const float *sample, int y, int x, int channel)
{
    double sum = layer->bias[channel];

    for (int ky = 0; ky < layer->kernel; ky++)
        for (int kx = 0; kx < layer->kernel; kx++)
            for (int c = 0; c < layer->inputs; c++)
                sum += (double)sample[((y + ky) * layer->in.width + x + kx) * layer->inputs + c] *
                       layer->weight[((ky * layer->kernel + kx) * layer->inputs + c) *
                                         layer->out.channels +
                                     channel];
    return (float)(layer->relu && sum < 0 ? 0 : sum);
}

static void check_conv(struct shape from, int kernel, int channels, bool relu)
{
    const struct shape to = {from.height - kernel + 1, from.width - kernel + 1, channels};
    struct layer layer = make(&layer_conv, from, to, kernel);

    layer.relu = relu;
    fill(in, 4 * shape_size(from), 1);
    fill(weight, kernel * kernel * from.channels * channels, 2);
    fill(bias, channels, 3);
    layer_conv.forward(&layer, &training, in, out);
    for (int i = 0; i < 4 * shape_size(to); i++) {
        const int sample = i / shape_size(to), pixel = i % shape_size(to) / channels;

        assert_float_equal(out[i],
                           conv_plain(&layer, in + sample * shape_size(from), pixel / to.width,
                                      pixel % to.width, i % channels),
                           1e-4);
    }
}

static void test_convolution_matches_plain_loops(void **state)
{
    (void)state;
    check_conv((struct shape){7, 5, 1}, 3, 4, false);
    check_conv((struct shape){6, 9, 3}, 3, 5, true);
    check_conv((struct shape){5, 5, 32}, 3, 8, true); /* windows as long as the model's */
    check_conv((struct shape){6, 6, 2}, 2, 3, false);
    check_conv((struct shape){4, 4, 5}, 1, 3, false);
}

static void test_pooling_matches_plain_loops(void **state)
{
    struct layer layer = make(&layer_pool, (struct shape){6, 4, 3}, (struct shape){3, 2, 3}, 2);

    (void)state;
    fill(in, 4 * 72, 1);
    layer_pool.forward(&layer, &training, in, out);
    for (int i = 0; i < 4 * 18; i++) {
        const int y = i % 18 / 6, x = i % 6 / 3;
        float most = -9.0F;

        for (int k = 0; k < 4; k++)
            most = fmaxf(most, in[i / 18 * 72 + ((2 * y + k / 2) * 4 + 2 * x + k % 2) * 3 + i % 3]);
        assert_true(out[i] == most);
    }
}

static void check_gemm(bool ta, bool tb, bool add, int m, int n, int k)
{
    fill(in, m * k, 1);
    fill(weight, k * n, 2);
    fill(out, m * n, 3);
    fill(dout, m * n, 3);
    gemm(ta, tb, m, n, k, in, weight, add, out);
    for (int i = 0; i < m * n; i++) {
        double sum = add ? dout[i] : 0.0;

        for (int p = 0; p < k; p++)
            sum += (double)in[ta ? p * m + i / n : i / n * k + p] *
                   weight[tb ? i % n * k + p : p * n + i % n];
        assert_float_equal(out[i], sum, 1e-4);
    }
}

static void test_matrix_products_match_plain_loops(void **state)
{
    static const int sizes[][3] = {{1, 1, 1}, {3, 5, 7}, {17, 9, 130}, {8, 300, 5}, {64, 10, 128}};

    (void)state;
    for (int i = 0; i < 5 * 8; i++)
        check_gemm(i & 1, i & 2, i & 4, sizes[i / 8][0], sizes[i / 8][1], sizes[i / 8][2]);
}

/* ---- gradients compared with finite differences ---- */

/* A number that depends on all of out; `factors` is its gradient. */
static double measure(const struct layer *layer)
{
    double sum = 0.0;

    layer->kind->forward(layer, &training, in, out);
    for (int i = 0; i < training.batch * shape_size(layer->out); i++)
        sum += (double)out[i] * factors[i];
    return sum;
}

/* Layers are linear except for the kinks of relu and max, which a small step rarely crosses. */
static void check_gradient(const struct layer *layer, float *values, const float *gradients,
                           int count)
{
    const float step = 1e-3F;
    int wrong = 0;

    for (int i = 0; i < count; i++) {
        const float value = values[i];
        double slope;

        values[i] = value + step;
        slope = measure(layer);
        values[i] = value - step;
        slope = (slope - measure(layer)) / (2.0 * step);
        values[i] = value;
        wrong += fabs(slope - gradients[i]) > 2e-2 * (1.0 + fabs(slope));
    }
    assert_in_range(wrong, 0, count / 50);
}

static void check_layer(const struct layer *layer, bool parameters)
{
    const int inputs = shape_size(layer->in), outputs = shape_size(layer->out);

    fill(in, 4 * inputs, 11);
    fill(weight, layer->spatial * layer->inputs * layer->out.channels, 12);
    fill(bias, layer->out.channels, 13);
    fill(factors, 4 * outputs, 14);
    fill(din, 4 * inputs, 15); /* must be overwritten */
    fill(dweight, MOST, 16);
    fill(dbias, 64, 17);
    measure(layer);
    memcpy(dout, factors, sizeof(dout));
    layer->kind->backward(layer, &training, in, out, dout, din);
    check_gradient(layer, in, din, 4 * inputs);
    if (!parameters)
        return;
    check_gradient(layer, weight, dweight, layer->spatial * layer->inputs * layer->out.channels);
    check_gradient(layer, bias, dbias, layer->out.channels);
}

static void test_gradients_of_convolution(void **state)
{
    struct layer layer = make(&layer_conv, (struct shape){6, 7, 3}, (struct shape){4, 5, 4}, 3);

    (void)state;
    check_layer(&layer, true);
    layer.relu = true;
    check_layer(&layer, true);
}

static void test_gradients_of_dense_layers(void **state)
{
    struct layer layer = make(&layer_dense, (struct shape){3, 2, 4}, (struct shape){1, 1, 7}, 0);

    (void)state;
    check_layer(&layer, true);
    layer.relu = true;
    check_layer(&layer, true);
}

static void test_gradients_of_pooling(void **state)
{
    struct layer layer = make(&layer_pool, (struct shape){6, 4, 3}, (struct shape){3, 2, 3}, 2);

    (void)state;
    check_layer(&layer, false);
}

/* If several inputs are the maximum, only one of them gets the gradient. */
static void test_ties_in_pooling_have_one_gradient(void **state)
{
    struct layer layer = make(&layer_pool, (struct shape){2, 2, 1}, (struct shape){1, 1, 1}, 2);

    (void)state;
    for (int i = 0; i < 16; i++)
        in[i] = 0.5F;
    for (int i = 0; i < 4; i++)
        dout[i] = 1.0F;
    layer_pool.forward(&layer, &training, in, out);
    layer_pool.backward(&layer, &training, in, out, dout, din);
    for (int i = 0; i < 16; i++)
        assert_true(din[i] == (i % 4 == 0 ? 1.0F : 0.0F));
}

static void test_gradients_of_dropout(void **state)
{
    struct layer layer = make(&layer_dropout, (struct shape){3, 3, 5}, (struct shape){3, 3, 5}, 0);

    (void)state;
    layer.rate = 0.4F;
    check_layer(&layer, false);
}

/* ---- dropout ---- */

static void test_dropout_keeps_the_mean(void **state)
{
    const struct shape shape = {1, 1, 2000};
    struct layer layer = make(&layer_dropout, shape, shape, 0);
    int kept = 0;

    (void)state;
    layer.rate = 0.25F;
    for (int i = 0; i < 8000; i++)
        in[i] = 3.0F;
    layer_dropout.forward(&layer, &training, in, out);
    for (int i = 0; i < 8000; i++) {
        assert_true(out[i] == 0.0F || fabsf(out[i] - 4.0F) < 1e-5F);
        kept += out[i] != 0.0F;
    }
    assert_in_range(kept, 5850, 6150); /* 6000 +- 4 standard deviations */
}

static void test_dropout_is_off_in_a_test_pass(void **state)
{
    const struct shape shape = {1, 1, 100};
    const struct pass pass = {.batch = 4, .seed = 1, .step = 5, .positions = positions};
    struct layer layer = make(&layer_dropout, shape, shape, 0);

    (void)state;
    layer.rate = 0.5F;
    fill(in, 400, 1);
    layer_dropout.forward(&layer, &pass, in, out);
    assert_memory_equal(in, out, 400 * sizeof(float));
}

/* The random numbers of a sample depend on its position in the global batch, not in the local
 * one. */
static void test_dropout_follows_the_position(void **state)
{
    static const uint32_t other[2] = {3, 1};
    const struct shape shape = {1, 1, 100};
    const struct pass
        part = {.batch = 2, .training = true, .seed = 1, .step = 5, .positions = other},
        later = {.batch = 4, .training = true, .seed = 1, .step = 6, .positions = positions};
    struct layer layer = make(&layer_dropout, shape, shape, 0);

    (void)state;
    layer.rate = 0.5F;
    for (int i = 0; i < 400; i++)
        in[i] = 1.0F;
    layer_dropout.forward(&layer, &training, in, out);
    layer_dropout.forward(&layer, &part, in, din);
    assert_memory_equal(din, out + 300, 100 * sizeof(float));
    assert_memory_equal(din + 100, out + 100, 100 * sizeof(float));
    assert_memory_not_equal(out, out + 100, 100 * sizeof(float));
    layer_dropout.forward(&layer, &later, in, din);
    assert_memory_not_equal(din, out, 400 * sizeof(float));
    layer.index = 1;
    layer_dropout.forward(&layer, &training, in, din);
    assert_memory_not_equal(din, out, 400 * sizeof(float));
}

/* ---- loss ---- */

static void test_the_loss_and_its_gradient(void **state)
{
    static const float outputs[6] = {1.0F, 2.0F, 3.0F, 1000.0F, 0.0F, -1000.0F};
    static const uint8_t labels[2] = {2, 1};
    struct loss loss = loss_nll(2, 3, outputs, labels, 0.5F, dout);

    (void)state;
    /* log(e^-2 + e^-1 + 1) = 0.407606, and 1000 without overflow */
    assert_float_equal(loss.total, 1000.407606, 1e-4);
    assert_int_equal(loss.correct, 1);
    assert_float_equal(dout[0], 0.5 * 0.090031, 1e-6);
    assert_float_equal(dout[2], 0.5 * (0.665241 - 1.0), 1e-6);
    assert_float_equal(dout[3], 0.5, 1e-6);
    assert_float_equal(dout[4], -0.5, 1e-6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_convolution_matches_plain_loops),
        cmocka_unit_test(test_pooling_matches_plain_loops),
        cmocka_unit_test(test_matrix_products_match_plain_loops),
        cmocka_unit_test(test_gradients_of_convolution),
        cmocka_unit_test(test_gradients_of_dense_layers),
        cmocka_unit_test(test_gradients_of_pooling),
        cmocka_unit_test(test_ties_in_pooling_have_one_gradient),
        cmocka_unit_test(test_gradients_of_dropout),
        cmocka_unit_test(test_dropout_keeps_the_mean),
        cmocka_unit_test(test_dropout_is_off_in_a_test_pass),
        cmocka_unit_test(test_dropout_follows_the_position),
        cmocka_unit_test(test_the_loss_and_its_gradient),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
