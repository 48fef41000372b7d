/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Moves a waiting rank that shares its CPU with another rank to an idle CPU. The kernel often wakes
 * a thread on the CPU of the waking thread, and may leave both threads there, so that one makes
 * progress only while the other sleeps.
 *
 * If there are more ranks than CPUs, or other programs use the CPUs, no CPU is idle for long. The
 * kernel's own balancing is then better, so ranks do not migrate.
 */
#include "base/clock.h"
#include "base/log.h"
#include "base/settings/config.h"
#include "node/state.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Number of unsuccessful polls between two checks; they take 1 to 2 us. */
#define MIGRATE_POLLS 64
/* Shortest time between two counts of idle time. The kernel counts in units of 10 ms. */
#define MIGRATE_IDLE_NS (50LL * 1000 * 1000)
/* Longest time between two counts; older counts are not used. */
#define MIGRATE_STALE_NS (500LL * 1000 * 1000)
/*
 * Shortest and longest interval between two searches for an idle CPU. The interval doubles after
 * each search.
 */
#define MIGRATE_EVERY_NS (50LL * 1000 * 1000)
#define MIGRATE_EVERY_MOST_NS (1000LL * 1000 * 1000)
/* A CPU counts as idle if it was busy for less than 1/10 of the time. */
#define MIGRATE_BUSY_SHARE 10

/* Idle time of each CPU, in clock ticks. */
struct node_idle {
    int64_t at_ns;
    unsigned long long ticks[CPU_SETSIZE];
};

dist_status disti_node_migrate_open(struct disti_node *node)
{
    static atomic_flag warned = ATOMIC_FLAG_INIT;
    const char *old_name = disti_env_raw("DIST_STEP_ASIDE");
    const bool uses_old_name = old_name && !disti_env_raw("DIST_MIGRATE");
    int wanted;
    dist_status status =
        disti_variable_int(uses_old_name ? "DIST_STEP_ASIDE" : "DIST_MIGRATE", 1, &wanted);

    if (uses_old_name && !atomic_flag_test_and_set(&warned))
        disti_warn("DIST_STEP_ASIDE has been renamed to DIST_MIGRATE; the next release ignores the "
                   "old name. Set DIST_MIGRATE=%s instead",
                   old_name);
    if (status == DIST_OK)
        node->stays = !wanted || disti_node_is_crowded(node);
    node->migrate_every_ns = MIGRATE_EVERY_NS;
    node->stat_path = "/proc/stat";
    return status;
}

void disti_node_migrate_close(struct disti_node *node)
{
    free(node->idle);
}

/* ---- idle CPUs ---- */

/* Reads /proc/stat: "cpu3 user nice system idle iowait ...". Offline CPUs have no line. */
static bool migrate_read_idle(const char *path, struct node_idle *idle)
{
    FILE *file = fopen(path, "re");
    unsigned long long ticks, waiting;
    char *line = NULL;
    size_t capacity = 0;
    unsigned cpu;

    if (!file)
        return false;
    memset(idle->ticks, 0, sizeof(idle->ticks));
    idle->at_ns = disti_now_ns();
    while (getline(&line, &capacity, file) > 0 && strncmp(line, "cpu", 3) == 0) {
        if (sscanf(line, "cpu%u %*u %*u %*u %llu %llu", &cpu, &ticks, &waiting) == 3 &&
            cpu < CPU_SETSIZE)
            idle->ticks[cpu] = ticks + waiting;
    }
    free(line);
    fclose(file);
    return true;
}

/*
 * Removes the CPUs that have not been idle since the last count from *cpus, and counts again.
 * Returns false if there was no last count, or if it is too recent or too old.
 */
