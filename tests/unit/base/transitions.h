/* SPDX-License-Identifier: BSD-3-Clause */
/* Tests of a state machine: every pair of states, compared with the drawing above its struct. */
#ifndef DISTI_TESTS_UNIT_BASE_TRANSITIONS_H
#define DISTI_TESTS_UNIT_BASE_TRANSITIONS_H

#include "base/log.h"
#include "unit.h"

#include <string.h>

/* Makes an object in state `from`, tries to change it to `to`, and stores its resulting state in
 * *now. */
typedef dist_status (*transition)(int from, int to, int *now);

static inline void transition_count_error(void *arg, dist_log_level level, const char *line)
{
    (void)line;
    *(int *)arg += level == DIST_LOG_ERROR;
}

/* drawing[from][to] is '>' if the transition is allowed: it must succeed. Any other transition must
 * fail with DIST_ERR_INTERNAL and one error in the log, and the state must not change. */
static inline void assert_transitions(const char *const drawing[], int states,
                                      transition change_state)
{
    int errors = 0;
    const struct disti_log log = {
        .fn = transition_count_error, .arg = &errors, .level = DIST_LOG_ERROR};

    disti_log_use(&log);
    for (int from = 0; from < states; from++) {
        assert_int_equal(strlen(drawing[from]), states);
        for (int to = 0; to < states; to++) {
            bool drawn = drawing[from][to] == '>';
            int now = -1;

            errors = 0;
            assert_int_equal(change_state(from, to, &now), drawn ? DIST_OK : DIST_ERR_INTERNAL);
            assert_int_equal(now, drawn ? to : from);
            assert_int_equal(errors, drawn ? 0 : 1);
        }
    }
    disti_log_use(NULL);
}

#endif
