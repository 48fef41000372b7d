/* SPDX-License-Identifier: BSD-3-Clause */
/* Engines whose ranks refine their choices: they agree, and results are right meanwhile. */
#include "engine_rank.h"

#include "engine/measure/refining.h"
#include "engine/state.h"

#include <fcntl.h>
#include <sys/stat.h>

#define CALLS 60
#define COUNTS 3
#define MOST 3000

static const size_t counts[COUNTS] = {1, 200, MOST};
/* Calls of this thread that are posted and not waited for. */
#define AHEAD 24

static struct {
    int32_t in[MOST], out[MOST];
    struct dist_ticket ticket;
    size_t count;
    int factor;
} calls[AHEAD];

/* The costs of a network whose messages cost nothing and whose bytes are dear: far from the truth,
 * and several algorithms are near each other. */
static const char costs[] = "libdist tuning 1\n"
                            "same_numa_latency_ns 1\n"
                            "same_numa_overhead_ns 0\n"
                            "same_numa_bytes_per_second 1000\n";

static char file[64];

static int setup(void **state)
{
    char setting[80];
    int fd;

    (void)state;
    strcpy(file, "/tmp/dist-refining.XXXXXX");
    fd = mkstemp(file);
    if (fd < 0 || write(fd, costs, sizeof(costs) - 1) != (ssize_t)sizeof(costs) - 1)
        return 1;
    close(fd);
    snprintf(setting, sizeof(setting), "refine,%s", file);
    return setenv("DIST_TUNING", setting, 1);
}

static int teardown(void **state)
{
    (void)state;
    unsetenv("DIST_TUNING");
    unsetenv("DIST_ALGO");
    return unlink(file);
}

static int32_t part(int rank, size_t i, int factor)
{
    return (int32_t)(i % 97) * factor + rank;
}

static void finish(struct engine_rank *rank, int number)
{
    int ranks = rank->ranks;

    CHECK(engine_rank_wait(rank, &calls[number].ticket) == DIST_OK);
    for (size_t i = 0; i < calls[number].count; i++)
        CHECK(calls[number].out[i] ==
              ranks * part(0, i, calls[number].factor) + ranks * (ranks - 1) / 2);
}

static void post(struct engine_rank *rank, int number, size_t count, int factor)
{
    calls[number].count = count;
    calls[number].factor = factor;
    for (size_t i = 0; i < count; i++)
        calls[number].in[i] = part(rank->rank, i, factor);
    engine_rank_post(rank,
                     (struct dist_call){.collective = DIST_COLL_ALL_REDUCE,
                                        .in = calls[number].in,
                                        .out = calls[number].out,
                                        .count = count,
                                        .dtype = DIST_INT32},
                     &calls[number].ticket);
}

static const struct disti_refine *refine_of(const struct engine_rank *rank, size_t count)
{
    return rank->engine
        ->refining[DIST_COLL_ALL_REDUCE * DISTI_SIZE_CLASSES + disti_size_class(4 * count)];
}

/* Sizes in turns, up to so many calls at once, more than run side by side; other ranks other many.
 */
static void reduce_all(struct engine_rank *rank, int ahead)
{
    for (int call = 0; call < CALLS * COUNTS; call++) {
        if (call >= ahead)
            finish(rank, call % ahead);
        post(rank, call % ahead, counts[call % COUNTS], call);
    }
    for (int call = 0; call < ahead; call++)
        finish(rank, (CALLS * COUNTS + call) % ahead);
}

/* What every rank thinks of the choice, as bits. */
static void agree(struct engine_rank *rank, size_t count)
{
    const struct disti_refine *refine = refine_of(rank, count);
    struct disti_refine theirs;
    struct disti_refined refined;
    int source;

    CHECK(refine && refine->count > 1 && refine->agreed);
    CHECK(refine->posted == (uint32_t)(refine->count * DISTI_REFINE_RUN * DISTI_REFINE_ROUNDS) + 1);
    for (int i = 0; i < refine->count; i++)
        CHECK(refine->medians[i] > 0 && refine->medians[i] >= refine->medians[refine->best]);
    CHECK(disti_refined_find(DIST_COLL_ALL_REDUCE, 4 * count, rank->ranks, 1, &refined));
    CHECK(refined.best == refine->best);
    for (int r = 1; r < rank->ranks && rank->rank == 0; r++)
        engine_rank_call(rank, send_to(r, TAG, (const int32_t *)refine, sizeof(*refine) / 4));
    if (rank->rank == 0)
        return;
    engine_rank_call(rank, recv_from(0, TAG, (int32_t *)&theirs, sizeof(theirs) / 4, &source));
    CHECK(theirs.best == refine->best && theirs.count == refine->count);
    CHECK(memcmp(theirs.medians, refine->medians, sizeof(theirs.medians)) == 0);
    for (int i = 0; i < refine->count; i++)
        CHECK(theirs.candidates[i].algorithm == refine->candidates[i].algorithm &&
              theirs.candidates[i].segments == refine->candidates[i].segments);
}

