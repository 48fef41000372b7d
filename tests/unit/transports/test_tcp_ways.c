/* SPDX-License-Identifier: BSD-3-Clause */
/* The interfaces that connect two ranks, and how a message is divided among several sockets. */
#include "transports/tcp/state.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <arpa/inet.h>
#include <cmocka.h>

static struct disti_tcp_endpoint endpoint(const char *host, uint64_t machine)
{
    struct disti_tcp_endpoint made = {.port = 1, .machine = machine};

    made.family = strchr(host, ':') ? 6 : 4;
    assert_int_equal(inet_pton(made.family == 6 ? AF_INET6 : AF_INET, host, made.host), 1);
    return made;
}

/* Returns the connections between local interfaces, "10.0.0.1/24 ...", and those of a peer,
 * "10.0.0.2 ...", as indices: "0-0 1-1". */
static const char *paths(const char *here, const char *there, bool routed, uint64_t machine)
{
    static char text[200];
    char left[200], right[200], *rest;
    struct disti_tcp_local local[DISTI_TCP_INTERFACES];
    struct disti_tcp_address remote = {0};
    struct disti_tcp_path found[DISTI_TCP_INTERFACES];
    int locals = 0, count;

    snprintf(left, sizeof(left), "%s", here);
    snprintf(right, sizeof(right), "%s", there);
    for (char *at = strtok_r(left, " ", &rest); at; at = strtok_r(NULL, " ", &rest)) {
        char *slash = strchr(at, '/');

        *slash = '\0';
        local[locals].prefix = atoi(slash + 1);
        local[locals++].endpoint = endpoint(at, 1);
    }
    for (char *at = strtok_r(right, " ", &rest); at; at = strtok_r(NULL, " ", &rest))
        remote.endpoint[remote.interfaces++] = endpoint(at, machine);
    count = disti_tcp_paths(local, locals, &remote, routed, found);
    assert_in_range(count, 1, DISTI_TCP_INTERFACES);
    text[0] = '\0';
    for (int i = 0; i < count; i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%d-%d", i ? " " : "",
                 found[i].local, found[i].remote);
    return text;
}

static void test_one_interface_is_always_connected(void **unused)
{
    (void)unused;
    assert_string_equal(paths("10.0.0.1/24", "10.0.0.2", false, 2), "0-0");
    /* Through a router. */
    assert_string_equal(paths("10.0.0.1/24", "10.9.0.2", false, 2), "0-0");
    assert_string_equal(paths("10.0.0.1/24", "10.9.0.2", true, 2), "0-0");
}

static void test_each_network_is_used_once(void **unused)
{
    (void)unused;
    assert_string_equal(paths("10.0.0.1/24 10.1.0.1/24", "10.0.0.2 10.1.0.2", false, 2), "0-0 1-1");
    /* The peer lists its interfaces in another order. */
    assert_string_equal(paths("10.0.0.1/24 10.1.0.1/24", "10.1.0.2 10.0.0.2", false, 2), "1-0 0-1");
    assert_string_equal(paths("fd00::1/64 fd01::1/64", "fd00::2 fd01::2", false, 2), "0-0 1-1");
    /* Networks whose prefix is not a multiple of 8 bits. */
    assert_string_equal(paths("10.0.0.1/30 10.0.0.5/30", "10.0.0.2 10.0.0.6", false, 2), "0-0 1-1");
    /* All interfaces are in one network. */
    assert_string_equal(paths("10.0.0.1/24 10.0.0.2/24", "10.0.0.3 10.0.0.4", false, 2), "0-0 1-1");
}

static void test_extra_interfaces_of_one_side_are_used(void **unused)
{
    (void)unused;
    assert_string_equal(paths("10.0.0.1/16 10.0.0.2/16", "10.0.0.3", false, 2), "0-0 1-0");
    assert_string_equal(paths("10.0.0.1/16", "10.0.0.3 10.0.0.4", false, 2), "0-0 0-1");
    assert_string_equal(paths("10.0.0.1/24 10.1.0.1/24 10.2.0.1/24", "10.0.0.3 10.1.0.3", true, 2),
                        "0-0 1-1 2-0");
}

static void test_interfaces_without_a_common_network_are_unused(void **unused)
{
    (void)unused;
    assert_string_equal(paths("10.0.0.1/24 172.17.0.1/16", "10.0.0.2 192.168.9.1", false, 2),
                        "0-0");
    /* Interfaces that the user has named may use a router. */
    assert_string_equal(paths("10.0.0.1/24 10.1.0.1/24", "10.8.0.2 10.9.0.2", true, 2), "0-0 1-1");
    assert_string_equal(paths("10.0.0.1/24 10.1.0.1/24", "10.8.0.2 10.9.0.2", false, 2), "0-0");
    /* A peer on the same host needs only one connection. */
    assert_string_equal(paths("10.0.0.1/24 10.1.0.1/24", "10.0.0.1 10.1.0.1", true, 1), "0-0");
}

static void test_the_number_of_connections_is_limited(void **unused)
{
    char here[200] = "", there[200] = "";

    (void)unused;
    for (int i = 0; i < DISTI_TCP_INTERFACES; i++) {
        snprintf(here + strlen(here), sizeof(here) - strlen(here), "10.%d.0.1/24 ", i);
        snprintf(there + strlen(there), sizeof(there) - strlen(there), "10.%d.1.2 ", i);
    }
    assert_int_equal(strlen(paths(here, there, true, 2)), DISTI_TCP_INTERFACES * 4 - 1);
    assert_string_equal(paths(here, there, false, 2), "0-0");
}

