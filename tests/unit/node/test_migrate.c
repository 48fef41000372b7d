/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A rank moves to an idle CPU on which no rank runs, and only if it shares its CPU with another
 * rank. This program replaces the functions that return and set a thread's CPU, so that the
 * scheduler has no influence.
 */
#include "base/clock.h"
#include "base/log.h"
#include "node/state.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sched.h>
#include <cmocka.h>

enum { CPUS = 4, POLLS = 64, NAP_NS = 60 * 1000 * 1000 };

static int here, moves;
static struct dist_backend_config config;
static char stat_path[] = "/tmp/dist-stat-XXXXXX";

int sched_getcpu(void)
{
    return here;
}

int sched_getaffinity(pid_t pid, size_t size, cpu_set_t *set)
{
    (void)pid;
    memset(set, 0, size);
    for (size_t cpu = 0; cpu < CPUS; cpu++)
        CPU_SET(cpu, set);
    return 0;
}

int sched_setaffinity(pid_t pid, size_t size, const cpu_set_t *set)
{
    (void)pid;
    (void)size;
    if (CPU_COUNT(set) > 1)
        return 0;
    moves++;
    for (here = 0; !CPU_ISSET((size_t)here, set);)
        here++;
    return 0;
}

/* Writes a file like /proc/stat. busy: the CPU that was never idle; -1: none; CPUS: all CPUs. */
static void write_stat(unsigned ticks, int busy)
{
    FILE *file = fopen(stat_path, "w");

    assert_non_null(file);
    fprintf(file, "cpu  1 2 3 4 5 6 7 0 0 0\n");
    for (int cpu = 0; cpu < CPUS; cpu++)
        fprintf(file, "cpu%d 10 0 10 %u 0 0 0 0 0 0\n", cpu,
                cpu == busy || busy == CPUS ? 0 : ticks);
    fprintf(file, "intr 99 0 0\n");
    assert_int_equal(fclose(file), 0);
}

/* Makes a node of two ranks: this one, rank 0, is on CPU 0; the other published other_cpu. */
static struct disti_node *pair_of_ranks(int other_cpu)
{
    struct disti_node *node = calloc(1, sizeof(*node));

    assert_non_null(node);
    node->ranks = 2;
    node->peers = calloc(2, sizeof(*node->peers));
    assert_non_null(node->peers);
    for (int r = 0; r < 2; r++) {
        node->peers[r].mailbox = aligned_alloc(NODE_APART, sizeof(struct node_mailbox));
        assert_non_null(node->peers[r].mailbox);
        atomic_init(&node->peers[r].mailbox->cpu, r == 0 ? -1 : other_cpu);
    }
    node->mailbox = node->peers[0].mailbox;
    node->cpu = -1;
    node->config = &config;
    assert_int_equal(disti_node_migrate_open(node), DIST_OK);
    node->stat_path = stat_path;
    here = moves = 0;
    disti_node_publish_cpu(node);
    return node;
}

static void free_ranks(struct disti_node *node)
{
    for (int r = 0; r < 2; r++)
        free(node->peers[r].mailbox);
    disti_node_migrate_close(node);
    free(node->peers);
    free(node);
}

static void poll_without_success(struct disti_node *node)
{
    for (int i = 0; i < POLLS; i++)
        disti_node_migrate_cpu(node);
}

/* Polls before and after a time in which all CPUs except `busy` were idle. Returns the number of
 * moves. */
static int poll_twice(struct disti_node *node, int busy)
{
    const int before = moves;

    write_stat(0, busy);
    poll_without_success(node);
    assert_int_equal(moves, before); /* idle times are not known yet */
    disti_sleep_ns(NAP_NS);
    write_stat(1000, busy);
    poll_without_success(node);
    return moves - before;
}

static void moves_to_an_idle_cpu(void **state)
{
    struct disti_node *node = pair_of_ranks(0);

    (void)state;
    assert_int_equal(poll_twice(node, 1), 1);
    assert_int_equal(here, 2);
    assert_int_equal(atomic_load(&node->mailbox->cpu), 2);
    free_ranks(node);
}

