/* SPDX-License-Identifier: BSD-3-Clause */
/* Hosts as in -H and in hostfiles, invalid ones, and the script that starts an agent on a host. */
#include "tests/unit/base/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launch/hosts.h"

static void expect_hosts(const struct disti_hosts *hosts, int count, const char *const *names,
                         const int *slots)
{
    assert_int_equal(hosts->count, count);
    for (int i = 0; i < count; i++) {
        assert_string_equal(hosts->entries[i].name, names[i]);
        assert_int_equal(hosts->entries[i].slots, slots[i]);
    }
}

static dist_status read_text(const char *text, size_t bytes, struct disti_hosts *hosts)
{
    char path[] = "hostfile.XXXXXX";
    int fd = mkstemp(path);
    dist_status status;

    assert_true(write(fd, text, bytes) == (ssize_t)bytes);
    close(fd);
    status = disti_hosts_read(path, hosts);
    unlink(path);
    return status;
}

static void test_hosts_of_the_option_are_parsed(void **state)
{
    struct disti_hosts hosts = {0};

    (void)state;
    assert_int_equal(disti_hosts_parse("node1:2,node2,me@10.0.0.3:4,[fe80::1]:3,fe80::2,node1:5,"
                                       "node2",
                                       &hosts),
                     DIST_OK);
    expect_hosts(&hosts, 5, (const char *[]){"node1", "node2", "me@10.0.0.3", "fe80::1", "fe80::2"},
                 (int[]){7, 2, 4, 3, 0});
    disti_hosts_free(&hosts);
    assert_int_equal(hosts.count, 0);
}

static void test_hostfiles_are_parsed(void **state)
{
    static const char text[] = "# all of them\n\nnode1 slots=2\n  node2:3   # the old one\r\n"
                               "node3\tslots=4 max_slots=8\nnode4";
    struct disti_hosts hosts = {0};

    (void)state;
    assert_int_equal(read_text(text, sizeof(text) - 1, &hosts), DIST_OK);
    expect_hosts(&hosts, 4, (const char *[]){"node1", "node2", "node3", "node4"},
                 (int[]){2, 3, 4, 0});
    disti_hosts_free(&hosts);
}

static void expect_bad(const char *text, const char *what)
{
    struct disti_hosts hosts = {0};

    assert_int_equal(disti_hosts_parse(text, &hosts), DIST_ERR_INVALID_ARGUMENT);
    if (!strstr(dist_last_error(), what))
        fail_msg("\"%s\" does not contain \"%s\"", dist_last_error(), what);
    disti_hosts_free(&hosts);
}

static void test_bad_hosts_are_rejected(void **state)
{
    (void)state;
    expect_bad("", "-H: \"\" is not a host name");
    expect_bad("node1,,node2", "\"\" is not a host name");
    expect_bad("node1:", "\"\" is not a number of slots");
    expect_bad("node1:0", "\"0\" is not a number of slots");
    expect_bad("node1:-1", "\"-1\" is not a number of slots");
    expect_bad("node1:2x", "\"2x\" is not a number of slots");
    expect_bad("node1:99999999999999999999", "is not a number of slots");
    expect_bad("node1:65536,node1", "too many slots");
    expect_bad("-oProxyCommand=reboot", "\"-oProxyCommand=reboot\" is not a host name");
    expect_bad("node1;reboot", "is not a host name");
    expect_bad("node 1", "is not a host name");
    expect_bad("[fe80::1", "does not have the form [ADDRESS]:SLOTS");
    expect_bad("[fe80::1]2", "does not have the form [ADDRESS]:SLOTS");
}

static void expect_bad_file(const char *text, size_t bytes, const char *what)
{
    struct disti_hosts hosts = {0};

    assert_int_equal(read_text(text, bytes, &hosts), DIST_ERR_INVALID_ARGUMENT);
    if (!strstr(dist_last_error(), what) || !strstr(dist_last_error(), "hostfile."))
        fail_msg("\"%s\" does not contain \"%s\"", dist_last_error(), what);
    disti_hosts_free(&hosts);
}

