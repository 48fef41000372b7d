/* SPDX-License-Identifier: BSD-3-Clause */
/* The choice between CMA and bounce buffers, with given times for both. */
#include "base/clock.h"
#include "node/state.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define RANKS 2
#define MEDIUM ((size_t)128 << 10)
#define SECOND ((int64_t)1000 * 1000 * 1000)
#define LONG ((size_t)16 << 20)

static struct disti_node *node;
static struct dist_backend_config config;

static const int64_t bounces_are_slow[2] = {90 * SECOND, 30 * SECOND};
static const int64_t kernel_is_slow[2] = {30 * SECOND, 90 * SECOND};
static int64_t kernel_sleeps_ns;

static struct node_mailbox *mailbox_make(void)
{
    struct node_mailbox *mailbox = aligned_alloc(_Alignof(struct node_mailbox), sizeof(*mailbox));

    if (mailbox)
        memset((void *)mailbox, 0, sizeof(*mailbox));
    return mailbox;
}

static int node_make(void **state)
{
    (void)state;
    node = calloc(1, sizeof(*node));
    if (!node)
        return -1;
    config = (struct dist_backend_config){.world_size = RANKS};
    node->config = &config;
    node->ranks = RANKS;
    node->cma = true;
    node->peers = calloc(RANKS, sizeof(*node->peers));
    for (int r = 0; node->peers && r < RANKS; r++)
        node->peers[r].mailbox = mailbox_make();
    node->mailbox = node->peers ? node->peers[0].mailbox : NULL;
    return node->mailbox && node->peers[1].mailbox ? 0 : -1;
}

static int node_free(void **state)
{
    (void)state;
    for (int r = 0; r < RANKS; r++)
        free(node->peers[r].mailbox);
    free(node->peers);
    free(node);
    return 0;
}

/* Makes a call of rank 0 that takes ns[true] with CMA, ns[false] with bounce buffers. True: CMA. */
static bool call_once(size_t bytes, const int64_t ns[2])
{
    struct disti_node_op op = {.call.collective = DIST_COLL_ALL_GATHER,
                               .element_bytes = 1,
                               .largest = bytes,
                               .method = NODE_METHOD_BOUNCES};

    disti_node_selector_choose(node, &op);
    assert_int_equal(op.method,
                     NODE_METHOD_BOUNCES); /* the data are too long for an overflow slot */
    disti_node_selector_publish(node, &op);
    op.method = op.cma ? NODE_METHOD_CMA : NODE_METHOD_BOUNCES;
    disti_node_selector_begin(node, &op);
    if (op.begun_ns && op.cma)
        disti_sleep_ns(kernel_sleeps_ns);
    if (op.begun_ns)
        op.begun_ns -= ns[op.cma];
    disti_node_selector_end(node, &op);
    return op.cma;
}

/* Makes `count` calls. Returns a character for each: 'k' if the kernel copies (CMA), 'b' if bounce
 * buffers are used. */
static const char *calls(size_t bytes, int count, const int64_t ns[2])
{
    static char text[64];

    for (int i = 0; i < count; i++)
        text[i] = call_once(bytes, ns) ? 'k' : 'b';
    text[count] = '\0';
    return text;
}

static void both_methods_are_tried(void **state)
{
    (void)state;
    assert_string_equal(calls(MEDIUM, 19, bounces_are_slow), "kkkkkkkkkkkkbbbbkkk");
}

static void long_calls_decide_after_fewer_calls(void **state)
{
    (void)state;
    assert_string_equal(calls(LONG, 13, bounces_are_slow), "kkkkkkbbbbkkk");
    assert_string_equal(calls(2 * LONG, 13, kernel_is_slow), "kkkkkkbbbbkbb");
}

static void the_faster_method_is_kept(void **state)
{
    (void)state;
    assert_string_equal(calls(MEDIUM, 19, kernel_is_slow), "kkkkkkkkkkkkbbbbkbb");
    config.crowded = true;
    assert_string_equal(calls(2 * MEDIUM, 19, kernel_is_slow), "kkkkkkkkkkkkbbbbkbb");
}

/* Ranks that share a CPU count their CPU time; the remaining time is work of other ranks. */
static void crowded_ranks_count_their_cpu_time(void **state)
{
    const int64_t ns[2] = {SECOND / 10, 0};

    (void)state;
    config.crowded = true;
    kernel_sleeps_ns = SECOND / 5;
    assert_string_equal(calls(LONG, 13, ns), "kkkkkkbbbbkkk");
    kernel_sleeps_ns = 0;
}

/* In the first trial, bounce buffers have not found their copy mode yet, so they may be a little
 * slower than CMA; in later trials they may not. */
static void bounces_may_be_a_little_slower_at_first(void **state)
{
    const int64_t ns[2] = {33 * SECOND, 30 * SECOND};

    (void)state;
    assert_string_equal(calls(LONG, 13, ns), "kkkkkkbbbbkbb");
    calls(LONG, 51, ns);
    assert_string_equal(calls(LONG, 13, ns), "bbkkkkbbbbkkk");
}

/* The times that the other rank publishes count as much as this rank's own. */
static void all_ranks_times_are_added(void **state)
{
    uint64_t *shown = node->peers[1].mailbox->slots[0].locations.selector_ns;

    (void)state;
    shown[true] = UINT64_C(1) << 40;
    assert_string_equal(calls(LONG, 13, bounces_are_slow), "kkkkkkbbbbkbb");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(both_methods_are_tried, node_make, node_free),
        cmocka_unit_test_setup_teardown(long_calls_decide_after_fewer_calls, node_make, node_free),
        cmocka_unit_test_setup_teardown(the_faster_method_is_kept, node_make, node_free),
        cmocka_unit_test_setup_teardown(crowded_ranks_count_their_cpu_time, node_make, node_free),
        cmocka_unit_test_setup_teardown(bounces_may_be_a_little_slower_at_first, node_make,
                                        node_free),
        cmocka_unit_test_setup_teardown(all_ranks_times_are_added, node_make, node_free),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