static void test_the_number_of_sockets(void **unused)
{
    (void)unused;
    assert_int_equal(disti_tcp_sockets(0, 0, 1), 1);
    assert_int_equal(disti_tcp_sockets(0, 0, 3), 3);
    assert_int_equal(disti_tcp_sockets(4, 4, 1), 4);
    assert_int_equal(disti_tcp_sockets(2, 5, 3), 2);
    assert_int_equal(disti_tcp_sockets(5, 2, 3), 2);
    assert_int_equal(disti_tcp_sockets(8, 0, 3), 3);
}

/* Divides messages completely: every byte is in one stripe, and every stripe is valid for a
 * receiver. */
static void test_stripes_cover_the_message(void **unused)
{
    static const uint64_t sizes[] = {65536,  65537,   65599,   100000,     131072,
                                     262145, 1000003, 8 << 20, 64u << 20u, UINT64_C(5) << 30};

    (void)unused;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        for (int sockets = 2; sockets <= DISTI_TCP_SOCKETS; sockets++) {
            uint64_t at = 0;

            while (at < sizes[i]) {
                uint64_t bytes = disti_tcp_stripe_bytes(sizes[i], sockets, at);

                assert_true(bytes > 0 && bytes <= 512 << 10);
                assert_true(bytes >= 64 << 10 || at + bytes == sizes[i]);
                assert_int_equal(at % 64, 0);
                assert_true(disti_tcp_stripe_fits(sizes[i], at, bytes));
                at += bytes;
            }
            assert_true(at == sizes[i]);
        }
    }
    /* Two sockets share even a message of 128 KiB. */
    assert_true(disti_tcp_stripe_bytes(128 << 10, 2, 0) == 64 << 10);
    /* The last stripes of a long message are shorter. */
    assert_true(disti_tcp_stripe_bytes(8 << 20, 2, 0) == 512 << 10);
    assert_true(disti_tcp_stripe_bytes(8 << 20, 2, 15 << 19) == 64 << 10);
}

static void test_invalid_stripes_are_detected(void **unused)
{
    (void)unused;
    assert_true(disti_tcp_stripe_fits(1000, 0, 1000));
    assert_true(disti_tcp_stripe_fits(1000, 960, 40));
    assert_false(disti_tcp_stripe_fits(1000, 0, 0));
    assert_false(disti_tcp_stripe_fits(1000, 0, 1001));
    assert_false(disti_tcp_stripe_fits(1000, 0, 100));
    assert_false(disti_tcp_stripe_fits(1000, 8, 64));
    assert_false(disti_tcp_stripe_fits(1000, 1000, 1));
    assert_false(disti_tcp_stripe_fits(1000, 960, 64));
    assert_false(disti_tcp_stripe_fits(1000, 64, UINT64_MAX - 63));
    assert_false(disti_tcp_stripe_fits(1000, UINT64_MAX - 63, 64));
}

/* Encoded addresses are decoded unchanged; blobs of an invalid length or content are rejected. */
static void test_addresses_are_encoded_and_decoded(void **unused)
{
    unsigned char blob[DIST_ADDRESS_MAX] = {0};

    (void)unused;
    for (int count = 1; count <= DISTI_TCP_INTERFACES; count++) {
        struct disti_tcp_address out = {.interfaces = count, .sockets = 2 * count}, in;
        char host[40];
        size_t bytes;

        for (int i = 0; i < count; i++) {
            snprintf(host, sizeof(host), count % 2 ? "10.%d.0.7" : "fd00:%d::7", i);
            out.endpoint[i] = endpoint(host, 77);
            out.endpoint[i].port = (uint16_t)(2000 + i);
        }
        bytes = disti_tcp_address_encode(&out, blob);
        assert_int_equal(bytes, 32 + 24 * (count - 1));
        assert_true(disti_tcp_address_decode(blob, bytes, &in));
        assert_memory_equal(&in, &out, sizeof(in));
        assert_false(disti_tcp_address_decode(blob, bytes - 1, &in));
        assert_false(disti_tcp_address_decode(blob, bytes + 1, &in));
        blob[4] = DISTI_TCP_INTERFACES;
        assert_false(disti_tcp_address_decode(blob, bytes, &in));
        blob[4] = (unsigned char)(count - 1);
        blob[5] = DISTI_TCP_SOCKETS + 1;
        assert_false(disti_tcp_address_decode(blob, bytes, &in));
        blob[5] = 0;
        memset(blob + (count > 1 ? 32 : 2), 0, 2);
        assert_false(disti_tcp_address_decode(blob, bytes, &in));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_interface_is_always_connected),
        cmocka_unit_test(test_each_network_is_used_once),
        cmocka_unit_test(test_extra_interfaces_of_one_side_are_used),
        cmocka_unit_test(test_interfaces_without_a_common_network_are_unused),
        cmocka_unit_test(test_the_number_of_connections_is_limited),
        cmocka_unit_test(test_the_number_of_sockets),
        cmocka_unit_test(test_stripes_cover_the_message),
        cmocka_unit_test(test_invalid_stripes_are_detected),
        cmocka_unit_test(test_addresses_are_encoded_and_decoded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
