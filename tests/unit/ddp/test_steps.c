/* SPDX-License-Identifier: BSD-3-Clause */
/* Steps: calls at the wrong time, statistics, and the resulting gradients. */
#include "../base/environment.h"
#include "steps.h"

#include <float.h>
#include <math.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COUNT = 300 };

static float values[COUNT];

static dist_ddp *make(dist_group *group, const struct dist_ddp_options *options)
{
    const struct dist_ddp_parameter parameters[] = {
        {.name = "w", .count = COUNT},
        {.values = values, .count = COUNT, .buffer = true},
        {.name = "b", .count = 3}};
    dist_ddp *ddp = NULL;

    assert_int_equal(dist_ddp_create(group, parameters, 3, options, &ddp), DIST_OK);
    return ddp;
}

static void end(dist_group *group, dist_ddp *ddp)
{
    assert_int_equal(dist_ddp_destroy(ddp), DIST_OK);
    assert_int_equal(dist_destroy_process_group(group), DIST_OK);
}

static void step_both(dist_ddp *ddp)
{
    assert_int_equal(dist_ddp_ready(ddp, 2), DIST_OK);
    assert_int_equal(dist_ddp_ready(ddp, 0), DIST_OK);
    assert_int_equal(dist_ddp_finish(ddp), DIST_OK);
}

static void calls_within_a_step_are_rejected(void **state)
{
    struct dist_ddp_options options = DIST_DDP_OPTIONS_INIT;
    dist_group *group = single_rank_world();
    dist_ddp *ddp;

    (void)state;
    options.uneven = true;
    ddp = make(group, &options);
    assert_int_equal(dist_ddp_clip(ddp, 1.0, NULL), DIST_OK); /* before the first step */
    assert_int_equal(dist_ddp_sync_buffers(ddp), DIST_OK);
    assert_int_equal(dist_ddp_ready(ddp, 0), DIST_OK);
    refused(dist_ddp_clip(ddp, 1.0, NULL), "under way");
    refused(dist_ddp_sync_buffers(ddp), "under way");
    refused(dist_ddp_zero_gradients(ddp), "under way");
    refused(dist_ddp_set_sync(ddp, false), "under way");
    refused(dist_ddp_join(ddp, NULL, NULL), "under way");
    assert_int_equal(dist_ddp_ready(ddp, 2), DIST_OK);
    assert_int_equal(dist_ddp_finish(ddp), DIST_OK);
    end(group, ddp);
}

/* The norm is that of the averaged gradients, whenever it is requested. */
static void gradients_can_be_clipped_at_any_time(void **state)
{
    dist_group *group = single_rank_world();
    dist_ddp *ddp = make(group, NULL);
    float *w = dist_ddp_gradient(ddp, 0), *b = dist_ddp_gradient(ddp, 2);
    double norm = -1.0;

    (void)state;
    assert_int_equal(dist_ddp_clip(ddp, 1.0, &norm), DIST_OK);
    assert_true(norm == 0.0);
    for (int round = 0; round < 3; round++) {
        w[7] = 3.0f;
        b[2] = 4.0f;
        step_both(ddp);
        assert_int_equal(dist_ddp_clip(ddp, 1.0, &norm), DIST_OK);
        assert_true(fabs(norm - 5.0) < 1e-12);
        assert_true(fabsf(w[7] - 0.6f) < 1e-5f);
        assert_int_equal(dist_ddp_clip(ddp, 2.0, &norm), DIST_OK);
        assert_true(fabs(norm - 1.0) < 1e-5 && fabsf(b[2] - 0.8f) < 1e-5f);
    }
    w[7] = INFINITY;
    step_both(ddp);
    assert_int_equal(dist_ddp_clip(ddp, 1.0, &norm), DIST_OK);
    assert_true(isinf(norm) && b[2] > 0.7f);
    end(group, ddp);
}

/* Called in place of a step's own update; makes calls that are not allowed there. */
static int call_forbidden(void *arg)
{
    refused(dist_ddp_ready(arg, 0), "dist_ddp_join");
    refused(dist_ddp_finish(arg), "dist_ddp_join");
    refused(dist_ddp_join(arg, NULL, NULL), "dist_ddp_join");
    return 0;
}

