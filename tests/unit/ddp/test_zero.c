/* SPDX-License-Identifier: BSD-3-Clause */
/* The sharded optimizer on one rank: memory, slices and optimizers. */
#include "../base/environment.h"
#include "../core/alone.h"

#include <dist/zero.h>
#include <math.h>

enum { COUNT = 3, LARGE = 10001 };

static const size_t counts[COUNT] = {5, LARGE, 1};

/* How often the step function was called for each element, and the number of its last step. */
struct seen {
    int times[COUNT][LARGE];
    uint64_t step;
};

static int count_updates(void *arg, const struct dist_zero_slice *slice)
{
    struct seen *seen = arg;

    seen->step = slice->step;
    for (size_t i = 0; i < slice->count; i++) {
        seen->times[slice->parameter][slice->first + i]++;
        slice->state[1][i] += slice->gradients[i];
        slice->values[i] = slice->state[1][i];
    }
    return 0;
}

static dist_zero *make(dist_group *group, struct dist_zero_options *options)
{
    struct dist_zero_parameter parameters[COUNT];
    dist_zero *zero = NULL;

    for (int i = 0; i < COUNT; i++)
        parameters[i] = (struct dist_zero_parameter){.count = counts[i]};
    assert_int_equal(dist_zero_create(group, parameters, COUNT, options, &zero), DIST_OK);
    return zero;
}

static void finish(dist_zero *zero)
{
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(dist_zero_ready(zero, i), DIST_OK);
    assert_int_equal(dist_zero_finish(zero), DIST_OK);
}

static void end(dist_group *group, dist_zero *zero)
{
    assert_int_equal(dist_zero_destroy(zero), DIST_OK);
    assert_int_equal(dist_destroy_process_group(group), DIST_OK);
}

static void each_element_is_updated_once(void **state)
{
    static struct seen seen;
    struct dist_zero_options options = DIST_ZERO_OPTIONS_INIT;
    struct dist_zero_stats stats = {.size = sizeof(stats)};
    dist_group *group = single_rank_world();
    float one[LARGE];
    dist_zero *zero;

    (void)state;
    options.step = count_updates;
    options.step_arg = &seen;
    options.state_floats = 2;
    options.first_bucket_bytes = options.bucket_bytes = 1;
    zero = make(group, &options);
    assert_ptr_equal(dist_zero_values(zero, 1), dist_zero_values(zero, 0) + 5);
    assert_ptr_equal(dist_zero_gradient(zero, 2), dist_zero_gradient(zero, 0) + 5 + LARGE);
    refused(dist_zero_set_steps(zero, UINT64_MAX), "steps are too many");
    assert_int_equal(dist_zero_set_steps(zero, 41), DIST_OK);
    for (int round = 1; round < 3; round++) {
        dist_zero_gradient(zero, 1)[LARGE - 1] = 2.0f;
        finish(zero);
        assert_int_equal(seen.step, 41 + round);
        for (int i = 0; i < COUNT; i++)
            for (size_t j = 0; j < counts[i]; j++)
                assert_int_equal(seen.times[i][j], round);
    }
    assert_true(dist_zero_values(zero, 1)[LARGE - 1] == 4.0f);
    assert_int_equal(dist_zero_gather_state(zero, 1, 1, one, 0), DIST_OK);
    assert_true(one[LARGE - 1] == 4.0f && one[0] == 0.0f);
    assert_int_equal(dist_zero_get_stats(zero, &stats), DIST_OK);
    assert_int_equal(stats.buckets, COUNT);
    assert_int_equal(stats.steps, 2);
    assert_int_equal(stats.state_bytes, 2 * 4 * (5 + LARGE + 1));
    end(group, zero);
}

