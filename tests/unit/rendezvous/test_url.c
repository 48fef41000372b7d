/* SPDX-License-Identifier: BSD-3-Clause */
/* Init methods, Slurm's lists and interface patterns, valid and invalid ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/net.h"
#include "base/settings/config.h"
#include "rendezvous/meet.h"
#include "rendezvous/rendezvous.h"

static struct disti_url parse(const char *text)
{
    struct disti_url url;

    assert_int_equal(disti_url_parse(text, &url), DIST_OK);
    return url;
}

static void test_kinds_of_init_methods(void **state)
{
    (void)state;
    assert_int_equal(parse(NULL).kind, DISTI_URL_NONE);
    assert_int_equal(parse("").kind, DISTI_URL_NONE);
    assert_int_equal(parse("env://").kind, DISTI_URL_ENV);
    assert_int_equal(parse("mpi://").kind, DISTI_URL_MPI);
    assert_int_equal(parse("tcp://a:1").kind, DISTI_URL_TCP);
    assert_int_equal(parse("file:///a").kind, DISTI_URL_FILE);
}

static void test_tcp_is_parsed(void **state)
{
    struct disti_url url = parse("tcp://node-1.example:29500");

    (void)state;
    assert_string_equal(url.host, "node-1.example");
    assert_int_equal(url.port, 29500);
    assert_int_equal(url.rank, -1);
    assert_int_equal(url.world_size, -1);
    url = parse("tcp://[::1]:65535?world_size=4&rank=3");
    assert_string_equal(url.host, "::1");
    assert_int_equal(url.port, 65535);
    assert_int_equal(url.rank, 3);
    assert_int_equal(url.world_size, 4);
}

static void test_file_is_parsed(void **state)
{
    struct disti_url url = parse("file:///tmp/a b/c?rank=0&world_size=2");

    (void)state;
    assert_string_equal(url.path, "/tmp/a b/c");
    assert_int_equal(url.rank, 0);
    assert_int_equal(url.world_size, 2);
    assert_int_equal(parse("env://?rank=1").rank, 1);
}

static void test_bad_init_methods_are_rejected(void **state)
{
    static const char *const bad[] = {
        "tcp",
        "http://a:1",
        "TCP://a:1",
        " env://",
        "env://x",
        "mpi://host",
        "tcp://",
        "tcp://host",
        "tcp://host:",
        "tcp://:1",
        "tcp://host:0",
        "tcp://host:65536",
        "tcp://host:-1",
        "tcp://host:1x",
        "tcp://host: 1",
        "tcp://host:99999999999999999999",
        "tcp://host:0000000000000000000001",
        "tcp://::1:1",
        "tcp://[::1]",
        "tcp://[::1:1",
        "tcp://[]:1",
        "tcp://[::1]1",
        "tcp://?rank=1",
        "tcp://host?:1",
        "file://relative",
        "file://",
        "env://?rank=",
        "env://?rank=-1",
        "env://?rank=1.5",
        "env://?world_size=0",
        "env://?world_size=abc",
        "env://?size=3",
        "env://?rank=1&",
        "env://?rank=1&world_size=99999999999",
        "env://?rank=1&padding=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    };
    struct disti_url url, before;

    (void)state;
    memset(&url, 7, sizeof(url));
    before = url;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        if (disti_url_parse(bad[i], &url) != DIST_ERR_INVALID_ARGUMENT)
            fail_msg("%s was accepted", bad[i]);
        assert_memory_equal(&url, &before, sizeof(url));
        assert_string_not_equal(dist_last_error(), "");
    }
}

static void test_too_long_init_methods_are_rejected(void **state)
{
    char text[2000];
    struct disti_url url;

    (void)state;
    memset(text, 'a', sizeof(text));
    memcpy(text, "tcp://", 6);
    memcpy(text + sizeof(text) - 3, ":1", 3);
    assert_int_equal(disti_url_parse(text, &url), DIST_ERR_INVALID_ARGUMENT);
    memcpy(text, "file:///", 8);
    assert_int_equal(disti_url_parse(text, &url), DIST_ERR_INVALID_ARGUMENT);
}

static void test_tasks_of_a_Slurm_node_are_parsed(void **state)
{
    (void)state;
    assert_int_equal(disti_slurm_tasks("4", 0), 4);
    assert_int_equal(disti_slurm_tasks("2(x3),1", 0), 2);
    assert_int_equal(disti_slurm_tasks("2(x3),1", 2), 2);
    assert_int_equal(disti_slurm_tasks("2(x3),1", 3), 1);
    assert_int_equal(disti_slurm_tasks("1,12(x2),3", 1), 12);
    assert_int_equal(disti_slurm_tasks("2(x3),1", 4), -1);
    assert_int_equal(disti_slurm_tasks("", 0), -1);
    assert_int_equal(disti_slurm_tasks("a", 0), -1);
    assert_int_equal(disti_slurm_tasks("2(x", 0), -1);
    assert_int_equal(disti_slurm_tasks("2(x0)", 0), -1);
    assert_int_equal(disti_slurm_tasks("2(x3", 0), -1);
    assert_int_equal(disti_slurm_tasks("2;3", 1), -1);
    assert_int_equal(disti_slurm_tasks("99999999999", 0), -1);
}

static const char *first_host(const char *text)
{
    static char host[16];

    return disti_slurm_first_host(text, host, sizeof(host)) ? host : "(none)";
}

static void test_the_first_Slurm_host_is_found(void **state)
{
    (void)state;
    assert_string_equal(first_host("node1"), "node1");
    assert_string_equal(first_host("node1,node2"), "node1");
    assert_string_equal(first_host("n[01-03,7],m5"), "n01");
    assert_string_equal(first_host("n[7,01-03]"), "n7");
    assert_string_equal(first_host("m5,n[01-03]"), "m5");
    assert_string_equal(first_host("r[1-2]n[003-9]-ib"), "r1n003-ib");
    assert_string_equal(first_host(""), "(none)");
    assert_string_equal(first_host(",a"), "(none)");
    assert_string_equal(first_host("n[01"), "(none)");
    assert_string_equal(first_host("n[]"), "(none)");
    assert_string_equal(first_host("n[a-b]"), "(none)");
    assert_string_equal(first_host("n]1"), "(none)");
    assert_string_equal(first_host("averyveryverylongname"), "(none)");
    assert_string_equal(first_host("n[1234567890123456]"), "(none)");
}

static void test_interface_patterns_are_matched(void **state)
{
    char address[DISTI_HOST_SIZE];

    (void)state;
    assert_true(disti_interface_fits("eth", "eth0"));
    assert_true(disti_interface_fits("ib,eth", "eth0"));
    assert_false(disti_interface_fits("eth", "veth0"));
    assert_false(disti_interface_fits("=eth", "eth0"));
    assert_true(disti_interface_fits("=lo,eth0", "eth0"));
    assert_true(disti_interface_fits("^docker,lo", "eth0"));
    assert_false(disti_interface_fits("^docker,lo", "docker0"));
    assert_true(disti_interface_fits("^=eth", "eth0"));
    assert_false(disti_interface_fits("^=eth0", "eth0"));
    assert_true(disti_interface_fits("a_name_longer_than_any_that_an_interface_of_this_kernel_has_"
                                     "or_will_have,eth",
                                     "eth0"));
    setenv("DIST_SOCKET_IFNAME", "=lo", 1);
    assert_int_equal(disti_primary_address(address), DIST_OK);
    assert_string_equal(address, "127.0.0.1");
    setenv("DIST_SOCKET_IFNAME", "nosuch", 1);
    assert_int_equal(disti_primary_address(address), DIST_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(dist_last_error(), "DIST_SOCKET_IFNAME"));
    unsetenv("DIST_SOCKET_IFNAME");
    assert_int_equal(disti_primary_address(address), DIST_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds_of_init_methods),
        cmocka_unit_test(test_tcp_is_parsed),
        cmocka_unit_test(test_file_is_parsed),
        cmocka_unit_test(test_bad_init_methods_are_rejected),
        cmocka_unit_test(test_too_long_init_methods_are_rejected),
        cmocka_unit_test(test_tasks_of_a_Slurm_node_are_parsed),
        cmocka_unit_test(test_the_first_Slurm_host_is_found),
        cmocka_unit_test(test_interface_patterns_are_matched),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
