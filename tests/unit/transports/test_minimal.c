/* SPDX-License-Identifier: BSD-3-Clause */
/* Tests of the example of a plug-in: its transport passes the battery that ours do. */
#include "transport_battery.h"

#include <dist/backend.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

/* As the loader finds it. */
extern const struct dist_module dist_module_entry;

/* The example stays short: it announces nothing, and keeps all of the 128 MiB that come early. */
#define MINIMAL_KEPT ((size_t)160 << 20)

/* Around the pieces. */
static const size_t boundaries[] = {65536, 131072, 262144, 0};

static void test_module(void **state)
{
    (void)state;
    assert_null(dist_module_entry.backend);
    assert_non_null(dist_module_entry.transports[0]);
    assert_null(dist_module_entry.transports[1]);
}

static void test_processes(void **state)
{
    /* It looks who is lost in progress, and the battery sleeps for 2 s, the library for 100 ms. */
    const struct transport_battery_options options = {
        .ranks = 4, .boundaries = boundaries, .loss_ms = 15000, .kept = MINIMAL_KEPT};

    (void)state;
    assert_int_equal(transport_battery_run(dist_module_entry.transports[0], &options), 0);
}

static void test_threads(void **state)
{
    const struct transport_battery_options options = {
        .ranks = 3, .threads = true, .boundaries = boundaries, .brief = true};

    (void)state;
    assert_int_equal(transport_battery_run(dist_module_entry.transports[0], &options), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_module),
        cmocka_unit_test(test_processes),
        cmocka_unit_test(test_threads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
