/* SPDX-License-Identifier: BSD-3-Clause */
/* Settings are parsed completely or rejected with an error that names them. */
#include "base/checked.h"
#include "base/settings/config.h"

#include "unit.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void config_reject_int(const char *text, int min, int max)
{
    int value = 12345;

    assert_int_equal(disti_parse_int("--what", text, min, max, &value), DIST_ERR_INVALID_ARGUMENT);
    assert_int_equal(value, 12345);
    assert_non_null(strstr(dist_last_error(), "--what"));
}

static void test_integers_are_parsed(void **state)
{
    int value;

    (void)state;
    assert_int_equal(disti_parse_int("x", "0", 0, 7, &value), DIST_OK);
    assert_int_equal(value, 0);
    assert_int_equal(disti_parse_int("x", "-1", -1, 7, &value), DIST_OK);
    assert_int_equal(value, -1);
    assert_int_equal(disti_parse_int("x", "2147483647", 0, INT_MAX, &value), DIST_OK);
    assert_int_equal(value, INT_MAX);
    assert_int_equal(disti_parse_int("x", "-2147483648", INT_MIN, 0, &value), DIST_OK);
    assert_int_equal(value, INT_MIN);
    assert_int_equal(disti_parse_int("x", "007", 0, 7, &value), DIST_OK);
    assert_int_equal(value, 7);
}

static void test_bad_integers_are_rejected(void **state)
{
    static const char *const bad[] = {"",    " ",   " 1",  "1 ",  "+1",  "1x",  "x",   "-", "--1",
                                      "- 1", "0x1", "1.0", "1e3", "1,2", "\t1", "1\n", "1K"};

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        config_reject_int(bad[i], INT_MIN, INT_MAX);
    config_reject_int(NULL, 0, 7);
    config_reject_int("8", 0, 7);
    config_reject_int("-1", 0, 7);
    config_reject_int("2147483648", INT_MIN, INT_MAX);
    config_reject_int("-2147483649", INT_MIN, INT_MAX);
    config_reject_int("4294967296", INT_MIN, INT_MAX);
    config_reject_int("18446744073709551616", INT_MIN, INT_MAX);
    config_reject_int("99999999999999999999999999", INT_MIN, INT_MAX);
}

static void test_sizes_are_parsed(void **state)
{
    size_t value;

    (void)state;
    assert_int_equal(disti_parse_bytes("x", "0", &value), DIST_OK);
    assert_true(value == 0);
    assert_int_equal(disti_parse_bytes("x", "4096", &value), DIST_OK);
    assert_true(value == 4096);
    assert_int_equal(disti_parse_bytes("x", "64K", &value), DIST_OK);
    assert_true(value == 65536);
    assert_int_equal(disti_parse_bytes("x", "1m", &value), DIST_OK);
    assert_true(value == 1048576);
    assert_int_equal(disti_parse_bytes("x", "2G", &value), DIST_OK);
    assert_true(value == (size_t)2147483648U);
    assert_int_equal(disti_parse_bytes("x", "18446744073709551615", &value), DIST_OK);
    assert_true(value == SIZE_MAX);
}

static void test_bad_sizes_are_rejected(void **state)
{
    static const char *const bad[] = {"",
                                      " ",
                                      "-1",
                                      "+1",
                                      " 1",
                                      "1 ",
                                      "K",
                                      "1KB",
                                      "1T",
                                      "1.5M",
                                      "1K ",
                                      "0x10",
                                      "-0",
                                      "18446744073709551616",
                                      "18446744073709551615K",
                                      "17179869184G"};
    size_t value = 12345;

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(disti_parse_bytes("--size", bad[i], &value), DIST_ERR_INVALID_ARGUMENT);
        assert_true(value == 12345);
        assert_non_null(strstr(dist_last_error(), "--size"));
    }
    assert_int_equal(disti_parse_bytes("--size", NULL, &value), DIST_ERR_INVALID_ARGUMENT);
}

static void test_variables_override_defaults(void **state)
{
    size_t bytes;
    int value;

    (void)state;
    unsetenv("DIST_TEST_SETTING");
    assert_null(disti_env("DIST_TEST_SETTING"));
    assert_int_equal(disti_env_int("DIST_TEST_SETTING", 0, 9, 5, &value), DIST_OK);
    assert_int_equal(value, 5);
    assert_int_equal(disti_env_bytes("DIST_TEST_SETTING", 77, &bytes), DIST_OK);
    assert_true(bytes == 77);
    setenv("DIST_TEST_SETTING", "", 1);
    assert_null(disti_env("DIST_TEST_SETTING"));
    assert_int_equal(disti_env_int("DIST_TEST_SETTING", 0, 9, 5, &value),
                     DIST_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(dist_last_error(), "DIST_TEST_SETTING"));
    setenv("DIST_TEST_SETTING", "8", 1);
    assert_string_equal(disti_env("DIST_TEST_SETTING"), "8");
    assert_int_equal(disti_env_int("DIST_TEST_SETTING", 0, 9, 5, &value), DIST_OK);
    assert_int_equal(value, 8);
    assert_int_equal(disti_env_bytes("DIST_TEST_SETTING", 77, &bytes), DIST_OK);
    assert_true(bytes == 8);
    assert_int_equal(disti_env_seconds("DIST_TEST_SETTING", 7, &value), DIST_OK);
    assert_int_equal(value, 8000);
    setenv("DIST_TEST_SETTING", "31536000", 1); /* one year */
    assert_int_equal(disti_env_seconds("DIST_TEST_SETTING", 7, &value), DIST_OK);
    assert_int_equal(value, INT_MAX);
    setenv("DIST_TEST_SETTING", "0", 1);
    assert_int_equal(disti_env_seconds("DIST_TEST_SETTING", 7, &value), DIST_ERR_INVALID_ARGUMENT);
    unsetenv("DIST_TEST_SETTING");
    assert_int_equal(disti_env_seconds("DIST_TEST_SETTING", 7, &value), DIST_OK);
    assert_int_equal(value, 7);
}

