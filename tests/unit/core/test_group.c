/* SPDX-License-Identifier: BSD-3-Clause */
/* Groups of one rank: joining, options, requests, and rejected arguments. */
#include <dist/dist.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static dist_group *join(const char *backend)
{
    struct dist_options options = DIST_OPTIONS_INIT;
    dist_group *group = NULL;

    options.backend = backend;
    options.rank = 0;
    options.world_size = 1;
    assert_int_equal(dist_init_process_group(&options, &group), DIST_OK);
    return group;
}

static void without_any_settings_the_world_has_one_rank(void **state)
{
    dist_group *group = NULL;

    (void)state;
    assert_int_equal(dist_init_process_group(NULL, &group), DIST_OK);
    assert_int_equal(dist_get_rank(group), 0);
    assert_int_equal(dist_get_world_size(group), 1);
    assert_int_equal(dist_get_local_rank(group), 0);
    assert_string_equal(dist_get_backend(group), "self");
    assert_int_equal(dist_destroy_process_group(group), DIST_OK);
}

static void gloo_works_with_one_rank(void **state)
{
    dist_group *group = join("gloo");
    float in[3] = {1, 2, 3}, out[3] = {0};

    (void)state;
    assert_string_equal(dist_get_backend(group), "gloo");
    assert_int_equal(dist_all_reduce(group, in, out, 3, DIST_FLOAT32, DIST_AVG), DIST_OK);
    assert_memory_equal(in, out, sizeof(in));
    assert_int_equal(dist_barrier(group), DIST_OK);
    assert_int_equal(dist_destroy_process_group(group), DIST_OK);
}

static void errors_name_the_wrong_option(void **state)
{
    struct dist_options options = DIST_OPTIONS_INIT;
    dist_group *group = (dist_group *)state; /* must not change */

    options.size = 3;
    assert_int_equal(dist_init_process_group(&options, &group), DIST_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(dist_last_error(), "DIST_OPTIONS_INIT"));
    options = (struct dist_options)DIST_OPTIONS_INIT;
    options.timeout_ms = -5;
    assert_int_equal(dist_init_process_group(&options, &group), DIST_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(dist_last_error(), "timeout_ms"));
    options = (struct dist_options)DIST_OPTIONS_INIT;
    options.rank = 7;
    options.world_size = 4;
    assert_int_equal(dist_init_process_group(&options, &group), DIST_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(dist_last_error(), "7"));
    options = (struct dist_options)DIST_OPTIONS_INIT;
    options.init_method = "carrier://pigeon";
    assert_int_equal(dist_init_process_group(&options, &group), DIST_ERR_INVALID_ARGUMENT);
    assert_ptr_equal(group, state);
    assert_int_equal(dist_init_process_group(NULL, NULL), DIST_ERR_INVALID_ARGUMENT);
}

static void errors_name_the_wrong_variable(void **state)
{
    dist_group *group = NULL;

    (void)state;
    setenv("DIST_TIMEOUT", "5 minutes", 1);
    assert_int_equal(dist_init_process_group(NULL, &group), DIST_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(dist_last_error(), "DIST_TIMEOUT"));
    unsetenv("DIST_TIMEOUT");
    setenv("DIST_REPRODUCIBLE", "yes", 1);
    assert_int_equal(dist_init_process_group(NULL, &group), DIST_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(dist_last_error(), "DIST_REPRODUCIBLE"));
    unsetenv("DIST_REPRODUCIBLE");
}

static void requests_are_tested_and_waited_for(void **state)
{
    dist_group *group = join("self");
    int32_t value = 5;
    dist_work *work = NULL;
    bool done = false;

    (void)state;
    assert_int_equal(dist_all_reduce_async(group, &value, &value, 1, DIST_INT32, DIST_SUM, &work),
                     DIST_OK);
    assert_int_equal(dist_test(work, &done), DIST_OK);
    assert_true(done);
    assert_int_equal(dist_wait(work), DIST_OK);
    assert_int_equal(dist_wait(NULL), DIST_ERR_INVALID_ARGUMENT);
    assert_int_equal(dist_test(NULL, &done), DIST_ERR_INVALID_ARGUMENT);
    assert_int_equal(dist_destroy_process_group(group), DIST_OK);
}

static void a_completed_request_outlives_its_group(void **state)
{
    dist_group *group = join("self");
    int32_t value = 5;
    dist_work *work = NULL;

    (void)state;
    assert_int_equal(dist_all_reduce_async(group, &value, &value, 1, DIST_INT32, DIST_SUM, &work),
                     DIST_OK);
    dist_destroy_process_group(group);
    assert_int_equal(dist_wait(work), DIST_OK);
    assert_int_equal(value, 5);
}

struct lines {
    int count;
    char last[256];
};

static void keep_line(void *arg, dist_log_level level, const char *line)
{
    struct lines *lines = arg;

    (void)level;
    lines->count++;
    strncpy(lines->last, line, sizeof(lines->last) - 1);
}

static void errors_are_passed_to_the_programs_log_function(void **state)
{
    struct dist_options options = DIST_OPTIONS_INIT;
    struct lines lines = {0};
    dist_group *group = NULL;

    (void)state;
    options.log = keep_line;
    options.log_arg = &lines;
    options.backend = "glue";
    options.rank = 0;
    options.world_size = 1;
    assert_int_equal(dist_init_process_group(&options, &group), DIST_ERR_NO_BACKEND);
    assert_true(lines.count > 0);
}

static void joining_and_leaving_does_not_leak(void **state)
{
    (void)state;
    for (int i = 0; i < 200; i++)
        assert_int_equal(dist_destroy_process_group(join(i % 2 ? "gloo" : "self")), DIST_OK);
    assert_int_equal(dist_destroy_process_group(NULL), DIST_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_any_settings_the_world_has_one_rank),
        cmocka_unit_test(gloo_works_with_one_rank),
        cmocka_unit_test(errors_name_the_wrong_option),
        cmocka_unit_test(errors_name_the_wrong_variable),
        cmocka_unit_test(requests_are_tested_and_waited_for),
        cmocka_unit_test(a_completed_request_outlives_its_group),
        cmocka_unit_test(errors_are_passed_to_the_programs_log_function),
        cmocka_unit_test(joining_and_leaving_does_not_leak),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
