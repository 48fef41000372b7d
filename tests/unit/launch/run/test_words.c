/* SPDX-License-Identifier: BSD-3-Clause */
/* Parsing of the values of distrun's options, and texts made from them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "launch/failure.h"
#include "launch/words.h"
#include "launch/workers.h"

static void test_redirected_streams_are_parsed(void **state)
{
    static const char *const wrong[] = {"4", "-1", "", "a", "0:", "0:4", "0:1,", ":1", "0:1;1:1"};

    (void)state;
    assert_int_equal(disti_run_streams(NULL, 0), 0);
    assert_int_equal(disti_run_streams("3", 7), DISTI_RUN_STDOUT | DISTI_RUN_STDERR);
    assert_int_equal(disti_run_streams("0:1,1:2", 0), DISTI_RUN_STDOUT);
    assert_int_equal(disti_run_streams("0:1,1:2", 1), DISTI_RUN_STDERR);
    assert_int_equal(disti_run_streams("0:1,1:2", 2), 0);
    assert_int_equal(disti_run_streams("12:3", 12), 3);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_int_equal(disti_run_streams(wrong[i], 0), -1);
}

static void test_ranks_are_found_in_lists(void **state)
{
    (void)state;
    assert_int_equal(disti_run_is_listed(NULL, 5), 1);
    assert_int_equal(disti_run_is_listed("0,2", 2), 1);
    assert_int_equal(disti_run_is_listed("0,2", 1), 0);
    assert_int_equal(disti_run_is_listed("0,", 0), -1);
    assert_int_equal(disti_run_is_listed("x", 0), -1);
}

static void test_node_counts_are_parsed(void **state)
{
    int least, most;

    (void)state;
    assert_true(disti_run_nodes("3", &least, &most));
    assert_int_equal(least, 3);
    assert_int_equal(most, 3);
    assert_true(disti_run_nodes("2:4", &least, &most));
    assert_int_equal(least, 2);
    assert_int_equal(most, 4);
    assert_false(disti_run_nodes("0", &least, &most));
    assert_false(disti_run_nodes("4:2", &least, &most));
    assert_false(disti_run_nodes("2:", &least, &most));
    assert_false(disti_run_nodes("2:4:6", &least, &most));
}

static void test_endpoints_are_parsed(void **state)
{
    char host[256];
    int port = 29400;

    (void)state;
    assert_true(disti_run_endpoint("node1", host, &port));
    assert_string_equal(host, "node1");
    assert_int_equal(port, 29400);
    assert_true(disti_run_endpoint("[::1]:5", host, &port));
    assert_string_equal(host, "::1");
    assert_int_equal(port, 5);
    assert_true(disti_run_endpoint("node1:0", host, &port));
    assert_int_equal(port, 0);
    assert_false(disti_run_endpoint(":5", host, &port));
    assert_false(disti_run_endpoint("node1:", host, &port));
    assert_false(disti_run_endpoint("node1:70000", host, &port));
    assert_false(disti_run_endpoint("[::1", host, &port));
}

static void test_signal_lists_are_parsed(void **state)
{
    sigset_t set;

    (void)state;
    assert_null(disti_run_signals("SIGTERM,USR1", &set));
    assert_true(sigismember(&set, SIGTERM));
    assert_true(sigismember(&set, SIGUSR1));
    assert_false(sigismember(&set, SIGINT));
    assert_string_equal(disti_run_signals("SIGTERM,SIGNO", &set), "SIGNO");
    assert_string_equal(disti_run_signals("SIGKILL", &set), "SIGKILL");
}

static void test_prefixes_replace_their_variables(void **state)
{
    const struct disti_run_names names = {.role = "r", .host = "h", .rank = 12, .local_rank = 3};
    char text[32];

    (void)state;
    disti_run_prefix("[${rank}]:", &names, text, sizeof(text));
    assert_string_equal(text, "[12]:");
    disti_run_prefix("${role_name}${local_rank}@${hostname} ${other}", &names, text, sizeof(text));
    assert_string_equal(text, "r3@h ${other}");
    disti_run_prefix("${rank}${rank}${rank}", &names, text, 5);
    assert_string_equal(text, "1212");
}

/* Each part gets at least one worker, and its workers have consecutive numbers. If there are fewer
 * workers than parts, no part gets two. */
static void test_workers_are_spread_over_all_parts(void **state)
{
    (void)state;
    for (int workers = 1; workers < 20; workers++) {
        for (int parts = 1; parts < 20; parts++) {
            int last = 0;

            for (int w = 0; w < workers; w++) {
                const int part = disti_run_binding_part(w, workers, parts);

                assert_in_range(part, last, parts - 1);
                assert_true(w == 0 || workers > parts || part > last);
                assert_true(workers < parts || part <= last + 1);
                last = part;
            }
            assert_true(workers < parts || last == parts - 1);
        }
    }
}