static void test_bad_hostfiles_are_rejected(void **state)
{
    struct disti_hosts hosts = {0};
    char name[400];

    (void)state;
    expect_bad_file("", 0, "the hostfile contains no host");
    expect_bad_file("# nobody\n", 9, "the hostfile contains no host");
    expect_bad_file("node1\nnode2 slot=2\n", 19, "line 2: unknown \"slot=2\" after a host");
    expect_bad_file("node1\n\nnode2 slots=two\n", 23, "line 3: \"two\" is not a number of slots");
    expect_bad_file("node1:2 slots=2", 15, "line 1: the number of slots is given twice");
    expect_bad_file("slots=2\n", 8, "line 1: \"slots=2\" is not a host name");
    expect_bad_file("node1\0node2\n", 12, "line 1: the line contains a zero byte");
    expect_bad_file("node1 max_slots=x\n", 18, "line 1: \"x\" is not a number of slots");
    memset(name, 'n', sizeof(name));
    expect_bad_file(name, sizeof(name), "is not a host name");
    assert_int_equal(disti_hosts_read("/no/such/hostfile", &hosts), DIST_ERR_SYSTEM);
    assert_non_null(strstr(dist_last_error(), "/no/such/hostfile"));
}

static void test_processes_are_placed_on_slots(void **state)
{
    struct disti_hosts hosts = {0};
    int counts[3];

    (void)state;
    assert_int_equal(disti_hosts_parse("a:2,b,c:4", &hosts), DIST_OK);
    assert_int_equal(disti_hosts_place(&hosts, 5, counts), DIST_OK);
    assert_int_equal(counts[0], 2);
    assert_int_equal(counts[1], 1);
    assert_int_equal(counts[2], 2);
    assert_int_equal(disti_hosts_place(&hosts, 1, counts), DIST_OK);
    assert_int_equal(counts[1] + counts[2], 0);
    assert_int_equal(disti_hosts_place(&hosts, 8, counts), DIST_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(dist_last_error(), "8 processes, but the 3 hosts have 7 slots"));
    disti_hosts_free(&hosts);
    assert_true(disti_hosts_is_local("localhost"));
    assert_true(disti_hosts_is_local("127.0.0.1"));
    assert_false(disti_hosts_is_local("not.this.machine"));
    assert_false(disti_hosts_is_local("me@localhost"));
    assert_false(disti_hosts_is_local("192.0.2.1"));
    assert_true(disti_hosts_is_loopback("127.0.0.2"));
    assert_false(disti_hosts_is_loopback("127.node"));
}

/* Starts an agent with the script as its input. The caller writes more input to *in_fd_p and closes
 * it. */
static pid_t begin(const char *agent, const char *host, const struct disti_hosts_start *start,
                   int out_fd, int *in_fd_p)
{
    size_t bytes;
    char *script;
    pid_t pid;
    int ends[2];

    assert_int_equal(disti_hosts_script(start, &script, &bytes), DIST_OK);
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    assert_int_equal(write(ends[1], script, bytes), bytes);
    assert_int_equal(disti_hosts_start(agent, host, ends[0], out_fd, out_fd, &pid), DIST_OK);
    close(ends[0]);
    free(script);
    *in_fd_p = ends[1];
    return pid;
}

/* Starts an agent, sends `more` after its first output, and collects all output. Returns its wait
 * status. */
static int run(const struct disti_hosts_start *start, const char *more, char text[1000])
{
    size_t at = 0;
    int ends[2], in_fd, how;
    ssize_t n;
    pid_t pid;

    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    pid = begin(" env  MORE=1 ", "NODE=node1", start, ends[1], &in_fd);
    close(ends[1]);
    while ((n = read(ends[0], text + at, 999 - at)) > 0) {
        if (at == 0) {
            assert_int_equal(write(in_fd, more, strlen(more)), strlen(more));
            close(in_fd);
        }
        at += (size_t)n;
    }
    text[at] = 0;
    close(ends[0]);
    assert_int_equal(waitpid(pid, &how, 0), pid);
    return how;
}

