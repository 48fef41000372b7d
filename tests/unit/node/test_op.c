/* SPDX-License-Identifier: BSD-3-Clause */
/* Where a call may go from where it stands: every pair, as node.h draws it. */
#include "base/log.h"
#include "node/state.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define STATES (NODE_OP_ENDED + 1)

/* A row for each state: '>' where an arrow leads to the state of the column. */
static const char drawing[STATES][STATES + 1] = {
    /*                   PAWE */
    [NODE_OP_POSTED] = " >  ",
    [NODE_OP_WAITING] = "  >>",
    [NODE_OP_WORKING] = " > >",
    [NODE_OP_ENDED] = "    ",
};

static int reports;

static void count_report(void *arg, dist_log_level level, const char *line)
{
    (void)arg, (void)line;
    reports += level == DIST_LOG_ERROR;
}

static void test_every_pair(void **state)
{
    const struct disti_log log = {.fn = count_report, .level = DIST_LOG_ERROR};

    (void)state;
    disti_log_use(&log);
    for (int from = 0; from < STATES; from++) {
        for (int to = 0; to < STATES; to++) {
            struct disti_node_op op = {.state = (enum disti_node_op_state)from};
            bool drawn = drawing[from][to] == '>';

            reports = 0;
            assert_int_equal(disti_node_op_go(&op, (enum disti_node_op_state)to),
                             drawn ? DIST_OK : DIST_ERR_INTERNAL);
            assert_int_equal(op.state, drawn ? to : from);
            assert_int_equal(reports, drawn ? 0 : 1);
        }
    }
    disti_log_use(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_pair)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
