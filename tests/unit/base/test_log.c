/* SPDX-License-Identifier: BSD-3-Clause */
/* Lines, levels and files of the log, and the last error of each thread. */
#include "base/log.h"

#include "base/net.h"

#include "unit.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct log_capture {
    int lines;
    dist_log_level level;
    char line[4096];
};

static void log_capture(void *arg, dist_log_level level, const char *line)
{
    struct log_capture *capture = arg;

    capture->lines++;
    capture->level = level;
    snprintf(capture->line, sizeof(capture->line), "%s", line);
}

static int log_reset(void **state)
{
    (void)state;
    unsetenv("DIST_DEBUG");
    unsetenv("DIST_DEBUG_FILE");
    unsetenv("DIST_DEBUG_SUBSYS");
    disti_log_use(NULL);
    return 0;
}

static void test_a_line_has_host_pid_rank_and_level(void **state)
{
    struct log_capture capture = {0};
    struct disti_log log;
    char expected[512], host[DISTI_HOST_SIZE];

    (void)state;
    assert_int_equal(disti_log_init(&log, log_capture, &capture), DIST_OK);
    log.rank = 3;
    disti_log_use(&log);
    assert_ptr_equal(disti_log_current(), &log);
    disti_warn("peer %d is slow", 5);
    disti_host_short(host);
    snprintf(expected, sizeof(expected), "%s:%ld [3] dist WARN peer 5 is slow", host,
             (long)getpid());
    assert_int_equal(capture.lines, 1);
    assert_int_equal(capture.level, DIST_LOG_WARN);
    assert_string_equal(capture.line, expected);
    log.rank = -1;
    disti_info("hello");
    assert_non_null(strstr(capture.line, " [-] dist INFO hello"));
    disti_trace("not logged");
    assert_int_equal(capture.lines, 2);
}

static void test_levels_limit_the_lines(void **state)
{
    static const char *const names[] = {"error", "WARN", "Info", "trace"};
    struct log_capture capture;
    struct disti_log log;

    (void)state;
    for (int selected = DIST_LOG_ERROR; selected <= DIST_LOG_TRACE; selected++) {
        setenv("DIST_DEBUG", names[selected], 1);
        capture.lines = 0;
        assert_int_equal(disti_log_init(&log, log_capture, &capture), DIST_OK);
        assert_false(log.silent);
        disti_log_use(&log);
        for (int level = DIST_LOG_ERROR; level <= DIST_LOG_TRACE; level++)
            disti_log_line((dist_log_level)level, "x");
        assert_int_equal(capture.lines, selected + 1);
    }
}

/* INFO and TRACE lines are limited to the selected subsystems; warnings and errors are not. */
static void test_subsystems_limit_info_and_trace(void **state)
{
    struct log_capture capture = {0};
    struct disti_log log;

    (void)state;
    setenv("DIST_DEBUG", "trace", 1);
    setenv("DIST_DEBUG_SUBSYS", "store,tcp", 1);
    assert_int_equal(disti_log_init(&log, log_capture, &capture), DIST_OK);
    disti_log_use(&log);
    disti_log_from("../src/store/server/ranks.c", DIST_LOG_INFO, "x");
    disti_log_from("/home/store/src/transports/tcp/peer.c", DIST_LOG_TRACE, "x");
    assert_int_equal(capture.lines, 2);
    disti_log_from("/home/store/src/transports/shm/shm.c", DIST_LOG_INFO, "x");
    disti_log_line(DIST_LOG_INFO, "of a module");
    assert_int_equal(capture.lines, 2);
    disti_log_from("src/transports/shm/shm.c", DIST_LOG_WARN, "x");
    disti_fail(DIST_ERR_SYSTEM, "x");
    assert_int_equal(capture.lines, 4);
    setenv("DIST_DEBUG_SUBSYS", "modules", 1);
    assert_int_equal(disti_log_init(&log, log_capture, &capture), DIST_OK);
    disti_log_line(DIST_LOG_INFO, "of a module");
    assert_int_equal(capture.lines, 5);
    setenv("DIST_DEBUG_SUBSYS", "group,call", 1);
    assert_int_equal(disti_log_init(&log, log_capture, &capture), DIST_OK);
    disti_log_from("../src/core/world.c", DIST_LOG_INFO, "x");
    disti_log_from("../src/core/calls.c", DIST_LOG_INFO, "x");
    assert_int_equal(capture.lines, 7);
    disti_log_from("../src/core/progress.c", DIST_LOG_INFO, "x");
    disti_log_from("../src/node/calls.c", DIST_LOG_INFO, "x");
    assert_int_equal(capture.lines, 7);
    disti_log_use(NULL);
    setenv("DIST_DEBUG_SUBSYS", "store,storage", 1);
    assert_int_equal(disti_log_init(&log, log_capture, &capture), DIST_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(dist_last_error(), "\"storage\""));
    unsetenv("DIST_DEBUG_SUBSYS");
}

