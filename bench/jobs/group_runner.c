/* SPDX-License-Identifier: BSD-3-Clause */
/* The ranks of this very job as a runner. */
#include "group_runner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct group_runner {
    struct runner runner; /* first */
    dist_group *group;
    struct driver *driver;
    struct buffers buffers;
    double *times; /* of this rank */
};

static void group_runner_close(struct group_runner *self)
{
    if (self->driver)
        buffers_free(&self->buffers, self->driver);
    libdist_free(self->driver);
    free(self->times);
    free(self);
}

static dist_status group_runner_open(dist_group *group, const char *memory,
                                     struct group_runner **self_p)
{
    struct group_runner *self = calloc(1, sizeof(*self));
    dist_status status;

    if (!self)
        return DIST_ERR_NO_MEMORY;
    self->group = group;
    self->runner.ranks = dist_get_world_size(group);
    status = libdist_new(group, memory, &self->driver);
    if (status != DIST_OK)
        group_runner_close(self);
    else
        *self_p = self;
    return status;
}

/* The worst outcome of all ranks, and the words of the lowest that has it. Ranks get it alike. */
static dist_status group_runner_combine(struct group_runner *self, enum outcome *outcome_p,
                                        char *reason)
{
    int32_t mine = (int32_t)*outcome_p, worst = 0;
    int32_t lowest = self->runner.ranks, rank = self->driver->rank;
    dist_status status;

    status = dist_all_reduce(self->group, &mine, &worst, 1, DIST_INT32, DIST_MAX);
    *outcome_p = (enum outcome)worst;
    if (status != DIST_OK || worst == OUTCOME_TOOK)
        return status;
    if (mine != worst)
        rank = self->runner.ranks;
    status = dist_all_reduce(self->group, &rank, &lowest, 1, DIST_INT32, DIST_MIN);
    if (status != DIST_OK)
        return status;
    return dist_broadcast(self->group, reason, MEASURE_REASON, DIST_UINT8, (int)lowest);
}

/* Runs the order; at rank 0 all_times gets everybody's. */
static enum outcome group_runner_run(struct group_runner *self, const struct order *order,
                                     double *all_times, char *reason)
{
    double *more = realloc(self->times, (size_t)order->samples * sizeof(double));
    dist_status status = DIST_ERR_NO_MEMORY;
    enum outcome outcome;

    if (more) {
        self->times = more;
        outcome = measure_run(self->driver, &self->buffers, order, more, reason);
        if (outcome == OUTCOME_FAILED)
            return outcome; /* the group has ended */
        status = group_runner_combine(self, &outcome, reason);
    }
    if (status == DIST_OK)
        status = dist_gather(self->group, more, all_times, (size_t)order->samples, DIST_FLOAT64, 0);
    if (status == DIST_OK)
        return outcome;
    snprintf(reason, MEASURE_REASON, "%s", dist_last_error());
    return OUTCOME_FAILED;
}

static enum outcome group_runner_turn(struct runner *runner, const struct order *order,
                                      double *times, char *reason)
{
    struct group_runner *self = (struct group_runner *)runner;
    char line[ORDER_LINE] = "";
    enum outcome outcome = OUTCOME_FAILED;

    order_write(order, line);
    if (dist_broadcast(self->group, line, ORDER_LINE, DIST_UINT8, 0) == DIST_OK)
        outcome = group_runner_run(self, order, times, reason);
    else
        snprintf(reason, MEASURE_REASON, "%s", dist_last_error());
    runner->gone = outcome == OUTCOME_FAILED;
    return outcome;
}

dist_status group_runner_new(dist_group *group, const char *memory, struct runner **runner_p)
{
    struct group_runner *self = NULL;
    dist_status status = group_runner_open(group, memory, &self);

    if (status != DIST_OK)
        return status;
    self->runner.turn = group_runner_turn;
    *runner_p = &self->runner;
    return DIST_OK;
}

void group_runner_free(struct runner *runner)
{
    char line[ORDER_LINE] = "quit\n";

    if (!runner)
        return;
    if (!runner->gone)
        dist_broadcast(((struct group_runner *)runner)->group, line, ORDER_LINE, DIST_UINT8, 0);
    group_runner_close((struct group_runner *)runner);
}

dist_status group_runner_serve(dist_group *group, const char *memory)
{
    struct group_runner *self = NULL;
    char line[ORDER_LINE], reason[MEASURE_REASON] = "";
    struct order order;
    dist_status status = group_runner_open(group, memory, &self);

    while (status == DIST_OK) {
        status = dist_broadcast(group, line, ORDER_LINE, DIST_UINT8, 0);
        if (status != DIST_OK || order_read(line, self->runner.ranks, &order) != 0)
            break;
        if (group_runner_run(self, &order, NULL, reason) == OUTCOME_FAILED)
            status = DIST_ERR_ABORTED;
    }
    if (self)
        group_runner_close(self);
    return status;
}
