/* SPDX-License-Identifier: BSD-3-Clause */
/* Which ancestor of a rank is its launcher: chains of shells, each with its program value of the
 * launcher's variable. */
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

static const char *program; /* this program's path */

/* The rank at the end of the chain: prints the pids of the launcher and of its program parent. */
static int rank_main(void)
{
    char name[DISTI_PROCESS_NAME];
    int pid = -1;

    printf("%d %d\n", disti_launcher_process("DIST_TEST_MARK", &pid, name) < 0 ? -1 : pid,
           (int)getppid());
    return 0;
}

/* Runs a shell command that starts the rank as $RANK_PROGRAM. */
static void run(const char *command, int *launcher_p, int *parent_p)
{
    char line[256];
    FILE *output;

    snprintf(line, sizeof(line), "RANK_PROGRAM='%s' ; export RANK_PROGRAM; %s", program, command);
    output = popen(line, "r");
    assert_non_null(output);
    assert_int_equal(fscanf(output, "%d %d", launcher_p, parent_p), 2);
    assert_int_equal(pclose(output), 0);
}

/* The launcher is the shell without the variable. The trailing `:` keeps a shell from replacing
 * itself by its last command. */
static void test_shells_with_the_variable_are_skipped(void **state)
{
    int launcher, parent;

    (void)state;
    run("DIST_TEST_MARK=1 sh -c '\"$RANK_PROGRAM\" rank; :'; :", &launcher, &parent);
    assert_int_not_equal(launcher, -1);
    assert_int_not_equal(launcher, parent);
    run("DIST_TEST_MARK=1 \"$RANK_PROGRAM\" rank; :", &launcher, &parent);
    assert_int_equal(launcher, parent);
}

/* The launcher is itself a rank of another launcher, so it has the variable too, with another
 * value. */
static void test_a_launcher_may_have_another_value(void **state)
{
    int launcher, parent;

    (void)state;
    run("DIST_TEST_MARK=1 sh -c 'DIST_TEST_MARK=2 \"$RANK_PROGRAM\" rank; :'; :", &launcher,
        &parent);
    assert_int_equal(launcher, parent);
}

static void test_without_the_variable_there_is_no_launcher(void **state)
{
    int launcher, parent;

    (void)state;
    run("\"$RANK_PROGRAM\" rank; :", &launcher, &parent);
    assert_int_equal(launcher, -1);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shells_with_the_variable_are_skipped),
        cmocka_unit_test(test_a_launcher_may_have_another_value),
        cmocka_unit_test(test_without_the_variable_there_is_no_launcher),
    };

    (void)argv;
    if (argc > 1)
        return rank_main();
    program = realpath("/proc/self/exe", NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
