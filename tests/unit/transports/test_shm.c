/* SPDX-License-Identifier: BSD-3-Clause */
/* Tests of transport shm: the battery, with CMA and without, as processes and as threads. */
#include "transport_battery.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "transports/shm/shm.h"

/* The first line of a frame, a message in one frame, a loan, a piece, the ring, a turn. */
static const size_t boundaries[] = {24,    64,    4032,   8192,   16320,   16384,
                                    65472, 65536, 131072, 262144, 1048576, 0};

static int run(const char *cma, struct transport_battery_options options)
{
    options.boundaries = boundaries;
    options.kept = (size_t)8 << 20; /* 1 MiB of messages, and notes */
    options.only = getenv("DIST_TEST_ONLY");
    setenv("DIST_SHM_CMA", cma, 1);
    return transport_battery_run(&disti_transport_shm, &options);
}

static void test_processes_cma(void **state)
{
    (void)state;
    assert_int_equal(run("1", (struct transport_battery_options){.ranks = 4}), 0);
}

static void test_processes_copy(void **state)
{
    (void)state;
    assert_int_equal(run("0", (struct transport_battery_options){.ranks = 4}), 0);
}

static void test_threads_cma(void **state)
{
    (void)state;
    assert_int_equal(
        run("1", (struct transport_battery_options){.ranks = 3, .threads = true, .brief = true}),
        0);
}

static void test_threads_copy(void **state)
{
    (void)state;
    assert_int_equal(
        run("0", (struct transport_battery_options){.ranks = 3, .threads = true, .brief = true}),
        0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_processes_cma),
        cmocka_unit_test(test_processes_copy),
        cmocka_unit_test(test_threads_cma),
        cmocka_unit_test(test_threads_copy),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
