/* SPDX-License-Identifier: BSD-3-Clause */
/* The transitions of a connection of transport shm: every pair of phases, as drawn in
 * shm/state.h. */
#include "base/log.h"
#include "transports/shm/state.h"

/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */

#define PHASES (SHM_LOST + 1)

/* A row for each phase; '>' marks an allowed transition to the phase of the column. */
static const char drawing[PHASES][PHASES + 1] = {
    /*                  INCCL */
    [SHM_IDLE] = " > >>",      [SHM_NEEDED] = "  >>>", [SHM_CALLING] = " > >>",
    [SHM_CONNECTED] = "    >", [SHM_LOST] = "     ",
};

static const bool connecting[PHASES] = {[SHM_NEEDED] = true, [SHM_CALLING] = true};

static void test_only_drawn_transitions_are_allowed(void **state)
{
    (void)state;
    for (int from = 0; from < PHASES; from++) {
        for (int to = 0; to < PHASES; to++) {
            struct shm_state shm = {.connecting = connecting[from]};
            struct shm_peer peer = {.phase = (enum shm_phase)from};
            bool drawn = drawing[from][to] == '>';

            assert_int_equal(disti_shm_connection_set_phase(&shm, &peer, (enum shm_phase)to),
                             drawn ? DIST_OK : DIST_ERR_INTERNAL);
            assert_int_equal(peer.phase, drawn ? to : from);
            assert_int_equal(shm.connecting, connecting[peer.phase]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_only_drawn_transitions_are_allowed)};

    disti_log_use(NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
