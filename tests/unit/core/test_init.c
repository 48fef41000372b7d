/* SPDX-License-Identifier: BSD-3-Clause */
/* If a rank cannot join, the other ranks are notified, whatever the order in which they join. */
#include "job.h"

#include <dist/backend.h>

#include "base/net.h"

#define RANKS 4
#define ALL_RANKS RANKS
#define NO_RANK -1
#define LATE_MS 1000
#define TIMEOUT_MS 40000

/* One start: the rank with a wrong backend (or timeout), and the rank that is late. */
struct start {
    int wrong, late;
    bool timeout;
    char url[96];
};

static dist_status try_to_join(const struct start *start, int rank)
{
    struct dist_options options = DIST_OPTIONS_INIT;
    dist_group *group;

    const bool wrong = rank == start->wrong || start->wrong == ALL_RANKS;

    options.backend = wrong && !start->timeout ? "glue" : "gloo";
    options.init_method = start->url;
    options.rank = rank;
    options.world_size = RANKS;
    options.timeout_ms = wrong && start->timeout ? -7 : TIMEOUT_MS;
    return dist_init_process_group(&options, &group);
}

static void fail_to_join(int rank, void *arg)
{
    const struct start *start = arg;
    int64_t soon = disti_deadline_ms(UNIT_SOON_MS);
    char name[16];

    if (rank == start->late)
        disti_sleep_ns(LATE_MS * INT64_C(1000000));
    if (rank == start->wrong || start->wrong == ALL_RANKS) {
        CHECK(try_to_join(start, rank) ==
              (start->timeout ? DIST_ERR_INVALID_ARGUMENT : DIST_ERR_NO_BACKEND));
    } else {
        snprintf(name, sizeof(name), "rank %d ", start->wrong);
        CHECK(try_to_join(start, rank) == DIST_ERR_PEER_LOST);
        if (start->timeout)
            CHECK_SAYS(name, "options->timeout_ms is -7");
        else
            CHECK_SAYS(name, "backend 'glue'", "  ucx "); /* the complete message */
    }
    CHECK(!disti_expired(soon));
}

static void join_by(const char *url, int wrong, int late, bool timeout)
{
    struct start start = {.wrong = wrong, .late = late, .timeout = timeout};

    snprintf(start.url, sizeof(start.url), "%s", url);
    ranks_run(RANKS, fail_to_join, &start);
}

static void all_ranks_fail_if_one_cannot_join(void **state)
{
    static const int cases[][2] = {{0, NO_RANK}, {2, NO_RANK}, {ALL_RANKS, NO_RANK}, {0, 3}, {2, 0},
                                   {2, 3},       {2, 2},       {ALL_RANKS, 3}};
    char place[] = "/tmp/dist-init.XXXXXX", url[96];
    int fd = mkstemp(place);

    (void)state;
    assert_true(fd >= 0);
    close(fd);
    unlink(place);
    snprintf(url, sizeof(url), "file://%s", place);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        join_by(url, cases[i][0], cases[i][1], false);
        assert_int_equal(access(place, F_OK), -1);
    }
    join_by(url, 2, NO_RANK, true);
    join_by(url, ALL_RANKS, NO_RANK, true);
}

/* Numbers and pointers out of range are rejected. */
static void bad_options_are_rejected(void **state)
{
    static const struct {
        const char *text;
        int rank, world_size, local_rank, timeout_ms, device;
    } cases[] = {
        {"options->rank is -9: it must be 0 or more, or -1 to ask the launcher", -9, 1, 0, 0, 0},
        {"options->world_size is -5: it must be 1 or more, or -1", 0, -5, 0, 0, 0},
        {"options->world_size is 0", 0, 0, 0, 0, 0},
        {"options->local_rank is -9", 0, 1, -9, 0, 0},
        {"options->timeout_ms is -1: it must be 1 or more, or 0 for the default", 0, 1, 0, -1, 0},
        {"options->device is -9: it must be 0 or more, or -1", 0, 1, 0, 0, -9},
        {"local rank 1 is out of range", 0, 1, 1, 0, 0},
        {"rank 1 (given by the program) is out of range", 1, 1, 0, 0, 0},
    };
    dist_group *group = NULL;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct dist_options options = DIST_OPTIONS_INIT;

        options.init_method = "tcp://127.0.0.1:1";
        options.rank = cases[i].rank;
        options.world_size = cases[i].world_size;
        options.local_rank = cases[i].local_rank;
        options.timeout_ms = cases[i].timeout_ms;
        options.device = cases[i].device;
        assert_int_equal(dist_init_process_group(&options, &group), DIST_ERR_INVALID_ARGUMENT);
        if (!strstr(dist_last_error(), cases[i].text))
            fail_msg("'%s' does not contain '%s'", dist_last_error(), cases[i].text);
    }
    assert_int_equal(dist_init_process_group(NULL, NULL), DIST_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(dist_last_error(), "group_p is NULL"));
    assert_null(group);
}

