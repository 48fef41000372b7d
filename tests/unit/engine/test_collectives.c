/* SPDX-License-Identifier: BSD-3-Clause */
/* Every algorithm of every collective on engines of several ranks: blocks, counts, roots, in
 * place. */
#include "engine_rank.h"

#include "plan/plan.h"

#define UNTOUCHED INT64_C(-0x7777777777777777)
#define SUM (-1)                  /* the sum over all ranks */
#define BUFFER_ELEMENTS (1 << 16) /* elements of a buffer, more than any call uses */

/* The blocks of one buffer of a call: for each block, its place and its data, which rank `from` has
 * for rank `to`. */
struct side {
    int blocks;
    size_t counts[ENGINE_RANKS_MAX], offsets[ENGINE_RANKS_MAX];
    int from[ENGINE_RANKS_MAX], to[ENGINE_RANKS_MAX];
};

struct trial {
    dist_collective collective;
    int rank, ranks, root;
    size_t count; /* elements of a block; irregular calls: a scale for the counts */
    bool in_place;
    struct dist_call call;
    struct side in, out;
};

static int64_t item(int from, int to, size_t i)
{
    return from * 1000003 + to * 10007 + (int64_t)i * 13;
}

static int64_t item_of(const struct trial *t, int from, int to, size_t i)
{
    int64_t sum = 0;

    if (from != SUM)
        return item(from, to, i);
    for (int r = 0; r < t->ranks; r++)
        sum += item(r, to, i);
    return sum;
}

static bool is_uneven(dist_collective c)
{
    return c == DIST_COLL_ALL_GATHER_V || c == DIST_COLL_REDUCE_SCATTER_V ||
           c == DIST_COLL_GATHER_V || c == DIST_COLL_SCATTER_V || c == DIST_COLL_ALL_TO_ALL_V;
}

/* The number of elements from one rank to another; some are 0. */
static size_t uneven(const struct trial *t, int from, int to)
{
    return t->count * (size_t)((from * 2 + to * 3 + 1) % 4) + (from == to && t->count);
}

static void add(struct side *side, size_t count, size_t offset, int from, int to)
{
    int b = side->blocks++;

    side->counts[b] = count;
    side->offsets[b] = offset;
    side->from[b] = from;
    side->to[b] = to;
}

/* Places the blocks one after the other. anywhere: in reverse order, with gaps between them. */
static void place(const struct trial *t, struct side *side, bool anywhere)
{
    size_t at = anywhere ? 3 : 0;

    for (int i = 0; i < side->blocks; i++) {
        int b = anywhere ? side->blocks - 1 - i : i;

        side->offsets[b] = at;
        at += side->counts[b] + (anywhere ? 2 : 0);
        CHECK(at + t->count < BUFFER_ELEMENTS);
    }
}

/* The number of elements of the block from rank `from` to rank `to`. */
static size_t block_count(const struct trial *t, int from, int to)
{
    switch (t->collective) {
    case DIST_COLL_ALL_GATHER_V:
    case DIST_COLL_GATHER_V:
        return uneven(t, from, 0);
    case DIST_COLL_REDUCE_SCATTER_V:
    case DIST_COLL_SCATTER_V:
        return uneven(t, 0, to);
    case DIST_COLL_ALL_TO_ALL_V:
        return uneven(t, from, to);
    default:
        return t->count;
    }
}

static void fill_gathered(struct trial *t, bool here)
{
    add(&t->in, block_count(t, t->rank, 0), 0, t->rank, 0);
    for (int r = 0; here && r < t->ranks; r++)
        add(&t->out, block_count(t, r, 0), 0, r, 0);
}

static void fill_scattered(struct trial *t, int from, bool here)
{
    for (int r = 0; here && r < t->ranks; r++)
        add(&t->in, block_count(t, t->rank, r), 0, t->rank, r);
    add(&t->out, block_count(t, from == SUM ? 0 : from, t->rank), 0, from, t->rank);
}

