/* SPDX-License-Identifier: BSD-3-Clause */
/* Files that programs write are complete or unchanged. */
#include "tests/unit/base/unit.h"
#include "tools/common/output.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/dist-output.XXXXXX";

static int begin(void **state)
{
    (void)state;
    return mkdtemp(folder) && chdir(folder) == 0 ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    return unlink("page") || unlink("link") || chdir("/") || rmdir(folder);
}

static int put(const char *path, const char *text)
{
    struct output output;

    output_begin(&output);
    assert_non_null(output.to);
    fputs(text, output.to);
    return output_end(&output, path);
}

static void assert_content(const char *path, const char *text)
{
    char found[64] = "";
    FILE *file = fopen(path, "r");

    assert_non_null(file);
    found[fread(found, 1, sizeof(found) - 1, file)] = '\0';
    fclose(file);
    assert_string_equal(found, text);
}

/* The file keeps its mode, and a symbolic link still points to it. */
static void test_mode_and_link_are_kept(void **state)
{
    struct stat status;

    (void)state;
    assert_int_equal(put("page", "first"), 0);
    assert_int_equal(chmod("page", 0640), 0);
    assert_int_equal(symlink("page", "link"), 0);
    assert_int_equal(put("link", "second"), 0);
    assert_content("page", "second");
    assert_int_equal(lstat("link", &status), 0);
    assert_true(S_ISLNK(status.st_mode));
    assert_int_equal(stat("page", &status), 0);
    assert_int_equal(status.st_mode & 07777, 0640);
}

/* If the disk is full, or there is no memory for the contents, the file is unchanged. */
static void test_a_failed_write_leaves_the_file_unchanged(void **state)
{
    char *many = malloc(10001);
    struct rlimit limit, low;
    struct output output;

    (void)state;
    assert_non_null(many);
    memset(many, 'x', 10000);
    many[10000] = '\0';
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    low = limit;
    low.rlim_cur = 4096;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    assert_int_equal(put("page", many), -1);
    assert_int_equal(errno, EFBIG);
    assert_int_equal(put("none/page", many), -1);
    assert_int_equal(errno, ENOENT);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    output_begin(&output);
    assert_int_equal(output_end(&output, NULL), -1);
    assert_content("page", "second");
    free(many);
}

/* As with --save /dev/stdout >page. */
static void test_standard_output_is_appended_to(void **state)
{
    const int before = dup(STDOUT_FILENO);

    (void)state;
    assert_non_null(freopen("page", "w", stdout));
    printf("printed, ");
    assert_int_equal(put("page", "saved, "), 0);
    printf("printed");
    fflush(stdout);
    assert_true(dup2(before, STDOUT_FILENO) == STDOUT_FILENO);
    close(before);
    assert_content("page", "printed, saved, printed");
}

/* A device is opened and written directly: no file is created beside it or renamed to it. */
static void test_devices_are_written_directly(void **state)
{
    struct stat status;
    char *name;
    int fd;

    (void)state;
    fd = draft_open("/dev/null", &name);
    assert_true(fd >= 0);
    assert_null(name);
    assert_int_equal(draft_finish(name, fd), 0);
    close(fd);
    assert_int_equal(draft_is_possible("/dev/null"), 0);
    assert_int_equal(put("/dev/null", "text"), 0);
    assert_int_equal(stat("/dev/null", &status), 0);
    assert_true(S_ISCHR(status.st_mode));
    assert_int_equal(draft_is_possible("/dev"), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mode_and_link_are_kept),
        cmocka_unit_test(test_a_failed_write_leaves_the_file_unchanged),
        cmocka_unit_test(test_standard_output_is_appended_to),
        cmocka_unit_test(test_devices_are_written_directly),
    };

    return cmocka_run_group_tests(tests, begin, end);
}
