/* SPDX-License-Identifier: BSD-3-Clause */
/* The verifier finds races: what is unordered is named, what is ordered only by messages is not. */
#include "planted.h"

#include "../base/unit.h"

/* Recursive doubling: round 1 writes OUT, which in place is what round 0 is sending. */
static void test_write_while_sent(void **state)
{
    struct planted p = planted_write(DIST_COLL_ALL_REDUCE, "recursive_doubling", 4, 0, 1);
    struct disti_step *second = planted_find(&p, 1, DISTI_RECV_REDUCE, 1);

    (void)state;
    assert_int_equal(second->dst.space, DISTI_OUT);
    assert_int_not_equal(second->wait_lane, DISTI_NO_LANE);
    second->wait_lane = DISTI_NO_LANE;
    planted_wrong(&p, true, "race: it writes a chunk that may still be read");
    planted_right(&p, false); /* IN and OUT are apart */
    planted_free(&p);
}

/*
 * The same for a slot of scratch, which is written again two rounds later. (Of rank 15, since the
 * run would come upon the wrong sums of others before anybody asks for races.)
 */
static void test_scratch_reused(void **state)
{
    struct planted p = planted_write(DIST_COLL_ALL_REDUCE, "recursive_doubling", 16, 0, 1);
    struct disti_step *third = planted_find(&p, 15, DISTI_RECV_REDUCE, 2);

    (void)state;
    assert_int_equal(third->dst.space, DISTI_SCRATCH);
    third->wait_lane = DISTI_NO_LANE;
    planted_wrong(&p, false, "race: it writes scratch that may still be read");
    planted_free(&p);
}

/* A wait dropped in each place where a plan has one is a fault, of one kind or another. */
static void waits_matter(dist_collective collective, const char *name, int ranks, uint32_t segments)
{
    struct planted p = planted_write(collective, name, ranks, 0, segments);
    int waits = 0;

    for (int rank = 0; rank < ranks; rank++) {
        struct disti_step *steps = (struct disti_step *)p.plans[rank]->steps;

        for (uint32_t i = 0; i < p.plans[rank]->step_count; i++) {
            uint16_t lane = steps[i].wait_lane;

            if (lane == DISTI_NO_LANE)
                continue;
            steps[i].wait_lane = DISTI_NO_LANE;
            planted_wrong(&p, true, "");
            steps[i].wait_lane = lane;
            waits++;
        }
    }
    assert_true(waits > 0);
    planted_right(&p, true);
    planted_free(&p);
}

static void test_every_wait_matters(void **state)
{
    (void)state;
    waits_matter(DIST_COLL_ALL_REDUCE, "ring", 5, 2);
    waits_matter(DIST_COLL_ALL_REDUCE, "tree", 7, 2);
    waits_matter(DIST_COLL_ALL_REDUCE, "direct", 4, 2);
    waits_matter(DIST_COLL_ALL_REDUCE, "halving_doubling", 6, 1);
    waits_matter(DIST_COLL_ALL_REDUCE, "recursive_doubling", 6, 1);
    waits_matter(DIST_COLL_ALL_REDUCE, "direct_ordered", 5, 2);
}

static void test_every_wait_matters_elsewhere(void **state)
{
    (void)state;
    waits_matter(DIST_COLL_REDUCE, "chain", 3, 6);
    waits_matter(DIST_COLL_REDUCE, "scatter_gather", 4, 2);
    waits_matter(DIST_COLL_REDUCE, "binomial_ordered", 6, 6);
    waits_matter(DIST_COLL_REDUCE_SCATTER, "ring", 5, 2);
    waits_matter(DIST_COLL_REDUCE_SCATTER, "recursive_halving", 7, 1);
    waits_matter(DIST_COLL_SCATTER, "binomial", 7, 1);
    waits_matter(DIST_COLL_ALL_TO_ALL, "bruck", 7, 1);
}

/* The result is copied to OUT while the input, the same memory, may still be on its way. */
static void copy_early(const struct disti_shape *shape, struct disti_builder *b)
{
    int peer = 1 - shape->rank;

    disti_build_chunks(b, 1);
    disti_build_scratch(b, 1);
    uint16_t send = disti_build_lane(b, 0), recv = disti_build_lane(b, 0);
    disti_build_send(b, .lane = send, .peer = peer, .src = disti_in(0));
    disti_build_recv_reduce(b, .lane = recv, .peer = peer, .dst = disti_scratch(0),
                            .src = disti_in(0), .finish = true);
    disti_build_copy(b, .lane = recv, .dst = disti_out(0), .src = disti_scratch(0));
}

static void test_copy_early(void **state)
{
    struct planted p = planted_own(DIST_COLL_ALL_REDUCE, copy_early, 2);

    (void)state;
    planted_right(&p, false);
    planted_wrong(&p, true, "(COPY, chunk 0): race: it writes a chunk that may still be read");
    planted_free(&p);
}