/* Gradients that were accumulated for a step that is not made must not be added to those of other
 * ranks. */
static void a_joined_rank_contributes_zeros(void **state)
{
    struct dist_ddp_options options = DIST_DDP_OPTIONS_INIT;
    struct dist_ddp_stats stats = {.size = sizeof(stats)};
    dist_group *group = single_rank_world();
    dist_ddp *ddp;

    (void)state;
    options.uneven = true;
    ddp = make(group, &options);
    for (int epoch = 0; epoch < 2; epoch++) {
        step_both(ddp);
        assert_int_equal(dist_ddp_active(ddp), 1);
        assert_int_equal(dist_ddp_set_sync(ddp, false), DIST_OK);
        ((float *)dist_ddp_gradient(ddp, 0))[5] = 8.0f;
        step_both(ddp);
        refused(dist_ddp_join(ddp, NULL, NULL), "dist_ddp_set_sync");
        assert_int_equal(dist_ddp_set_sync(ddp, true), DIST_OK);
        assert_int_equal(dist_ddp_join(ddp, call_forbidden, ddp), DIST_OK);
        assert_true(((float *)dist_ddp_gradient(ddp, 0))[5] == 0.0f);
    }
    assert_int_equal(dist_ddp_get_stats(ddp, &stats), DIST_OK);
    assert_int_equal(stats.steps, 2); /* a step in which no rank took part is not counted */
    end(group, ddp);
}

/* The error that int8 compression feeds back fades over steps of zeros until a float cannot
 * represent it; it never becomes NaN. */
static void int8_errors_fade(void **state)
{
    struct dist_ddp_options options = DIST_DDP_OPTIONS_INIT;
    dist_group *group = single_rank_world();
    dist_ddp *ddp;
    float *w;

    (void)state;
    options.wire = DIST_DDP_WIRE_INT8;
    ddp = make(group, &options);
    w = dist_ddp_gradient(ddp, 0);
    for (int round = 0; round < 60; round++) {
        for (int i = 0; i < COUNT; i++)
            w[i] = round > 0 || i % 3 == 0 ? 0.0f : 1.0f / (float)(i + 1);
        step_both(ddp);
        for (int i = 0; i < COUNT; i++)
            if (!isfinite(w[i]) || fabsf(w[i]) > 1.0f)
                fail_msg("round %d: %g at %d", round, (double)w[i], i);
    }
    end(group, ddp);
}

/* One number among zeros, from the largest float to the smallest. */
static void int8_represents_any_number(void **state)
{
    struct dist_ddp_options options = DIST_DDP_OPTIONS_INIT;
    dist_group *group = single_rank_world();
    float *w;

    (void)state;
    options.wire = DIST_DDP_WIRE_INT8;
    for (float x = FLT_MAX / 2; x > 0.0f; x /= 7.0f) {
        dist_ddp *ddp = make(group, &options);

        w = dist_ddp_gradient(ddp, 0);
        w[1] = x;
        step_both(ddp);
        if (!(fabsf(w[1] - x) <= x * 0.01f || x < 1e-35f) || w[0] != 0.0f || w[1] > 2.0f * x)
            fail_msg("%g became %g, 0 became %g", (double)x, (double)w[1], (double)w[0]);
        assert_int_equal(dist_ddp_destroy(ddp), DIST_OK);
    }
    assert_int_equal(dist_destroy_process_group(group), DIST_OK);
}

static dist_status failing_hook(void *arg, dist_group *group, const struct dist_ddp_bucket *bucket,
                                int stage, dist_work **work_p)
{
    if (arg) /* starts a call that its stage does not allow */
        return dist_all_reduce_coalesced_async(group, bucket->pieces, bucket->counts,
                                               bucket->piece_count, bucket->dtype, DIST_SUM,
                                               work_p);
    (void)stage;
    return DIST_ERR_NO_MEMORY;
}