/* A world of one rank rejects the same settings as a larger world. */
static void bad_settings_are_rejected_for_one_rank_too(void **state)
{
    static const char *const cases[][2] = {
        {"DIST_AUTH", "perhaps"},
        {"DIST_TRANSPORT", "shm,smoke"},
        {"DIST_SECRET_FILE", "/nowhere/secret"},
        {"DIST_TIMEOUT", "abc"},
        {"DIST_TIMEOUT", "0"},
        {"DIST_ALGO", "all_reduce=magic"},
        {"DIST_SEGMENTS", "1025"},
        {"DIST_CHECKSUM", "yes"},
        {"DIST_NODE_MEMORY", "2"},
        {"DIST_TCP_BUFFER", "2G"},
        {"DIST_TCP_SOCKETS", "0"},
        {"DIST_TCP_ZEROCOPY", "maybe"},
        {"DIST_TUNING", "/nowhere/tuning"},
        {"DIST_SOCKET_IFNAME", "=nowhere"},
        {"DIST_DEBUG", "loud"},
        {"DIST_FAULT", "sometimes"},
        {"DIST_FLIGHT", "-1"},
    };
    char lines[32768], wrong[64];

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct dist_options options = DIST_OPTIONS_INIT;
        dist_group *group = NULL;

        options.rank = 0;
        options.world_size = 1;
        options.init_method = "tcp://127.0.0.1:1";
        setenv(cases[i][0], cases[i][1], 1);
        assert_int_equal(dist_init_process_group(&options, &group), DIST_ERR_INVALID_ARGUMENT);
        if (!strstr(dist_last_error(), cases[i][0]))
            fail_msg("'%s' does not name %s", dist_last_error(), cases[i][0]);
        dist_list_variables(lines, sizeof(lines));
        snprintf(wrong, sizeof(wrong), "\nwrong\t%s\t\t", cases[i][0]);
        assert_non_null(strstr(lines, wrong));
        unsetenv(cases[i][0]);
        dist_list_variables(lines, sizeof(lines));
        assert_null(strstr(lines, "\nwrong\t"));
    }
}

static void a_failing_rank_does_not_wait_for_others(void **state)
{
    struct start start = {.wrong = 1, .late = NO_RANK, .url = "tcp://127.0.0.1:1"};
    int64_t soon = disti_deadline_ms(UNIT_SOON_MS);

    (void)state;
    assert_int_equal(try_to_join(&start, 1), DIST_ERR_NO_BACKEND);
    assert_non_null(strstr(dist_last_error(), "'glue'"));
    assert_false(disti_expired(soon));
}

/* ---- a missing rank ---- */

#define MISSING_MS 3000

static void join_without_rank_2(int rank, void *arg)
{
    struct start *start = arg;
    struct dist_options options = DIST_OPTIONS_INIT;
    int64_t began = disti_now_ns();
    dist_group *group;

    if (rank == 2)
        return;
    options.backend = "gloo";
    options.init_method = start->url;
    options.rank = rank;
    options.world_size = RANKS;
    options.timeout_ms = MISSING_MS;
    CHECK(dist_init_process_group(&options, &group) == DIST_ERR_TIMEOUT);
    CHECK(disti_now_ns() - began < UNIT_SOON_NS);
    CHECK_SAYS("waited ", " ms for all ranks to join", "rank 2 did not arrive",
               "raise the timeout");
}

static void a_missing_rank_is_named_in_time(void **state)
{
    struct start start = {0};
    char place[] = "/tmp/dist-init.XXXXXX";
    int fd = mkstemp(place);

    (void)state;
    assert_true(fd >= 0);
    close(fd);
    unlink(place);
    snprintf(start.url, sizeof(start.url), "file://%s", place);
    ranks_run(RANKS, join_without_rank_2, &start);
}

/* ---- joining twice ---- */

static void join_twice(int rank, void *arg)
{
    struct start *start = arg;
    struct dist_options options = DIST_OPTIONS_INIT;
    dist_group *group, *second = NULL;

    options.backend = "gloo";
    options.init_method = start->url;
    options.rank = rank;
    options.world_size = 2;
    options.timeout_ms = TIMEOUT_MS;
    for (int i = 0; i < 2; i++) { /* the second time, the address of the closed world is free */
        CHECK(dist_init_process_group(&options, &group) == DIST_OK);
        CHECK(dist_init_process_group(&options, &second) ==
              (rank ? DIST_ERR_RENDEZVOUS : DIST_ERR_ADDRESS_IN_USE));
        CHECK_SAYS(rank ? "has joined that job already" : "this process already uses",
                   "dist_new_group", "MASTER_PORT");
        CHECK(!second);
        CHECK(dist_barrier(group) == DIST_OK);
        CHECK(dist_destroy_process_group(group) == DIST_OK);
    }
}

static void joining_twice_is_an_error(void **state)
{
    struct start start = {0};
    struct ranks ranks;
    int fd, port;

    (void)state;
    assert_int_equal(disti_listen("127.0.0.1", 0, 0, &fd, &port), DIST_OK);
    close(fd);
    snprintf(start.url, sizeof(start.url), "tcp://127.0.0.1:%d", port);
    ranks_start(&ranks, 2, join_twice, &start);
    ranks_finish(&ranks);
    assert_int_equal(ranks.codes[0], 0);
    assert_int_equal(ranks.codes[1], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_missing_rank_is_named_in_time),
        cmocka_unit_test(joining_twice_is_an_error),
        cmocka_unit_test(all_ranks_fail_if_one_cannot_join),
        cmocka_unit_test(a_failing_rank_does_not_wait_for_others),
        cmocka_unit_test(bad_options_are_rejected),
        cmocka_unit_test(bad_settings_are_rejected_for_one_rank_too),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