/* Two receives write the same place: which one stays is chance, though both bring the same. */
static void two_writers(const struct disti_shape *shape, struct disti_builder *b)
{
    disti_build_chunks(b, 1);
    if (shape->rank == 0) {
        disti_build_send(b, .lane = disti_build_lane(b, 0), .peer = 1, .src = disti_out(0));
        disti_build_send(b, .lane = disti_build_lane(b, 1), .peer = 1, .src = disti_out(0));
    } else {
        disti_build_recv(b, .lane = disti_build_lane(b, 0), .peer = 0, .dst = disti_out(0));
        disti_build_recv(b, .lane = disti_build_lane(b, 1), .peer = 0, .dst = disti_out(0));
    }
}

static void test_two_writers(void **state)
{
    struct planted p = planted_own(DIST_COLL_BROADCAST, two_writers, 2);

    (void)state;
    planted_wrong(&p, true, "race: it writes a chunk that was written");
    struct disti_step *second = planted_step(&p, 1, 1, 0);
    second->wait_lane = 0;
    planted_right(&p, true);
    planted_free(&p);
}

/* Sends what another lane is just receiving. */
static void read_early(const struct disti_shape *shape, struct disti_builder *b)
{
    disti_build_chunks(b, 1);
    if (shape->rank == 0) {
        disti_build_send(b, .lane = disti_build_lane(b, 0), .peer = 1, .src = disti_out(0));
    } else if (shape->rank == 1) {
        disti_build_recv(b, .lane = disti_build_lane(b, 0), .peer = 0, .dst = disti_out(0));
        disti_build_send(b, .lane = disti_build_lane(b, 0), .peer = 2, .src = disti_out(0));
    } else {
        uint16_t lane = disti_build_lane(b, 0);

        disti_build_recv(b, .lane = lane, .peer = 1, .dst = disti_out(0));
    }
}

static void test_read_early(void **state)
{
    struct planted p = planted_own(DIST_COLL_BROADCAST, read_early, 3);

    (void)state;
    planted_wrong(&p, true, "");
    planted_step(&p, 1, 1, 0)->wait_lane = 0;
    planted_right(&p, true);
    planted_free(&p);
}

/*
 * Two ranks, two chunks. Rank 0 sends its part of chunk `first` and later writes the sum there;
 * that rank 1 has taken the part it can know only from a message about the other chunk:
 *
 *   rank 0   SEND first --+      +--> RECV_REDUCE other --> RECV_REDUCE first --> SEND both back
 *                         v      |                             ^
 *   rank 1           RECV first, SEND other      SEND first ---+ (a lane of its own)
 *
 * If other is chunk 1 it may be empty when chunk 0 is not, and then nothing orders them.
 */
static void hearsay(const struct disti_shape *shape, struct disti_builder *b, uint32_t first)
{
    uint32_t other = 1 - first;

    disti_build_chunks(b, 2);
    disti_build_scratch(b, 1);
    uint16_t a = disti_build_lane(b, 0), c = disti_build_lane(b, 1), d = disti_build_lane(b, 2);
    if (shape->rank == 0) {
        disti_build_send(b, .lane = a, .peer = 1, .src = disti_in(first), .data = first);
        struct disti_step_ref heard =
            disti_build_recv_reduce(b, .lane = c, .peer = 1, .dst = disti_out(other),
                                    .src = disti_in(other), .data = other, .finish = true);
        disti_build_recv_reduce(b, .lane = d, .after = heard, .peer = 1, .dst = disti_out(first),
                                .src = disti_in(first), .data = first, .finish = true);
        disti_build_send(b, .lane = d, .peer = 1, .src = disti_out(0), .chunks = 2);
    } else {
        struct disti_step_ref taken =
            disti_build_recv(b, .lane = a, .peer = 0, .dst = disti_scratch(0), .data = first);
        disti_build_send(b, .lane = c, .after = taken, .peer = 0, .src = disti_in(other),
                         .data = other);
        disti_build_send(b, .lane = d, .peer = 0, .src = disti_in(first), .data = first);
        disti_build_recv(b, .lane = disti_build_lane(b, 2), .peer = 0, .dst = disti_out(0),
                         .chunks = 2);
    }
}

static void hearsay_0(const struct disti_shape *shape, struct disti_builder *b)
{
    hearsay(shape, b, 0);
}

static void hearsay_1(const struct disti_shape *shape, struct disti_builder *b)
{
    hearsay(shape, b, 1);
}

static void test_order_by_another_chunk(void **state)
{
    struct planted p = planted_own(DIST_COLL_ALL_REDUCE, hearsay_1, 2);

    (void)state;
    planted_right(&p, true);
    planted_free(&p);
    p = planted_own(DIST_COLL_ALL_REDUCE, hearsay_0, 2);
    planted_wrong(&p, true, "race: it writes a chunk that may still be read");
    planted_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_write_while_sent),
        cmocka_unit_test(test_scratch_reused),
        cmocka_unit_test(test_every_wait_matters),
        cmocka_unit_test(test_every_wait_matters_elsewhere),
        cmocka_unit_test(test_copy_early),
        cmocka_unit_test(test_two_writers),
        cmocka_unit_test(test_read_early),
        cmocka_unit_test(test_order_by_another_chunk),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
