/* SPDX-License-Identifier: BSD-3-Clause */
/* Point-to-point messages concurrent with collectives, and calls that share memory. */
#include "engine_rank.h"

#define MANY 20

/* Posts more all_reduces than can run at once. A message passes in either direction although rank 1
 * posts its collectives only after it has received. */
static void many_rank(struct engine_rank *rank)
{
    static int32_t data[MANY];
    struct dist_ticket tickets[MANY];
    int source;

    if (rank->rank == 1) {
        CHECK(recv_one(rank, 0, TAG, &source) == 9);
        send_one(rank, 0, OTHER, 8);
    }
    for (int i = 0; i < MANY; i++) {
        data[i] = i + rank->rank;
        engine_rank_post(rank,
                         (struct dist_call){.collective = DIST_COLL_ALL_REDUCE,
                                            .in = &data[i],
                                            .out = &data[i],
                                            .count = 1,
                                            .dtype = DIST_INT32},
                         &tickets[i]);
    }
    if (rank->rank == 0) {
        send_one(rank, 1, TAG, 9);
        CHECK(recv_one(rank, 1, OTHER, &source) == 8);
    }
    for (int i = 0; i < MANY; i++) {
        CHECK(engine_rank_wait(rank, &tickets[i]) == DIST_OK);
        CHECK(data[i] == 2 * i + 1);
    }
}

static void messages_pass_many_pending_collectives(void **state)
{
    (void)state;
    engine_ranks_run(2, "shm", many_rank);
    engine_ranks_run(2, "tcp", many_rank);
}

/* Rank 1 forwards its received value without waiting for the receive; then all ranks add the
 * values. */
static void overlap_rank(struct engine_rank *rank)
{
    struct dist_ticket tickets[3];
    int32_t value = rank->rank == 0 ? 5 : -1;
    int source, posted = 0;

    if (rank->rank == 0)
        engine_rank_meet(rank); /* the other ranks have posted all calls by then */
    if (rank->rank > 0)
        engine_rank_post(rank, recv_from(rank->rank - 1, TAG, &value, 1, &source),
                         &tickets[posted++]);
    if (rank->rank < 2)
        engine_rank_post(rank, send_to(rank->rank + 1, TAG, &value, 1), &tickets[posted++]);
    engine_rank_post(rank,
                     (struct dist_call){.collective = DIST_COLL_ALL_REDUCE,
                                        .in = &value,
                                        .out = &value,
                                        .count = 1,
                                        .dtype = DIST_INT32},
                     &tickets[posted++]);
    if (rank->rank > 0)
        engine_rank_meet(rank);
    for (int i = 0; i < posted; i++)
        CHECK(engine_rank_wait(rank, &tickets[i]) == DIST_OK);
    CHECK(value == 15);
}

static void calls_on_the_same_memory_run_in_order(void **state)
{
    (void)state;
    engine_ranks_run(3, "shm", overlap_rank);
}

#define LONG_COUNT ((size_t)24 << 20)

/* More data than any transport buffers, to a rank that posts the receive only after a
 * collective. */
static void long_rank(struct engine_rank *rank)
{
    int32_t *data = malloc(LONG_COUNT * 4), one = 1;
    struct dist_ticket ticket;
    int source;

    CHECK(data);
    for (size_t i = 0; i < LONG_COUNT; i++)
        data[i] = rank->rank ? -1 : (int32_t)i;
    if (rank->rank == 0)
        engine_rank_post(rank, send_to(1, TAG, data, LONG_COUNT), &ticket);
    engine_rank_call(rank, (struct dist_call){.collective = DIST_COLL_ALL_REDUCE,
                                              .in = &one,
                                              .out = &one,
                                              .count = 1,
                                              .dtype = DIST_INT32});
    CHECK(one == 2);
    if (rank->rank == 1)
        engine_rank_post(rank, recv_from(DIST_ANY_SOURCE, TAG, data, LONG_COUNT, &source), &ticket);
    CHECK(engine_rank_wait(rank, &ticket) == DIST_OK);
    for (size_t i = 0; i < LONG_COUNT; i++)
        CHECK(data[i] == (int32_t)i);
    free(data);
}

static void a_pending_long_message_does_not_block_a_collective(void **state)
{
    (void)state;
    engine_ranks_run(2, "shm", long_rank);
    engine_ranks_run(2, "tcp", long_rank);
}

/* The description names the peer of the oldest pending call. */
static void describe_rank(struct engine_rank *rank)
{
    struct dist_ticket any, one;
    int32_t values[2];
    char text[64];
    int source;

    disti_engine_describe(rank->engine, text, sizeof(text));
    CHECK(strcmp(text, "") == 0);
    engine_rank_post(rank, recv_from(1 - rank->rank, TAG, &values[0], 1, &source), &one);
    engine_rank_post(rank, recv_from(DIST_ANY_SOURCE, OTHER, &values[1], 1, &source), &any);
    disti_engine_describe(rank->engine, text, sizeof(text));
    CHECK(strcmp(text, rank->rank ? "rank 0" : "rank 1") == 0);
    engine_rank_meet(rank);
    send_one(rank, 1 - rank->rank, TAG, 1);
    CHECK(engine_rank_wait(rank, &one) == DIST_OK);
    disti_engine_describe(rank->engine, text, sizeof(text));
    CHECK(strcmp(text, "any rank") == 0);
    engine_rank_meet(rank);
    send_one(rank, 1 - rank->rank, OTHER, 1);
    CHECK(engine_rank_wait(rank, &any) == DIST_OK);
}

static void the_description_names_the_awaited_peer(void **state)
{
    (void)state;
    engine_ranks_run(2, "shm", describe_rank);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_pass_many_pending_collectives),
        cmocka_unit_test(calls_on_the_same_memory_run_in_order),
        cmocka_unit_test(a_pending_long_message_does_not_block_a_collective),
        cmocka_unit_test(the_description_names_the_awaited_peer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
