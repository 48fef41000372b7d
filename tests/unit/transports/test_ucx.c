/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs the battery on transport ucx, loaded as a module, over TCP and over shared memory. */
#include "transport_battery.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "backends/module.h"

/* Sizes at which UCX changes its protocol over TCP and shared memory, and sizes around the pieces
 * into which transport ucx divides messages. */
static const size_t boundaries[] = {96, 8192, 8256, 65536, 1048576, 2097152, 4194304, 5242880, 0};

static const struct dist_transport *ucx;

static int run(const char *tls, struct transport_battery_options options)
{
    options.boundaries = boundaries;
    /* UCX 1.13 aborts ("pending_count == 0") if a peer is lost while a connection is being made. */
    options.connected_first = true;
    if (!options.only)
        options.only = getenv("DIST_TEST_ONLY");
    options.kept = (size_t)24 << 20; /* 4 MiB of messages, control data, and memory of UCX */
    setenv("UCX_TLS", tls, 1);
    return transport_battery_run(ucx, &options);
}

static void test_battery_with_processes_over_tcp(void **state)
{
    (void)state;
    assert_int_equal(run("tcp,self", (struct transport_battery_options){.ranks = 4}), 0);
}

static void test_battery_with_processes_over_shared_memory(void **state)
{
    (void)state;
    assert_int_equal(run("tcp,sm,self", (struct transport_battery_options){.brief = true}), 0);
}

/* Cancel while UCX reads the sender's memory (rendezvous). */
static void test_cancel_during_rendezvous(void **state)
{
    static const char *const cases[] = {"cancel_sends", "cancel_receives", "cancel_halfway",
                                        "cancel_one_side"};

    (void)state;
    setenv("UCX_RNDV_THRESH", "0", 1);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_int_equal(
            run("tcp,sm,self", (struct transport_battery_options){.ranks = 3, .only = cases[i]}),
            0);
    unsetenv("UCX_RNDV_THRESH");
}

static void test_battery_with_threads(void **state)
{
    (void)state;
    assert_int_equal(
        run("tcp,sm,self",
            (struct transport_battery_options){.ranks = 3, .threads = true, .brief = true}),
        0);
}

/* A peer is killed while messages of several pieces are in progress; UCX may report that within a
 * send. */
static void test_a_killed_peer_is_detected_repeatedly(void **state)
{
    (void)state;
    for (int i = 0; i < 15; i++)
        assert_int_equal(
            run("tcp,self", (struct transport_battery_options){.ranks = 4, .only = "killed"}), 0);
}

static void test_the_probe_names_the_missing_transport(void **state)
{
    char reason[512] = "";

    (void)state;
    setenv("UCX_TLS", "no_such_transport", 1);
    assert_int_equal(ucx->probe(reason, sizeof(reason)), DIST_ERR_UNSUPPORTED);
    assert_non_null(strstr(reason, "no_such_transport"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_battery_with_processes_over_tcp),
        cmocka_unit_test(test_battery_with_processes_over_shared_memory),
        cmocka_unit_test(test_cancel_during_rendezvous),
        cmocka_unit_test(test_battery_with_threads),
        cmocka_unit_test(test_a_killed_peer_is_detected_repeatedly),
        cmocka_unit_test(test_the_probe_names_the_missing_transport),
    };
    const struct disti_module *module;
    char reason[512];

    if (disti_module_load("ucx", &module, reason, sizeof(reason)) != DIST_OK) {
        printf("skipped: %s\n", reason);
        return 77;
    }
    ucx = module->entry->transports[0];
    setenv("UCX_NET_DEVICES", "lo", 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
