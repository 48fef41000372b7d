/* SPDX-License-Identifier: BSD-3-Clause */
/* Which process above a rank is its launcher's: rows of shells, each started with its own mark. */
#include "rendezvous/meet.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static const char *own; /* this program's path */

/* The rank at the end of the row: tells the launcher's number, and that of the process above it. */
static int be_rank(void)
{
    char name[DISTI_PROCESS_NAME];
    int pid = -1;

    printf("%d %d\n", disti_launcher_process("DIST_TEST_MARK", &pid, name) < 0 ? -1 : pid,
           (int)getppid());
    return 0;
}

/* Runs a command of the shell, in which $0 begins the rank. */
static void run(const char *command, int *launcher_p, int *above_p)
{
    char line[256];
    FILE *said;

    snprintf(line, sizeof(line), "RANK_PROGRAM='%s' ; export RANK_PROGRAM; %s", own, command);
    said = popen(line, "r");
    assert_non_null(said);
    assert_int_equal(fscanf(said, "%d %d", launcher_p, above_p), 2);
    assert_int_equal(pclose(said), 0);
}

/* The shell without the mark that started the one with it; `;:` keeps a shell from becoming what it
 * runs. */
static void test_shells_between(void **state)
{
    int launcher, above;

    (void)state;
    run("DIST_TEST_MARK=1 sh -c '\"$RANK_PROGRAM\" rank; :'; :", &launcher, &above);
    assert_int_not_equal(launcher, -1);
    assert_int_not_equal(launcher, above);
    run("DIST_TEST_MARK=1 \"$RANK_PROGRAM\" rank; :", &launcher, &above);
    assert_int_equal(launcher, above);
}

/* The launcher is a rank of another one: it has a mark too, and that is another. */
static void test_launcher_in_a_rank(void **state)
{
    int launcher, above;

    (void)state;
    run("DIST_TEST_MARK=1 sh -c 'DIST_TEST_MARK=2 \"$RANK_PROGRAM\" rank; :'; :", &launcher,
        &above);
    assert_int_equal(launcher, above);
}

static void test_no_launcher(void **state)
{
    int launcher, above;

    (void)state;
    run("\"$RANK_PROGRAM\" rank; :", &launcher, &above);
    assert_int_equal(launcher, -1);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shells_between),
        cmocka_unit_test(test_launcher_in_a_rank),
        cmocka_unit_test(test_no_launcher),
    };

    (void)argv;
    if (argc > 1)
        return be_rank();
    own = realpath("/proc/self/exe", NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
