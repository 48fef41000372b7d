/* SPDX-License-Identifier: BSD-3-Clause */
/* From a call's arguments to memory: the spans that a collective accesses, conflicts between calls,
 * and the size by which an algorithm is selected. */
#include "engine/state.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define RANKS 4
#define COUNT 10

static float in[RANKS * COUNT * 2], out[RANKS * COUNT * 2];

/* Elements of IN and OUT, {first, end}, that rank 2 accesses if rank `root` is root. */
struct expected {
    dist_collective collective;
    int root;
    size_t in[2], out[2];
};

static const size_t counts[RANKS] = {3, 0, 5, 2}, offsets[RANKS] = {10, 0, 4, 20};

static void bind_rank_2(const struct dist_call *call, struct engine_span spans[2])
{
    const struct disti_plan plan = {
        .collective = call->collective, .ranks = RANKS, .rank = 2, .root = call->root, .chunks = 1};
    struct disti_layout layouts[2];

    disti_bind_layouts(call, 2, layouts);
    disti_bind_spans(&plan, call, layouts, spans);
}

static void check_span(const struct engine_span *span, const float *base, const size_t expected[2])
{
    assert_int_equal(span->bytes, (expected[1] - expected[0]) * sizeof(float));
    if (span->bytes)
        assert_ptr_equal(span->start, base + expected[0]);
}

static void spans_are_the_memory_that_the_collective_accesses(void **state)
{
    static const struct expected table[] = {
        {DIST_COLL_ALL_REDUCE, 0, {0, 10}, {0, 10}},
        {DIST_COLL_BROADCAST, 0, {0, 10}, {0, 10}},
        {DIST_COLL_ALL_GATHER, 0, {0, 10}, {0, 40}},
        {DIST_COLL_REDUCE, 0, {0, 10}, {0, 0}},
        {DIST_COLL_REDUCE, 2, {0, 10}, {0, 10}},
        {DIST_COLL_REDUCE_SCATTER, 0, {0, 40}, {0, 10}},
        {DIST_COLL_GATHER, 0, {0, 10}, {0, 0}},
        {DIST_COLL_GATHER, 2, {0, 10}, {0, 40}},
        {DIST_COLL_SCATTER, 0, {0, 0}, {0, 10}},
        {DIST_COLL_SCATTER, 2, {0, 40}, {0, 10}},
        {DIST_COLL_ALL_TO_ALL, 0, {0, 40}, {0, 40}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
        const struct dist_call call = {.collective = table[i].collective,
                                       .in = in,
                                       .out = out,
                                       .count = COUNT,
                                       .root = table[i].root};
        struct engine_span spans[2];

        bind_rank_2(&call, spans);
        check_span(&spans[DISTI_IN], in, table[i].in);
        check_span(&spans[DISTI_OUT], out, table[i].out);
    }
}

static void spans_of_irregular_calls_include_all_blocks(void **state)
{
    struct dist_call call = {.in = in, .out = out, .count = 7, .root = 2};
    struct engine_span spans[2];

    (void)state;
    call.collective = DIST_COLL_ALL_GATHER_V; /* its own block has counts[2] elements */
    call.out_counts = counts;
    call.out_offsets = offsets;
    bind_rank_2(&call, spans);
    check_span(&spans[DISTI_IN], in, (size_t[]){0, 5});
    check_span(&spans[DISTI_OUT], out, (size_t[]){4, 22});
    call.collective = DIST_COLL_GATHER_V;
    bind_rank_2(&call, spans);
    check_span(&spans[DISTI_IN], in, (size_t[]){0, 7});
    check_span(&spans[DISTI_OUT], out, (size_t[]){4, 22});
    call.root = 0; /* the arrays are NULL on all ranks but the root */
    call.out_counts = call.out_offsets = NULL;
    bind_rank_2(&call, spans);
    check_span(&spans[DISTI_OUT], out, (size_t[]){0, 0});
    call.in_counts = counts;
    call.in_offsets = offsets;
    call.collective = DIST_COLL_REDUCE_SCATTER_V;
    bind_rank_2(&call, spans);
    check_span(&spans[DISTI_IN], in, (size_t[]){4, 22});
    check_span(&spans[DISTI_OUT], out, (size_t[]){0, 5});
}

static void empty_calls_have_empty_spans(void **state)
{
    const size_t none[RANKS] = {0}, anywhere[RANKS] = {9, 9, 9, 9};
    const struct dist_call call = {.collective = DIST_COLL_ALL_TO_ALL_V,
                                   .in_counts = none,
                                   .in_offsets = anywhere,
                                   .out_counts = none,
                                   .out_offsets = anywhere};
    struct engine_span spans[2];

    (void)state;
    bind_rank_2(&call, spans);
    assert_int_equal(spans[DISTI_IN].bytes, 0);
    assert_int_equal(spans[DISTI_OUT].bytes, 0);
    assert_false(disti_spans_clash(spans, spans));
}

/* The spans of an all_reduce of 16 elements. */
static void spans_at(const float *from, float *to, struct engine_span spans[2])
{
    const struct dist_call call = {
        .collective = DIST_COLL_ALL_REDUCE, .in = from, .out = to, .count = 16};

    bind_rank_2(&call, spans);
}

static void calls_conflict_if_one_writes_shared_memory(void **state)
{
    static float memory[64];
    struct engine_span a[2], b[2];

    (void)state;
    spans_at(memory, memory, a);
    assert_true(disti_spans_clash(a, a));
    spans_at(memory + 16, memory + 16, b);
    assert_false(disti_spans_clash(a, b));
    spans_at(memory + 15, memory + 31, b); /* reads memory that a writes */
    assert_true(disti_spans_clash(a, b));
    assert_true(disti_spans_clash(b, a));
    spans_at(memory, memory + 32, a); /* both calls only read it */
    spans_at(memory, memory + 48, b);
    assert_false(disti_spans_clash(a, b));
}

static void selection_uses_sizes_that_all_ranks_have(void **state)
{
    struct dist_call call = {.collective = DIST_COLL_ALL_TO_ALL, .count = COUNT};

    (void)state;
    assert_int_equal(disti_bind_bytes(&call, RANKS), COUNT * sizeof(float));
    call.collective = DIST_COLL_ALL_TO_ALL_V;
    call.in_counts = call.out_counts = counts;
    assert_int_equal(disti_bind_bytes(&call, RANKS), 0);
    call.collective = DIST_COLL_SCATTER_V;
    assert_int_equal(disti_bind_bytes(&call, RANKS), 0);
    call.collective = DIST_COLL_REDUCE_SCATTER_V;
    assert_int_equal(disti_bind_bytes(&call, RANKS), (3 + 0 + 5 + 2) / 4 * sizeof(float));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spans_are_the_memory_that_the_collective_accesses),
        cmocka_unit_test(spans_of_irregular_calls_include_all_blocks),
        cmocka_unit_test(empty_calls_have_empty_spans),
        cmocka_unit_test(calls_conflict_if_one_writes_shared_memory),
        cmocka_unit_test(selection_uses_sizes_that_all_ranks_have),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
