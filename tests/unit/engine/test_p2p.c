/* SPDX-License-Identifier: BSD-3-Clause */
/* Sends and receives: order, any source, messages to the own rank, mismatches. */
#include "engine_rank.h"

#define LONG_COUNT ((size_t)1 << 20)

/* ---- order ---- */

static void order_rank(struct engine_rank *rank)
{
    int source;

    if (rank->rank == 0) {
        for (int i = 0; i < 20; i++)
            send_one(rank, 1, i % 2 ? OTHER : TAG, i);
    } else {
        for (int i = 1; i < 20; i += 2)
            CHECK(recv_one(rank, 0, OTHER, &source) == i && source == 0);
        for (int i = 0; i < 20; i += 2)
            CHECK(recv_one(rank, 0, TAG, &source) == i && source == 0);
    }
}

static void messages_of_a_tag_stay_in_order(void **state)
{
    (void)state;
    engine_ranks_run(2, "shm", order_rank);
    engine_ranks_run(2, "tcp", order_rank);
}

/* Long messages in both directions at once, and empty ones; with the receive posted before and
 * after the message arrives. */
static void exchange_rank(struct engine_rank *rank)
{
    int32_t *out = malloc(LONG_COUNT * 4), *in = malloc(LONG_COUNT * 4);
    int peer = 1 - rank->rank, source = -7;
    struct dist_ticket tickets[4];

    for (size_t i = 0; i < LONG_COUNT; i++)
        out[i] = (int32_t)i * 3 + rank->rank;
    engine_rank_post(rank, recv_from(peer, TAG, in, LONG_COUNT, &source), &tickets[0]);
    engine_rank_post(rank, send_to(peer, TAG, out, LONG_COUNT), &tickets[1]);
    engine_rank_post(rank, send_to(peer, TAG, NULL, 0), &tickets[2]);
    engine_rank_meet(rank);
    engine_rank_post(rank, recv_from(peer, TAG, NULL, 0, &source), &tickets[3]);
    for (int i = 0; i < 4; i++)
        CHECK(engine_rank_wait(rank, &tickets[i]) == DIST_OK);
    CHECK(source == peer);
    for (size_t i = 0; i < LONG_COUNT; i++)
        CHECK(in[i] == (int32_t)i * 3 + peer);
    free(in);
    free(out);
}

static void long_and_empty_messages_are_exchanged(void **state)
{
    (void)state;
    engine_ranks_run(2, "shm", exchange_rank);
    engine_ranks_run(2, "tcp", exchange_rank);
}

/* Long and short messages of a tag keep their order, whenever they are posted, and with receives
 * from any source or a given one. */
#define MANY 6

static size_t many_count(int i)
{
    return i % 3 == 1 ? 10 : LONG_COUNT + (size_t)i;
}

static void mixed_rank(struct engine_rank *rank)
{
    static int32_t data[MANY][LONG_COUNT + MANY];
    struct dist_ticket tickets[MANY];
    int peer = 1 - rank->rank, sources[MANY];

    for (int i = 0; i < MANY; i++) {
        data[i][0] = data[i][many_count(i) - 1] = rank->rank ? -1 : i;
        if (rank->rank == 0)
            engine_rank_post(rank, send_to(peer, TAG, data[i], many_count(i)), &tickets[i]);
        else
            engine_rank_post(
                rank,
                recv_from(i % 2 ? DIST_ANY_SOURCE : peer, TAG, data[i], many_count(i), &sources[i]),
                &tickets[i]);
        if (i == MANY / 2)
            engine_rank_meet(rank);
    }
    for (int i = MANY - 1; i >= 0; i--)
        CHECK(engine_rank_wait(rank, &tickets[i]) == DIST_OK);
    for (int i = 0; rank->rank && i < MANY; i++)
        CHECK(data[i][0] == i && data[i][many_count(i) - 1] == i && sources[i] == 0);
}

static void long_and_short_messages_stay_in_order(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        engine_ranks_run(2, "shm", mixed_rank);
        engine_ranks_run(2, "tcp", mixed_rank);
    }
}

/* ---- any source ---- */

