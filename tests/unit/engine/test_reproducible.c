/* SPDX-License-Identifier: BSD-3-Clause */
/* Reproducible results: the same bits for any algorithm, placement, transport and vector length. */
#include "engine_rank.h"

#include "plan/plan.h"

#include <math.h>
#include <sys/mman.h>

#define COUNT 40000 /* more than the size up to which latency-optimal algorithms are selected */
#define PER_RANK 5000

/* The results of the first run, which all later runs must match; shared by all ranks of all
 * runs. */
static struct {
    bool known;
    float sum[COUNT];
} * first;

/* Values of very different magnitudes, so that the order of additions affects the last bits. */
static float value(int rank, size_t i)
{
    uint32_t x = (uint32_t)i * 2654435761u + (uint32_t)rank * 40503u + 12345u;

    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    return ldexpf((float)(x & 0xffff) - 32768.0f, (int)(x >> 16 & 0xf));
}

static size_t differing(const float *a, size_t from, size_t count)
{
    size_t count_differing = 0;

    for (size_t i = 0; i < count; i++)
        count_differing += memcmp(&a[i], &first->sum[from + i], sizeof(float)) != 0;
    return count_differing;
}

static void compare(struct engine_rank *rank, const float *a, size_t from, size_t count)
{
    if (!first->known && rank->rank == 0)
        memcpy(first->sum, a, sizeof(first->sum));
    engine_rank_meet(rank);
    first->known = true;
    CHECK(differing(a, from, count) == 0);
}

static float *input(const struct engine_rank *rank)
{
    static float in[COUNT];

    for (size_t i = 0; i < COUNT; i++)
        in[i] = value(rank->rank, i);
    return in;
}

static struct dist_call sum_of(dist_collective collective, const float *in, float *out)
{
    return (struct dist_call){.collective = collective,
                              .in = in,
                              .out = out,
                              .count = COUNT,
                              .dtype = DIST_FLOAT32,
                              .op = DIST_SUM};
}

/* All reducing collectives, with long vectors and with a part of them. */
static void reproducible_rank(struct engine_rank *rank)
{
    static float out[COUNT];
    float *in = input(rank);
    struct dist_call call = sum_of(DIST_COLL_ALL_REDUCE, in, out);
    size_t counts[ENGINE_RANKS_MAX] = {0}, offsets[ENGINE_RANKS_MAX] = {0};

    engine_rank_call(rank, call);
    compare(rank, out, 0, COUNT);
    call.count = 100;
    engine_rank_call(rank, call);
    compare(rank, out, 0, 100);
    call = sum_of(DIST_COLL_REDUCE, in, out);
    for (call.root = 0; call.root < rank->ranks; call.root++) {
        engine_rank_call(rank, call);
        if (rank->rank == call.root)
            CHECK(differing(out, 0, COUNT) == 0);
    }
    call = sum_of(DIST_COLL_REDUCE_SCATTER, in, out);
    call.count = PER_RANK;
    engine_rank_call(rank, call);
    CHECK(differing(out, (size_t)rank->rank * PER_RANK, PER_RANK) == 0);
    for (int r = 0; r < rank->ranks; r++) {
        counts[r] = r == 1 ? 0 : 1000 + (size_t)r;
        offsets[r] = r ? offsets[r - 1] + counts[r - 1] : 0;
    }
    call.collective = DIST_COLL_REDUCE_SCATTER_V;
    call.in_counts = counts;
    call.in_offsets = offsets;
    engine_rank_call(rank, call);
    CHECK(differing(out, offsets[rank->rank], counts[rank->rank]) == 0);
}

/* Forces each ordered algorithm in turn; for collectives other than its own, the choice is free. */
static void forced_runs(int ranks)
{
    for (const struct disti_algorithm *a = disti_algorithms; a->name; a++) {
        char force[64];

        if (!a->ordered)
            continue;
        snprintf(force, sizeof(force), "%s:%s", dist_collective_string(a->collective), a->name);
        setenv("DIST_ALGO", force, 1);
        engine_ranks_run(ranks, "shm", reproducible_rank);
    }
    unsetenv("DIST_ALGO");
}

static void results_depend_only_on_the_number_of_ranks(void **state)
{
    static const int ranks[] = {1, 2, 3, 5, 8};

    (void)state;
    engine_ranks_reproducible = true;
    for (int i = 0; i < 5; i++) {
        first->known = false;
        for (int scattered = 0; scattered < 2; scattered++) {
            engine_ranks_scattered = scattered;
            engine_ranks_run(ranks[i], "shm", reproducible_rank);
            engine_ranks_run(ranks[i], "tcp", reproducible_rank);
            forced_runs(ranks[i]);
        }
    }
    engine_ranks_reproducible = engine_ranks_scattered = false;
}

/* Checks that the test can fail: if the order is not fixed, these values give different bits. */
static void unordered_rank(struct engine_rank *rank)
{
    static float out[COUNT];

    engine_rank_call(rank, sum_of(DIST_COLL_ALL_REDUCE, input(rank), out));
    CHECK(differing(out, 0, COUNT) > 0);
}

static void without_the_option_the_order_changes_the_result(void **state)
{
    (void)state;
    first->known = false;
    engine_ranks_reproducible = true;
    engine_ranks_run(5, "shm", reproducible_rank);
    engine_ranks_reproducible = false;
    setenv("DIST_ALGO", "all_reduce:ring", 1);
    engine_ranks_run(5, "shm", unordered_rank);
    unsetenv("DIST_ALGO");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_depend_only_on_the_number_of_ranks),
        cmocka_unit_test(without_the_option_the_order_changes_the_result),
    };

    first = mmap(NULL, sizeof(*first), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (first == MAP_FAILED)
        return 99;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
