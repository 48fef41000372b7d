/* SPDX-License-Identifier: BSD-3-Clause */
/* disti_node_move copies every byte, and no other, from and to any address. */
#include "node/state.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MOST ((size_t)70000)
#define AROUND 256 /* bytes before and after */

static const size_t sizes[] = {0,    1,    63,   64,    65,    1023,  1024,  4095, 4096,
                               4097, 4160, 8191, 16383, 16384, 16385, 16447, MOST};

/* Return byte i of the copied data, and of the memory around the destination. */
static char moved(size_t i)
{
    return (char)(i * 7 + i / 251);
}

static char around(size_t i)
{
    return (char)(i * 3 + 1);
}

static void move_once(size_t bytes, size_t to_at, size_t from_at, uint8_t copy_mode)
{
    char *to = malloc(MOST + 2 * AROUND), *from = malloc(MOST + 2 * AROUND);

    assert_non_null(to);
    assert_non_null(from);
    for (size_t i = 0; i < MOST + 2 * AROUND; i++)
        to[i] = around(i);
    for (size_t i = 0; i < bytes; i++)
        from[from_at + i] = moved(i);
    disti_node_move(to + to_at, from + from_at, bytes, copy_mode);
    for (size_t i = 0; i < MOST + 2 * AROUND; i++) {
        char want = i >= to_at && i < to_at + bytes ? moved(i - to_at) : around(i);

        if (to[i] != want)
            fail_msg("byte %zu is wrong after a copy of %zu bytes to offset %zu from offset %zu", i,
                     bytes, to_at, from_at);
    }
    free(to);
    free(from);
}

static void every_byte_is_copied_and_no_other(void **state)
{
    static const size_t shifts[] = {0, 1, 16, 63, 64, 100};

    (void)state;
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        for (size_t a = 0; a < 6; a++) {
            for (size_t b = 0; b < 6; b++) {
                for (uint8_t copy_mode = 0; copy_mode < NODE_COPY_MODES; copy_mode++)
                    move_once(sizes[s], shifts[a], shifts[b], copy_mode);
            }
        }
    }
}

static void the_cache_size_is_plausible(void **state)
{
    (void)state;
    assert_true(disti_node_cache() >= 64 << 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_byte_is_copied_and_no_other),
        cmocka_unit_test(the_cache_size_is_plausible),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
