/* SPDX-License-Identifier: BSD-3-Clause */
/* The memory that the store uses for ended groups: none, or the reason of a failure. */
#include "ranks.h"

#include <malloc.h>

#include "store/server.h"

#define WAIT_MS 20000

/* One of three threads, each a rank of a store in this process. */
struct user {
    pthread_t thread;
    struct disti_store *store;
    int rank;
};

static void *user_makes_groups(void *arg)
{
    struct user *user = arg;
    char value[64] = "";
    int64_t number;

    for (int32_t group = 1; group <= 50; group++) {
        const struct disti_party party = {.group = group};
        char key[32], all[3 * sizeof(value)];

        snprintf(key, sizeof(key), "tell/%d", group);
        CHECK(disti_store_broadcast(user->store, &party, key, value, 64, WAIT_MS) == DIST_OK);
        snprintf(key, sizeof(key), "gather/%d", group);
        CHECK(disti_store_all_gather(user->store, &party, key, value, all, 64, WAIT_MS) == DIST_OK);
        snprintf(key, sizeof(key), "barrier/%d", group);
        if (user->rank == 1)
            CHECK(disti_store_arrive(user->store, &party, key, 0) == DIST_ERR_TIMEOUT);
        snprintf(key, sizeof(key), "leave/%d", group);
        CHECK(disti_store_leave(user->store, &party, key, NULL, NULL, 0, WAIT_MS, NULL, NULL) ==
              DIST_OK);
    }
    CHECK(disti_store_take_numbers(user->store, 1, &number) == DIST_OK); /* a round trip */
    return NULL;
}

static void test_ended_groups_use_no_memory(void **state)
{
    struct disti_store_server *server;
    struct user users[3];

    (void)state;
    assert_int_equal(ranks_serve("127.0.0.1", 0, 3, &server), DIST_OK);
    for (int r = 0; r < 3; r++) {
        users[r].rank = r;
        assert_int_equal(ranks_connect("127.0.0.1", disti_store_server_port(server), r, 3, WAIT_MS,
                                       &users[r].store),
                         DIST_OK);
    }
    for (int r = 0; r < 3; r++)
        pthread_create(&users[r].thread, NULL, user_makes_groups, &users[r]);
    for (int r = 0; r < 3; r++)
        pthread_join(users[r].thread, NULL);
    assert_true(LIST_EMPTY(&server->colls));
    for (int r = 0; r < 3; r++)
        disti_store_close(users[r].store);
    disti_store_server_stop(server, 1000);
}

static void test_failures_use_little_memory(void **state)
{
    const struct disti_party party = {.group = 7};
    struct disti_store_server *server;
    struct disti_store *store;
    int64_t number;

    (void)state;
    assert_int_equal(ranks_serve("127.0.0.1", 0, 1, &server), DIST_OK);
    assert_int_equal(
        ranks_connect("127.0.0.1", disti_store_server_port(server), 0, 1, WAIT_MS, &store),
        DIST_OK);
    disti_store_report(store, &party, DIST_ERR_PEER_LOST, "has no more work");
    assert_int_equal(disti_store_take_numbers(store, 1, &number), DIST_OK); /* a round trip */
    assert_false(TAILQ_EMPTY(&server->failures));
    assert_string_equal(strstr(TAILQ_FIRST(&server->failures)->news, "has no"), "has no more work");
    assert_in_range(malloc_usable_size(TAILQ_FIRST(&server->failures)), 1, 256);
    disti_store_close(store);
    disti_store_server_stop(server, 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ended_groups_use_no_memory),
        cmocka_unit_test(test_failures_use_little_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
