/* SPDX-License-Identifier: BSD-3-Clause */
/* Descriptors that are closed in forked children. */
#include "base/descriptor.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* True if a child that is forked now has the descriptor open. */
static bool child_has(int fd)
{
    int status = 0;
    pid_t child = fork();

    if (child == 0)
        _exit(fcntl(fd, F_GETFD) >= 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status) == 1;
}

static void owned_descriptors_are_closed_in_children(void **state)
{
    int pair[2];

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    assert_true(child_has(pair[0]));
    assert_int_equal(disti_descriptor_own(pair[0]), pair[0]);
    assert_false(child_has(pair[0]));
    assert_true(child_has(pair[1]));
    assert_true(fcntl(pair[0], F_GETFD) >= 0); /* the parent still has it open */
    disti_descriptor_close(pair[0]);
    assert_int_equal(fcntl(pair[0], F_GETFD), -1);
    close(pair[1]);
}

static void closing_ends_the_connection_despite_a_child(void **state)
{
    int pair[2];
    char byte;
    pid_t child;

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    disti_descriptor_own(pair[0]);
    child = fork();
    if (child == 0) {
        sleep(30);
        _exit(0);
    }
    disti_descriptor_close(pair[0]);
    assert_int_equal(read(pair[1], &byte, 1), 0); /* at once, not after 30 s */
    assert_int_equal(waitpid(child, NULL, WNOHANG), 0);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    close(pair[1]);
}

static void a_reused_number_is_not_owned(void **state)
{
    int first, second;

    (void)state;
    first = disti_descriptor_own(open("/dev/null", O_RDONLY));
    disti_descriptor_close(first);
    second = open("/dev/null", O_RDONLY);
    assert_int_equal(second, first);
    assert_true(child_has(second));
    close(second);
}

/* A child that was forked with an owned descriptor reuses the number for its own file. */
static void a_child_keeps_its_own_files(void **state)
{
    int fd = disti_descriptor_own(open("/dev/null", O_RDONLY)), status = 0;
    pid_t child = fork();

    (void)state;
    if (child == 0) {
        int mine = open("/dev/zero", O_RDONLY), owned;
        bool kept;

        disti_descriptor_close(fd); /* the parent's: must not close the child's file */
        kept = mine == fd && fcntl(mine, F_GETFD) >= 0;
        owned = disti_descriptor_own(open("/dev/zero", O_RDONLY));
        disti_descriptor_close(owned);
        _exit(kept && fcntl(owned, F_GETFD) < 0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    disti_descriptor_close(fd);
}

/* Own descriptors never get the numbers of closed standard streams, so that the program's output is
 * not written to them. */
static void owned_descriptors_are_not_standard_streams(void **state)
{
    int status = 0;
    pid_t child = fork();

    (void)state;
    if (child == 0) {
        int fds[3], right = 1;

        for (int i = 0; i < 3; i++)
            close(i);
        for (int i = 0; i < 3; i++) {
            fds[i] = disti_descriptor_own(open("/dev/zero", O_RDONLY | O_CLOEXEC));
            right = right && fds[i] > STDERR_FILENO && fcntl(fds[i], F_GETFD) == FD_CLOEXEC;
        }
        for (int i = 0; i < 3; i++)
            right = right && fcntl(i, F_GETFD) < 0;
        _exit(right);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
}

static void minus_1_is_accepted(void **state)
{
    (void)state;
    assert_int_equal(disti_descriptor_own(-1), -1);
    disti_descriptor_close(-1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(owned_descriptors_are_closed_in_children),
        cmocka_unit_test(closing_ends_the_connection_despite_a_child),
        cmocka_unit_test(a_reused_number_is_not_owned),
        cmocka_unit_test(a_child_keeps_its_own_files),
        cmocka_unit_test(owned_descriptors_are_not_standard_streams),
        cmocka_unit_test(minus_1_is_accepted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
