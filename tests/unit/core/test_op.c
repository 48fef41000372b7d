/* SPDX-License-Identifier: BSD-3-Clause */
/* Created ops: their values, their reductions, and rejected arguments. */
#include "core/call.h"

#include "alone.h"

#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define OP_LIMIT 65536 /* as documented in dist.h */
#define OP_THREADS 4
#define OP_ROUNDS 3000

static void op_nothing(void *arg, void *dst, const void *a, const void *b, size_t count,
                       dist_dtype dtype)
{
    (void)arg, (void)dst, (void)a, (void)b, (void)count, (void)dtype;
}

static dist_op op_of(double factor)
{
    dist_op op = DIST_SUM;

    assert_int_equal(dist_op_create_premul_sum(factor, &op), DIST_OK);
    return op;
}

static double op_factor(dist_op op)
{
    const struct dist_reduction *reduction = NULL;
    dist_op kind = DIST_SUM;

    assert_int_equal(disti_op_resolve(op, &kind, &reduction), DIST_OK);
    assert_int_equal(kind, DIST_PREMUL_SUM);
    return reduction->factor;
}

/* Checks that the op is rejected with this text and that the outputs do not change. */
static void op_expect_rejected(dist_op op, const char *text)
{
    const struct dist_reduction *reduction = (const void *)&op_nothing;
    dist_op kind = DIST_BXOR;

    assert_int_equal(disti_op_resolve(op, &kind, &reduction), DIST_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(dist_last_error(), text));
    assert_int_equal(kind, DIST_BXOR);
    assert_ptr_equal(reduction, (const void *)&op_nothing);
}

static void built_in_ops_resolve_to_themselves(void **state)
{
    (void)state;
    for (int op = 0; op < DIST_PREMUL_SUM; op++) {
        const struct dist_reduction *reduction = (const void *)&op_nothing;
        dist_op kind = DIST_OP_COUNT;

        assert_int_equal(disti_op_resolve((dist_op)op, &kind, &reduction), DIST_OK);
        assert_int_equal(kind, op);
        assert_null(reduction);
    }
}

static void a_created_op_has_its_function_or_factor(void **state)
{
    const struct dist_reduction *reduction;
    dist_op user, scaled = op_of(0.25), kind;
    int mark;

    (void)state;
    assert_int_equal(dist_op_create(op_nothing, &mark, &user), DIST_OK);
    assert_in_range(user, DIST_OP_DYNAMIC, INT_MAX);
    assert_in_range(scaled, DIST_OP_DYNAMIC, INT_MAX);
    assert_int_not_equal(user, scaled);
    assert_int_equal(disti_op_resolve(user, &kind, &reduction), DIST_OK);
    assert_int_equal(kind, DIST_USER);
    assert_true(reduction->fn == op_nothing && reduction->arg == &mark);
    assert_true(op_factor(scaled) == 0.25);
    assert_int_equal(dist_op_free(user), DIST_OK);
    assert_int_equal(dist_op_free(scaled), DIST_OK);
}

static void the_error_names_the_function_that_creates_an_op(void **state)
{
    (void)state;
    op_expect_rejected(DIST_PREMUL_SUM, "dist_op_create_premul_sum");
    op_expect_rejected(DIST_USER, "dist_op_create");
    op_expect_rejected(DIST_OP_COUNT, "not a value of dist_op");
    op_expect_rejected((dist_op)-1, "not a value of dist_op");
    op_expect_rejected((dist_op)INT_MAX, "dist_op_create");
}

static void a_freed_op_stays_invalid_if_its_slot_is_reused(void **state)
{
    dist_op old = op_of(1), repeat;

    (void)state;
    assert_int_equal(dist_op_free(old), DIST_OK);
    op_expect_rejected(old, "freed");
    for (int i = 0; i < 1000; i++) {
        repeat = op_of(i);
        assert_int_not_equal(repeat, old);
        op_expect_rejected(old, "freed");
        assert_int_equal(dist_op_free(old), DIST_ERR_INVALID_ARGUMENT);
        assert_true(op_factor(repeat) == i);
        assert_int_equal(dist_op_free(repeat), DIST_OK);
    }
}

static void bad_arguments_are_rejected(void **state)
{
    dist_op op = DIST_MIN;

    (void)state;
    assert_int_equal(dist_op_create(NULL, NULL, &op), DIST_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(dist_last_error(), "fn is NULL"));
    assert_int_equal(op, DIST_MIN);
    assert_int_equal(dist_op_create(op_nothing, NULL, NULL), DIST_ERR_INVALID_ARGUMENT);
    assert_int_equal(dist_op_create_premul_sum(1, NULL), DIST_ERR_INVALID_ARGUMENT);
    assert_int_equal(dist_op_free(DIST_SUM), DIST_ERR_INVALID_ARGUMENT);
    assert_int_equal(dist_op_free(DIST_USER), DIST_ERR_INVALID_ARGUMENT);
    assert_int_equal(dist_op_free((dist_op)-1), DIST_ERR_INVALID_ARGUMENT);
}