static bool migrate_keep_idle(struct disti_node *node, cpu_set_t *cpus)
{
    const long hertz = sysconf(_SC_CLK_TCK);
    struct node_idle *now = malloc(sizeof(*now)), *before = node->idle;
    int64_t passed_ns;
    bool is_recent;

    if (!now || hertz <= 0 || !migrate_read_idle(node->stat_path, now)) {
        free(now);
        return false;
    }
    node->idle = now;
    passed_ns = before ? now->at_ns - before->at_ns : 0;
    is_recent = passed_ns >= MIGRATE_IDLE_NS && passed_ns < MIGRATE_STALE_NS;
    for (size_t cpu = 0; is_recent && cpu < CPU_SETSIZE; cpu++) {
        const int64_t idle_ns =
            (int64_t)(now->ticks[cpu] - before->ticks[cpu]) * (1000000000 / hertz);

        if (idle_ns < passed_ns - passed_ns / MIGRATE_BUSY_SHARE - 1000000000 / hertz)
            CPU_CLR(cpu, cpus);
    }
    free(before);
    return is_recent;
}

void disti_node_publish_cpu(struct disti_node *node)
{
    int cpu = node ? sched_getcpu() : -1;

    if (!node || cpu == node->cpu)
        return;
    node->cpu = cpu;
    atomic_store_explicit(&node->mailbox->cpu, cpu, memory_order_relaxed);
}

static int migrate_cpu_of(const struct disti_node *node, int rank)
{
    return atomic_load_explicit(&node->peers[rank].mailbox->cpu, memory_order_relaxed);
}

static bool migrate_is_shared(const struct disti_node *node)
{
    for (int r = 0; r < node->ranks; r++) {
        if (r != node->rank && migrate_cpu_of(node, r) == node->cpu)
            return true;
    }
    return false;
}

/*
 * Returns the next idle CPU, after `cpu`, that this thread may use and on which no rank was last
 * seen; -1: there is none.
 */
static int migrate_free_cpu(struct disti_node *node, const cpu_set_t *usable, int cpu)
{
    cpu_set_t free_cpus = *usable;

    if (!migrate_keep_idle(node, &free_cpus))
        return -1;
    node->migrate_at_ns = disti_now_ns() + node->migrate_every_ns;
    if (node->migrate_every_ns < MIGRATE_EVERY_MOST_NS)
        node->migrate_every_ns *= 2;
    for (int r = 0; r < node->ranks; r++) {
        int theirs = migrate_cpu_of(node, r);

        if (theirs >= 0 && theirs < CPU_SETSIZE)
            CPU_CLR((size_t)theirs, &free_cpus);
    }
    for (int i = 1; i < CPU_SETSIZE; i++) {
        if (CPU_ISSET((size_t)((cpu + i) % CPU_SETSIZE), &free_cpus))
            return (cpu + i) % CPU_SETSIZE;
    }
    return -1;
}

/*
 * Moves this thread to `cpu`: allows only that CPU for a moment, so that the kernel moves the
 * thread at once, and then the CPUs in *usable again.
 */
static void migrate_to(const cpu_set_t *usable, int cpu)
{
    cpu_set_t only;

    CPU_ZERO(&only);
    CPU_SET((size_t)cpu, &only);
    if (sched_setaffinity(0, sizeof(only), &only) < 0 ||
        sched_setaffinity(0, sizeof(*usable), usable) == 0)
        return;
    /* The cpuset has changed in the meantime: allows all CPUs of the new cpuset. */
    memset(&only, 0xff, sizeof(only));
    (void)sched_setaffinity(0, sizeof(only), &only);
}

void disti_node_migrate_cpu(struct disti_node *node)
{
    cpu_set_t usable;
    int64_t now;
    int cpu;

    if (!node || node->stays || ++node->failed_polls % MIGRATE_POLLS != 0)
        return;
    disti_node_publish_cpu(node);
    if (!migrate_is_shared(node))
        return;
    now = disti_now_ns();
    if (now < node->migrate_at_ns || sched_getaffinity(0, sizeof(usable), &usable) < 0)
        return;
    node->migrate_at_ns = now + MIGRATE_IDLE_NS;
    cpu = migrate_free_cpu(node, &usable, node->cpu);
    if (cpu < 0)
        return;
    migrate_to(&usable, cpu);
    disti_node_publish_cpu(node);
}
