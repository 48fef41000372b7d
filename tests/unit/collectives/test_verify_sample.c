/* SPDX-License-Identifier: BSD-3-Clause */
/* The verifier for many ranks: right plans are right, and planted faults are found. */
#include "topology/topology.h"
#include "verify/verify.h"

#include "../base/unit.h"

#include <string.h>

static struct disti_verdict sample_verdict(const struct disti_algorithm *algorithm,
                                           const char *place, int root, uint32_t segments)
{
    struct disti_topology *topology;
    struct disti_verdict verdict = {.ok = false};
    assert_int_equal(disti_topology_synthetic(place, &topology), DIST_OK);
    struct disti_shape shape = {.collective = algorithm->collective,
                                .ranks = topology->ranks,
                                .root = root,
                                .segments = segments,
                                .topology = topology};
    assert_int_equal(disti_verify_algorithm(algorithm, &shape, false, &verdict), DIST_OK);
    disti_topology_free(topology);
    return verdict;
}

static void test_all_algorithms(void **state)
{
    static const char *const places[] = {"core:1",         "core:2",
                                         "node:7",         "node:3 numa:2 core:2",
                                         "node:5 core:16", "rack:2 node:3 core:23"};
    static const int roots[] = {0, 1, 3, 7, 79, 100};
    (void)state;
    for (const struct disti_algorithm *a = disti_algorithms; a->name; a++)
        for (size_t p = 0; p < sizeof(places) / sizeof(*places); p++) {
            int root = disti_collective_rooted(a->collective) ? roots[p] : 0;
            struct disti_verdict verdict = sample_verdict(a, places[p], root, p == 5 ? 1 : 3);
            if (!verdict.ok)
                fail_msg("%s:%s on %s: %s", dist_collective_string(a->collective), a->name,
                         places[p], verdict.text);
            assert_true(verdict.all || p == 5);
        }
}

/* More than fits: some of it. */
static void test_a_sample_only(void **state)
{
    (void)state;
    const struct disti_algorithm *ring = disti_algorithm_find(DIST_COLL_ALL_REDUCE, "ring");
    struct disti_verdict verdict = sample_verdict(ring, "core:512", 0, 8);
    assert_true(verdict.ok);
    assert_false(verdict.all);
}

/* ---- faults, each in the plan of one rank ---- */

/* What is wrong on rank 5. */
static int chain_spoilt;
enum { SPOIL_NOTHING, SPOIL_OWN, SPOIL_TWICE, SPOIL_UNFINISHED, SPOIL_UNSENT, SPOIL_DEADLOCK };

/* All-reduce along a chain to rank 0 and back, of one chunk. */
static void spoilt_chain(const struct disti_shape *shape, struct disti_builder *b)
{
    int rank = shape->rank, last = shape->ranks - 1;
    int spoil = rank == 5 ? chain_spoilt : SPOIL_NOTHING;
    disti_build_chunks(b, 1);
    uint16_t lane = disti_build_lane(b, 0), down = disti_build_lane(b, 1);
    struct disti_step_ref mark = DISTI_NOW;
    if (spoil == SPOIL_DEADLOCK) {
        mark = disti_build_recv(b, .lane = down, .peer = rank - 1, .dst = disti_out(0));
        disti_build_recv_reduce(b, .lane = lane, .after = mark, .peer = rank + 1,
                                .dst = disti_out(0), .src = disti_in(0));
        disti_build_send(b, .lane = lane, .peer = rank - 1, .src = disti_out(0));
        disti_build_send(b, .lane = down, .peer = rank + 1, .src = disti_out(0));
        return;
    }
    if (rank < last)
        mark = disti_build_recv_reduce(b, .lane = lane, .peer = rank + 1, .dst = disti_out(0),
                                       .src = disti_in(0),
                                       .finish = rank == 0 && chain_spoilt != SPOIL_UNFINISHED);
    if (spoil == SPOIL_TWICE)
        mark = disti_build_reduce(b, .lane = lane, .dst = disti_out(0), .src = disti_in(0));
    if (rank > 0 && spoil != SPOIL_UNSENT)
        mark = disti_build_send(b, .lane = lane, .peer = rank - 1,
                                .src = rank == last || spoil == SPOIL_OWN ? disti_in(0)
                                                                          : disti_out(0));
    if (rank > 0)
        mark =
            disti_build_recv(b, .lane = down, .after = mark, .peer = rank - 1, .dst = disti_out(0));
    if (rank < last)
        disti_build_send(b, .lane = down, .after = mark, .peer = rank + 1, .src = disti_out(0));
}

static void spoilt_is(int spoil, const char *what)
{

    const struct disti_algorithm own = {
        .collective = DIST_COLL_ALL_REDUCE, .name = "chain", .write = spoilt_chain};
    chain_spoilt = spoil;
    struct disti_verdict verdict = sample_verdict(&own, "core:70", 0, 1);
    assert_int_equal(verdict.ok, what == NULL);
    if (what && !strstr(verdict.text, what))
        fail_msg("\"%s\" instead of \"%s\"", verdict.text, what);
}

static void test_planted(void **state)
{
    (void)state;
    spoilt_is(SPOIL_NOTHING, NULL);
    spoilt_is(SPOIL_OWN, "rank 0, lane 0, step 0 (RECV_REDUCE from rank 1, chunk 0): finishes a "
                         "sum without each rank's contribution exactly once");
    spoilt_is(SPOIL_TWICE, "without each rank's contribution exactly once");
    spoilt_is(SPOIL_UNFINISHED, "rank 0: output chunk 0 was finished 0 times");
    spoilt_is(SPOIL_UNSENT, "rank 4, lane 0, step 0 (RECV_REDUCE from rank 5, chunk 0): no rank "
                            "sends to it");
    spoilt_is(SPOIL_DEADLOCK, "deadlock");
}

/* A barrier that rank 66 enters and nobody waits for. */
static void deaf_barrier(const struct disti_shape *shape, struct disti_builder *b)
{
    int rank = shape->rank, last = shape->ranks - 1;
    disti_build_chunks(b, 1);
    uint16_t lane = disti_build_lane(b, 0);
    if (rank == 0) {
        for (int other = 1; other <= last; other++)
            if (other != 66)
                disti_build_recv(b, .lane = lane, .peer = other, .dst = disti_out(0));
        for (int other = 1; other <= last; other++)
            disti_build_send(b, .lane = lane, .peer = other, .src = disti_out(0));
        return;
    }
    if (rank != 66)
        disti_build_send(b, .lane = lane, .peer = 0, .src = disti_in(0));
    disti_build_recv(b, .lane = lane, .peer = 0, .dst = disti_out(0));
}

static void test_barrier_that_does_not_wait(void **state)
{
    (void)state;
    const struct disti_algorithm own = {
        .collective = DIST_COLL_BARRIER, .name = "deaf", .write = deaf_barrier};
    struct disti_verdict verdict = sample_verdict(&own, "core:70", 0, 1);
    assert_false(verdict.ok);
    assert_non_null(strstr(verdict.text, "leaves the barrier after hearing from ranks"));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_algorithms),
        cmocka_unit_test(test_a_sample_only),
        cmocka_unit_test(test_planted),
        cmocka_unit_test(test_barrier_that_does_not_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