static void test_the_log_is_silent_by_default(void **state)
{
    struct log_capture capture = {0};
    struct disti_log log;

    (void)state;
    assert_int_equal(disti_log_init(&log, NULL, NULL), DIST_OK);
    assert_true(log.silent);
    setenv("DIST_DEBUG", "0", 1);
    assert_int_equal(disti_log_init(&log, NULL, NULL), DIST_OK);
    assert_true(log.silent);
    assert_int_equal(disti_log_init(&log, log_capture, &capture), DIST_OK);
    assert_false(log.silent);
    log.silent = true;
    disti_log_use(&log);
    assert_int_equal(disti_fail(DIST_ERR_TIMEOUT, "rank 7 is silent"), DIST_ERR_TIMEOUT);
    assert_int_equal(capture.lines, 0);
    assert_string_equal(dist_last_error(), "rank 7 is silent");
}

/* Notices are shown by default. */
static void test_notices_are_shown_by_default(void **state)
{
    struct log_capture capture = {0};
    struct disti_log log;

    (void)state;
    for (int selected = 0; selected < 5; selected++) {
        static const char *const levels[] = {NULL, "0", "error", "warn", "info"};

        if (levels[selected])
            setenv("DIST_DEBUG", levels[selected], 1);
        assert_int_equal(disti_log_init(&log, NULL, NULL), DIST_OK);
        log.fn = log_capture;
        log.arg = &capture;
        capture.lines = 0;
        disti_log_use(&log);
        disti_notice("a slip of the %s", "pen");
        assert_int_equal(capture.lines, selected == 0 || selected > 2);
    }
    disti_log_use(NULL);
    disti_notice("to nobody");
    assert_int_equal(capture.lines, 1);
}

