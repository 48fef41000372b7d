/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bad_calls BACKEND: makes every public call with wrong arguments. Each must be refused with a text
 * that names rank and argument; operations before, between and after must work.
 */
#include <dist/ddp.h>
#include <dist/dist.h>
#include <dist/zero.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT 64 /* elements of a block */
#define RANKS_MAX 16

static dist_group *group;
static int rank, ranks, checks, faults;

/* One float per element of each block, and the counts and offsets of the v-forms. */
static float in[RANKS_MAX * COUNT], out[RANKS_MAX * COUNT];
static size_t counts[RANKS_MAX], offsets[RANKS_MAX], huge[RANKS_MAX];

static void fault(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void fault(const char *format, ...)
{
    va_list args;

    if (faults++ >= 10)
        return;
    fprintf(stderr, "rank %d: FAULT ", rank);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, "\n");
}

/* Checks that the last call was refused and that its text contains `word`. */
static void refused(dist_status status, dist_status expected, const char *word, const char *call)
{
    const char *text = dist_last_error();

    checks++;
    if (status != expected || !strstr(text, word))
        fault("%s: %s: '%s', which should be %s and say '%s'", call, dist_status_string(status),
              status < 0 ? text : "", dist_status_string(expected), word);
}

static void fine(dist_status status, const char *call)
{
    checks++;
    if (status != DIST_OK)
        fault("%s: %s: %s", call, dist_status_string(status), dist_last_error());
}

#define BAD(word, call) refused(call, DIST_ERR_INVALID_ARGUMENT, word, #call)
#define UNSUPPORTED(word, call) refused(call, DIST_ERR_UNSUPPORTED, word, #call)
#define FINE(call) fine(call, #call)

#define F DIST_FLOAT32
#define C DIST_UINT8
#define S DIST_SUM
#define NO_DTYPE ((dist_dtype)99)
#define NO_OP ((dist_op)99)
#define TOO_MANY (SIZE_MAX / 2)

/* ---- checks common to all calls ---- */

static void bad_groups(void)
{
    BAD("group is NULL", dist_all_reduce(NULL, in, out, COUNT, F, S));
    BAD("group is NULL", dist_reduce(NULL, in, out, COUNT, F, S, 0));
    BAD("group is NULL", dist_broadcast(NULL, in, COUNT, F, 0));
    BAD("group is NULL", dist_barrier(NULL));
    BAD("group is NULL", dist_monitored_barrier(NULL, 0));
    BAD("group is NULL", dist_all_to_all(NULL, in, out, COUNT, F));
    BAD("group is NULL", dist_send(NULL, in, COUNT, F, 0, 0));
    BAD("group is NULL", dist_recv(NULL, out, COUNT, F, 0, 0, NULL));
}

static void bad_types(void)
{
    BAD("dtype", dist_all_reduce(group, in, out, COUNT, NO_DTYPE, S));
    BAD("dtype", dist_reduce_scatter(group, in, out, COUNT, NO_DTYPE, S));
    BAD("dtype", dist_broadcast(group, in, COUNT, NO_DTYPE, 0));
    BAD("dtype", dist_gather_v(group, in, COUNT, out, counts, NULL, NO_DTYPE, 0));
    BAD("dtype", dist_send(group, in, COUNT, NO_DTYPE, 0, 0));
    BAD("op 99", dist_all_reduce(group, in, out, COUNT, F, NO_OP));
    BAD("op 99", dist_reduce(group, in, out, COUNT, F, NO_OP, 0));
    BAD("op 99", dist_reduce_scatter_v(group, in, out, counts, F, NO_OP));
    BAD("PREMUL_SUM", dist_all_reduce(group, in, out, COUNT, F, DIST_PREMUL_SUM));
    BAD("USER", dist_reduce_scatter(group, in, out, COUNT, F, DIST_USER));
    UNSUPPORTED("band", dist_all_reduce(group, in, out, COUNT, F, DIST_BAND));
    UNSUPPORTED("bxor", dist_reduce(group, in, out, COUNT, DIST_BFLOAT16, DIST_BXOR, 0));
    UNSUPPORTED("avg", dist_reduce_scatter(group, in, out, COUNT, DIST_BOOL, DIST_AVG));
}

