/* SPDX-License-Identifier: BSD-3-Clause */
/* disti_node_op_go accepts exactly the transitions between states that node.h draws. */
#include "../base/transitions.h"
#include "node/state.h"

/* A row for each state: '>' if a transition to the state of the column exists. */
static const char *const drawing[] = {
    /*                   PAWE */
    [NODE_OP_POSTED] = " >  ",
    [NODE_OP_WAITING] = "  >>",
    [NODE_OP_WORKING] = " > >",
    [NODE_OP_ENDED] = "    ",
};

static dist_status go(int from, int to, int *now)
{
    struct disti_node_op op = {.state = (enum disti_node_op_state)from};
    dist_status status = disti_node_op_go(&op, (enum disti_node_op_state)to);

    *now = (int)op.state;
    return status;
}

static void test_every_pair_of_states(void **state)
{
    (void)state;
    assert_transitions(drawing, NODE_OP_ENDED + 1, go);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_pair_of_states)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