static void fill(struct trial *t)
{
    bool at_root = t->rank == t->root;

    switch (t->collective) {
    case DIST_COLL_ALL_REDUCE:
    case DIST_COLL_REDUCE:
        add(&t->in, t->count, 0, t->rank, 0);
        if (at_root || t->collective == DIST_COLL_ALL_REDUCE)
            add(&t->out, t->count, 0, SUM, 0);
        break;
    case DIST_COLL_BROADCAST:
        add(&t->in, t->count, 0, t->rank, 0);
        add(&t->out, t->count, 0, t->root, 0);
        break;
    case DIST_COLL_ALL_GATHER:
    case DIST_COLL_ALL_GATHER_V:
        fill_gathered(t, true);
        break;
    case DIST_COLL_GATHER:
    case DIST_COLL_GATHER_V:
        fill_gathered(t, at_root);
        break;
    case DIST_COLL_REDUCE_SCATTER:
    case DIST_COLL_REDUCE_SCATTER_V:
        fill_scattered(t, SUM, true);
        break;
    case DIST_COLL_SCATTER:
    case DIST_COLL_SCATTER_V:
        fill_scattered(t, t->root, at_root);
        break;
    case DIST_COLL_ALL_TO_ALL:
    case DIST_COLL_ALL_TO_ALL_V:
        for (int r = 0; r < t->ranks; r++) {
            add(&t->in, block_count(t, t->rank, r), 0, t->rank, r);
            add(&t->out, block_count(t, r, t->rank), 0, r, t->rank);
        }
        break;
    default: /* a barrier has no data */
        break;
    }
    place(t, &t->in,
          t->in.blocks > 1 && is_uneven(t->collective) &&
              t->collective != DIST_COLL_REDUCE_SCATTER_V);
    place(t, &t->out, t->out.blocks > 1 && is_uneven(t->collective));
}

/* For a call in place: where the single block is within the buffer of all ranks' blocks. */
static int64_t *place_of(const struct trial *t, const struct side *all, int64_t *memory)
{
    if (all->blocks == t->ranks && t->ranks > 1 && t->collective != DIST_COLL_BROADCAST)
        return memory + all->offsets[t->rank];
    return memory;
}

static void aim(struct trial *t, int64_t *in, int64_t *out)
{
    bool uneven_call = is_uneven(t->collective);

    if (t->in_place || t->collective == DIST_COLL_BROADCAST) {
        if (t->in.blocks > t->out.blocks)
            out = place_of(t, &t->in, in);
        else
            in = place_of(t, &t->out, out);
    }
    t->call = (struct dist_call){.collective = t->collective,
                                 .in = t->in.blocks ? in : NULL,
                                 .out = t->out.blocks ? out : NULL,
                                 .count = uneven_call ? 0 : t->count,
                                 .dtype = DIST_INT64,
                                 .op = DIST_SUM,
                                 .root = t->root};
    if (t->collective == DIST_COLL_GATHER_V)
        t->call.count = t->in.counts[0];
    if (t->collective == DIST_COLL_SCATTER_V)
        t->call.count = t->out.counts[0];
    if (uneven_call && t->in.blocks == t->ranks && t->collective != DIST_COLL_ALL_GATHER_V &&
        t->collective != DIST_COLL_GATHER_V) {
        t->call.in_counts = t->in.counts;
        t->call.in_offsets = t->in.offsets;
    }
    if (uneven_call && t->out.blocks == t->ranks && t->collective != DIST_COLL_REDUCE_SCATTER_V &&
        t->collective != DIST_COLL_SCATTER_V) {
        t->call.out_counts = t->out.counts;
        t->call.out_offsets = t->out.offsets;
    }
}

