/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two ranks on one CPU while another is free: the kernel often wakes a sleeper where its waker
 * runs, and leaves both there for milliseconds, in which neither gets on without the other's sleep.
 * So a rank that waits, and shares its CPU with another rank, goes to a free one.
 */
#include "base/clock.h"
#include "base/settings/config.h"
#include "node/state.h"

#include <sched.h>
#include <string.h>

/* Looks in vain, a microsecond or two, until it is asked why the other does not come. */
#define MIGRATE_LOOKS 64
/* Not more often than the kernel itself would. */
#define MIGRATE_EVERY_NS (1000 * 1000)

dist_status disti_node_migrate_open(struct disti_node *node)
{
    int wanted;
    dist_status status = disti_env_int("DIST_STEP_ASIDE", 0, 1, 1, &wanted);

    if (status == DIST_OK)
        node->stays = !wanted;
    return status;
}

void disti_node_publish_cpu(struct disti_node *node)
{
    int cpu = node ? sched_getcpu() : -1;

    if (!node || cpu == node->cpu)
        return;
    node->cpu = cpu;
    atomic_store_explicit(&node->board->cpu, cpu, memory_order_relaxed);
}

static int migrate_cpu_of(const struct disti_node *node, int rank)
{
    return atomic_load_explicit(&node->peers[rank].board->cpu, memory_order_relaxed);
}

static bool migrate_is_shared(const struct disti_node *node)
{
    for (int r = 0; r < node->ranks; r++) {
        if (r != node->rank && migrate_cpu_of(node, r) == node->cpu)
            return true;
    }
    return false;
}

/* The next CPU that this thread may use and no rank was last seen on; -1: none. */
static int migrate_free_cpu(const struct disti_node *node, const cpu_set_t *usable, int cpu)
{
    cpu_set_t free_cpus = *usable;

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

/* The kernel moves a thread at once when its CPU is no longer among those that it may use. */
static void migrate_go(const cpu_set_t *usable, int cpu)
{
    cpu_set_t only;

    CPU_ZERO(&only);
    CPU_SET((size_t)cpu, &only);
    if (sched_setaffinity(0, sizeof(only), &only) < 0 ||
        sched_setaffinity(0, sizeof(*usable), usable) == 0)
        return;
    memset(&only, 0xff, sizeof(only)); /* what it may use has changed meanwhile: all of that */
    (void)sched_setaffinity(0, sizeof(only), &only);
}

void disti_node_migrate_cpu(struct disti_node *node)
{
    cpu_set_t usable;
    int64_t now;
    int cpu;

    if (!node || node->stays || ++node->looks % MIGRATE_LOOKS != 0)
        return;
    disti_node_publish_cpu(node);
    if (!migrate_is_shared(node))
        return;
    now = disti_now_ns();
    if (now - node->migrate_ns < MIGRATE_EVERY_NS ||
        sched_getaffinity(0, sizeof(usable), &usable) < 0)
        return;
    cpu = migrate_free_cpu(node, &usable, node->cpu);
    if (cpu < 0)
        return;
    node->migrate_ns = now;
    migrate_go(&usable, cpu);
    disti_node_publish_cpu(node);
}
