/* SPDX-License-Identifier: BSD-3-Clause */
/* Settings are parsed the same in a program that has called setlocale(LC_ALL, ""): here for
 * Turkish, where tolower('I') is not 'i' and the decimal separator is a comma. */
#include "base/ascii.h"
#include "base/faults.h"
#include "base/log.h"
#include "launch/agents/agents.h"

#include "unit.h"

#include <ctype.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static int locale_open(void **state)
{
    static char folder[] = "/tmp/dist-locale.XXXXXX";
    char command[256];

    *state = mkdtemp(folder);
    if (!*state)
        return -1;
    snprintf(command, sizeof(command), "localedef -i tr_TR -f ISO-8859-9 %s/tr_TR 2>/dev/null",
             folder);
    setenv("LOCPATH", folder, 1);
    if (system(command) != 0 || !setlocale(LC_ALL, "tr_TR"))
        puts("# no localedef, or not the sources of tr_TR: the tests run in the C locale");
    return 0;
}

static int locale_close(void **state)
{
    char command[256];

    snprintf(command, sizeof(command), "rm -rf '%s'", (char *)*state);
    return system(command);
}

static void test_words_ignore_the_locale(void **state)
{
    struct disti_log log;

    (void)state;
    assert_true(disti_ascii_same("info", "INFO") && disti_ascii_same("", ""));
    assert_false(disti_ascii_same("info", "inf") || disti_ascii_same("inf", "info"));
    assert_true(disti_ascii_begins_same("LOCALHOST.", "localhost", 9));
    assert_int_equal(disti_ascii_upper('i'), 'I');
    assert_int_equal(disti_ascii_lower('I'), 'i');
    assert_int_equal(disti_ascii_upper('_'), '_');
    assert_true(disti_ascii_alnum('Z') && disti_ascii_alnum('0') && !disti_ascii_alnum('\xfd'));
    setenv("DIST_DEBUG", "info", 1);
    assert_int_equal(disti_log_init(&log, NULL, NULL), DIST_OK);
    assert_int_equal(log.level, DIST_LOG_INFO);
}

static void test_numbers_ignore_the_locale(void **state)
{
    struct disti_faults faults;
    struct disti_agents_config config;
    char *end;

    (void)state;
    assert_true(disti_ascii_real("0.25x", &end) == 0.25 && *end == 'x');
    assert_int_equal(disti_faults_parse("flip:*@3/7:p=0.25", &faults), DIST_OK);
    assert_true(faults.all[0].p == 0.25);
    disti_agents_defaults(&config);
    assert_int_equal(disti_agents_configure(&config, "last_call_timeout=0.5"), DIST_OK);
    assert_int_equal(config.last_call_timeout_ms, 500);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_words_ignore_the_locale),
                                       cmocka_unit_test(test_numbers_ignore_the_locale)};

    return cmocka_run_group_tests(tests, locale_open, locale_close);
}