static void bad_works(void)
{
    dist_work *work = NULL;
    bool done;

    BAD("work_p is NULL", dist_all_reduce_async(group, in, out, COUNT, F, S, NULL));
    BAD("work_p is NULL", dist_reduce_async(group, in, out, COUNT, F, S, 0, NULL));
    BAD("work_p is NULL", dist_all_to_all_async(group, in, out, COUNT, F, NULL));
    BAD("work_p is NULL", dist_all_gather_v_async(group, in, out, counts, NULL, F, NULL));
    BAD("work_p is NULL", dist_barrier_async(group, NULL));
    BAD("work_p is NULL", dist_isend(group, in, COUNT, F, 0, 0, NULL));
    BAD("work_p is NULL", dist_irecv(group, out, COUNT, F, 0, 0, NULL, NULL));
    BAD("work_p is NULL", dist_all_reduce_init(group, in, out, COUNT, F, S, NULL));
    BAD("work is NULL", dist_wait(NULL));
    BAD("work is NULL", dist_wait_for(NULL, 10));
    BAD("work is NULL", dist_test(NULL, &done));
    BAD("work is NULL", dist_on_complete(NULL, NULL, NULL));
    BAD("work is NULL", dist_start(NULL));
    FINE(dist_work_free(NULL));
    FINE(dist_all_reduce_async(group, in, out, COUNT, F, S, &work));
    BAD("done_p is NULL", dist_test(work, NULL));
    BAD("timeout_ms is -1", dist_wait_for(work, -1));
    BAD("timeout_ms is -2147483648", dist_wait_for(work, INT_MIN));
    BAD("fn is NULL", dist_on_complete(work, NULL, NULL));
    BAD("persistent", dist_start(work));
    FINE(dist_wait(work));
    BAD("dist_group_end", dist_group_end());
}

static void bad_ops(void)
{
    dist_op op = DIST_SUM;

    BAD("op_p is NULL", dist_op_create_premul_sum(2, NULL));
    BAD("fn is NULL", dist_op_create(NULL, NULL, &op));
    BAD("op", dist_op_free(DIST_SUM));
    FINE(dist_op_create_premul_sum(2, &op));
    UNSUPPORTED("premul_sum", dist_all_reduce(group, in, out, COUNT, DIST_INT32, op));
    FINE(dist_op_free(op));
    BAD("freed", dist_op_free(op));
    BAD("freed", dist_all_reduce(group, in, out, COUNT, F, op));
    BAD("freed", dist_reduce_scatter(group, in, out, COUNT, F, op));
}

/* ---- buffers, counts, roots and peers ---- */

static void bad_buffers(void)
{
    BAD("in is NULL", dist_all_reduce(group, NULL, out, COUNT, F, S));
    BAD("out is NULL", dist_all_reduce(group, in, NULL, COUNT, F, S));
    BAD("in is NULL", dist_reduce(group, NULL, out, COUNT, F, S, 0));
    BAD("out is NULL", dist_reduce(group, in, NULL, COUNT, F, S, rank));
    BAD("is NULL", dist_broadcast(group, NULL, COUNT, F, 0));
    BAD("in is NULL", dist_all_gather(group, NULL, out, COUNT, F));
    BAD("out is NULL", dist_all_gather(group, in, NULL, COUNT, F));
    BAD("out is NULL", dist_all_gather_v(group, in, NULL, counts, NULL, F));
    BAD("in is NULL", dist_reduce_scatter(group, NULL, out, COUNT, F, S));
    BAD("out is NULL", dist_reduce_scatter_v(group, in, NULL, counts, F, S));
    BAD("in is NULL", dist_gather(group, NULL, out, COUNT, F, 0));
    BAD("out is NULL", dist_gather(group, in, NULL, COUNT, F, rank));
    BAD("in is NULL", dist_scatter(group, NULL, out, COUNT, F, rank));
    BAD("out is NULL", dist_scatter(group, in, NULL, COUNT, F, 0));
    BAD("in is NULL", dist_all_to_all(group, NULL, out, COUNT, F));
    BAD("out is NULL", dist_all_to_all_v(group, in, counts, NULL, NULL, counts, NULL, F));
    BAD("is NULL", dist_send(group, NULL, COUNT, F, 0, 0));
    BAD("is NULL", dist_recv(group, NULL, COUNT, F, 0, 0, NULL));
    BAD("buffers is NULL", dist_all_reduce_coalesced(group, NULL, counts, 2, F, S));
    BAD("counts is NULL", dist_all_reduce_coalesced(group, (void *[]){in, out}, NULL, 2, F, S));
    BAD("coalesced", dist_all_reduce_coalesced(group, (void *[]){in, NULL}, counts, 2, F, S));
    BAD("buffer_count", dist_all_reduce_coalesced(group, (void *[]){in}, counts, -1, F, S));
}