static void test_bad_settings_are_rejected(void **state)
{
    struct disti_log log = {.rank = 42};
    char name[300];

    (void)state;
    setenv("DIST_DEBUG", "loud", 1);
    assert_int_equal(disti_log_init(&log, NULL, NULL), DIST_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(dist_last_error(), "loud"));
    assert_int_equal(log.rank, 42);
    unsetenv("DIST_DEBUG");
    memset(name, 'x', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    setenv("DIST_DEBUG_FILE", name, 1);
    assert_int_equal(disti_log_init(&log, NULL, NULL), DIST_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(dist_last_error(), "DIST_DEBUG_FILE"));
}

static void test_failures_set_the_last_error(void **state)
{
    struct log_capture capture = {0};
    struct disti_log log;

    (void)state;
    assert_int_equal(disti_fail(DIST_ERR_SYSTEM, "no log yet: %d", 1), DIST_ERR_SYSTEM);
    assert_string_equal(dist_last_error(), "no log yet: 1");
    assert_int_equal(disti_log_init(&log, log_capture, &capture), DIST_OK);
    disti_log_use(&log);
    disti_fail(DIST_ERR_PEER_LOST, "again: %s", dist_last_error());
    assert_string_equal(dist_last_error(), "again: no log yet: 1");
    assert_int_equal(capture.level, DIST_LOG_ERROR);
    assert_non_null(strstr(capture.line, "dist ERROR again: no log yet: 1"));
    errno = ENOENT;
    assert_int_equal(disti_fail_errno(DIST_ERR_SYSTEM, "open %s", "/x"), DIST_ERR_SYSTEM);
    assert_string_equal(dist_last_error(), "open /x: No such file or directory");
    assert_int_equal(errno, ENOENT);
}

/* Text from a peer cannot start a new line or contain control characters of the terminal. */
static void test_control_characters_are_replaced(void **state)
{
    struct log_capture capture = {0};
    struct disti_log log;
    char longer[6000];

    (void)state;
    assert_int_equal(disti_log_init(&log, log_capture, &capture), DIST_OK);
    disti_log_use(&log);
    disti_warn("name \"%s\"", "a\nb\x1b[2J\rc");
    assert_non_null(strstr(capture.line, "name \"a b [2J c\""));
    memset(longer, 'y', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = '\0';
    disti_fail(DIST_ERR_SYSTEM, "%s", longer);
    assert_int_equal(strlen(dist_last_error()), 2047);
    assert_string_equal(dist_last_error() + 2047 - 4, "y...");
    assert_string_equal(capture.line + strlen(capture.line) - 4, "y...");
    errno = EIO;
    disti_fail_errno(DIST_ERR_SYSTEM, "%s", longer);
    assert_int_equal(strlen(dist_last_error()), 2047);
}

static void *log_other_thread(void *arg)
{
    bool *fresh = arg;

    *fresh = dist_last_error()[0] == '\0' && !disti_log_current();
    disti_fail(DIST_ERR_SYSTEM, "the other thread's");
    *fresh = *fresh && strcmp(dist_last_error(), "the other thread's") == 0;
    return NULL;
}

static void test_threads_have_their_own_log_and_error(void **state)
{
    struct disti_log log = {.silent = true};
    pthread_t thread;
    bool fresh = false;

    (void)state;
    disti_log_use(&log);
    disti_fail(DIST_ERR_SYSTEM, "mine");
    assert_int_equal(pthread_create(&thread, NULL, log_other_thread, &fresh), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(fresh);
    assert_string_equal(dist_last_error(), "mine");
}

static void log_read_file(const char *name, char *text, size_t size)
{
    FILE *file = fopen(name, "r");
    size_t length;

    assert_non_null(file);
    length = fread(text, 1, size - 1, file);
    text[length] = '\0';
    fclose(file);
}

static void test_lines_are_written_to_the_file(void **state)
{
    char folder[] = "/tmp/dist_test_log.XXXXXX", setting[128], name[256], text[1024];
    struct disti_log log;

    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(setting, sizeof(setting), "%s/%%p.%%r.%%%%.%%x", folder);
    setenv("DIST_DEBUG_FILE", setting, 1);
    setenv("DIST_DEBUG", "warn", 1);
    assert_int_equal(disti_log_init(&log, NULL, NULL), DIST_OK);
    log.rank = 11;
    disti_log_use(&log);
    disti_warn("first");
    disti_info("too much");
    disti_warn("second");
    snprintf(name, sizeof(name), "%s/%ld.11.%%.%%x", folder, (long)getpid());
    log_read_file(name, text, sizeof(text));
    unlink(name);
    rmdir(folder);
    assert_non_null(strstr(text, "[11] dist WARN first\n"));
    assert_non_null(strstr(text, "[11] dist WARN second\n"));
    assert_null(strstr(text, "too much"));
}

/* Without a callback and a file, or if the file cannot be created, lines are written to stderr. */
static void test_lines_are_written_to_stderr(void **state)
{
    char name[] = "/tmp/dist_test_log.XXXXXX", text[1024];
    int file = mkstemp(name), saved = dup(STDERR_FILENO);
    struct disti_log log;

    (void)state;
    assert_true(file >= 0 && saved >= 0);
    setenv("DIST_DEBUG", "info", 1);
    assert_int_equal(disti_log_init(&log, NULL, NULL), DIST_OK);
    disti_log_use(&log);
    dup2(file, STDERR_FILENO);
    disti_info("to stderr");
    strcpy(log.file, "/nowhere/at/all");
    disti_info("as well");
    dup2(saved, STDERR_FILENO);
    close(saved);
    close(file);
    log_read_file(name, text, sizeof(text));
    unlink(name);
    assert_non_null(strstr(text, "dist INFO to stderr\n"));
    assert_non_null(strstr(text, "dist INFO as well\n"));
}

/* Text that does not fit is cut after a word; text that fits is complete. */
static void test_long_text_is_cut_after_a_word(void **state)
{
    char text[16], letters[40];

    (void)state;
    assert_int_equal(disti_text(text, sizeof(text), "%s", "rank 3 is gone"), 14);
    assert_string_equal(text, "rank 3 is gone");
    assert_int_equal(disti_text(text, sizeof(text), "%s", "rank 3 is gone!"), 15);
    assert_string_equal(text, "rank 3 is gone!");
    assert_int_equal(disti_text(text, sizeof(text), "rank %d has gone away", 3), 14);
    assert_string_equal(text, "rank 3 has ...");
    memset(letters, 'y', sizeof(letters));
    letters[sizeof(letters) - 1] = '\0';
    assert_int_equal(disti_text(text, sizeof(text), "%s", letters), 15);
    assert_string_equal(text, "yyyyyyyyyyyy...");
    assert_int_equal(disti_text(text, 4, "%s", letters), 3);
    assert_string_equal(text, "...");
}

/* While an attempt is being made, errors are logged as INFO; the last error is set as usual. */
static void test_failed_attempts_are_logged_as_info(void **state)
{
    struct log_capture capture = {0};
    struct disti_log log;
    bool before;

    (void)state;
    setenv("DIST_DEBUG", "info", 1);
    assert_int_equal(disti_log_init(&log, log_capture, &capture), DIST_OK);
    disti_log_use(&log);
    before = disti_log_trying(true);
    assert_false(before);
    assert_int_equal(disti_fail(DIST_ERR_SYSTEM, "not here"), DIST_ERR_SYSTEM);
    assert_int_equal(capture.level, DIST_LOG_INFO);
    assert_string_equal(dist_last_error(), "not here");
    assert_true(disti_log_trying(before));
    disti_fail(DIST_ERR_SYSTEM, "here");
    assert_int_equal(capture.level, DIST_LOG_ERROR);
    disti_log_use(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_a_line_has_host_pid_rank_and_level, log_reset),
        cmocka_unit_test_setup(test_levels_limit_the_lines, log_reset),
        cmocka_unit_test_setup(test_subsystems_limit_info_and_trace, log_reset),
        cmocka_unit_test_setup(test_the_log_is_silent_by_default, log_reset),
        cmocka_unit_test_setup(test_notices_are_shown_by_default, log_reset),
        cmocka_unit_test_setup(test_bad_settings_are_rejected, log_reset),
        cmocka_unit_test_setup(test_failures_set_the_last_error, log_reset),
        cmocka_unit_test_setup(test_long_text_is_cut_after_a_word, log_reset),
        cmocka_unit_test_setup(test_failed_attempts_are_logged_as_info, log_reset),
        cmocka_unit_test_setup(test_control_characters_are_replaced, log_reset),
        cmocka_unit_test_setup(test_threads_have_their_own_log_and_error, log_reset),
        cmocka_unit_test_setup(test_lines_are_written_to_the_file, log_reset),
        cmocka_unit_test_setup(test_lines_are_written_to_stderr, log_reset),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
