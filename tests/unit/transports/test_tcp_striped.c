/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs the common battery over several sockets per pair of ranks, and with zero-copy sends. */
#include "tcp_fixture.h"
#include "tests/unit/base/unit.h"
#include "transport_battery.h"

static const struct dist_transport *const tcp = &disti_transport_tcp;

/* With several sockets, messages from 64 KiB on are sent in stripes of 64 KiB to 512 KiB. */
static const size_t stripe_boundaries[] = {65536, 131072, 524288, 1048576, 4194304, 0};

static void test_battery_with_several_sockets(void **unused)
{
    struct transport_battery_options options = {.boundaries = stripe_boundaries, .brief = true};

    (void)unused;
    if (getenv("CHECK_SHORT")) /* the next test has several sockets too */
        skip();
    setenv("DIST_TCP_SOCKETS", "3", 1);
    assert_int_equal(transport_battery_run(tcp, &options), 0);
    unsetenv("DIST_TCP_SOCKETS");
}

static void test_battery_with_many_sockets_and_small_buffers(void **unused)
{
    struct transport_battery_options options = {.largest = 4 << 20, .brief = true};

    (void)unused;
    setenv("DIST_TCP_SOCKETS", "16", 1);
    setenv("DIST_TCP_BUFFER", "4K", 1);
    assert_int_equal(transport_battery_run(tcp, &options), 0);
    unsetenv("DIST_TCP_BUFFER");
    unsetenv("DIST_TCP_SOCKETS");
}

/* Zero-copy sends, which end when the kernel has released the memory, with one socket and in
 * stripes. */
static void test_battery_with_zero_copy_sends(void **unused)
{
    static const char *const sockets[] = {"1", "3"};
    struct transport_battery_options options = {.boundaries = stripe_boundaries, .brief = true};

    (void)unused;
    if (unit_patience() > 1) {
        print_message("a slow peer is treated as lost half a second after a group has ended\n");
        skip();
    }
    setenv("DIST_TCP_ZEROCOPY", "on", 1);
    for (int i = getenv("CHECK_LONG") ? 0 : 1; i < 2; i++) {
        setenv("DIST_TCP_SOCKETS", sockets[i], 1);
        assert_int_equal(transport_battery_run(tcp, &options), 0);
    }
    unsetenv("DIST_TCP_SOCKETS");
    unsetenv("DIST_TCP_ZEROCOPY");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_battery_with_several_sockets),
        cmocka_unit_test(test_battery_with_many_sockets_and_small_buffers),
        cmocka_unit_test(test_battery_with_zero_copy_sends),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