static void bad_overlaps(void)
{
    BAD("overlap", dist_all_reduce(group, in, in + 1, COUNT, F, S));
    BAD("overlap", dist_reduce(group, in, in + 1, COUNT, F, S, rank));
    BAD("overlap", dist_all_to_all(group, in, in, COUNT, F));
    BAD("overlap", dist_all_to_all_v(group, in, counts, NULL, in, counts, NULL, F));
    BAD("out is inside in", dist_reduce_scatter(group, in, in + rank * COUNT + 1, COUNT, F, S));
    BAD("out is inside in", dist_scatter(group, in, in + rank * COUNT + 1, COUNT, F, rank));
    BAD("in is inside out", dist_all_gather(group, out + rank * COUNT + 1, out, COUNT, F));
    BAD("in is inside out", dist_gather(group, out + rank * COUNT + 1, out, COUNT, F, rank));
    BAD("in is inside out",
        dist_all_gather_v(group, out + rank * COUNT + 1, out, counts, offsets, F));
    BAD("in is inside out",
        dist_gather_v(group, out + rank * COUNT + 1, COUNT, out, counts, NULL, F, rank));
    BAD("out is inside in",
        dist_scatter_v(group, in, counts, NULL, in + rank * COUNT + 1, COUNT, F, rank));
    BAD("out is inside in", dist_reduce_scatter_v(group, in, in + rank * COUNT + 1, counts, F, S));
}

/*
 * Fills single elements, alternately input and output, so that the input is in the gaps of the
 * output.
 */
static float *gaps_fill(float *at)
{
    for (int i = 0; i < 4 * RANKS_MAX; i++)
        at[i] = -1;
    return at;
}

static void gaps_expect(const char *what, const float *at, int i, float wanted)
{
    checks++;
    if (at[i] != wanted)
        fault("%s in gaps: element %d is %g, not %g", what, i, (double)at[i], (double)wanted);
}

static void good_gaps_gathered(const size_t *ones, const size_t *gaps)
{
    float at[4 * RANKS_MAX];

    gaps_fill(at)[1] = (float)rank;
    FINE(dist_gather_v(group, at + 1, 1, at, ones, gaps, F, ranks - 1));
    for (int r = 0; rank == ranks - 1 && r < ranks; r++)
        gaps_expect("gather_v", at, 2 * r, (float)r);
    gaps_expect("gather_v", at, 1, (float)rank);
    gaps_fill(at)[1] = (float)rank;
    FINE(dist_all_gather_v(group, at + 1, at, ones, gaps, F));
    for (int r = 0; r < ranks; r++)
        gaps_expect("all_gather_v", at, 2 * r, (float)r);
    gaps_expect("all_gather_v", at, 1, (float)rank);
}

