/* SPDX-License-Identifier: BSD-3-Clause */
/* Where the drive of a group may go from where it stands: every pair, as drive.h draws it. */
#include "core/work/drive.h"

#include "base/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define DRIVE_STATES (DISTI_DRIVE_CLOSED + 1)

/* A row for each state: '>' where an arrow leads to the state of the column. */
static const char drive_drawing[DRIVE_STATES][DRIVE_STATES + 1] = {
    /*    the caller's CSC, the thread's TSC:  ICSCTSCX */
    [DISTI_DRIVE_IDLE] = /*                */ " >  >   ",
    [DISTI_DRIVE_CALLER] = /*              */ "> >>   >",
    [DISTI_DRIVE_CALLER_SLEEPS] = /*       */ " >      ",
    [DISTI_DRIVE_CALLER_CALLS] = /*        */ " >      ",
    [DISTI_DRIVE_THREAD] = /*              */ ">>   >> ",
    [DISTI_DRIVE_THREAD_SLEEPS] = /*       */ "    >   ",
    [DISTI_DRIVE_THREAD_CALLS] = /*        */ "    >   ",
    [DISTI_DRIVE_CLOSED] = /*              */ "        ",
};

static int reports;

static void count_report(void *arg, dist_log_level level, const char *line)
{
    (void)arg, (void)line;
    reports += level == DIST_LOG_ERROR;
}

static const struct disti_log counting = {.fn = count_report, .level = DIST_LOG_ERROR};

static void every_pair_of_the_drive(void **state)
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_pair_of_the_drive)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