/* The error says that the hook failed, for any status that it returns. */
static void failing_hooks_are_named(void **state)
{
    struct dist_ddp_options options = DIST_DDP_OPTIONS_INIT;
    dist_group *group = single_rank_world();
    dist_ddp *ddp;

    (void)state;
    options.hook = failing_hook;
    ddp = make(group, &options);
    assert_int_equal(dist_ddp_ready(ddp, 0), DIST_OK);
    assert_int_equal(dist_ddp_ready(ddp, 2), DIST_ERR_NO_MEMORY);
    assert_non_null(strstr(dist_last_error(), "hook"));
    assert_int_equal(dist_ddp_destroy(ddp), DIST_OK);
    options.hook_arg = group;
    ddp = make(group, &options);
    assert_int_equal(dist_ddp_ready(ddp, 0), DIST_OK);
    assert_int_equal(dist_ddp_ready(ddp, 2), DIST_OK);
    refused(dist_ddp_finish(ddp), "hook_stages in the options to 2");
    end(group, ddp);
}

/* A program that was built with an older, smaller struct, and one with a newer struct. */
static void options_of_other_versions_are_checked(void **state)
{
    struct dist_ddp_options options = DIST_DDP_OPTIONS_INIT;
    struct dist_ddp_parameter parameter = {.count = 4};
    dist_group *group = single_rank_world();
    dist_ddp *ddp = NULL;

    (void)state;
    refused(dist_ddp_create(group, &parameter, 1, &options, NULL), "ddp_p");
    for (int i = 0; i < 2; i++) {
        options.size = i * (sizeof(options) + 1);
        refused(dist_ddp_create(group, &parameter, 1, &options, &ddp), "DIST_DDP_OPTIONS_INIT");
    }
    options.size = offsetof(struct dist_ddp_options, wire);
    options.wire = (dist_ddp_wire)99; /* beyond the struct's size */
    assert_int_equal(dist_ddp_create(group, &parameter, 1, &options, &ddp), DIST_OK);
    end(group, ddp);
}

/* Bad numbers and pointers are rejected, and every function rejects a destroyed object. */
static void bad_arguments_are_rejected(void **state)
{
    struct dist_ddp_options options = DIST_DDP_OPTIONS_INIT;
    struct dist_ddp_parameter parameter = {.count = 4};
    struct dist_ddp_stats stats = {.size = 1};
    struct dist_ddp_bucket_times times = {.size = sizeof(times)};
    dist_group *group = single_rank_world();
    dist_ddp *ddp = NULL;

    (void)state;
    options.hook_stages = -1;
    refused(dist_ddp_create(group, &parameter, 1, &options, &ddp),
            "options.hook_stages is -1: set it to 1 to 4");
    options.hook_stages = 0;
    options.dtype = (dist_dtype)-1;
    refused(dist_ddp_create(group, &parameter, 1, &options, &ddp), "options.dtype is -1");
    refused(dist_ddp_create(group, &parameter, -1, NULL, &ddp), "count is -1");
    refused(dist_ddp_create(group, NULL, 1, NULL, &ddp), "parameters is NULL");
    parameter.count = SIZE_MAX / 4;
    refused(dist_ddp_create(group, &parameter, 1, NULL, &ddp), "end of the address space");
    parameter.count = 4;
    parameter.gradient = (void *)(uintptr_t)-8;
    refused(dist_ddp_create(group, &parameter, 1, NULL, &ddp), "end of the address space");
    parameter.gradient = NULL;
    assert_null(ddp);
    assert_int_equal(dist_ddp_create(group, &parameter, 1, NULL, &ddp), DIST_OK);
    refused(dist_ddp_get_stats(ddp, &stats), "size is 1");
    refused(dist_ddp_get_stats(ddp, NULL), "NULL");
    refused(dist_ddp_get_bucket_times(ddp, -1, &times), "bucket is -1: there are 1 buckets");
    refused(dist_ddp_get_bucket_times(ddp, 0, NULL), "NULL");
    assert_int_equal(dist_ddp_get_bucket_times(ddp, 0, &times), DIST_OK);
    assert_int_equal(dist_ddp_destroy(ddp), DIST_OK);
    refused(dist_ddp_destroy(ddp), "was destroyed");
    refused(dist_ddp_ready(ddp, 0), "was destroyed");
    refused(dist_ddp_finish(ddp), "was destroyed");
    refused(dist_ddp_join(ddp, NULL, NULL), "was destroyed");
    refused(dist_ddp_clip(ddp, 1.0, NULL), "was destroyed");
    refused(dist_ddp_get_stats(ddp, &stats), "was destroyed");
    refused(dist_ddp_get_bucket_times(ddp, 0, &times), "was destroyed");
    assert_null(dist_ddp_gradient(ddp, 0));
    assert_int_equal(dist_ddp_active(ddp), 0);
    assert_false(dist_ddp_is_used(ddp, 0));
    assert_int_equal(dist_destroy_process_group(group), DIST_OK);
    refused(dist_ddp_create(group, &parameter, 1, NULL, &ddp), "the group was destroyed");
}