static void good_gaps_scattered(const size_t *ones, const size_t *gaps)
{
    float at[4 * RANKS_MAX];

    gaps_fill(at);
    for (int r = 0; r < ranks; r++)
        at[2 * r] = (float)(100 * rank + r);
    FINE(dist_scatter_v(group, at, ones, gaps, at + 1, 1, F, 0));
    gaps_expect("scatter_v", at, 1, (float)rank);
    gaps_fill(at);
    for (int r = 0; r < ranks; r++)
        at[2 * r] = (float)(100 * rank + r);
    FINE(dist_all_to_all_v(group, at, ones, gaps, at + 1, ones, gaps, F));
    for (int r = 0; r < ranks; r++) {
        gaps_expect("all_to_all_v", at, 2 * r, (float)(100 * rank + r));
        gaps_expect("all_to_all_v", at, 2 * r + 1, (float)(100 * r + rank));
    }
}

static void good_gaps(void)
{
    size_t ones[RANKS_MAX], gaps[RANKS_MAX];

    for (size_t r = 0; r < RANKS_MAX; r++) {
        ones[r] = 1;
        gaps[r] = 2 * r;
    }
    good_gaps_gathered(ones, gaps);
    good_gaps_scattered(ones, gaps);
}

/*
 * Lengths for which no buffer of one-byte elements can exist, although the product does not
 * overflow. A program's int -1 becomes SIZE_MAX.
 */
static void bad_lengths(size_t many)
{
    size_t all[RANKS_MAX], far[RANKS_MAX];
    float *end = (float *)(UINTPTR_MAX - 64);
    dist_work *work = NULL;

    for (int r = 0; r < RANKS_MAX; r++) {
        all[r] = r == ranks - 1 ? many : 1;
        far[r] = r == ranks - 1 ? many - 1 : (size_t)r;
    }
    BAD("larger than memory", dist_all_reduce(group, in, out, many, C, S));
    BAD("larger than memory", dist_all_reduce_async(group, in, in, many, C, S, &work));
    BAD("larger than memory", dist_all_reduce_init(group, in, in, many, C, S, &work));
    BAD("larger than memory", dist_all_reduce_coalesced(group, (void *[]){in}, &many, 1, C, S));
    BAD("larger than memory", dist_reduce(group, in, out, many, C, S, 0));
    BAD("larger than memory", dist_broadcast(group, in, many, C, 0));
    BAD("larger than memory", dist_all_gather(group, in, out, many, C));
    BAD("larger than memory", dist_all_gather_v(group, in, out, all, NULL, C));
    BAD("larger than memory", dist_all_gather_v(group, in, out, counts, far, C));
    BAD("larger than memory", dist_reduce_scatter(group, in, out, many, C, S));
    BAD("larger than memory", dist_reduce_scatter_v(group, in, out, all, C, S));
    BAD("larger than memory", dist_gather(group, in, out, many, C, 0));
    BAD("larger than memory", dist_gather_v(group, in, many, out, counts, NULL, C, ranks - 1));
    BAD("larger than memory", dist_gather_v(group, in, 1, out, all, NULL, C, rank));
    BAD("larger than memory", dist_scatter(group, in, out, many, C, 0));
    BAD("larger than memory", dist_scatter_v(group, in, counts, far, out, COUNT, C, rank));
    BAD("larger than memory", dist_all_to_all(group, in, out, many, C));
    BAD("in_counts", dist_all_to_all_v(group, in, all, NULL, out, counts, NULL, C));
    BAD("out_counts", dist_all_to_all_v(group, in, counts, NULL, out, counts, far, C));
    BAD("larger than memory", dist_send(group, in, many, C, 0, 0));
    BAD("larger than memory", dist_recv(group, out, many, C, 0, 0, NULL));
    BAD("larger than memory", dist_isend(group, in, many, C, 0, 0, &work));
    BAD("larger than memory", dist_irecv(group, out, many, C, 0, 0, NULL, &work));
    BAD("end of the address space", dist_all_reduce(group, end, out, COUNT, F, S));
    BAD("end of the address space", dist_all_gather(group, in, end, COUNT, F));
    BAD("end of the address space", dist_send(group, end, COUNT, F, 0, 0));
    checks++;
    if (work)
        fault("a refused call returned a request");
}