/* Three steps, compared with the formulas of PyTorch's documentation in double precision. */
static void optimizers_match_PyTorch(void **state)
{
    static const float gradients[3][3] = {
        {0.5f, -1.0f, 0.0f}, {0.25f, 2.0f, -0.125f}, {1.0f, 0.5f, 3.0f}};
    struct dist_zero_sgd plain = {0.1, 0.0, 0.01, false}, momentum = {0.1, 0.9, 0.01, false};
    struct dist_zero_sgd nesterov = {0.1, 0.9, 0.01, true};
    struct dist_zero_adam adam = {0.1, 0.9, 0.999, 1e-8, 0.01, false}, adamw = adam;
    const struct {
        dist_zero_step_fn step;
        void *arg;
        float result[3];
    } cases[] = {
        {dist_zero_sgd_step, &momentum, {0.71160975f, -2.14796950f, 0.22093490f}},
        {dist_zero_sgd_step, &nesterov, {0.56286971f, -2.27733692f, -0.04018767f}},
        {dist_zero_sgd_step, &plain, {0.82212795f, -2.14400590f, 0.21098900f}},
        {dist_zero_adam_step, &adam, {0.71535914f, -1.97580960f, 0.40998315f}},
        {dist_zero_adam_step, &adamw, {0.71316952f, -1.97234476f, 0.51140820f}},
    };

    (void)state;
    adamw.decoupled = true;
    for (size_t n = 0; n < sizeof(cases) / sizeof(cases[0]); n++) {
        float values[3] = {1.0f, -2.0f, 0.5f}, memory[2][3] = {{0.0f}};
        float *states[2] = {memory[0], memory[1]};

        for (uint64_t step = 1; step <= 3; step++) {
            float gradient[3];
            const struct dist_zero_slice slice = {.count = 3,
                                                  .values = values,
                                                  .gradients = gradient,
                                                  .state = states,
                                                  .state_floats = 2,
                                                  .step = step};

            memcpy(gradient, gradients[step - 1], sizeof(gradient));
            assert_int_equal(cases[n].step(cases[n].arg, &slice), 0);
        }
        for (int i = 0; i < 3; i++)
            if (fabsf(values[i] - cases[n].result[i]) > 2e-6f)
                fail_msg("case %zu: %.8f instead of %.8f", n, (double)values[i],
                         (double)cases[n].result[i]);
    }
}

/* Momentum is switched on after creation: the step function fails, because it has no state for
 * it. */
static void a_step_function_without_its_state_fails(void **state)
{
    struct dist_zero_sgd sgd = DIST_ZERO_SGD_INIT;
    struct dist_zero_options options = DIST_ZERO_OPTIONS_INIT;
    dist_group *group = single_rank_world();
    dist_zero *zero;

    (void)state;
    options.step = dist_zero_sgd_step;
    options.step_arg = &sgd;
    zero = make(group, &options);
    sgd.momentum = 0.9;
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(dist_zero_ready(zero, i), DIST_OK);
    assert_int_equal(dist_zero_finish(zero), DIST_ERR_ABORTED);
    assert_non_null(strstr(dist_last_error(), "step function returned 1"));
    end(group, zero);
}

static void bad_options_are_rejected(void **state)
{
    const struct dist_zero_options fresh = DIST_ZERO_OPTIONS_INIT;
    const struct dist_zero_sgd sgd = DIST_ZERO_SGD_INIT;
    const struct dist_zero_adam adam = DIST_ZERO_ADAM_INIT;
    const struct {
        const char *text;
        struct dist_zero_options options;
        struct dist_zero_sgd sgd;
        struct dist_zero_adam adam; /* used if its rate is not 0 */
    } cases[] = {
        {"options.step is NULL", .options = fresh, .sgd = sgd},
        {"state_floats is 0, but dist_zero_sgd_step with momentum needs 1",
         .options = {.step = dist_zero_sgd_step}, .sgd = {.momentum = 0.9}},
        {"state_floats is 1, but dist_zero_adam_step needs 2",
         .options = {.step = dist_zero_adam_step, .state_floats = 1}, .adam = adam},
        {"state_floats is -1", .options = {.step = dist_zero_sgd_step, .state_floats = -1}},
        {"state_floats is 9: set it to 0 to 8",
         .options = {.step = count_updates, .state_floats = 9}},
        {"max_norm is -1", .options = {.step = count_updates, .max_norm = -1.0}},
        {"max_norm is nan", .options = {.step = count_updates, .max_norm = (double)NAN}},
        {"rate is -1", .options = {.step = dist_zero_sgd_step}, .sgd = {.rate = -1.0}},
        {"momentum is inf", .options = {.step = dist_zero_sgd_step},
         .sgd = {.momentum = (double)INFINITY}},
        {"beta1 is 1: set it to a number from 0 to less than 1",
         .options = {.step = dist_zero_adam_step, .state_floats = 2},
         .adam = {.rate = 1.0, .beta1 = 1.0}},
        {"epsilon is -1", .options = {.step = dist_zero_adam_step, .state_floats = 2},
         .adam = {.rate = 1.0, .epsilon = -1.0}},
    };
    const struct dist_zero_parameter parameter = {.count = 1}, large = {.count = SIZE_MAX};
    struct dist_zero_options good = {
        .size = sizeof(good), .step = count_updates, .dtype = DIST_FLOAT32};
    struct dist_zero_stats stats = {.size = 1};
    dist_group *group = single_rank_world();
    dist_zero *zero = NULL;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct dist_zero_options options = cases[i].options;
        struct dist_zero_sgd descent = cases[i].sgd;
        struct dist_zero_adam moments = cases[i].adam;

        options.size = sizeof(options);
        options.step_arg = moments.rate > 0.0 ? (void *)&moments : &descent;
        refused(dist_zero_create(group, &parameter, 1, &options, &zero), cases[i].text);
    }
    refused(dist_zero_create(group, &large, 1, &good, &zero), "count is 18446744073709551615");
    refused(dist_zero_create(group, &parameter, -3, &good, &zero), "count is -3");
    refused(dist_zero_create(group, NULL, 1, &good, &zero), "parameters is NULL");
    refused(dist_zero_create(group, &parameter, 1, NULL, &zero), "options is NULL");
    refused(dist_zero_create(group, &parameter, 1, &good, NULL), "zero_p is NULL");
    refused(dist_zero_create(NULL, &parameter, 1, &good, &zero), "group is NULL");
    good.step = dist_zero_sgd_step;
    refused(dist_zero_create(group, &parameter, 1, &good, &zero), "step_arg is NULL");
    assert_null(zero);
    good.step = count_updates;
    assert_int_equal(dist_zero_create(group, &parameter, 1, &good, &zero), DIST_OK);
    refused(dist_zero_get_stats(zero, &stats), "size is 1");
    refused(dist_zero_get_stats(zero, NULL), "stats_p is NULL");
    assert_int_equal(dist_zero_destroy(zero), DIST_OK);
    refused(dist_zero_destroy(zero), "was destroyed");
    refused(dist_zero_ready(zero, 0), "was destroyed");
    refused(dist_zero_finish(zero), "was destroyed");
    refused(dist_zero_get_stats(zero, &stats), "was destroyed");
    assert_null(dist_zero_values(zero, 0));
    assert_int_equal(dist_zero_get_steps(zero), 0);
    assert_int_equal(dist_destroy_process_group(group), DIST_OK);
    refused(dist_zero_create(group, &parameter, 1, &good, &zero), "the group was destroyed");
}

