/* SPDX-License-Identifier: BSD-3-Clause */
/* Overlap of blocks that are interleaved, compared with a map of bytes. */
#include "core/call.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BLOCKS 5
#define ELEMENT 4
#define PLACES 64 /* elements of the memory that contains both buffers */

static char memory[PLACES * ELEMENT];

struct layout {
    size_t counts[BLOCKS], offsets[BLOCKS];
    struct disti_blocks blocks;
};

static unsigned random_state = 1;

static size_t random_below(size_t below)
{
    random_state = random_state * 1103515245u + 12345u;
    return random_state / 65536u % below;
}

static void layout_random(struct layout *layout, bool one)
{
    size_t base = random_below(PLACES / 4), end = 0;

    for (int b = 0; b < BLOCKS; b++) {
        layout->counts[b] = random_below(3);
        layout->offsets[b] = random_below(PLACES / 2);
        if (layout->counts[b] && layout->offsets[b] + layout->counts[b] > end)
            end = layout->offsets[b] + layout->counts[b];
    }
    layout->blocks = (struct disti_blocks){.memory = memory + base * ELEMENT,
                                           .counts = one ? NULL : layout->counts,
                                           .offsets = one ? NULL : layout->offsets,
                                           .bytes = (one ? random_below(4) : end) * ELEMENT,
                                           .element = ELEMENT,
                                           .blocks = BLOCKS};
}

/* Sets a bit in the map for every byte of the blocks. */
static void mark(const struct disti_blocks *blocks, unsigned char bit, unsigned char *map)
{
    size_t base = (size_t)((const char *)blocks->memory - memory);

    for (int b = 0; b < (blocks->counts ? blocks->blocks : 1); b++) {
        size_t at = blocks->counts ? blocks->offsets[b] * ELEMENT : 0;
        size_t bytes = blocks->counts ? blocks->counts[b] * ELEMENT : blocks->bytes;

        for (size_t i = 0; i < bytes; i++)
            map[base + at + i] |= bit;
    }
}

static void overlap_is_that_of_the_bytes(void **state)
{
    int overlaps = 0;

    (void)state;
    for (int i = 0; i < 20000; i++) {
        unsigned char map[PLACES * ELEMENT] = {0};
        struct layout a, b;
        bool overlap = false;

        layout_random(&a, i % 4 == 1);
        layout_random(&b, i % 4 == 2);
        mark(&a.blocks, 1, map);
        mark(&b.blocks, 2, map);
        assert_int_equal(disti_blocks_overlap(&a.blocks, &b.blocks, &overlap), DIST_OK);
        assert_int_equal(overlap, memchr(map, 3, sizeof(map)) != NULL);
        overlaps += overlap;
    }
    assert_in_range(overlaps, 1000, 19000);
}

/* Compares so many blocks that comparing all pairs would take minutes. */
static void many_interleaved_blocks_are_compared_quickly(void **state)
{
    enum { MANY = 300 * 1000 };
    size_t *counts = calloc(MANY, sizeof(*counts)), *offsets = calloc(MANY, sizeof(*offsets));
    struct disti_blocks a = {memory, counts, offsets, 2 * (size_t)MANY, 1, MANY}, b = a;
    bool overlap = true;

    (void)state;
    b.memory = memory + 1;
    for (size_t i = 0; i < MANY; i++) {
        counts[i] = 1;
        offsets[i] = 2 * (i * 7919 % MANY);
    }
    assert_int_equal(disti_blocks_overlap(&a, &b, &overlap), DIST_OK);
    assert_false(overlap);
    counts[MANY / 2] = 2;
    assert_int_equal(disti_blocks_overlap(&a, &b, &overlap), DIST_OK);
    assert_true(overlap);
    free(counts);
    free(offsets);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(overlap_is_that_of_the_bytes),
        cmocka_unit_test(many_interleaved_blocks_are_compared_quickly),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
