/* SPDX-License-Identifier: BSD-3-Clause */
/* The verifier for many ranks accepts correct plans and detects planted faults. */
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

static void test_all_algorithms_are_correct(void **state)
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

/* If not all chunks fit in memory, only a sample is verified. */
static void test_a_sample_is_verified(void **state)
{
    (void)state;
    const struct disti_algorithm *ring = disti_algorithm_find(DIST_COLL_ALL_REDUCE, "ring");
    struct disti_verdict verdict = sample_verdict(ring, "core:512", 0, 8);
    assert_true(verdict.ok);
    assert_false(verdict.all);
}

/* ---- faults, each in the plan of one rank ---- */

/* The fault in the plan of rank 5. */
static int chain_fault;
enum { FAULT_NONE, FAULT_OWN_ONLY, FAULT_TWICE, FAULT_UNFINISHED, FAULT_UNSENT, FAULT_DEADLOCK };

/* All-reduce of one chunk along a chain to rank 0 and back. */
static void faulty_chain(const struct disti_shape *shape, struct disti_builder *b)
{
    int rank = shape->rank, last = shape->ranks - 1;
    int fault = rank == 5 ? chain_fault : FAULT_NONE;
    disti_build_chunks(b, 1);
    uint16_t lane = disti_build_lane(b, 0), down = disti_build_lane(b, 1);
    struct disti_step_ref mark = DISTI_NOW;
    if (fault == FAULT_DEADLOCK) {
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
                                       .finish = rank == 0 && chain_fault != FAULT_UNFINISHED);
    if (fault == FAULT_TWICE)
        mark = disti_build_reduce(b, .lane = lane, .dst = disti_out(0), .src = disti_in(0));
    if (rank > 0 && fault != FAULT_UNSENT)
        mark = disti_build_send(b, .lane = lane, .peer = rank - 1,
                                .src = rank == last || fault == FAULT_OWN_ONLY ? disti_in(0)
                                                                               : disti_out(0));
    if (rank > 0)
        mark =
            disti_build_recv(b, .lane = down, .after = mark, .peer = rank - 1, .dst = disti_out(0));
    if (rank < last)
        disti_build_send(b, .lane = down, .after = mark, .peer = rank + 1, .src = disti_out(0));
}

static void expect_fault(int fault, const char *what)
{

    const struct disti_algorithm own = {
        .collective = DIST_COLL_ALL_REDUCE, .name = "chain", .write = faulty_chain};
    chain_fault = fault;
    struct disti_verdict verdict = sample_verdict(&own, "core:70", 0, 1);
    assert_int_equal(verdict.ok, what == NULL);
    if (what && !strstr(verdict.text, what))
        fail_msg("\"%s\" instead of \"%s\"", verdict.text, what);
}

static void test_planted_faults_are_detected(void **state)
{
    (void)state;
    expect_fault(FAULT_NONE, NULL);
    expect_fault(FAULT_OWN_ONLY,
                 "rank 0, lane 0, step 0 (RECV_REDUCE from rank 1, chunk 0): finishes a sum "
                 "without each rank's contribution exactly once");
    expect_fault(FAULT_TWICE, "without each rank's contribution exactly once");
    expect_fault(FAULT_UNFINISHED, "rank 0: output chunk 0 was finished 0 times");
    expect_fault(FAULT_UNSENT, "rank 4, lane 0, step 0 (RECV_REDUCE from rank 5, chunk 0): no rank "
                               "sends to it");
    expect_fault(FAULT_DEADLOCK, "deadlock");
}

/* A barrier that does not wait for rank 66. */
static void incomplete_barrier(const struct disti_shape *shape, struct disti_builder *b)
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

static void test_an_incomplete_barrier_is_detected(void **state)
{
    (void)state;
    const struct disti_algorithm own = {
        .collective = DIST_COLL_BARRIER, .name = "deaf", .write = incomplete_barrier};
    struct disti_verdict verdict = sample_verdict(&own, "core:70", 0, 1);
    assert_false(verdict.ok);
    assert_non_null(strstr(verdict.text, "leaves the barrier after hearing only from ranks"));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_algorithms_are_correct),
        cmocka_unit_test(test_a_sample_is_verified),
        cmocka_unit_test(test_planted_faults_are_detected),
        cmocka_unit_test(test_an_incomplete_barrier_is_detected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