static void check(const struct trial *t, const struct side *side, const int64_t *memory,
                  const int64_t *base, const char *what)
{
    for (int b = 0; b < side->blocks; b++) {
        for (size_t i = 0; i < side->counts[b]; i++) {
            int64_t is = base[side->offsets[b] + i];
            int64_t expected = item_of(t, side->from[b], side->to[b], i);

            if (is != expected)
                fprintf(stderr, "%s, %d ranks, root %d, count %zu%s: %s block %d element %zu\n",
                        dist_collective_string(t->collective), t->ranks, t->root, t->count,
                        t->in_place ? " in place" : "", what, b, i);
            CHECK(is == expected);
        }
    }
    if (t->in_place)
        return;
    for (size_t i = 0; i < BUFFER_ELEMENTS; i++) { /* elements between the blocks are unchanged */
        bool held = false;

        for (int b = 0; b < side->blocks; b++)
            held = held || (i >= side->offsets[b] && i < side->offsets[b] + side->counts[b]);
        CHECK(held || memory[i] == UNTOUCHED);
    }
}

static void try_once(struct engine_rank *rank, struct trial t)
{
    static int64_t in[BUFFER_ELEMENTS], out[BUFFER_ELEMENTS];
    int64_t *given;

    t.rank = rank->rank;
    t.ranks = rank->ranks;
    fill(&t);
    for (size_t i = 0; i < BUFFER_ELEMENTS; i++)
        in[i] = out[i] = UNTOUCHED;
    aim(&t, in, out);
    given = (int64_t *)(uintptr_t)t.call.in;
    for (int b = 0; b < t.in.blocks; b++) {
        for (size_t i = 0; i < t.in.counts[b]; i++)
            given[t.in.offsets[b] + i] = item(t.in.from[b], t.in.to[b], i);
    }
    engine_rank_call(rank, t.call);
    check(&t, &t.out, out, t.call.out, "out");
    if (!t.in_place && t.collective != DIST_COLL_BROADCAST)
        check(&t, &t.in, in, t.call.in, "in");
}

static void try_collective(struct engine_rank *rank, dist_collective collective)
{
    static const size_t counts[] = {0, 1, 5, 1000};
    bool rooted = disti_collective_rooted(collective);
    bool placeable = collective != DIST_COLL_ALL_TO_ALL && collective != DIST_COLL_ALL_TO_ALL_V &&
                     collective != DIST_COLL_BARRIER && collective != DIST_COLL_BROADCAST;

    for (int root = 0; root < (rooted ? rank->ranks : 1); root++) {
        for (size_t c = 0; c < sizeof(counts) / sizeof(*counts); c++) {
            struct trial trial = {.collective = collective, .root = root, .count = counts[c]};

            if (collective == DIST_COLL_BARRIER)
                trial.count = 0;
            try_once(rank, trial);
            trial.in_place = placeable;
            try_once(rank, trial);
        }
    }
}

/* The algorithm that DIST_ALGO forces in algorithm_rank. */
static const struct disti_algorithm *tried;

static void algorithm_rank(struct engine_rank *rank)
{
    try_collective(rank, tried->collective);
}

static void every_algorithm_computes_the_right_result(void **state)
{
    static const int ranks[] = {1, 2, 3, 5};

    (void)state;
    for (tried = disti_algorithms; tried->name; tried++) {
        char force[64];

        snprintf(force, sizeof(force), "%s:%s", dist_collective_string(tried->collective),
                 tried->name);
        setenv("DIST_ALGO", force, 1);
        for (int i = 0; i < 4; i++)
            engine_ranks_run(ranks[i], "shm", algorithm_rank);
    }
    unsetenv("DIST_ALGO");
}

/* All collectives with the algorithms that are selected by default. */
static void default_rank(struct engine_rank *rank)
{
    for (int c = 0; c < DIST_COLL_SEND; c++)
        try_collective(rank, (dist_collective)c);
}

static void selected_algorithms_compute_the_right_result(void **state)
{
    (void)state;
    engine_ranks_run(4, "shm", default_rank);
    engine_ranks_run(3, "tcp", default_rank);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_algorithm_computes_the_right_result),
        cmocka_unit_test(selected_algorithms_compute_the_right_result),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