static void any_rank(struct engine_rank *rank)
{
    int32_t values[4] = {0};
    struct dist_ticket tickets[4];
    int sources[4], from[3] = {0};

    if (rank->rank) {
        send_one(rank, 0, TAG, rank->rank * 10);
        send_one(rank, 0, TAG, rank->rank * 10 + 1);
        return;
    }
    for (int i = 0; i < 4; i++)
        engine_rank_post(rank, recv_from(DIST_ANY_SOURCE, TAG, &values[i], 1, &sources[i]),
                         &tickets[i]);
    for (int i = 0; i < 4; i++)
        CHECK(engine_rank_wait(rank, &tickets[i]) == DIST_OK);
    for (int i = 0; i < 4; i++) { /* the messages of each rank are in order */
        CHECK(sources[i] == 1 || sources[i] == 2);
        CHECK(values[i] == sources[i] * 10 + from[sources[i]]++);
    }
    CHECK(from[1] == 2 && from[2] == 2);
}

static void any_source_matches_messages_of_all_ranks(void **state)
{
    (void)state;
    engine_ranks_run(3, "shm", any_rank);
    engine_ranks_run(3, "tcp", any_rank);
}

/* Three receives in order: from rank 1, from any source, from rank 1. The messages of rank 1 must
 * match them in that order. */
static void posted_order_rank(struct engine_rank *rank)
{
    int32_t values[3] = {0};
    struct dist_ticket tickets[3];
    int sources[3];

    if (rank->rank == 0) {
        engine_rank_post(rank, recv_from(1, TAG, &values[0], 1, &sources[0]), &tickets[0]);
        engine_rank_post(rank, recv_from(DIST_ANY_SOURCE, TAG, &values[1], 1, &sources[1]),
                         &tickets[1]);
        engine_rank_post(rank, recv_from(1, TAG, &values[2], 1, &sources[2]), &tickets[2]);
    }
    engine_rank_meet(rank);
    if (rank->rank == 1) {
        for (int i = 0; i < 3; i++)
            send_one(rank, 0, TAG, 100 + i);
    }
    for (int i = 0; rank->rank == 0 && i < 3; i++) {
        CHECK(engine_rank_wait(rank, &tickets[i]) == DIST_OK);
        CHECK(values[i] == 100 + i && sources[i] == 1);
    }
}

static void receives_match_in_the_order_of_posting(void **state)
{
    (void)state;
    engine_ranks_run(2, "shm", posted_order_rank);
    engine_ranks_run(2, "tcp", posted_order_rank);
}

/* While a receive from any source waits, messages with other tags and sends continue. */
static void beside_rank(struct engine_rank *rank)
{
    struct dist_ticket any;
    int32_t value = -1;
    int source;

    if (rank->rank == 0) {
        engine_rank_post(rank, recv_from(DIST_ANY_SOURCE, TAG, &value, 1, &source), &any);
        CHECK(recv_one(rank, 1, OTHER, &source) == 5);
        engine_rank_stays(rank, &any);
        send_one(rank, 1, TAG, 6);
        CHECK(engine_rank_wait(rank, &any) == DIST_OK);
        CHECK(value == 7 && source == 1);
    } else {
        send_one(rank, 0, OTHER, 5);
        CHECK(recv_one(rank, 0, TAG, &source) == 6);
        send_one(rank, 0, TAG, 7);
    }
}

static void a_receive_from_any_source_does_not_block_other_messages(void **state)
{
    (void)state;
    engine_ranks_run(2, "shm", beside_rank);
}

/* ---- to the own rank ---- */

static void self_rank(struct engine_rank *rank)
{
    int32_t sent[3] = {11, 22, 33}, got[3] = {0};
    struct dist_ticket sends[3], recvs[3];
    int me = rank->rank, sources[3] = {-5, -5, -5};

    for (int i = 0; i < 2; i++) /* two sends wait for their receives; the third is posted later */
        engine_rank_post(rank, send_to(me, TAG, &sent[i], 1), &sends[i]);
    engine_rank_stays(rank, &sends[0]);
    CHECK(recv_one(rank, me, TAG, &sources[0]) == 11);
    engine_rank_post(rank, recv_from(DIST_ANY_SOURCE, TAG, &got[1], 1, &sources[1]), &recvs[1]);
    engine_rank_post(rank, recv_from(me, TAG, &got[2], 1, &sources[2]), &recvs[2]);
    engine_rank_stays(rank, &recvs[2]);
    engine_rank_post(rank, send_to(me, OTHER, &sent[2], 1), &sends[2]);
    engine_rank_stays(rank, &recvs[2]); /* another tag does not match */
    send_one(rank, me, TAG, 44);
    CHECK(recv_one(rank, me, OTHER, &sources[0]) == 33);
    for (int i = 0; i < 3; i++)
        CHECK(engine_rank_wait(rank, &sends[i]) == DIST_OK && sources[i] == me);
    for (int i = 1; i < 3; i++)
        CHECK(engine_rank_wait(rank, &recvs[i]) == DIST_OK);
    CHECK(got[1] == 22 && got[2] == 44);
}