/* `env` replaces ssh: its first argument sets a variable instead of naming a host, and the command
 * follows. */
static void test_a_started_agent_gets_its_settings_and_input(void **state)
{
    const char *argv[] = {"sh",
                          "-c",
                          "echo \"$NODE|$1|$ODD\"; pwd; cat <&3; cat; exit 7",
                          "sh",
                          "it's $HOME; `x` \"\\\n!",
                          NULL};
    const char *environment[] = {"ODD=a 'b' $c=d", "EMPTY=", NULL};
    struct disti_hosts_start start = {.argv = argv,
                                      .environment = environment,
                                      .directory = "/usr",
                                      .secret = "0123 $HOME 'abc'"};
    char text[1000];
    int how = run(&start, "more", text);

    (void)state;
    assert_string_equal(text,
                        "node1|it's $HOME; `x` \"\\\n!|a 'b' $c=d\n/usr\n0123 $HOME 'abc'\nmore");
    assert_true(WIFEXITED(how));
    assert_int_equal(WEXITSTATUS(how), 7);
    start.directory = "/no/such/folder";
    how = run(&start, "", text);
    assert_int_equal(WEXITSTATUS(how), 126);
    assert_non_null(strstr(text, "/no/such/folder"));
}

static void test_start_failures_are_reported(void **state)
{
    const char *argv[] = {"true", NULL}, *environment[] = {"A;reboot=1", NULL};
    struct disti_hosts_start start = {.argv = argv, .environment = environment};
    char *script, many[200];
    size_t bytes;
    pid_t pid;

    (void)state;
    for (size_t i = 0; i < sizeof(many); i++)
        many[i] = i % 2 ? ' ' : 'x';
    many[sizeof(many) - 1] = 0;
    assert_int_equal(disti_hosts_start(many, "node1", 0, 1, 2, &pid), DIST_ERR_SYSTEM);
    assert_non_null(strstr(dist_last_error(), "Argument list too long"));
    assert_int_equal(disti_hosts_start("/no/such/ssh -v", "node1", 0, 1, 2, &pid), DIST_ERR_SYSTEM);
    assert_non_null(strstr(dist_last_error(), "\"/no/such/ssh node1\": No such file"));
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(disti_hosts_start(" ", "node1", 0, 1, 2, &pid), DIST_ERR_SYSTEM);
    assert_int_equal(disti_hosts_script(&start, &script, &bytes), DIST_ERR_INVALID_ARGUMENT);
}

/* If the process that started the agent is killed, the agent ends too. */
static void test_an_agent_ends_with_its_starter(void **state)
{
    const char *argv[] = {"sh", "-c", "echo; exec sleep 60", NULL};
    struct disti_hosts_start start = {.argv = argv};
    int ends[2], how;
    char byte;
    pid_t parent;

    (void)state;
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    fflush(NULL);
    parent = fork();
    if (parent == 0) {
        int in_fd;

        begin("env", "A=b", &start, ends[1], &in_fd);
        pause();
        _exit(1);
    }
    close(ends[1]);
    assert_true(read(ends[0], &byte, 1) == 1);
    kill(parent, SIGKILL);
    assert_int_equal(waitpid(parent, &how, 0), parent);
    assert_true(read(ends[0], &byte, 1) == 0); /* end of file: the agent has exited */
    close(ends[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hosts_of_the_option_are_parsed),
        cmocka_unit_test(test_hostfiles_are_parsed),
        cmocka_unit_test(test_bad_hosts_are_rejected),
        cmocka_unit_test(test_bad_hostfiles_are_rejected),
        cmocka_unit_test(test_processes_are_placed_on_slots),
        cmocka_unit_test(test_a_started_agent_gets_its_settings_and_input),
        cmocka_unit_test(test_start_failures_are_reported),
        cmocka_unit_test(test_an_agent_ends_with_its_starter),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
