/* SPDX-License-Identifier: BSD-3-Clause */
/* Stepping aside: to a CPU that no rank is on, and only from another rank's. */
#include "node/state.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <sched.h>
#include <cmocka.h>

static cpu_set_t usable;

/* Two ranks, this one being rank 0; the other was last seen on that CPU. */
static struct disti_node *pair_of_ranks(int other_cpu)
{
    struct disti_node *node = calloc(1, sizeof(*node));

    assert_non_null(node);
    node->ranks = 2;
    node->peers = calloc(2, sizeof(*node->peers));
    assert_non_null(node->peers);
    for (int r = 0; r < 2; r++) {
        node->peers[r].board = aligned_alloc(NODE_APART, sizeof(struct node_board));
        assert_non_null(node->peers[r].board);
        atomic_init(&node->peers[r].board->cpu, r == 0 ? -1 : other_cpu);
    }
    node->board = node->peers[0].board;
    node->cpu = -1;
    return node;
}

static void free_ranks(struct disti_node *node)
{
    for (int r = 0; r < 2; r++)
        free(node->peers[r].board);
    free(node->peers);
    free(node);
}

/* Stays where it is put until it is put elsewhere, but may use all of `usable`. */
static int put_on_some_cpu(void)
{
    cpu_set_t only;
    int cpu = 0;

    while (!CPU_ISSET((size_t)cpu, &usable))
        cpu++;
    CPU_ZERO(&only);
    CPU_SET((size_t)cpu, &only);
    assert_int_equal(sched_setaffinity(0, sizeof(only), &only), 0);
    assert_int_equal(sched_setaffinity(0, sizeof(usable), &usable), 0);
    return cpu;
}

/* Whether a step was taken, as the clock of the last one says. */
static bool steps_migrate(struct disti_node *node)
{
    cpu_set_t after;

    node->migrate_ns = 0;
    disti_node_publish_cpu(node);
    for (int i = 0; i < 1000; i++)
        disti_node_migrate_cpu(node);
    assert_int_equal(sched_getaffinity(0, sizeof(after), &after), 0);
    assert_true(CPU_EQUAL(&after, &usable));
    return node->migrate_ns != 0;
}

static void it_leaves_another_ranks_cpu(void **state)
{
    bool left = false;

    (void)state;
    if (CPU_COUNT(&usable) < 2)
        skip();
    /* The kernel may move this thread before it looks, or back: rarely each time. */
    for (int i = 0; i < 100 && !left; i++) {
        int cpu = put_on_some_cpu();
        struct disti_node *node = pair_of_ranks(cpu);

        left =
            steps_migrate(node) && node->cpu != cpu && atomic_load(&node->board->cpu) == node->cpu;
        free_ranks(node);
    }
    assert_true(left);
}

static void it_stays_if_the_other_is_elsewhere_or_it_shall(void **state)
{
    struct disti_node *elsewhere = pair_of_ranks(CPU_SETSIZE + 7), *here = pair_of_ranks(0);

    (void)state;
    assert_false(steps_migrate(elsewhere));
    here->stays = true;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        atomic_store(&here->peers[1].board->cpu, cpu);
        assert_false(steps_migrate(here));
    }
    free_ranks(elsewhere);
    free_ranks(here);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_leaves_another_ranks_cpu),
        cmocka_unit_test(it_stays_if_the_other_is_elsewhere_or_it_shall),
    };

    if (sched_getaffinity(0, sizeof(usable), &usable) < 0)
        return 99;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
