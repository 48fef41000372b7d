/* SPDX-License-Identifier: BSD-3-Clause */
/* Steps: calls at the wrong time, what is counted, and what gradients become. */
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

static void both(dist_ddp *ddp)
{
    assert_int_equal(dist_ddp_ready(ddp, 2), DIST_OK);
    assert_int_equal(dist_ddp_ready(ddp, 0), DIST_OK);
    assert_int_equal(dist_ddp_finish(ddp), DIST_OK);
}

static void no_interruption_of_a_step(void **state)
{
    struct dist_ddp_options options = DIST_DDP_OPTIONS_INIT;
    dist_group *group = alone();
    dist_ddp *ddp;

    (void)state;
    options.uneven = true;
    ddp = make(group, &options);
    assert_int_equal(dist_ddp_clip(ddp, 1.0, NULL), DIST_OK); /* before any */
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

/* The norm is that of the gradients, whenever it is asked for. */
static void clip_at_any_time(void **state)
{
    dist_group *group = alone();
    dist_ddp *ddp = make(group, NULL);
    float *w = dist_ddp_gradient(ddp, 0), *b = dist_ddp_gradient(ddp, 2);
    double norm = -1.0;

    (void)state;
    assert_int_equal(dist_ddp_clip(ddp, 1.0, &norm), DIST_OK);
    assert_true(norm == 0.0);
    for (int round = 0; round < 3; round++) {
        w[7] = 3.0f;
        b[2] = 4.0f;
        both(ddp);
        assert_int_equal(dist_ddp_clip(ddp, 1.0, &norm), DIST_OK);
        assert_true(fabs(norm - 5.0) < 1e-12);
        assert_true(fabsf(w[7] - 0.6f) < 1e-5f);
        assert_int_equal(dist_ddp_clip(ddp, 2.0, &norm), DIST_OK);
        assert_true(fabs(norm - 1.0) < 1e-5 && fabsf(b[2] - 0.8f) < 1e-5f);
    }
    w[7] = INFINITY;
    both(ddp);
    assert_int_equal(dist_ddp_clip(ddp, 1.0, &norm), DIST_OK);
    assert_true(isinf(norm) && b[2] > 0.7f);
    end(group, ddp);
}

/* Called in place of a step's own update. */
static int disturb(void *arg)
{
    refused(dist_ddp_ready(arg, 0), "dist_ddp_join");
    refused(dist_ddp_finish(arg), "dist_ddp_join");
    refused(dist_ddp_join(arg, NULL, NULL), "dist_ddp_join");
    return 0;
}

/* Gradients that were added up for a step that did not come are no part of the others'. */
static void a_rank_that_joined_gives_zeros(void **state)
{
    struct dist_ddp_options options = DIST_DDP_OPTIONS_INIT;
    struct dist_ddp_stats stats = {.size = sizeof(stats)};
    dist_group *group = alone();
    dist_ddp *ddp;

    (void)state;
    options.uneven = true;
    ddp = make(group, &options);
    for (int epoch = 0; epoch < 2; epoch++) {
        both(ddp);
        assert_int_equal(dist_ddp_active(ddp), 1);
        assert_int_equal(dist_ddp_set_sync(ddp, false), DIST_OK);
        ((float *)dist_ddp_gradient(ddp, 0))[5] = 8.0f;
        both(ddp);
        refused(dist_ddp_join(ddp, NULL, NULL), "dist_ddp_set_sync");
        assert_int_equal(dist_ddp_set_sync(ddp, true), DIST_OK);
        assert_int_equal(dist_ddp_join(ddp, disturb, ddp), DIST_OK);
        assert_true(((float *)dist_ddp_gradient(ddp, 0))[5] == 0.0f);
    }
    assert_int_equal(dist_ddp_get_stats(ddp, &stats), DIST_OK);
    assert_int_equal(stats.steps, 2); /* that in which nobody took part is none */
    end(group, ddp);
}

/* What int8 has left fades over steps of zeros until a float cannot hold it: it is never NaN. */
static void int8_rests_fade(void **state)
{
    struct dist_ddp_options options = DIST_DDP_OPTIONS_INIT;
    dist_group *group = alone();
    dist_ddp *ddp;
    float *w;

    (void)state;
    options.wire = DIST_DDP_WIRE_INT8;
    ddp = make(group, &options);
    w = dist_ddp_gradient(ddp, 0);
    for (int round = 0; round < 60; round++) {
        for (int i = 0; i < COUNT; i++)
            w[i] = round > 0 || i % 3 == 0 ? 0.0f : 1.0f / (float)(i + 1);
        both(ddp);
        for (int i = 0; i < COUNT; i++)
            if (!isfinite(w[i]) || fabsf(w[i]) > 1.0f)
                fail_msg("round %d: %g at %d", round, (double)w[i], i);
    }
    end(group, ddp);
}

/* One tiny number among zeros, from the largest float to none. */
static void int8_takes_any_number(void **state)
{
    struct dist_ddp_options options = DIST_DDP_OPTIONS_INIT;
    dist_group *group = alone();
    float *w;

    (void)state;
    options.wire = DIST_DDP_WIRE_INT8;
    for (float x = FLT_MAX / 2; x > 0.0f; x /= 7.0f) {
        dist_ddp *ddp = make(group, &options);

        w = dist_ddp_gradient(ddp, 0);
        w[1] = x;
        both(ddp);
        if (!(fabsf(w[1] - x) <= x * 0.01f || x < 1e-35f) || w[0] != 0.0f || w[1] > 2.0f * x)
            fail_msg("%g became %g, 0 became %g", (double)x, (double)w[1], (double)w[0]);
        assert_int_equal(dist_ddp_destroy(ddp), DIST_OK);
    }
    assert_int_equal(dist_destroy_process_group(group), DIST_OK);
}

static dist_status sour(void *arg, dist_group *group, const struct dist_ddp_bucket *bucket,
                        int stage, dist_work **work_p)
{
    if (arg) /* starts something where it may not */
        return dist_all_reduce_coalesced_async(group, bucket->pieces, bucket->counts,
                                               bucket->piece_count, bucket->dtype, DIST_SUM,
                                               work_p);
    (void)stage;
    return DIST_ERR_NO_MEMORY;
}

/* Whatever a hook says, the message says that it was the hook. */
static void hooks_that_fail(void **state)
{
    struct dist_ddp_options options = DIST_DDP_OPTIONS_INIT;
    dist_group *group = alone();
    dist_ddp *ddp;

    (void)state;
    options.hook = sour;
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

/* A program that was built with an earlier, smaller struct; and one with a later one. */
static void options_of_other_sizes(void **state)
{
    struct dist_ddp_options options = DIST_DDP_OPTIONS_INIT;
    struct dist_ddp_parameter parameter = {.count = 4};
    dist_group *group = alone();
    dist_ddp *ddp = NULL;

    (void)state;
    refused(dist_ddp_create(group, &parameter, 1, &options, NULL), "ddp_p");
    for (int i = 0; i < 2; i++) {
        options.size = i * (sizeof(options) + 1);
        refused(dist_ddp_create(group, &parameter, 1, &options, &ddp), "DIST_DDP_OPTIONS_INIT");
    }
    options.size = offsetof(struct dist_ddp_options, wire);
    options.wire = (dist_ddp_wire)99; /* no part of the struct */
    assert_int_equal(dist_ddp_create(group, &parameter, 1, &options, &ddp), DIST_OK);
    end(group, ddp);
}

/* Every wrong number and pointer is refused, and a destroyed one by every function. */
static void wrong_arguments(void **state)
{
    struct dist_ddp_options options = DIST_DDP_OPTIONS_INIT;
    struct dist_ddp_parameter parameter = {.count = 4};
    struct dist_ddp_stats stats = {.size = 1};
    struct dist_ddp_bucket_times times = {.size = sizeof(times)};
    dist_group *group = alone();
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

/* A child has the parent's gradients, but not its groups. */
static void a_child_leaves_it_alone(void **state)
{
    dist_group *group = alone();
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
    both(ddp);
    end(group, ddp);
}

/* The world was destroyed first, and its groups with it. */
static void after_the_world(void **state)
{
    dist_group *group = alone();
    dist_ddp *ddp = make(group, NULL);

    (void)state;
    both(ddp);
    assert_int_equal(dist_destroy_process_group(group), DIST_OK);
    assert_int_equal(dist_ddp_ready(ddp, 2), DIST_OK);
    refused(dist_ddp_ready(ddp, 0), "destroyed");
    dist_ddp_destroy(ddp);
}

/* A step with `given` as the gradients of w, clipped. Returns the norm. */
static double clipped_step(dist_ddp_wire wire, const float *given, float *to)
{
    struct dist_ddp_options options = DIST_DDP_OPTIONS_INIT;
    dist_group *group = alone();
    double norm = 0.0;
    dist_ddp *ddp;
    float *w;

    options.wire = wire;
    ddp = make(group, &options);
    w = dist_ddp_gradient(ddp, 0);
    memcpy(w, given, COUNT * sizeof(*w));
    both(ddp);
    assert_int_equal(dist_ddp_clip(ddp, 1.0, &norm), DIST_OK);
    memcpy(to, w, COUNT * sizeof(*w));
    end(group, ddp);
    return norm;
}

/* Neither the program's rounding mode nor its treatment of subnormal numbers matters. */
static void the_environment_changes_nothing(void **state)
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
        cmocka_unit_test(no_interruption_of_a_step),
        cmocka_unit_test(clip_at_any_time),
        cmocka_unit_test(a_rank_that_joined_gives_zeros),
        cmocka_unit_test(the_environment_changes_nothing),
        cmocka_unit_test(int8_rests_fade),
        cmocka_unit_test(int8_takes_any_number),
        cmocka_unit_test(hooks_that_fail),
        cmocka_unit_test(options_of_other_sizes),
        cmocka_unit_test(wrong_arguments),
        cmocka_unit_test(a_child_leaves_it_alone),
        cmocka_unit_test(after_the_world),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
