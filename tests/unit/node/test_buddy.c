/* SPDX-License-Identifier: BSD-3-Clause */
/* Compares the buddy system with a simple model: an array with the block of each unit. */
#include "unit.h"

#include "node/segment.h"

#include <stdlib.h>

enum { LEVELS = 8, UNITS = 1 << LEVELS };

struct model {
    struct buddy buddy;
    int block[UNITS]; /* for each unit: first unit of its block + 1; 0: free */
};

static void model_open(struct model *model)
{
    memset(model, 0, sizeof(*model));
    assert_true(disti_buddy_open(&model->buddy, LEVELS));
}

static bool model_has_room(const struct model *model, unsigned order)
{
    for (size_t at = 0; at < UNITS; at += (size_t)1 << order) {
        size_t free_units = 0;

        while (free_units < (size_t)1 << order && !model->block[at + free_units])
            free_units++;
        if (free_units == (size_t)1 << order)
            return true;
    }
    return false;
}

static void model_allocate(struct model *model, unsigned order)
{
    size_t unit = UNITS;

    if (!disti_buddy_alloc(&model->buddy, order, &unit)) {
        assert_false(model_has_room(model, order));
        return;
    }
    assert_int_equal(unit % ((size_t)1 << order), 0);
    for (size_t i = 0; i < (size_t)1 << order; i++) {
        assert_true(unit + i < UNITS && !model->block[unit + i]);
        model->block[unit + i] = (int)unit + 1;
    }
}

static void model_free(struct model *model, size_t unit)
{
    size_t first = UNITS;
    unsigned order = 0;

    if (!model->block[unit])
        return;
    assert_true(disti_buddy_find(&model->buddy, unit, &first, &order));
    disti_buddy_free(&model->buddy, first, order);
    for (size_t i = 0; i < (size_t)1 << order; i++) {
        assert_int_equal(model->block[first + i], first + 1);
        model->block[first + i] = 0;
    }
}

static void mark_taken(void *arg, size_t unit, size_t units)
{
    unsigned char *seen = arg;

    assert_true(units > 0 && unit + units <= UNITS);
    assert_true(unit == 0 || !seen[unit - 1]); /* adjacent blocks are visited as one range */
    memset(seen + unit, 1, units);
}

/* Checks that the buddy system and the model agree on every unit. */
static void model_compare(const struct model *model)
{
    unsigned char seen[UNITS] = {0};

    disti_buddy_each(&model->buddy, mark_taken, seen);
    for (size_t unit = 0; unit < UNITS; unit++) {
        size_t first = UNITS;
        unsigned order;
        bool taken = disti_buddy_find(&model->buddy, unit, &first, &order);

        assert_int_equal(taken, model->block[unit] > 0);
        assert_int_equal(seen[unit], taken);
        assert_true(!taken || (int)first + 1 == model->block[unit]);
    }
}

static void test_random_blocks_match_the_model(void **state)
{
    static struct model model;

    (void)state;
    srand(7);
    for (int round = 0; round < 20; round++) {
        model_open(&model);
        for (int i = 0; i < 300; i++) {
            if (rand() % 3)
                model_allocate(&model, (unsigned)(rand() % (i % 2 ? 3 : LEVELS + 1)));
            else
                model_free(&model, (size_t)rand() % UNITS);
            if (i % 10 == 0)
                model_compare(&model);
        }
        for (size_t unit = 0; unit < UNITS; unit++)
            model_free(&model, unit);
        model_allocate(&model, LEVELS); /* all units are one free block again */
        model_compare(&model);
        assert_int_equal(model.block[UNITS - 1], 1);
        disti_buddy_close(&model.buddy);
    }
}

/* A small block is taken from the smallest free block that has room for it. */
static void test_small_blocks_leave_large_ones_whole(void **state)
{
    static struct model model;
    size_t unit;

    (void)state;
    model_open(&model);
    assert_true(disti_buddy_alloc(&model.buddy, LEVELS - 1, &unit));
    disti_buddy_free(&model.buddy, unit, LEVELS - 1);
    for (int i = 0; i < 5; i++)
        assert_true(disti_buddy_alloc(&model.buddy, 0, &unit) && unit == (size_t)i);
    assert_true(disti_buddy_alloc(&model.buddy, LEVELS - 1, &unit));
    assert_int_equal(unit, UNITS / 2);
    assert_false(disti_buddy_alloc(&model.buddy, LEVELS - 1, &unit));
    assert_false(disti_buddy_alloc(&model.buddy, LEVELS, &unit));
    assert_false(disti_buddy_alloc(&model.buddy, LEVELS + 1, &unit));
    disti_buddy_close(&model.buddy);
}

static void test_order_is_the_smallest_that_fits(void **state)
{
    (void)state;
    assert_int_equal(disti_buddy_order(0), 0);
    assert_int_equal(disti_buddy_order(1), 0);
    assert_int_equal(disti_buddy_order(2), 1);
    assert_int_equal(disti_buddy_order(3), 2);
    assert_int_equal(disti_buddy_order((size_t)1 << 33), 33);
    assert_int_equal(disti_buddy_order(((size_t)1 << 33) + 1), 34);
    assert_int_equal(disti_buddy_order(SIZE_MAX), BUDDY_LEVELS_MAX + 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_blocks_match_the_model),
        cmocka_unit_test(test_small_blocks_leave_large_ones_whole),
        cmocka_unit_test(test_order_is_the_smallest_that_fits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