/* Creates as many ops as possible. All are different, their addresses do not change, a further op
 * is rejected, and a freed slot is reused. */
static void the_table_grows_to_its_limit(void **state)
{
    dist_op *ops = calloc(OP_LIMIT, sizeof(*ops)), first, kind;
    const struct dist_reduction *before, *after;

    (void)state;
    assert_non_null(ops);
    ops[0] = op_of(0);
    assert_int_equal(disti_op_resolve(ops[0], &kind, &before), DIST_OK);
    for (int i = 1; i < OP_LIMIT; i++)
        ops[i] = op_of(i);
    assert_int_equal(disti_op_resolve(ops[0], &kind, &after), DIST_OK);
    assert_ptr_equal(before, after);
    first = ops[OP_LIMIT / 2];
    assert_int_equal(dist_op_create_premul_sum(1, &ops[0]), DIST_ERR_NO_MEMORY);
    assert_non_null(strstr(dist_last_error(), "dist_op_free"));
    assert_int_equal(dist_op_free(first), DIST_OK);
    ops[OP_LIMIT / 2] = op_of(OP_LIMIT / 2);
    op_expect_rejected(first, "freed");
    for (int i = 0; i < OP_LIMIT; i++) {
        assert_true(op_factor(ops[i]) == i);
        assert_int_equal(dist_op_free(ops[i]), DIST_OK);
    }
    free(ops);
}

/* Returns the number of errors, because cmocka's assertions work in the main thread only. */
static void *op_thread(void *arg)
{
    double mine = *(double *)arg;
    long wrong = 0;

    for (int i = 0; i < OP_ROUNDS; i++) {
        const struct dist_reduction *reduction;
        dist_op ops[3], kind;

        for (int k = 0; k < 3; k++)
            wrong += dist_op_create_premul_sum(mine + k, &ops[k]) != DIST_OK;
        for (int k = 0; k < 3; k++)
            wrong += disti_op_resolve(ops[k], &kind, &reduction) != DIST_OK ||
                     reduction->factor != mine + k;
        for (int k = 0; k < 3; k++)
            wrong += dist_op_free(ops[k]) != DIST_OK;
    }
    return (void *)wrong;
}

static void threads_get_their_own_ops(void **state)
{
    pthread_t threads[OP_THREADS];
    double bases[OP_THREADS];
    void *wrong;

    (void)state;
    for (int t = 0; t < OP_THREADS; t++) {
        bases[t] = 1000.0 * t;
        assert_int_equal(pthread_create(&threads[t], NULL, op_thread, &bases[t]), 0);
    }
    for (int t = 0; t < OP_THREADS; t++) {
        assert_int_equal(pthread_join(threads[t], &wrong), 0);
        assert_null(wrong);
    }
}

static void collectives_reject_ops_that_need_creation(void **state)
{
    dist_group *group = single_rank_world();
    float data[2] = {1, 2};

    (void)state;
    assert_int_equal(dist_all_reduce(group, data, data, 2, DIST_FLOAT32, DIST_USER),
                     DIST_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(dist_last_error(), "dist_op_create"));
    assert_int_equal(dist_all_reduce(group, data, data, 2, DIST_FLOAT32, DIST_BAND),
                     DIST_ERR_UNSUPPORTED);
    assert_int_equal(dist_all_reduce(group, data, data, 2, DIST_FLOAT32, DIST_SUM), DIST_OK);
    assert_int_equal(dist_destroy_process_group(group), DIST_OK);
}

static void a_world_of_one_normalizes_bools(void **state)
{
    unsigned char in[4] = {0, 1, 7, 255}, out[4] = {9, 9, 9, 9};
    static const unsigned char bools[4] = {0, 1, 1, 1};
    dist_group *group = single_rank_world();

    (void)state;
    assert_int_equal(dist_all_reduce(group, in, out, 4, DIST_BOOL, DIST_PROD), DIST_OK);
    assert_memory_equal(out, bools, 4);
    assert_int_equal(dist_all_reduce(group, in, in, 4, DIST_BOOL, DIST_BXOR), DIST_OK);
    assert_memory_equal(in, bools, 4);
    assert_int_equal(dist_destroy_process_group(group), DIST_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(built_in_ops_resolve_to_themselves),
        cmocka_unit_test(a_created_op_has_its_function_or_factor),
        cmocka_unit_test(the_error_names_the_function_that_creates_an_op),
        cmocka_unit_test(a_freed_op_stays_invalid_if_its_slot_is_reused),
        cmocka_unit_test(bad_arguments_are_rejected),
        cmocka_unit_test(the_table_grows_to_its_limit),
        cmocka_unit_test(threads_get_their_own_ops),
        cmocka_unit_test(collectives_reject_ops_that_need_creation),
        cmocka_unit_test(a_world_of_one_normalizes_bools),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
