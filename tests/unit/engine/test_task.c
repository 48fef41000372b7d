/* SPDX-License-Identifier: BSD-3-Clause */
/* Where a task may go from where it stands: every pair, as state.h draws it. */
#include "../base/transitions.h"
#include "engine/state.h"

/* A row for each state: '>' where an arrow leads to the state of the column. */
static const char *const drawing[] = {
    /*                IPR */
    [TASK_IDLE] = " > ",
    [TASK_POSTED] = "  >",
    [TASK_RUNS] = ">  ",
};

static dist_status go(int from, int to, int *now)
{
    struct engine_task task = {.state = (enum engine_task_state)from};
    dist_status status = disti_task_go(&task, (enum engine_task_state)to);

    *now = (int)task.state;
    return status;
}

static void test_every_pair(void **state)
{
    (void)state;
    assert_transitions(drawing, TASK_RUNS + 1, go);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_pair)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
