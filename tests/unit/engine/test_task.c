/* SPDX-License-Identifier: BSD-3-Clause */
/* The transitions of a task: every pair of states, as drawn in state.h. */
#include "../base/transitions.h"
#include "engine/state.h"

/* A row for each state; '>' marks an allowed transition to the state of the column. */
static const char *const drawing[] = {
    /*                IPR */
    [TASK_IDLE] = " > ",
    [TASK_POSTED] = "  >",
    [TASK_RUNS] = ">  ",
};

static dist_status change_state(int from, int to, int *now)
{
    struct engine_task task = {.state = (enum engine_task_state)from};
    dist_status status = disti_task_go(&task, (enum engine_task_state)to);

    *now = (int)task.state;
    return status;
}

static void test_only_drawn_transitions_are_allowed(void **state)
{
    (void)state;
    assert_transitions(drawing, TASK_RUNS + 1, change_state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_only_drawn_transitions_are_allowed)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
