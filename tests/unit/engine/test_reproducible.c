/* SPDX-License-Identifier: BSD-3-Clause */
/* Reproducible results: the same bits whatever the algorithm, the places, the transport, the size.
 */
#include "engine_rank.h"

#include "plan/plan.h"

#include <math.h>
#include <sys/mman.h>

#define COUNT 40000 /* more than the shortest algorithms are chosen for */
#define PER_RANK 5000

/* The first run's results, which all others must have; shared by all ranks of all runs. */
static struct {
    bool known;
    float sum[COUNT];
} * first;

/* Of very different sizes, so that the order of additions shows in the last bits. */
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
    size_t others = 0;

    for (size_t i = 0; i < count; i++)
        others += memcmp(&a[i], &first->sum[from + i], sizeof(float)) != 0;
    return others;
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

/* All collectives that add; long vectors at once, and a short one as part of it. */
static void add_rank(struct engine_rank *rank)
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

/* Every ordered algorithm in its turn; where it is none of all_reduce's the choice is free. */
static void forced_runs(int ranks)
{
    for (const struct disti_algorithm *a = disti_algorithms; a->name; a++) {
        char force[64];

        if (!a->ordered)
            continue;
        snprintf(force, sizeof(force), "%s:%s", dist_collective_string(a->collective), a->name);
        setenv("DIST_ALGO", force, 1);
        engine_ranks_run(ranks, "shm", add_rank);
    }
    unsetenv("DIST_ALGO");
}

static void the_bits_depend_on_the_number_of_ranks_alone(void **state)
{
    static const int ranks[] = {1, 2, 3, 5, 8};

    (void)state;
    engine_ranks_reproducible = true;
    for (int i = 0; i < 5; i++) {
        first->known = false;
        for (int scattered = 0; scattered < 2; scattered++) {
            engine_ranks_scattered = scattered;
            engine_ranks_run(ranks[i], "shm", add_rank);
            engine_ranks_run(ranks[i], "tcp", add_rank);
            forced_runs(ranks[i]);
        }
    }
    engine_ranks_reproducible = engine_ranks_scattered = false;
}

/* The numbers are such that it matters: another order gives other bits. */
static void other_rank(struct engine_rank *rank)
{
    static float out[COUNT];

    engine_rank_call(rank, sum_of(DIST_COLL_ALL_REDUCE, input(rank), out));
    CHECK(differing(out, 0, COUNT) > 0);
}

static void otherwise_the_order_shows(void **state)
{
    (void)state;
    first->known = false;
    engine_ranks_reproducible = true;
    engine_ranks_run(5, "shm", add_rank);
    engine_ranks_reproducible = false;
    setenv("DIST_ALGO", "all_reduce:ring", 1);
    engine_ranks_run(5, "shm", other_rank);
    unsetenv("DIST_ALGO");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bits_depend_on_the_number_of_ranks_alone),
        cmocka_unit_test(otherwise_the_order_shows),
    };

    first = mmap(NULL, sizeof(*first), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (first == MAP_FAILED)
        return 99;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