static void bad_counts(void)
{
    bad_lengths(SIZE_MAX);
    bad_lengths(SIZE_MAX - 1);
    bad_lengths(SIZE_MAX / 2);
    bad_lengths(SIZE_MAX / 16);
    BAD("larger than memory", dist_all_reduce(group, in, out, TOO_MANY, F, S));
    BAD("larger than memory", dist_all_gather(group, in, out, TOO_MANY, F));
    BAD("larger than memory", dist_send(group, in, TOO_MANY, F, 0, 0));
    BAD("larger than memory", dist_all_gather_v(group, in, out, huge, NULL, F));
    BAD("larger than memory", dist_reduce_scatter_v(group, in, out, huge, F, S));
    BAD("larger than memory", dist_all_to_all_v(group, in, counts, NULL, out, huge, NULL, F));
    BAD("counts is NULL", dist_all_gather_v(group, in, out, NULL, NULL, F));
    BAD("counts is NULL", dist_reduce_scatter_v(group, in, out, NULL, F, S));
    BAD("counts is NULL", dist_gather_v(group, in, COUNT, out, NULL, NULL, F, rank));
    BAD("counts is NULL", dist_scatter_v(group, in, NULL, NULL, out, COUNT, F, rank));
    BAD("in_counts is NULL", dist_all_to_all_v(group, in, NULL, NULL, out, counts, NULL, F));
    BAD("out_counts is NULL", dist_all_to_all_v(group, in, counts, NULL, out, NULL, NULL, F));
    BAD("count", dist_gather_v(group, in, COUNT - 1, out, counts, NULL, F, rank));
    BAD("count", dist_scatter_v(group, in, counts, NULL, out, COUNT - 1, F, rank));
}

static void bad_roots(void)
{
    BAD("root", dist_reduce(group, in, out, COUNT, F, S, ranks));
    BAD("root -1", dist_broadcast(group, in, COUNT, F, -1));
    BAD("root", dist_gather(group, in, out, COUNT, F, ranks));
    BAD("root -7", dist_gather_v(group, in, COUNT, out, counts, NULL, F, -7));
    BAD("root", dist_scatter(group, in, out, COUNT, F, ranks + 5));
    BAD("root -1", dist_scatter_v(group, in, counts, NULL, out, COUNT, F, -1));
    BAD("peer", dist_send(group, in, COUNT, F, ranks, 0));
    BAD("peer -1", dist_send(group, in, COUNT, F, DIST_ANY_SOURCE, 0));
    BAD("peer", dist_recv(group, out, COUNT, F, ranks, 0, NULL));
    BAD("peer -2", dist_recv(group, out, COUNT, F, -2, 0, NULL));
    BAD("tag", dist_send(group, in, COUNT, F, 0, -1));
    BAD("tag", dist_recv(group, out, COUNT, F, 0, -5, NULL));
}

/* Calls that send and receive nothing accept NULL buffers; every rank makes them. */
static void good_empty(void)
{
    static const size_t none[RANKS_MAX];

    FINE(dist_all_reduce(group, NULL, NULL, 0, F, S));
    FINE(dist_all_reduce_coalesced(group, NULL, NULL, 0, F, S));
    FINE(dist_reduce(group, NULL, NULL, 0, F, S, 0));
    FINE(dist_broadcast(group, NULL, 0, F, ranks - 1));
    FINE(dist_all_gather(group, NULL, NULL, 0, F));
    FINE(dist_all_gather_v(group, NULL, NULL, none, NULL, F));
    FINE(dist_reduce_scatter(group, NULL, NULL, 0, F, S));
    FINE(dist_reduce_scatter_v(group, NULL, NULL, none, F, S));
    FINE(dist_gather(group, NULL, NULL, 0, F, 0));
    FINE(dist_gather_v(group, NULL, 0, NULL, none, NULL, F, 0));
    FINE(dist_scatter(group, NULL, NULL, 0, F, 0));
    FINE(dist_scatter_v(group, NULL, none, NULL, NULL, 0, F, 0));
    FINE(dist_all_to_all(group, NULL, NULL, 0, F));
    FINE(dist_all_to_all_v(group, NULL, none, NULL, NULL, none, NULL, F));
    FINE(dist_group_start());
    FINE(dist_send(group, NULL, 0, F, (rank + 1) % ranks, 1));
    FINE(dist_recv(group, NULL, 0, F, (rank + ranks - 1) % ranks, 1, NULL));
    FINE(dist_group_end());
}

