/* SPDX-License-Identifier: BSD-3-Clause */
/* The transport of the plug-in example passes the same battery as the library's transports. */
#include "transport_battery.h"

#include <dist/backend.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

/* The symbol that the loader looks up. */
extern const struct dist_module dist_module_entry;

/* The example has no rendezvous protocol, so it buffers all of the 128 MiB that arrive early. */
#define MINIMAL_KEPT ((size_t)160 << 20)

/* Sizes around the pieces into which the transport divides messages. */
static const size_t boundaries[] = {65536, 131072, 262144, 0};

static void test_the_module_has_one_transport(void **state)
{
    (void)state;
    assert_null(dist_module_entry.backend);
    assert_non_null(dist_module_entry.transports[0]);
    assert_null(dist_module_entry.transports[1]);
}

static void test_battery_with_processes(void **state)
{
    /* The transport checks for lost peers in progress. The battery calls progress at least every 2
     * s (the library every 100 ms). */
    const struct transport_battery_options options = {
        .ranks = 4, .boundaries = boundaries, .loss_ms = 15000, .kept = MINIMAL_KEPT};

    (void)state;
    assert_int_equal(transport_battery_run(dist_module_entry.transports[0], &options), 0);
}

static void test_battery_with_threads(void **state)
{
    const struct transport_battery_options options = {
        .ranks = 3, .threads = true, .boundaries = boundaries, .brief = true};

    (void)state;
    assert_int_equal(transport_battery_run(dist_module_entry.transports[0], &options), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_module_has_one_transport),
        cmocka_unit_test(test_battery_with_processes),
        cmocka_unit_test(test_battery_with_threads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
