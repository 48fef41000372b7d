/* SPDX-License-Identifier: BSD-3-Clause */
/* Output of several workers: lines are whole, have their prefix, and none is lost. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "launch/output.h"

/* Two workers' pipes, and the pipe that their lines go to. */
struct output_case {
    int to[2]; /* write ends: one for each worker */
    FILE *read;
    int done_fd;
    struct disti_run_output *output;
};

static void case_start(struct output_case *test, const char *prefix)
{
    struct disti_run_source sources[2] = {{.log_fd = -1, .shown = true},
                                          {.log_fd = -1, .shown = true}};
    int out[2];

    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    test->read = fdopen(out[0], "r");
    test->done_fd = eventfd(0, EFD_CLOEXEC);
    for (int i = 0; i < 2; i++) {
        int ends[2];

        assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
        sources[i].fd = ends[0];
        test->to[i] = ends[1];
        if (*prefix)
            snprintf(sources[i].prefix, sizeof(sources[i].prefix), prefix, i);
    }
    assert_int_equal(disti_run_output_start(out[1], sources, 2, test->done_fd, &test->output),
                     DIST_OK);
}

static void case_write(const struct output_case *test, int source, const char *text)
{
    assert_int_equal(write(test->to[source], text, strlen(text)), strlen(text));
}

static void case_expect(const struct output_case *test, const char *line)
{
    char text[256];

    assert_non_null(fgets(text, sizeof(text), test->read));
    assert_string_equal(text, line);
}

static void case_end(struct output_case *test)
{
    uint64_t done;

    for (int i = 0; i < 2; i++)
        close(test->to[i]);
    assert_int_equal(read(test->done_fd, &done, sizeof(done)), sizeof(done));
    disti_run_output_end(test->output);
    close(test->done_fd);
}

static void test_lines_are_whole_and_prefixed(void **state)
{
    struct output_case test;

    (void)state;
    case_start(&test, "[%d]:");
    case_write(&test, 0, "be");
    case_write(&test, 1, "one\n\nlast");
    case_expect(&test, "[1]:one\n");
    case_expect(&test, "[1]:\n");
    case_write(&test, 0, "gun\n");
    case_expect(&test, "[0]:begun\n");
    case_write(&test, 0, "end");
    case_end(&test);
    /* An incomplete last line gets a newline. */
    fcntl(fileno(test.read), F_SETFL, O_NONBLOCK);
    char text[2][64];
    assert_non_null(fgets(text[0], 64, test.read));
    assert_non_null(fgets(text[1], 64, test.read));
    assert_true(strcmp(text[0], "[1]:last\n") == 0 || strcmp(text[1], "[1]:last\n") == 0);
    assert_true(strcmp(text[0], "[0]:end\n") == 0 || strcmp(text[1], "[0]:end\n") == 0);
    fclose(test.read);
}

/* Without a prefix, bytes are copied unchanged: zero bytes are kept, and no newline is added. */
static void test_without_prefix_bytes_are_copied_unchanged(void **state)
{
    static const char bytes[] = "a\0b\nc\0";
    struct output_case test;
    char text[16];

    (void)state;
    case_start(&test, "");
    assert_int_equal(write(test.to[0], bytes, sizeof(bytes)), sizeof(bytes));
    case_end(&test);
    assert_int_equal(read(fileno(test.read), text, sizeof(text)), sizeof(bytes));
    assert_memory_equal(text, bytes, sizeof(bytes));
    fclose(test.read);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines_are_whole_and_prefixed),
        cmocka_unit_test(test_without_prefix_bytes_are_copied_unchanged),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
