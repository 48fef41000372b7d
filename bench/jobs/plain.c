/* SPDX-License-Identifier: BSD-3-Clause */
/* The ranks of this very job as a runner. */
#include "plain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct plain {
    struct runner runner; /* first */
    dist_group *group;
    struct driver *driver;
    struct buffers buffers;
    double *times; /* of this rank */
};

static void plain_close(struct plain *plain)
{
    if (plain->driver)
        buffers_free(&plain->buffers, plain->driver);
    libdist_free(plain->driver);
    free(plain->times);
    free(plain);
}

static dist_status plain_open(dist_group *group, const char *memory, struct plain **plain_p)
{
    struct plain *plain = calloc(1, sizeof(*plain));
    dist_status status;

    if (!plain)
        return DIST_ERR_NO_MEMORY;
    plain->group = group;
    plain->runner.ranks = dist_get_world_size(group);
    status = libdist_new(group, memory, &plain->driver);
    if (status != DIST_OK)
        plain_close(plain);
    else
        *plain_p = plain;
    return status;
}

/* The worst outcome of all ranks, and the words of the lowest that has it. Ranks get it alike. */
static dist_status plain_agree(struct plain *plain, enum outcome *outcome_p, char *reason)
{
    int32_t mine = (int32_t)*outcome_p, worst = 0;
    int32_t lowest = plain->runner.ranks, rank = plain->driver->rank;
    dist_status status;

    status = dist_all_reduce(plain->group, &mine, &worst, 1, DIST_INT32, DIST_MAX);
    *outcome_p = (enum outcome)worst;
    if (status != DIST_OK || worst == OUTCOME_TOOK)
        return status;
    if (mine != worst)
        rank = plain->runner.ranks;
    status = dist_all_reduce(plain->group, &rank, &lowest, 1, DIST_INT32, DIST_MIN);
    if (status != DIST_OK)
        return status;
    return dist_broadcast(plain->group, reason, MEASURE_REASON, DIST_UINT8, (int)lowest);
}

/* Runs the order; at rank 0 all_times gets everybody's. */
static enum outcome plain_run(struct plain *plain, const struct order *order, double *all_times,
                              char *reason)
{
    double *more = realloc(plain->times, (size_t)order->samples * sizeof(double));
    dist_status status = DIST_ERR_NO_MEMORY;
    enum outcome outcome;

    if (more) {
        plain->times = more;
        outcome = measure_run(plain->driver, &plain->buffers, order, more, reason);
        if (outcome == OUTCOME_FAILED)
            return outcome; /* the group has ended */
        status = plain_agree(plain, &outcome, reason);
    }
    if (status == DIST_OK)
        status =
            dist_gather(plain->group, more, all_times, (size_t)order->samples, DIST_FLOAT64, 0);
    if (status == DIST_OK)
        return outcome;
    snprintf(reason, MEASURE_REASON, "%s", dist_last_error());
    return OUTCOME_FAILED;
}

static enum outcome plain_turn(struct runner *runner, const struct order *order, double *times,
                               char *reason)
{
    struct plain *plain = (struct plain *)runner;
    char line[ORDER_LINE] = "";
    enum outcome outcome = OUTCOME_FAILED;

    order_write(order, line);
    if (dist_broadcast(plain->group, line, ORDER_LINE, DIST_UINT8, 0) == DIST_OK)
        outcome = plain_run(plain, order, times, reason);
    else
        snprintf(reason, MEASURE_REASON, "%s", dist_last_error());
    runner->gone = outcome == OUTCOME_FAILED;
    return outcome;
}

dist_status plain_new(dist_group *group, const char *memory, struct runner **runner_p)
{
    struct plain *plain = NULL;
    dist_status status = plain_open(group, memory, &plain);

    if (status != DIST_OK)
        return status;
    plain->runner.turn = plain_turn;
    *runner_p = &plain->runner;
    return DIST_OK;
}

void plain_free(struct runner *runner)
{
    char line[ORDER_LINE] = "quit\n";

    if (!runner)
        return;
    if (!runner->gone)
        dist_broadcast(((struct plain *)runner)->group, line, ORDER_LINE, DIST_UINT8, 0);
    plain_close((struct plain *)runner);
}

dist_status plain_serve(dist_group *group, const char *memory)
{
    struct plain *plain = NULL;
    char line[ORDER_LINE], reason[MEASURE_REASON] = "";
    struct order order;
    dist_status status = plain_open(group, memory, &plain);

    while (status == DIST_OK) {
        status = dist_broadcast(group, line, ORDER_LINE, DIST_UINT8, 0);
        if (status != DIST_OK || order_read(line, plain->runner.ranks, &order) != 0)
            break;
        if (plain_run(plain, &order, NULL, reason) == OUTCOME_FAILED)
            status = DIST_ERR_ABORTED;
    }
    if (plain)
        plain_close(plain);
    return status;
}
