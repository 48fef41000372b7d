/* SPDX-License-Identifier: BSD-3-Clause */
/* The transitions of a group's progress owner and of the progress thread: every pair of states, as
 * drawn in their headers. */
#include "core/work.h"

#include "base/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define DRIVE_STATES (DISTI_DRIVE_CLOSED + 1)
#define PROGRESS_STATES (DISTI_PROGRESS_QUITS + 1)

/* A row for each state; '>' marks an allowed transition to the state of the column. */
static const char drive_drawing[DRIVE_STATES][DRIVE_STATES + 1] = {
    /*    columns, in the order of the rows:   ICSCTSCX */
    [DISTI_DRIVE_IDLE] = /*                */ " >  >   ",
    [DISTI_DRIVE_CALLER] = /*              */ "> >>   >",
    [DISTI_DRIVE_CALLER_SLEEPS] = /*       */ " >      ",
    [DISTI_DRIVE_CALLER_CALLS] = /*        */ " >      ",
    [DISTI_DRIVE_THREAD] = /*              */ ">>   >> ",
    [DISTI_DRIVE_THREAD_SLEEPS] = /*       */ "    >   ",
    [DISTI_DRIVE_THREAD_CALLS] = /*        */ "    >   ",
    [DISTI_DRIVE_CLOSED] = /*              */ "        ",
};

static const char progress_drawing[PROGRESS_STATES][PROGRESS_STATES + 1] = {
    /*                            NRDSQ */
    [DISTI_PROGRESS_NONE] = /* */ " >   ", [DISTI_PROGRESS_RUNS] = /* */ "  >>>",
    [DISTI_PROGRESS_DOZES] = /**/ " >  >", [DISTI_PROGRESS_SLEEPS] = /**/ " >  >",
    [DISTI_PROGRESS_QUITS] = /**/ ">    ",
};

static int reports;

static void count_report(void *arg, dist_log_level level, const char *line)
{
    (void)arg, (void)line;
    reports += level == DIST_LOG_ERROR;
}

static const struct disti_log counting = {.fn = count_report, .level = DIST_LOG_ERROR};

static void only_drawn_transitions_of_the_drive_are_allowed(void **state)
{
    (void)state;
    disti_log_use(&counting);
    for (int from = 0; from < DRIVE_STATES; from++) {
        for (int to = 0; to < DRIVE_STATES; to++) {
            struct disti_drive drive = {.state = (enum disti_drive_state)from};
            bool drawn = drive_drawing[from][to] == '>';

            reports = 0;
            assert_int_equal(disti_drive_go(&drive, (enum disti_drive_state)to),
                             drawn ? DIST_OK : DIST_ERR_INTERNAL);
            assert_int_equal(disti_drive_state(&drive), drawn ? to : from);
            assert_int_equal(reports, drawn ? 0 : 1);
        }
    }
    disti_log_use(NULL);
}

static void only_drawn_transitions_of_the_thread_are_allowed(void **state)
{
    (void)state;
    disti_log_use(&counting);
    for (int from = 0; from < PROGRESS_STATES; from++) {
        for (int to = 0; to < PROGRESS_STATES; to++) {
            bool drawn = progress_drawing[from][to] == '>';

            reports = 0;
            atomic_store(&disti_progress.state, (enum disti_progress_state)from);
            assert_int_equal(
                disti_progress_go((enum disti_progress_state)from, (enum disti_progress_state)to),
                drawn);
            assert_int_equal(atomic_load(&disti_progress.state), drawn ? to : from);
            assert_int_equal(reports, drawn ? 0 : 1);
        }
    }
    disti_log_use(NULL);
}

/* Several threads change the state: a thread may find another state than it has read, which is no
 * error. */
static void a_change_by_another_thread_is_no_error(void **state)
{
    (void)state;
    disti_log_use(&counting);
    reports = 0;
    atomic_store(&disti_progress.state, DISTI_PROGRESS_QUITS);
    assert_false(disti_progress_go(DISTI_PROGRESS_SLEEPS, DISTI_PROGRESS_RUNS));
    assert_int_equal(atomic_load(&disti_progress.state), DISTI_PROGRESS_QUITS);
    assert_int_equal(reports, 0);
    disti_log_use(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_drawn_transitions_of_the_drive_are_allowed),
        cmocka_unit_test(only_drawn_transitions_of_the_thread_are_allowed),
        cmocka_unit_test(a_change_by_another_thread_is_no_error)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