/* ---- groups ---- */

static void bad_new_groups(void)
{
    const int twice[] = {0, 0}, outside[] = {0, RANKS_MAX}, me[] = {rank};
    struct dist_group_options options = DIST_GROUP_OPTIONS_INIT;
    dist_group *made = NULL;

    BAD("NULL", dist_new_group(NULL, me, 1, NULL, &made));
    BAD("ranks", dist_new_group(group, NULL, 1, NULL, &made));
    BAD("0", dist_new_group(group, twice, 2, NULL, &made));
    BAD("16", dist_new_group(group, outside, 2, NULL, &made));
    BAD("group_p", dist_new_group(group, me, 1, NULL, NULL));
    BAD("NULL", dist_dup_group(NULL, NULL, &made));
    BAD("color", dist_split_group(group, -5, 0, NULL, &made));
    options.timeout_ms = -1;
    BAD("timeout_ms", dist_new_group(group, me, 1, &options, &made));
    checks++;
    if (made)
        fault("a refused call made a group");
}

/* ---- arguments that are wrong on one rank ---- */

static int zero_step(void *arg, const struct dist_zero_slice *slice)
{
    (void)arg;
    (void)slice;
    return 0;
}

static dist_status one_ddp(bool wrong)
{
    struct dist_ddp_parameter parameter = {.count = COUNT};
    struct dist_ddp_options options = DIST_DDP_OPTIONS_INIT;
    dist_ddp *ddp = NULL;

    options.wire = wrong ? (dist_ddp_wire)99 : DIST_DDP_WIRE_SAME;
    return dist_ddp_create(group, &parameter, 1, &options, &ddp);
}

static dist_status one_zero(bool wrong)
{
    struct dist_zero_parameter parameter = {.count = wrong ? 0 : COUNT};
    struct dist_zero_options options = DIST_ZERO_OPTIONS_INIT;
    dist_zero *zero = NULL;

    options.step = zero_step;
    return dist_zero_create(group, &parameter, 1, &options, &zero);
}

/* Calls that make groups. Each is wrong on one rank in the way that its text names. */
enum {
    ONE_GROUP_P,
    ONE_TIMEOUT,
    ONE_BACKEND,
    ONE_SPLIT,
    ONE_NEW,
    ONE_SHRINK_P,
    ONE_SHRINK_TIMEOUT,
    ONE_SHRINK_BACKEND,
    ONE_DDP,
    ONE_ZERO,
    ONE_CALLS
};

static const char *const one_words[ONE_CALLS] = {
    "group_p is NULL", "timeout_ms is -7", "backend 'nosuch'", "color is -5",        "size is 3",
    "group_p is NULL", "timeout_ms is -7", "backend 'nosuch'", "options.wire is 99", "no elements"};

static dist_status one_call(int call, bool wrong)
{
    struct dist_group_options options = DIST_GROUP_OPTIONS_INIT;
    dist_group *made = NULL;
    int all[RANKS_MAX];

    for (int r = 0; r < ranks; r++)
        all[r] = r;
    if (wrong && (call == ONE_TIMEOUT || call == ONE_SHRINK_TIMEOUT))
        options.timeout_ms = -7;
    if (wrong && (call == ONE_BACKEND || call == ONE_SHRINK_BACKEND))
        options.backend = "nosuch";
    if (wrong && call == ONE_NEW)
        options.size = 3;
    switch (call) {
    case ONE_GROUP_P:
    case ONE_TIMEOUT:
    case ONE_BACKEND:
        return dist_dup_group(group, &options, wrong && call == ONE_GROUP_P ? NULL : &made);
    case ONE_SPLIT:
        return dist_split_group(group, wrong ? -5 : 0, 0, &options, &made);
    case ONE_NEW:
        return dist_new_group(group, all, ranks, &options, &made);
    case ONE_DDP:
        return one_ddp(wrong);
    case ONE_ZERO:
        return one_zero(wrong);
    default:
        return dist_shrink(group, &options, wrong && call == ONE_SHRINK_P ? NULL : &made);
    }
}