static void blocking_rank(struct engine_rank *rank)
{
    reduce_all(rank, 1);
    for (int i = 0; i < COUNTS; i++)
        agree(rank, counts[i]);
}

static void ahead_rank(struct engine_rank *rank)
{
    reduce_all(rank, AHEAD - rank->rank);
    for (int i = 0; i < COUNTS; i++)
        agree(rank, counts[i]);
}

static void all_agree_and_results_are_right(void **state)
{
    (void)state;
    engine_ranks_run(4, "tcp", blocking_rank);
    engine_ranks_run(4, "tcp", ahead_rank);
    engine_ranks_run(3, "tcp", ahead_rank);
}

/* A call that was prepared takes its turn among the others, on some ranks. */
static void prepared_rank(struct engine_rank *rank)
{
    int32_t in[2] = {1, rank->rank}, out[2] = {0};
    struct dist_call call = {
        .collective = DIST_COLL_ALL_REDUCE, .in = in, .out = out, .count = 2, .dtype = DIST_INT32};
    void *prepared = NULL;

    if (rank->rank % 2 == 0)
        CHECK(disti_engine_prepare(rank->engine, &call, &prepared) == DIST_OK);
    call.prepared = prepared;
    for (int i = 0; i < CALLS; i++) {
        out[0] = out[1] = 0;
        engine_rank_call(rank, call);
        CHECK(out[0] == rank->ranks && out[1] == rank->ranks * (rank->ranks - 1) / 2);
    }
    agree(rank, 2);
    disti_engine_release(rank->engine, prepared);
}

static void prepared_calls_take_part(void **state)
{
    (void)state;
    engine_ranks_run(4, "tcp", prepared_rank);
}

/* What is forced is not refined; what is not, is. */
static void forced_rank(struct engine_rank *rank)
{
    const struct disti_refine *refine;
    int32_t value = rank->rank;

    reduce_all(rank, 1);
    refine = refine_of(rank, counts[0]);
    CHECK(refine && refine->count == 0 && !refine->agreed);
    for (int i = 0; i < CALLS; i++) {
        value = rank->rank == 0 ? i : -1;
        engine_rank_call(rank, (struct dist_call){.collective = DIST_COLL_BROADCAST,
                                                  .out = &value,
                                                  .count = 1,
                                                  .dtype = DIST_INT32});
        CHECK(value == i);
    }
    refine = rank->engine->refining[DIST_COLL_BROADCAST * DISTI_SIZE_CLASSES + disti_size_class(4)];
    CHECK(refine && (refine->count < 2 || refine->agreed));
}

static void forced_choices_stay(void **state)
{
    (void)state;
    setenv("DIST_ALGO", "all_reduce:tree", 1);
    engine_ranks_run(3, "tcp", forced_rank);
}

/* Boards need no choice; nothing is refined unasked. */
static void board_rank(struct engine_rank *rank)
{
    reduce_all(rank, 1);
    CHECK(!rank->engine->refining || !refine_of(rank, counts[0]));
}

static void unasked_rank(struct engine_rank *rank)
{
    reduce_all(rank, 3);
    CHECK(!rank->engine->refining);
}

static void only_plans_only_if_asked(void **state)
{
    (void)state;
    engine_ranks_run(3, "shm", board_rank);
    setenv("DIST_TUNING", file, 1);
    engine_ranks_run(3, "tcp", unasked_rank);
}

/* Bits do not change where results are to be reproducible, and ordered candidates compete. */
static void ordered_rank(struct engine_rank *rank)
{
    float first[64], in[64], out[64];
    const struct disti_refine *refine;

    for (int i = 0; i < 64; i++)
        in[i] = 1.0f / (float)(3 + i * 7 + rank->rank * 1000);
    for (int i = 0; i < CALLS; i++) {
        engine_rank_call(rank, (struct dist_call){.collective = DIST_COLL_ALL_REDUCE,
                                                  .in = in,
                                                  .out = out,
                                                  .count = 64,
                                                  .dtype = DIST_FLOAT32});
        if (i == 0)
            memcpy(first, out, sizeof(first));
        CHECK(memcmp(first, out, sizeof(first)) == 0);
    }
    refine = refine_of(rank, 64);
    CHECK(refine && refine->count > 1 && refine->agreed);
    for (int i = 0; i < refine->count; i++)
        CHECK(refine->candidates[i].algorithm->ordered);
}

static void reproducible_results_stay(void **state)
{
    (void)state;
    engine_ranks_reproducible = true;
    engine_ranks_run(5, "tcp", ordered_rank);
    engine_ranks_reproducible = false;
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(all_agree_and_results_are_right),
        CASE(prepared_calls_take_part),
        CASE(forced_choices_stay),
        CASE(only_plans_only_if_asked),
        CASE(reproducible_results_stay),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
