/* SPDX-License-Identifier: BSD-3-Clause */
/* The congestion control of the tcp transport's connections. */
#include "tcp_fixture.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

#define FILES 64

/* Stores the congestion control of each connection of this process. Returns the number of
 * connections. */
static int connections(char names[FILES][32])
{
    int count = 0;

    for (int fd = 0; fd < FILES; fd++) {
        struct sockaddr_storage peer;
        socklen_t length = sizeof(peer), size = 31;

        memset(names[count], 0, 32);
        if (getpeername(fd, (struct sockaddr *)&peer, &length) == 0 &&
            getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, names[count], &size) == 0)
            count++;
    }
    return count;
}

/* Opens two ranks with this setting, exchanges data and stores the congestion controls of their
 * connections. Returns their number. */
static int exchange_with(const char *setting, char names[FILES][32])
{
    struct tcp_rank pair[2];
    int count;

    if (setting)
        setenv("DIST_TCP_CONGESTION", setting, 1);
    tcp_pair_open(pair, "127.0.0.1");
    tcp_exchange(pair, 100000);
    count = connections(names);
    tcp_pair_close(pair);
    unsetenv("DIST_TCP_CONGESTION");
    return count;
}

static void local_connections_do_not_use_bbr(void **state)
{
    char names[FILES][32];

    (void)state;
    assert_int_equal(exchange_with(NULL, names), 2);
    for (int i = 0; i < 2; i++)
        assert_int_not_equal(strncmp(names[i], "bbr", 3), 0);
}

static void the_setting_selects_the_congestion_control(void **state)
{
    char names[FILES][32];

    (void)state;
    assert_int_equal(exchange_with("reno", names), 2);
    assert_string_equal(names[0], "reno");
    assert_string_equal(names[1], "reno");
}

static void the_systems_default_can_be_selected(void **state)
{
    FILE *file = fopen("/proc/sys/net/ipv4/tcp_congestion_control", "re");
    char names[FILES][32], expected[32] = "";

    (void)state;
    if (!file || fscanf(file, "%31s", expected) != 1)
        skip();
    fclose(file);
    assert_int_equal(exchange_with("system", names), 2);
    assert_string_equal(names[0], expected);
    assert_string_equal(names[1], expected);
}

static void an_unknown_congestion_control_is_rejected(void **state)
{
    (void)state;
    setenv("DIST_TCP_CONGESTION", "no_such_thing", 1);
    assert_false(tcp_host_usable("127.0.0.1"));
    unsetenv("DIST_TCP_CONGESTION");
    assert_true(tcp_host_usable("127.0.0.1"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(local_connections_do_not_use_bbr),
        cmocka_unit_test(the_setting_selects_the_congestion_control),
        cmocka_unit_test(the_systems_default_can_be_selected),
        cmocka_unit_test(an_unknown_congestion_control_is_rejected),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
