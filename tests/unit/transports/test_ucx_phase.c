/* SPDX-License-Identifier: BSD-3-Clause */
/* The transitions of a connection of transport ucx: every pair of phases, as drawn in
 * transports/ucx/state.h. */
#include "transports/ucx/state.h"

/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */

#define PHASES (UCX_CLOSED + 1)

/* A row for each phase; '>' marks an allowed transition to the phase of the column. */
static const char drawing[PHASES][PHASES + 1] = {
    /*               NOFC */
    [UCX_NEW] = " >> ",
    [UCX_OPEN] = "  >>",
    [UCX_FAILED] = "   >",
    [UCX_CLOSED] = "    ",
};

static void test_only_drawn_transitions_are_allowed(void **state)
{
    (void)state;
    for (int from = 0; from < PHASES; from++) {
        for (int to = 0; to < PHASES; to++)
            assert_int_equal(disti_ucx_phase_allows((enum ucx_phase)from, (enum ucx_phase)to),
                             drawing[from][to] == '>');
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_only_drawn_transitions_are_allowed)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