/* A forked child has a copy of the parent's gradients but cannot use its groups. */
static void a_forked_child_cannot_disturb_its_parent(void **state)
{
    dist_group *group = single_rank_world();
    dist_ddp *ddp = make(group, NULL);
    int code = -1;
    pid_t child;

    (void)state;
    assert_int_equal(dist_ddp_ready(ddp, 2), DIST_OK);
    child = fork();
    if (child == 0) {
        bool good = dist_ddp_ready(ddp, 0) == DIST_ERR_INVALID_ARGUMENT &&
                    dist_ddp_finish(ddp) == DIST_ERR_ABORTED;

        dist_ddp_destroy(ddp);
        _exit(good ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_int_equal(code, 0);
    assert_int_equal(dist_ddp_ready(ddp, 0), DIST_OK);
    assert_int_equal(dist_ddp_finish(ddp), DIST_OK);
    step_both(ddp);
    end(group, ddp);
}

/* The world was destroyed first, and its groups with it. */
static void steps_fail_after_the_world_is_destroyed(void **state)
{
    dist_group *group = single_rank_world();
    dist_ddp *ddp = make(group, NULL);

    (void)state;
    step_both(ddp);
    assert_int_equal(dist_destroy_process_group(group), DIST_OK);
    assert_int_equal(dist_ddp_ready(ddp, 2), DIST_OK);
    refused(dist_ddp_ready(ddp, 0), "destroyed");
    dist_ddp_destroy(ddp);
}

/* Makes a step with `given` as the gradients of w, and clips them. Stores them in `to` and returns
 * the norm. */
static double clipped_step(dist_ddp_wire wire, const float *given, float *to)
{
    struct dist_ddp_options options = DIST_DDP_OPTIONS_INIT;
    dist_group *group = single_rank_world();
    double norm = 0.0;
    dist_ddp *ddp;
    float *w;

    options.wire = wire;
    ddp = make(group, &options);
    w = dist_ddp_gradient(ddp, 0);
    memcpy(w, given, COUNT * sizeof(*w));
    step_both(ddp);
    assert_int_equal(dist_ddp_clip(ddp, 1.0, &norm), DIST_OK);
    memcpy(to, w, COUNT * sizeof(*w));
    end(group, ddp);
    return norm;
}

/* The program's rounding mode and its treatment of subnormal numbers have no effect. */
static void the_floating_point_environment_has_no_effect(void **state)
{
    static float given[COUNT], usual[COUNT], odd[COUNT];

    (void)state;
    for (int i = 0; i < COUNT; i++)
        given[i] = i % 2 ? 1e-41f * (float)i : 0.1f * (float)i;
    for (dist_ddp_wire wire = DIST_DDP_WIRE_SAME; wire <= DIST_DDP_WIRE_INT8; wire++) {
        double norm = clipped_step(wire, given, usual), odd_norm;

        environment_odd();
        odd_norm = clipped_step(wire, given, odd);
        assert_true(environment_usual());
        assert_true(norm == odd_norm);
        assert_memory_equal(usual, odd, sizeof(usual));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_within_a_step_are_rejected),
        cmocka_unit_test(gradients_can_be_clipped_at_any_time),
        cmocka_unit_test(a_joined_rank_contributes_zeros),
        cmocka_unit_test(the_floating_point_environment_has_no_effect),
        cmocka_unit_test(int8_errors_fade),
        cmocka_unit_test(int8_represents_any_number),
        cmocka_unit_test(failing_hooks_are_named),
        cmocka_unit_test(options_of_other_versions_are_checked),
        cmocka_unit_test(bad_arguments_are_rejected),
        cmocka_unit_test(a_forked_child_cannot_disturb_its_parent),
        cmocka_unit_test(steps_fail_after_the_world_is_destroyed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