static void a_rank_can_send_to_itself(void **state)
{
    (void)state;
    engine_ranks_run(1, "shm", self_rank);
    engine_ranks_run(2, "shm", self_rank);
}

static void self_mismatch_rank(struct engine_rank *rank)
{
    static int32_t data[5], into[5];
    static struct dist_ticket send, recv;
    static int source;

    engine_rank_post(rank, send_to(0, TAG, data, 5), &send);
    engine_rank_post(rank, recv_from(DIST_ANY_SOURCE, TAG, into, 4, &source), &recv);
    CHECK(engine_rank_wait(rank, &recv) == DIST_ERR_MISMATCH);
    CHECK_SAYS("rank 0 receives 4 x int32 with tag 3 from rank 0, which sent 5 x int32");
    CHECK(disti_engine_progress(rank->engine) == DIST_ERR_MISMATCH); /* until it closes */
}

static void count_mismatches_within_a_rank_are_detected(void **state)
{
    (void)state;
    engine_ranks_run(1, "shm", self_mismatch_rank);
}

static void mismatch_rank(struct engine_rank *rank)
{
    static int32_t data[5];
    struct dist_ticket ticket;
    static int source;

    if (rank->rank == 0) {
        send_one(rank, 1, TAG, 1);
        return;
    }
    engine_rank_post(rank, recv_from(0, TAG, data, 5, &source), &ticket);
    CHECK(engine_rank_wait(rank, &ticket) == DIST_ERR_MISMATCH);
    CHECK_SAYS("rank 1 receives 5 x int32 with tag 3 from rank 0, which sent 1 x int32");
}

static void dtype_rank(struct engine_rank *rank)
{
    struct dist_ticket ticket;
    static int32_t data;
    static int source;
    struct dist_call call = recv_from(DIST_ANY_SOURCE, TAG, &data, 1, &source);

    if (rank->rank == 0) {
        send_one(rank, 1, TAG, 1);
        return;
    }
    call.dtype = DIST_FLOAT32;
    engine_rank_post(rank, call, &ticket);
    CHECK(engine_rank_wait(rank, &ticket) == DIST_ERR_MISMATCH);
    CHECK_SAYS("rank 1 receives 1 x float32 with tag 3 from rank 0, which sent 1 x int32");
}

/* The count that rank 1 expects; rank 0 sends another count. */
static size_t long_expected;

static void long_mismatch_rank(struct engine_rank *rank)
{
    static int32_t data[LONG_COUNT + 1];
    static struct dist_ticket ticket;
    static int source;
    char message[128];

    rank->broken = true;
    if (rank->rank == 0) {
        engine_rank_post(rank, send_to(1, TAG, data, LONG_COUNT + 1), &ticket);
        return;
    }
    engine_rank_post(rank, recv_from(0, TAG, data, long_expected, &source), &ticket);
    CHECK(engine_rank_wait(rank, &ticket) == DIST_ERR_MISMATCH);
    snprintf(message, sizeof(message),
             "rank 1 receives %zu x int32 with tag 3 from rank 0, which sent %zu x int32",
             long_expected, LONG_COUNT + 1);
    CHECK_SAYS(message);
}

static void count_mismatches_of_long_messages_are_reported(void **state)
{
    (void)state;
    long_expected = 5;
    engine_ranks_run(2, "shm", long_mismatch_rank);
    long_expected = LONG_COUNT;
    engine_ranks_run(2, "tcp", long_mismatch_rank);
}

static void count_and_type_mismatches_are_detected(void **state)
{
    (void)state;
    engine_ranks_run(2, "shm", mismatch_rank);
    engine_ranks_run(2, "shm", dtype_rank);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_of_a_tag_stay_in_order),
        cmocka_unit_test(long_and_empty_messages_are_exchanged),
        cmocka_unit_test(long_and_short_messages_stay_in_order),
        cmocka_unit_test(any_source_matches_messages_of_all_ranks),
        cmocka_unit_test(receives_match_in_the_order_of_posting),
        cmocka_unit_test(a_receive_from_any_source_does_not_block_other_messages),
        cmocka_unit_test(a_rank_can_send_to_itself),
        cmocka_unit_test(count_mismatches_within_a_rank_are_detected),
        cmocka_unit_test(count_mismatches_of_long_messages_are_reported),
        cmocka_unit_test(count_and_type_mismatches_are_detected),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