static void test_items_of_lists_are_copied(void **state)
{
    char item[8] = "as was";

    (void)state;
    assert_true(disti_list_item("shm,tcp", ',', 0, item, sizeof(item)));
    assert_string_equal(item, "shm");
    assert_true(disti_list_item("shm,tcp", ',', 1, item, sizeof(item)));
    assert_string_equal(item, "tcp");
    assert_false(disti_list_item("shm,tcp", ',', 2, item, sizeof(item)));
    assert_false(disti_list_item("shm,tcp", ',', -1, item, sizeof(item)));
    assert_string_equal(item, "tcp");
    assert_true(disti_list_item("a,,b", ',', 1, item, sizeof(item)));
    assert_string_equal(item, "");
    assert_true(disti_list_item("a,,b", ',', 2, item, sizeof(item)));
    assert_string_equal(item, "b");
    assert_true(disti_list_item("1234567", ':', 0, item, sizeof(item)));
    assert_false(disti_list_item("12345678", ':', 0, item, sizeof(item)));
    assert_string_equal(item, "1234567");
    assert_false(disti_list_item("", ',', 0, item, sizeof(item)));
    assert_false(disti_list_item(NULL, ',', 0, item, sizeof(item)));
    assert_false(disti_list_item("a", ',', 0, item, 0));
}

static void test_arithmetic_detects_overflow(void **state)
{
    size_t value;

    (void)state;
    assert_true(disti_mul(SIZE_MAX / 2, 2, &value) && value == SIZE_MAX - 1);
    assert_false(disti_mul(SIZE_MAX / 2 + 1, 2, &value));
    assert_true(disti_add(SIZE_MAX, 0, &value) && value == SIZE_MAX);
    assert_false(disti_add(SIZE_MAX, 1, &value));
    assert_true(disti_inside(3, 5, 8) && disti_inside(8, 0, 8));
    assert_false(disti_inside(4, 5, 8) || disti_inside(9, 0, 8));
    assert_false(disti_inside(SIZE_MAX, 2, 8) || disti_inside(2, SIZE_MAX, 8));
}

static void test_calloc_rejects_negative_counts(void **state)
{
    uint64_t *numbers = disti_calloc(3, sizeof(*numbers));

    (void)state;
    assert_non_null(numbers);
    assert_true(numbers[0] == 0 && numbers[2] == 0);
    free(numbers);
    assert_null(disti_calloc(-1, sizeof(*numbers)));
    assert_null(disti_calloc(INT_MIN, 1));
}

/* Runs a copy of this program as another user's, with the setuid bit, and checks that it ignores
 * its environment. */
#define CONFIG_SECURE "DIST_TEST_SECURE"
#define CONFIG_NOBODY 65534
enum { CONFIG_SEES = 3, CONFIG_IGNORES, CONFIG_NOT_SECURE };

static int config_look(void)
{
    if (!getauxval(AT_SECURE))
        return CONFIG_NOT_SECURE;
    return disti_env(CONFIG_SECURE) || disti_env_raw(CONFIG_SECURE) ? CONFIG_SEES : CONFIG_IGNORES;
}

static void config_copy(const char *path)
{
    int from = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    int to = open(path, O_WRONLY | O_CLOEXEC);
    char bytes[4096];
    ssize_t got;

    assert_true(from >= 0 && to >= 0);
    while ((got = read(from, bytes, sizeof(bytes))) > 0)
        assert_int_equal(write(to, bytes, (size_t)got), got);
    assert_int_equal(fchown(to, CONFIG_NOBODY, CONFIG_NOBODY), 0);
    assert_int_equal(fchmod(to, 04755), 0);
    close(from);
    close(to);
}

static void test_a_setuid_program_ignores_its_environment(void **state)
{
    char path[] = "/tmp/dist-setuid.XXXXXX";
    int status = 0, fd;
    pid_t child;

    (void)state;
    if (geteuid() != 0)
        skip();
    fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    config_copy(path);
    setenv(CONFIG_SECURE, "1", 1);
    child = fork();
    if (child == 0) {
        execl(path, path, CONFIG_SECURE, NULL);
        _exit(CONFIG_NOT_SECURE);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    unlink(path);
    unsetenv(CONFIG_SECURE);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == CONFIG_NOT_SECURE)
        skip(); /* setuid bits have no effect on this file system */
    assert_int_equal(WEXITSTATUS(status), CONFIG_IGNORES);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_integers_are_parsed),
        cmocka_unit_test(test_bad_integers_are_rejected),
        cmocka_unit_test(test_sizes_are_parsed),
        cmocka_unit_test(test_bad_sizes_are_rejected),
        cmocka_unit_test(test_variables_override_defaults),
        cmocka_unit_test(test_items_of_lists_are_copied),
        cmocka_unit_test(test_arithmetic_detects_overflow),
        cmocka_unit_test(test_calloc_rejects_negative_counts),
        cmocka_unit_test(test_a_setuid_program_ignores_its_environment),
    };

    if (argc > 1 && strcmp(argv[1], CONFIG_SECURE) == 0)
        _exit(config_look()); /* LeakSanitizer cannot inspect a setuid program */

    return cmocka_run_group_tests(tests, NULL, NULL);
}
