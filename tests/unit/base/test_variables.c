/* SPDX-License-Identifier: BSD-3-Clause */
/* Unknown DIST_ variables, and the names that may have been meant. */
#include "unit.h"

#include "base/settings/variables.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char text[400];
static bool meant;

/* The environment of this test may contain unknown variables, so all of it is removed. */
static int clean(void **state)
{
    (void)state;
    clearenv();
    return 0;
}

static uint64_t find_unknown(void)
{
    return disti_variables_unknown(NULL, text, sizeof(text), &meant);
}

static void check_like(const char *name, const char *expected)
{
    const struct disti_variable *like = disti_variable_like(name);

    if (expected)
        assert_string_equal(like ? like->name : "none", expected);
    else
        assert_null(like);
}

static void test_the_nearest_name_is_suggested(void **state)
{
    (void)state;
    check_like("DIST_BACKND", "DIST_BACKEND");
    check_like("DIST_TIMOUT", "DIST_TIMEOUT");
    check_like("DIST_TIEMOUT", "DIST_TIMEOUT"); /* two letters exchanged */
    check_like("DIST_ALG", "DIST_ALGO");
    check_like("DIST_DEBUGFILE", "DIST_DEBUG_FILE");
    check_like("DIST_TCP_SOCKET", "DIST_TCP_SOCKETS");
    check_like("DIST_REPRODUCABLE", "DIST_REPRODUCIBLE");
    check_like("DIST_", NULL);
    check_like("DIST_URL", NULL);
    check_like("DIST_SOMETHING_ELSE", NULL);
    check_like("DIST_A_NAME_THAT_IS_MUCH_LONGER_THAN_ANY_OF_THESE_VARIABLES", NULL);
    for (size_t i = 0; i < disti_variable_count; i++)
        check_like(disti_variables[i].name, disti_variables[i].name);
}

static void test_known_variables_are_accepted(void **state)
{
    (void)state;
    assert_int_equal(find_unknown(), 0);
    assert_string_equal(text, "");
    assert_false(meant);
    for (size_t i = 0; i < disti_variable_count; i++)
        setenv(disti_variables[i].name, "1", 1);
    setenv("DIST_BENCH_PEERS", "1", 1);
    setenv("DIST_TEST_SETTING", "", 1);
    setenv("DISTANCE", "1", 1);
    setenv("MY_DIST_THING", "1", 1);
    assert_int_equal(find_unknown(), 0);
}

static void test_unknown_variables_are_reported(void **state)
{
    uint64_t one, both;

    (void)state;
    setenv("DIST_BACKND", "mpi", 1);
    one = find_unknown();
    assert_true(one != 0);
    assert_non_null(strstr(text, "DIST_BACKND (did you mean DIST_BACKEND, "));
    assert_true(meant);
    setenv("DIST_URL", "x", 1);
    both = find_unknown();
    assert_true(both != 0 && both != one);
    assert_non_null(strstr(text, "DIST_URL"));
    assert_non_null(strstr(text, "DIST_BACKND"));
    /* The order and the values of the variables make no difference. */
    clearenv();
    setenv("DIST_URL", "y", 1);
    assert_true(find_unknown() != 0);
    assert_false(meant);
    setenv("DIST_BACKND", "gloo", 1);
    assert_true(find_unknown() == both);
}

static bool is_mine(const char *name)
{
    return strncmp(name, "DIST_MINE_", 10) == 0;
}

static void test_variables_of_modules_are_accepted(void **state)
{
    (void)state;
    setenv("DIST_MINE_TIMOUT", "1", 1);
    assert_int_equal(disti_variables_unknown(is_mine, text, sizeof(text), &meant), 0);
    setenv("DIST_TIMOUT", "1", 1);
    assert_true(disti_variables_unknown(is_mine, text, sizeof(text), &meant) != 0);
    assert_null(strstr(text, "MINE"));
}

/* Many variables, and long names: the text fits the buffer, and no name is cut. */
static void test_many_unknown_variables_fit_the_text(void **state)
{
    char name[300];

    (void)state;
    for (int i = 0; i < 200; i++) {
        snprintf(name, sizeof(name), "DIST_UNKNOWN_%03d.", i);
        setenv(name, "", 1);
    }
    memset(name, 'X', sizeof(name) - 1);
    memcpy(name, "DIST_", 5);
    name[200] = '\0';
    setenv(name, "", 1);
    assert_true(find_unknown() != 0);
    assert_true(strlen(text) > sizeof(text) / 2 && text[strlen(text) - 1] == '.');
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_nearest_name_is_suggested),
        cmocka_unit_test_setup(test_known_variables_are_accepted, clean),
        cmocka_unit_test_setup(test_unknown_variables_are_reported, clean),
        cmocka_unit_test_setup(test_variables_of_modules_are_accepted, clean),
        cmocka_unit_test_setup(test_many_unknown_variables_fit_the_text, clean),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
