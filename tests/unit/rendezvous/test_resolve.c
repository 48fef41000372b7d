/* SPDX-License-Identifier: BSD-3-Clause */
/* Host names: lookups that time out, spellings of addresses, and addresses that can never be
 * reached. */
#include "base/clock.h"
#include "base/net.h"
#include "launchers.h"
#include "rendezvous/rendezvous.h"
#include "tests/unit/base/unit.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

/* The lookup of slow.test ends after test_answer is posted, or after a timeout. */
static sem_t test_answer;
static atomic_int test_lookups;

/* Replaces the function of libc. */
int getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
                struct addrinfo **addresses_p)
{
    static int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    struct timespec until;

    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
    if (strcmp(host, "slow.test") != 0 || hints->ai_flags & AI_NUMERICHOST)
        return real(host, service, hints, addresses_p);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += UNIT_SOON_MS / 1000;
    (void)sem_timedwait(&test_answer, &until);
    test_lookups++;
    return real("127.0.0.1", service, hints, addresses_p);
}

static void test_a_slow_lookup_times_out(void **state)
{
    struct addrinfo *addresses;

    (void)state;
    assert_int_equal(disti_resolve("slow.test", 1, disti_deadline_ms(20), &addresses), EAI_AGAIN);
    assert_null(addresses);
    assert_int_equal(test_lookups, 0);
    sem_post(&test_answer); /* the abandoned lookup ends and frees its memory */
    while (test_lookups == 0)
        disti_sleep_ns(1000000);
    sem_post(&test_answer);
    assert_int_equal(disti_resolve("slow.test", 80, disti_deadline_ms(UNIT_SOON_MS), &addresses),
                     0);
    assert_int_equal(disti_address_port(addresses->ai_addr), 80);
    freeaddrinfo(addresses);
}

/* The timeout of a join limits the lookup, on rank 0 and on rank 1. */
static void test_the_timeout_limits_the_lookup_of_a_join(void **state)
{
    static const char *const ranks[] = {"RANK=0", "RANK=1"};
    struct disti_bootstrap bootstrap;

    (void)state;
    for (int r = 0; r < 2; r++) {
        launchers_clear();
        LAUNCHED("WORLD_SIZE=2", "MASTER_ADDR=slow.test", ranks[r]);
        test_lookups = 0;
        assert_int_equal(disti_rendezvous(NULL, 100, &bootstrap), DIST_ERR_RENDEZVOUS);
        assert_non_null(strstr(dist_last_error(), gai_strerror(EAI_AGAIN)));
        assert_int_equal(test_lookups, 0);
    }
    assert_non_null(strstr(dist_last_error(), "the name servers do not respond"));
}

static void test_spellings_of_addresses_are_normalized(void **state)
{
    static const char *const spellings[][2] = {
        {"[::1]", "::1"},
        {"::1", "::1"},
        {"::ffff:127.0.0.1", "127.0.0.1"},
        {"[::FFFF:ffff:ffff]", "255.255.255.255"},
        {"::ffff:1:1", "0.1.0.1"},
        {"fe80::1%eth0", "fe80::1%eth0"},
        {"node1", "node1"},
        {"[node1", "[node1"},
        {"[", "["},
        {"", ""},
    };
    static const char *const loopback[] = {"localhost", "LocalHost", "me.localhost",
                                           "127.3.2.1", "::1",       "ip6-localhost"};
    static const char *const others[] = {"",         "node1", "127.example.org",
                                         "10.0.0.1", "::2",   "mylocalhost"};
    char host[64];

    (void)state;
    for (size_t i = 0; i < sizeof(spellings) / sizeof(spellings[0]); i++) {
        strcpy(host, spellings[i][0]);
        disti_host_normalize(host);
        assert_string_equal(host, spellings[i][1]);
    }
    for (size_t i = 0; i < sizeof(loopback) / sizeof(loopback[0]); i++)
        assert_true(disti_host_is_loopback(loopback[i]));
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        assert_false(disti_host_is_loopback(others[i]));
}

static bool is_hopeless(const char *host, int error, char why[256])
{
    struct addrinfo *addresses;
    bool is;

    assert_int_equal(disti_resolve(host, 1, 0, &addresses), 0);
    is = disti_address_is_hopeless(addresses->ai_addr, error, why, 256);
    freeaddrinfo(addresses);
    return is;
}

static void test_unreachable_addresses_are_explained(void **state)
{
    char why[256] = "";

    (void)state;
    assert_true(is_hopeless("127.0.0.1", ENETUNREACH, why));
    assert_non_null(strstr(why, "ip link set lo up"));
    assert_true(is_hopeless("::1", EADDRNOTAVAIL, why));
    assert_true(is_hopeless("fe80::1", EINVAL, why));
    assert_non_null(strstr(why, "fe80::1%eth0"));
    assert_false(is_hopeless("127.0.0.1", ECONNREFUSED, why));
    assert_false(is_hopeless("192.0.2.1", ENETUNREACH, why));
    assert_false(is_hopeless("fe80::1%lo", EINVAL, why));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_slow_lookup_times_out),
        cmocka_unit_test(test_the_timeout_limits_the_lookup_of_a_join),
        cmocka_unit_test(test_spellings_of_addresses_are_normalized),
        cmocka_unit_test(test_unreachable_addresses_are_explained)};

    sem_init(&test_answer, 0, 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
