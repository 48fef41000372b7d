/* SPDX-License-Identifier: BSD-3-Clause */
/* The tcp transport: the common battery, addresses, file descriptors. */
#include "base/clock.h"
#include "tcp_fixture.h"
#include "tests/unit/base/unit.h"
#include "transport_battery.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static const struct dist_transport *const tcp = &disti_transport_tcp;

/* Sizes from which data are read into place, of the read buffer, and of the data of one progress
 * call. */
static const size_t boundaries[] = {4096 - 32, 32768, 262144 - 32, 262144, 1048576, 0};

static void test_battery_over_IPv4(void **unused)
{
    struct transport_battery_options options = {.boundaries = boundaries};

    (void)unused;
    assert_int_equal(transport_battery_run(tcp, &options), 0);
}

static void test_battery_over_IPv6(void **unused)
{
    struct transport_battery_options options = {
        .bind_host = "::1", .largest = 4 << 20, .brief = true};

    (void)unused;
    if (!tcp_host_usable("::1") || getenv("CHECK_SHORT"))
        skip();
    assert_int_equal(transport_battery_run(tcp, &options), 0);
}

/* Small socket buffers split all data into pieces. */
static void test_battery_with_small_buffers(void **unused)
{
    struct transport_battery_options options = {.largest = 1 << 20, .brief = true};

    (void)unused;
    setenv("DIST_TCP_BUFFER", "4K", 1);
    assert_int_equal(transport_battery_run(tcp, &options), 0);
    unsetenv("DIST_TCP_BUFFER");
}

/* Sets *found_p if a socket listens on `port`, and *wildcard_p if it listens on every address. */
static void find_listener(const char *path, unsigned port, bool *found_p, bool *wildcard_p)
{
    FILE *file = fopen(path, "re");
    char line[512], address[64];
    unsigned at, state;

    while (file && fgets(line, sizeof(line), file)) {
        if (sscanf(line, " %*u: %63[0-9A-F]:%x %*[0-9A-F]:%*x %x", address, &at, &state) != 3 ||
            at != port || state != 0x0a)
            continue;
        *found_p = true;
        if (strspn(address, "0") == strlen(address))
            *wildcard_p = true;
    }
    if (file)
        fclose(file);
}

static void test_a_rank_listens_on_one_address(void **unused)
{
    static const char *const hosts[] = {"127.0.0.1", "::1"};
    static const char *const tables[] = {"/proc/net/tcp", "/proc/net/tcp6"};

    (void)unused;
    for (int i = 0; i < 2; i++) {
        struct disti_tcp_address own;
        struct tcp_rank rank;
        bool found = false, wildcard = false;

        if (!tcp_host_usable(hosts[i]))
            continue;
        tcp_rank_open(&rank, 0, 2, hosts[i]);
        assert_true(disti_tcp_address_decode(rank.blob, rank.blob_bytes, &own));
        find_listener(tables[i], own.endpoint[0].port, &found, &wildcard);
        assert_true(found);
        assert_false(wildcard);
        find_listener(tables[1 - i], own.endpoint[0].port, &found, &wildcard);
        assert_false(wildcard);
        tcp_rank_close(&rank);
    }
}

static void test_bad_addresses_are_rejected(void **unused)
{
    static const char *const hosts[] = {"0.0.0.0", "::",           "localhost",
                                        "",        "127.0.0.1:80", "192.0.2.1"};

    (void)unused;
    for (size_t i = 0; i < sizeof(hosts) / sizeof(hosts[0]); i++) {
        int before = tcp_count_files();

        assert_false(tcp_host_usable(hosts[i]));
        assert_int_equal(tcp_count_files(), before);
    }
}

static void test_an_unopened_transport_can_be_closed(void **unused)
{
    void *state = calloc(1, tcp->state_size);
    int before = tcp_count_files();

    (void)unused;
    tcp->close(state);
    assert_int_equal(tcp_count_files(), before);
    free(state);
}