/* Which of two ended workers is reported as the first failure. */
static void test_causes_rank_before_consequences(void **state)
{
    const struct disti_run_worker well = {.ended = true},
                                  three = {.ended = true, .wait_status = 3 << 8},
                                  killed = {.ended = true, .wait_status = SIGKILL},
                                  victim = {.ended = true,
                                            .wait_status = SIGABRT,
                                            .has_lost = true},
                                  scheduler = {.ended = true,
                                               .wait_status = 1 << 8,
                                               .local_rank = -1},
                                  dead = {.ended = true, .wait_status = SIGKILL, .local_rank = -1};
    const struct disti_run_round round = {.first_rank = 4};
    struct disti_agents_failure failure;

    (void)state;
    assert_null(disti_run_first_failure(NULL, &well));
    assert_ptr_equal(disti_run_first_failure(NULL, &three), &three);
    assert_ptr_equal(disti_run_first_failure(&three, &well), &three);
    assert_ptr_equal(disti_run_first_failure(&three, &killed), &killed);
    assert_ptr_equal(disti_run_first_failure(&killed, &three), &killed);
    assert_ptr_equal(disti_run_first_failure(&victim, &three), &three);
    assert_ptr_equal(disti_run_first_failure(&three, &victim), &three);
    assert_ptr_equal(disti_run_first_failure(&scheduler, &three), &three);
    assert_ptr_equal(disti_run_first_failure(&scheduler, &victim), &scheduler);
    assert_ptr_equal(disti_run_first_failure(&three, &dead), &dead);
    disti_run_failure_of(&round, &three, -1, &failure);
    assert_int_equal(disti_run_exit_code(&failure), 3);
    assert_int_equal(failure.rank, 4);
    disti_run_failure_of(&round, &killed, -1, &failure);
    assert_int_equal(disti_run_exit_code(&failure), 128 + SIGKILL);
}

/* Contents of a worker's error file, and the text that is shown for them. */
static void test_error_files_give_a_message_or_none(void **state)
{
    static const struct {
        const char *file, *shown;
    } cases[] = {
        {"{\"message\": \"plain\"}", "plain"},
        {"{\"message\": {\"message\": \"short\", \"extraInfo\": {\"timestamp\": \"1\","
         " \"py_callstack\": \"Traceback:\\n  line \\\"1\\\"\\nEnd\\n\"}}}",
         "Traceback:\n    line \"1\"\n  End"},
        {" { \"a\" : [1, {\"message\": \"not this\"}, \"]\\\"\"], "
         "\"message\":{\"message\":\"that\"}}",
         "that"},
        {"{\"message\": \"\\u00fc \\u20ac \\ud83d\\ude00 \\u001b[2J\\\\\"}",
         "\u00fc \u20ac \U0001f600 [2J\\"},
        {"{\"message\": \"\x1b[2J\rraw \u00fc\x7f\xc2\x9b\\u007f\\u009b\\u00a0\"}",
         "[2Jraw \u00fc\u00a0"},
        {"{\"message\": \"cut off", NULL},
        {"{\"message\": \"cut off\\", NULL},
        {"{\"message\": {\"message\": 7}}", NULL},
        {"{\"message\"", NULL},
        {"{\"a\": [[[[", NULL},
        {"{\"message\": \"\"}", NULL},
        {"]]}}", NULL},
        {"no JSON", NULL},
        {"", NULL},
    };
    char path[] = "/tmp/dist-test-XXXXXX";
    const int fd = mkstemp(path);

    (void)state;
    assert_true(fd >= 0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const size_t bytes = strlen(cases[i].file);
        char *shown;

        assert_int_equal(ftruncate(fd, 0), 0);
        assert_int_equal(pwrite(fd, cases[i].file, bytes, 0), (ssize_t)bytes);
        shown = disti_run_error_text(path);
        if (cases[i].shown)
            assert_string_equal(shown ? shown : "none", cases[i].shown);
        else
            assert_null(shown);
        free(shown);
    }
    close(fd);
    unlink(path);
    assert_null(disti_run_error_text(path));
    assert_int_equal(mkfifo(path, 0600), 0);
    alarm(10); /* the FIFO has no writer: opening it must not block */
    assert_null(disti_run_error_text(path));
    alarm(0);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_redirected_streams_are_parsed),
        cmocka_unit_test(test_ranks_are_found_in_lists),
        cmocka_unit_test(test_node_counts_are_parsed),
        cmocka_unit_test(test_signal_lists_are_parsed),
        cmocka_unit_test(test_endpoints_are_parsed),
        cmocka_unit_test(test_prefixes_replace_their_variables),
        cmocka_unit_test(test_workers_are_spread_over_all_parts),
        cmocka_unit_test(test_causes_rank_before_consequences),
        cmocka_unit_test(test_error_files_give_a_message_or_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