/* The last rank's call fails at once, before any other rank calls. The other ranks then get an
 * error that names it. */
static void bad_on_one_rank(void)
{
    char name[64];

    snprintf(name, sizeof(name), "rank %d (host ", ranks - 1);
    for (int call = 0; call < ONE_CALLS && ranks > 1; call++) {
        const bool backend = call == ONE_BACKEND || call == ONE_SHRINK_BACKEND;
        const dist_status expected = backend ? DIST_ERR_NO_BACKEND : DIST_ERR_INVALID_ARGUMENT;

        if (rank == ranks - 1)
            refused(one_call(call, true), expected, one_words[call], "one rank's wrong call");
        FINE(dist_barrier(group));
        if (rank == ranks - 1)
            continue;
        refused(one_call(call, false), expected, one_words[call], "a call that one rank refused");
        if (!strstr(dist_last_error(), name))
            fault("'%s' does not name '%s'", dist_last_error(), name);
    }
}

/* Checks that every call refuses a group that has been destroyed. */
static void bad_after_destroy(dist_group *destroyed)
{
    BAD("destroyed", dist_all_reduce(destroyed, in, out, COUNT, F, S));
    BAD("destroyed", dist_all_to_all(destroyed, in, out, COUNT, F));
    BAD("destroyed", dist_barrier(destroyed));
    BAD("destroyed", dist_send(destroyed, in, COUNT, F, 0, 0));
    BAD("destroyed", dist_destroy_process_group(destroyed));
}

/* ---- main ---- */

/* An all-reduce with a known result; refused calls must not have changed its data. */
static void sound(dist_group *on, const char *when)
{
    float mine = (float)(rank + 1), sum = 0;

    fine(dist_all_reduce(on, &mine, &sum, 1, F, S), when);
    if (sum != (float)(ranks * (ranks + 1) / 2))
        fault("%s: the sum is %g", when, (double)sum);
}

static void bad_all(void)
{
    static void (*const parts[])(void) = {bad_groups,  bad_types,  bad_works,      bad_ops,
                                          bad_buffers, bad_counts, bad_roots,      bad_overlaps,
                                          good_empty,  good_gaps,  bad_new_groups, bad_on_one_rank};
    static int32_t early[5000];
    dist_group *other = NULL;
    dist_work *pending = NULL;

    FINE(dist_dup_group(group, NULL, &other));
    for (int i = 0; i < 5000; i++)
        early[i] = rank + i;
    FINE(dist_all_reduce_async(group, early, early, 5000, DIST_INT32, DIST_MAX, &pending));
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        parts[i]();
        sound(group, "an all-reduce after refusals");
        sound(other, "an all-reduce of another group");
    }
    FINE(dist_wait(pending));
    for (int i = 0; i < 5000; i++) {
        if (early[i] != ranks - 1 + i)
            fault("element %d of the earlier request is %d", i, early[i]);
    }
    FINE(dist_destroy_process_group(other));
    bad_after_destroy(other);
    sound(group, "an all-reduce after a group was destroyed");
}

int main(int argc, char **argv)
{
    struct dist_options options = DIST_OPTIONS_INIT;

    options.backend = argc > 1 ? argv[1] : NULL;
    options.timeout_ms = 20 * 1000;
    if (dist_init_process_group(&options, &group) != DIST_OK) {
        fprintf(stderr, "init: %s\n", dist_last_error());
        return 1;
    }
    rank = dist_get_rank(group);
    ranks = dist_get_world_size(group);
    for (int r = 0; r < RANKS_MAX; r++) {
        counts[r] = COUNT;
        offsets[r] = (size_t)r * COUNT;
        huge[r] = TOO_MANY;
    }
    bad_all();
    FINE(dist_destroy_process_group(group));
    if (rank == 0 && !faults)
        printf("bad calls: %d checks\n", checks);
    return faults ? 1 : 0;
}