static void test_only_valid_addresses_are_reachable(void **unused)
{
    struct disti_tcp_address own;
    struct dist_reach reach;
    struct tcp_rank rank;
    unsigned char blob[DISTI_TCP_ADDRESS_BYTES];

    (void)unused;
    tcp_rank_open(&rank, 0, 2, "127.0.0.1");
    assert_int_equal(tcp->reach(rank.state, rank.blob, rank.blob_bytes, &reach), DIST_OK);
    assert_true(reach.latency_ns > 0 && reach.bytes_per_second > 0);
    assert_int_equal(tcp->reach(rank.state, rank.blob, rank.blob_bytes - 1, &reach),
                     DIST_ERR_UNSUPPORTED);
    assert_true(disti_tcp_address_decode(rank.blob, rank.blob_bytes, &own));
    own.endpoint[0].machine++;
    disti_tcp_address_encode(&own, blob);
    assert_int_equal(tcp->reach(rank.state, blob, sizeof(blob), &reach), DIST_ERR_UNSUPPORTED);
    own.endpoint[0].machine--;
    own.endpoint[0].family = 6;
    disti_tcp_address_encode(&own, blob);
    assert_int_equal(tcp->reach(rank.state, blob, sizeof(blob), &reach), DIST_ERR_UNSUPPORTED);
    tcp_rank_close(&rank);
}

static void test_all_descriptors_are_closed(void **unused)
{
    int before = tcp_count_files();

    (void)unused;
    for (int i = 0; i < 100; i++) {
        struct tcp_rank pair[2];
        struct dist_request unfinished;

        tcp_pair_open(pair, "127.0.0.1");
        if (i % 3)
            tcp_exchange(pair, 1000);
        if (i % 3 == 2)
            tcp_send(&pair[0], &unfinished, 1, 9, &i, sizeof(i));
        tcp_pair_close(pair);
        assert_int_equal(tcp_count_files(), before);
    }
}

static double cpu_seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Without a free file descriptor callers wait, and the called rank sleeps meanwhile. */
static void test_callers_wait_for_free_descriptors(void **unused)
{
    struct tcp_rank rank;
    struct rlimit before, none;
    unsigned char hello[DISTI_TCP_HELLO_BYTES];
    int64_t deadline;
    double cpu;
    int fd;

    (void)unused;
    if (unit_patience() > 1)
        skip(); /* valgrind adds CPU time and does not limit descriptors */
    tcp_rank_open(&rank, 1, 2, "127.0.0.1");
    fd = raw_connect(&rank);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = (rlim_t)fd + 1;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    cpu = cpu_seconds();
    deadline = disti_deadline_ms(500);
    while (!disti_expired(deadline)) {
        int sleeper = tcp->arm(rank.state);

        if (sleeper >= 0)
            poll(&(struct pollfd){.fd = sleeper, .events = POLLIN}, 1, 100);
        tcp->disarm(rank.state);
        tcp_drive(&rank, 1);
    }
    cpu = cpu_seconds() - cpu;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_true(cpu < 0.1);
    raw_call(&rank, fd, 0, 0);
    raw_read_hello(&rank, fd, hello, DISTI_TCP_ANSWER);
    close(fd);
    tcp_rank_close(&rank);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_rank_listens_on_one_address),
        cmocka_unit_test(test_bad_addresses_are_rejected),
        cmocka_unit_test(test_an_unopened_transport_can_be_closed),
        cmocka_unit_test(test_only_valid_addresses_are_reachable),
        cmocka_unit_test(test_all_descriptors_are_closed),
        cmocka_unit_test(test_callers_wait_for_free_descriptors),
        cmocka_unit_test(test_battery_over_IPv4),
        cmocka_unit_test(test_battery_over_IPv6),
        cmocka_unit_test(test_battery_with_small_buffers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