static void stays_if_no_cpu_is_idle(void **state)
{
    struct disti_node *node = pair_of_ranks(0);

    (void)state;
    assert_int_equal(poll_twice(node, CPUS), 0);
    free_ranks(node);
}

static void stays_if_the_other_rank_is_on_another_cpu(void **state)
{
    struct disti_node *node = pair_of_ranks(1);

    (void)state;
    assert_int_equal(poll_twice(node, -1), 0);
    free_ranks(node);
}

static void stays_if_ranks_outnumber_the_cpus(void **state)
{
    struct disti_node *node;

    (void)state;
    config.crowded = true;
    node = pair_of_ranks(0);
    config.crowded = false;
    assert_int_equal(poll_twice(node, -1), 0);
    free_ranks(node);
}

static void stays_if_moving_is_disabled(void **state)
{
    struct disti_node *node;

    (void)state;
    setenv("DIST_MIGRATE", "0", 1);
    node = pair_of_ranks(0);
    unsetenv("DIST_MIGRATE");
    assert_int_equal(poll_twice(node, -1), 0);
    free_ranks(node);
}

static void count_warning(void *arg, dist_log_level level, const char *line)
{
    int *warnings = arg;

    if (level == DIST_LOG_WARN && strstr(line, "DIST_STEP_ASIDE") && strstr(line, "DIST_MIGRATE=0"))
        ++*warnings;
}

static void the_old_name_works_with_one_warning(void **state)
{
    int warnings = 0;
    struct disti_log log = {.fn = count_warning, .arg = &warnings, .level = DIST_LOG_WARN};
    struct disti_node *node;

    (void)state;
    disti_log_use(&log);
    setenv("DIST_STEP_ASIDE", "0", 1);
    for (int i = 0; i < 2; i++) {
        node = pair_of_ranks(0);
        assert_int_equal(warnings, 1);
        assert_int_equal(poll_twice(node, -1), 0);
        free_ranks(node);
    }
    disti_log_use(NULL);
    unsetenv("DIST_STEP_ASIDE");
}

static void the_new_name_takes_precedence(void **state)
{
    struct disti_node *node;

    (void)state;
    setenv("DIST_STEP_ASIDE", "0", 1);
    setenv("DIST_MIGRATE", "1", 1);
    node = pair_of_ranks(0);
    unsetenv("DIST_STEP_ASIDE");
    unsetenv("DIST_MIGRATE");
    assert_int_equal(poll_twice(node, -1), 1);
    free_ranks(node);
}

/* The other rank is on this rank's CPU again after each move. */
static void moves_less_often_each_time(void **state)
{
    struct disti_node *node = pair_of_ranks(0);
    int64_t every_ns = node->migrate_every_ns;

    (void)state;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(poll_twice(node, -1), 1);
        atomic_store(&node->peers[1].mailbox->cpu, here);
        assert_true(node->migrate_every_ns >= 2 * every_ns);
        every_ns = node->migrate_every_ns;
        poll_without_success(node);
        assert_int_equal(moves, i + 1);
        /*
         * Simulate that the waiting time has passed and the idle times have not been read
         * meanwhile.
         */
        node->migrate_at_ns = 0;
        free(node->idle);
        node->idle = NULL;
    }
    free_ranks(node);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(moves_to_an_idle_cpu),
        cmocka_unit_test(stays_if_no_cpu_is_idle),
        cmocka_unit_test(stays_if_the_other_rank_is_on_another_cpu),
        cmocka_unit_test(stays_if_ranks_outnumber_the_cpus),
        cmocka_unit_test(stays_if_moving_is_disabled),
        cmocka_unit_test(the_old_name_works_with_one_warning),
        cmocka_unit_test(the_new_name_takes_precedence),
        cmocka_unit_test(moves_less_often_each_time),
    };
    const int fd = mkstemp(stat_path);
    int failed;

    if (fd < 0)
        return 99;
    close(fd);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(stat_path);
    return failed;
}
