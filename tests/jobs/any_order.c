/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * any_order BACKEND STEPS [SEED]: the ranks make up to eight groups. In each step they post the
 * same random collectives on the groups and wait for them, each rank in a random order of its own.
 * Between the waits they make one more call that needs all ranks of a group: a collective, a
 * barrier by the store, the creation of a group, or messages around a ring. Every result is
 * checked. Prints the seed; the same seed repeats the same steps.
 */
#include "any_order.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define AT_ONCE 12
#define TIMEOUT_MS (getenv("CHECK_WATCHED") ? 300000 : 30000)

static struct order_group groups[ORDER_GROUPS];
static int group_count;

uint64_t order_next(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

int order_below(uint64_t *state, int most)
{
    return (int)(order_next(state) % (uint64_t)most);
}

static void shuffle(uint64_t *state, int *numbers, int count)
{
    for (int i = 0; i < count; i++)
        numbers[i] = i;
    for (int i = count - 1; i > 0; i--) {
        int j = order_below(state, i + 1), kept = numbers[i];

        numbers[i] = numbers[j];
        numbers[j] = kept;
    }
}

/* Makes groups of at least two ranks in random order; the first group contains all ranks. */
static dist_status make_groups(uint64_t *shared, dist_group *world)
{
    int size = dist_get_world_size(world), ranks[ORDER_RANKS];
    dist_status status = DIST_OK;

    groups[0] = (struct order_group){world, dist_get_rank(world), size};
    group_count = 2 + order_below(shared, ORDER_GROUPS - 1);
    for (int g = 1; g < group_count && status == DIST_OK; g++) {
        int count = 2 + order_below(shared, size - 1);

        shuffle(shared, ranks, size);
        status = dist_new_group(world, ranks, count, NULL, &groups[g].group);
        groups[g].size = count;
        groups[g].rank = groups[g].group ? dist_get_rank(groups[g].group) : -1;
    }
    return status;
}

/* Posts the calls of each group in order; the groups are interleaved in a random order of this
 * rank. */
static dist_status post_all(uint64_t *own, struct order_call *calls, int count)
{
    int next[ORDER_GROUPS] = {0}, left = count;
    dist_status status = DIST_OK;

    while (left > 0 && status == DIST_OK) {
        int g = order_below(own, group_count);

        while (next[g] < count && calls[next[g]].group != &groups[g])
            next[g]++;
        if (next[g] == count)
            continue;
        status = order_post(&calls[next[g]++]);
        left--;
    }
    return status;
}

/* Waits by dist_wait, by repeated dist_test, or by dist_wait_for with short timeouts. */
static dist_status wait_somehow(uint64_t *own, dist_work *work)
{
    dist_status status = DIST_IN_PROGRESS;
    int way = order_below(own, 3);
    bool done = way != 1;

    while (!done) {
        sched_yield();
        status = dist_test(work, &done);
        if (status != DIST_OK)
            return status;
    }
    if (way < 2)
        return dist_wait(work);
    while (status == DIST_IN_PROGRESS)
        status = dist_wait_for(work, 3);
    return status;
}

/* Makes one call that waits for all ranks of a group. */
static dist_status meet(int way, struct order_group *g)
{
    dist_group *made = NULL;
    int right = (g->rank + 1) % g->size, left = (g->rank + g->size - 1) % g->size;
    int32_t gives = g->rank, gets = -1;
    dist_status status = DIST_OK;

    if (g->rank < 0)
        return DIST_OK;
    switch (way) {
    case 0:
        return dist_barrier(g->group);
    case 1:
        return dist_monitored_barrier(g->group, TIMEOUT_MS);
    case 2:
        status = dist_dup_group(g->group, NULL, &made);
        return status == DIST_OK ? dist_destroy_process_group(made) : status;
    case 3:
        dist_group_start();
        dist_send(g->group, &gives, 1, DIST_INT32, right, 7);
        dist_recv(g->group, &gets, 1, DIST_INT32, left, 7, NULL);
        status = dist_group_end();
        break;
    default:
        status = dist_all_reduce(g->group, &gives, &gets, 1, DIST_INT32, DIST_SUM);
        left = g->size * (g->size - 1) / 2;
    }
    return status != DIST_OK || gets == left ? status : DIST_ERR_INTERNAL;
}

static int step(uint64_t *shared, uint64_t *own, int number)
{
    struct order_call calls[AT_ONCE];
    struct order_group *place = &groups[order_below(shared, group_count)];
    int way = order_below(shared, 5), count = 1 + order_below(shared, AT_ONCE), mine[AT_ONCE + 1];
    int failures = 0;
    dist_status status = DIST_OK;

    for (int i = 0; i < count && status == DIST_OK; i++)
        status = order_draw(shared, own, &groups[order_below(shared, group_count)],
                            number * AT_ONCE + i, &calls[i]);
    if (status == DIST_OK)
        status = post_all(own, calls, count);
    shuffle(own, mine, count + 1);
    for (int i = 0; i <= count && status == DIST_OK; i++) {
        struct order_call *call = &calls[mine[i] % AT_ONCE];

        if (mine[i] == count)
            status = meet(way, place);
        else if (call->work)
            status = wait_somehow(own, call->work);
    }
    if (status != DIST_OK) {
        printf("step %d: %s: %s\n", number, dist_status_string(status), dist_last_error());
        return 1;
    }
    for (int i = 0; i < count; i++)
        failures += order_check(&calls[i]);
    return failures;
}

/* Returns rank 0's seed on all ranks. */
static uint64_t agree_on_seed(dist_group *world, const char *given)
{
    uint64_t seed = given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL) * 1000003;

    if (dist_broadcast(world, &seed, 1, DIST_UINT64, 0) != DIST_OK)
        printf("seed: %s\n", dist_last_error());
    if (dist_get_rank(world) == 0)
        printf("seed %" PRIu64 "\n", seed);
    fflush(stdout);
    return seed;
}

int main(int argc, char **argv)
{
    struct dist_options options = DIST_OPTIONS_INIT;
    dist_group *world;
    uint64_t shared, own;
    int failures = 0;

    if (argc < 3)
        return 2;
    options.backend = argv[1];
    options.timeout_ms = TIMEOUT_MS;
    if (dist_init_process_group(&options, &world) != DIST_OK) {
        printf("init: %s\n", dist_last_error());
        return 1;
    }
    shared = agree_on_seed(world, argc > 3 ? argv[3] : NULL);
    own = shared * 31 + (uint64_t)dist_get_rank(world);
    if (make_groups(&shared, world) != DIST_OK) {
        printf("groups: %s\n", dist_last_error());
        return 1;
    }
    for (int i = 0; i < atoi(argv[2]) && !failures; i++)
        failures = step(&shared, &own, i);
    if (!failures && dist_destroy_process_group(world) != DIST_OK) {
        printf("destroy: %s\n", dist_last_error());
        failures++;
    }
    return failures ? 1 : 0;
}
