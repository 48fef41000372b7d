/* SPDX-License-Identifier: BSD-3-Clause */
/* Beyond the limit on file sizes, calls fail, and no thread is ended by SIGXFSZ. */
#include "base/file.h"
#include "base/log.h"

#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define FILE_LIMIT 8192

static struct rlimit file_was;

static int file_limit(void **state)
{
    struct rlimit limit;

    (void)state;
    getrlimit(RLIMIT_FSIZE, &file_was);
    limit = file_was;
    limit.rlim_cur = FILE_LIMIT;
    return setrlimit(RLIMIT_FSIZE, &limit);
}

static int file_no_limit(void **state)
{
    (void)state;
    return setrlimit(RLIMIT_FSIZE, &file_was);
}

static void test_the_size_limit_is_reported(void **state)
{
    uint64_t most = 0;

    (void)state;
    assert_true(disti_file_may_have(FILE_LIMIT, &most));
    assert_int_equal(most, 0);
    assert_false(disti_file_may_have(FILE_LIMIT + 1, &most));
    assert_int_equal(most, FILE_LIMIT);
    assert_false(disti_file_may_have(UINT64_MAX, NULL));
}

static void file_too_large(long result)
{
    assert_int_equal(result, -1);
    assert_int_equal(errno, EFBIG);
}

static void test_calls_fail_beyond_the_limit(void **state)
{
    int fd = memfd_create("test", MFD_CLOEXEC);

    (void)state;
    assert_int_equal(disti_file_truncate(fd, FILE_LIMIT), 0);
    file_too_large(disti_file_truncate(fd, FILE_LIMIT + 1));
    assert_int_equal(disti_file_reserve(fd, 0, FILE_LIMIT), 0);
    file_too_large(disti_file_reserve(fd, 0, 2 * FILE_LIMIT));
    assert_int_equal(lseek(fd, FILE_LIMIT - 1, SEEK_SET), FILE_LIMIT - 1);
    assert_int_equal(disti_file_write(fd, "ab", 2), 1);
    file_too_large(disti_file_write(fd, "b", 1));
    close(fd);
}

/* The program's signal mask and pending signals are unchanged. */
static void test_signals_and_masks_are_unchanged(void **state)
{
    int fd = memfd_create("test", MFD_CLOEXEC);
    sigset_t set, before, after;

    (void)state;
    sigemptyset(&set);
    sigaddset(&set, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &set, &before);
    raise(SIGXFSZ);
    file_too_large(disti_file_truncate(fd, FILE_LIMIT + 1));
    sigpending(&after);
    assert_int_equal(sigismember(&after, SIGXFSZ), 1);
    assert_int_equal(sigwaitinfo(&set, NULL), SIGXFSZ);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    file_too_large(disti_file_truncate(fd, FILE_LIMIT + 1));
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    assert_int_equal(sigismember(&after, SIGXFSZ), 0);
    close(fd);
}

/* Logging continues after its file has reached the limit. */
static void test_logging_continues_beyond_the_limit(void **state)
{
    char path[] = "/tmp/dist-file.XXXXXX";
    int fd = mkstemp(path);
    struct disti_log log;

    (void)state;
    setenv("DIST_DEBUG", "info", 1);
    setenv("DIST_DEBUG_FILE", path, 1);
    assert_int_equal(disti_log_init(&log, NULL, NULL), DIST_OK);
    disti_log_use(&log);
    for (int i = 0; i < 1000; i++)
        disti_info("line %d, and some more text so that the file soon is full", i);
    assert_int_equal(lseek(fd, 0, SEEK_END), FILE_LIMIT);
    disti_log_use(NULL);
    unsetenv("DIST_DEBUG_FILE");
    unsetenv("DIST_DEBUG");
    close(fd);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_the_size_limit_is_reported, file_limit, file_no_limit),
        cmocka_unit_test_setup_teardown(test_calls_fail_beyond_the_limit, file_limit,
                                        file_no_limit),
        cmocka_unit_test_setup_teardown(test_signals_and_masks_are_unchanged, file_limit,
                                        file_no_limit),
        cmocka_unit_test_setup_teardown(test_logging_continues_beyond_the_limit, file_limit,
                                        file_no_limit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