static void gradients_are_clipped_to_max_norm(void **state)
{
    struct dist_zero_sgd sgd = {.rate = 1.0};
    struct dist_zero_options options = DIST_ZERO_OPTIONS_INIT;
    struct dist_zero_stats stats = {.size = sizeof(stats)};
    dist_group *group = single_rank_world();
    dist_zero *zero;

    (void)state;
    options.step = dist_zero_sgd_step;
    options.step_arg = &sgd;
    options.max_norm = 1.0;
    zero = make(group, &options);
    dist_zero_gradient(zero, 0)[4] = 3.0f;
    dist_zero_gradient(zero, 1)[LARGE - 1] = 4.0f;
    finish(zero);
    assert_int_equal(dist_zero_get_stats(zero, &stats), DIST_OK);
    assert_true(fabs(stats.norm - 5.0) < 1e-9);
    assert_true(fabsf(dist_zero_values(zero, 0)[4] + 0.6f) < 1e-5f);
    assert_true(fabsf(dist_zero_values(zero, 1)[LARGE - 1] + 0.8f) < 1e-5f);
    end(group, zero);
}

/* One step of Adam and one of SGD, with values and gradients of all magnitudes. */
static void update(float *values, float *gradients, float *const state[2])
{
    struct dist_zero_adam adam = DIST_ZERO_ADAM_INIT;
    struct dist_zero_sgd sgd = {.rate = 0.1, .momentum = 0.9};
    const struct dist_zero_slice slice = {.count = COUNT,
                                          .values = values,
                                          .gradients = gradients,
                                          .state = (float **)state,
                                          .state_floats = 2,
                                          .step = 3};

    assert_int_equal(dist_zero_adam_step(&adam, &slice), 0);
    assert_int_equal(dist_zero_sgd_step(&sgd, &slice), 0);
}

static void the_floating_point_environment_has_no_effect(void **state)
{
    static float given[COUNT], values[2][COUNT], gradients[2][COUNT], states[2][2][COUNT];

    (void)state;
    for (int i = 0; i < COUNT; i++)
        given[i] = i % 2 ? 1e-41f * (float)(i + 1) : 0.1f * (float)i;
    for (int odd = 0; odd < 2; odd++) {
        memcpy(values[odd], given, sizeof(given));
        memcpy(gradients[odd], given, sizeof(given));
        if (odd)
            environment_odd();
        update(values[odd], gradients[odd], (float *[]){states[odd][0], states[odd][1]});
        if (odd)
            assert_true(environment_usual());
    }
    assert_memory_equal(values[0], values[1], sizeof(given));
    assert_memory_equal(states[0], states[1], sizeof(states[0]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_element_is_updated_once),
        cmocka_unit_test(optimizers_match_PyTorch),
        cmocka_unit_test(a_step_function_without_its_state_fails),
        cmocka_unit_test(bad_options_are_rejected),
        cmocka_unit_test(gradients_are_clipped_to_max_norm),
        cmocka_unit_test(the_floating_point_environment_has_no_effect),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
