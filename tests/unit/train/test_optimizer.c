/* SPDX-License-Identifier: BSD-3-Clause */
/* Optimizers, compared with values computed by hand. */
#include "unit.h"

#include <math.h>

#include "train/device.h"

static void test_SGD_with_momentum(void **state)
{
    struct optimizer *optimizer;
    float w[2] = {1.0F, -2.0F};
    float g[2] = {0.5F, 1.0F};

    (void)state;
    assert_int_equal(optimizer_create("sgd", 2, 0.9F, 0.0F, &optimizer), 0);
    optimizer_step(optimizer, 0.1F, w, g); /* v = g */
    assert_float_equal(w[0], 0.95, 1e-6);
    assert_float_equal(w[1], -2.1, 1e-6);
    optimizer_step(optimizer, 0.1F, w, g); /* v = 0.9 g + g */
    assert_float_equal(w[0], 0.95 - 0.1 * 0.95, 1e-6);
    assert_float_equal(w[1], -2.1 - 0.1 * 1.9, 1e-6);
    optimizer_destroy(optimizer);
}

static void test_weight_decay_is_added_to_the_gradient(void **state)
{
    struct optimizer *optimizer;
    float w = 4.0F;
    float g = 0.0F;

    (void)state;
    assert_int_equal(optimizer_create("sgd", 1, 0.0F, 0.25F, &optimizer), 0);
    optimizer_step(optimizer, 0.5F, &w, &g); /* g + 0.25 * 4 = 1 */
    assert_float_equal(w, 3.5, 1e-6);
    optimizer_destroy(optimizer);
}

/* rho 0.9, epsilon 1e-6, gradient 2 twice:
 *   s = 0.4        d = sqrt(1e-6 / 0.400001) 2 = 0.003162274      u = 0.1 d^2 = 1.0e-6
 *   s = 0.76       d = sqrt(2e-6 / 0.760001) 2 = 0.003244426
 */
static void test_Adadelta_matches_its_formula(void **state)
{
    struct optimizer *optimizer;
    float w = 1.0F;
    float g = 2.0F;

    (void)state;
    assert_int_equal(optimizer_create("adadelta", 1, 0.9F, 0.0F, &optimizer), 0);
    optimizer_step(optimizer, 1.0F, &w, &g);
    assert_float_equal(w, 1.0 - 0.003162274, 1e-6);
    optimizer_step(optimizer, 0.5F, &w, &g);
    assert_float_equal(w, 1.0 - 0.003162274 - 0.5 * 0.003244426, 1e-6);
    optimizer_destroy(optimizer);
}

/* Elements in the remainder of a vector loop are updated like all other elements. */
static void test_all_elements_are_updated_alike(void **state)
{
    static const char *const names[] = {"sgd", "adadelta"};
    float w[67], g[67];

    (void)state;
    for (int n = 0; n < 2; n++) {
        struct optimizer *optimizer;

        assert_int_equal(optimizer_create(names[n], 67, 0.9F, 0.01F, &optimizer), 0);
        for (int i = 0; i < 67; i++) {
            w[i] = 0.25F;
            g[i] = 0.75F;
        }
        for (int step = 0; step < 3; step++)
            optimizer_step(optimizer, 0.5F, w, g);
        for (int i = 0; i < 67; i++)
            assert_true(w[i] == w[0]);
        assert_true(w[0] < 0.25F);
        optimizer_destroy(optimizer);
    }
}

static void test_an_unknown_optimizer_is_rejected(void **state)
{
    struct optimizer *optimizer;

    (void)state;
    assert_int_equal(optimizer_create("adam", 1, 0, 0, &optimizer), -1);
    unit_failed_with("unknown optimizer 'adam'");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_SGD_with_momentum),
        cmocka_unit_test(test_weight_decay_is_added_to_the_gradient),
        cmocka_unit_test(test_Adadelta_matches_its_formula),
        cmocka_unit_test(test_all_elements_are_updated_alike),
        cmocka_unit_test(test_an_unknown_optimizer_is_rejected),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
