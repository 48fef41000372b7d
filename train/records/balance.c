/* SPDX-License-Identifier: BSD-3-Clause */
/* How long the ranks take. */
#include "balance.h"

#include <stdlib.h>

#include "train/failure.h"

int balance_open(int world, struct balance *balance)
{
    balance->world = world;
    balance->ranks = calloc((size_t)world, sizeof(*balance->ranks));
    return balance->ranks ? 0 : failure("out of memory");
}

void balance_close(struct balance *balance)
{
    free(balance->ranks);
    balance->ranks = NULL;
}

/* Divides the waits since the last time into communication and waiting for others. */
static dist_status balance_compare(struct balance *balance, dist_group *group)
{
    dist_status status;

    if (balance->pending == 0)
        return DIST_OK;
    status = dist_all_reduce(group, balance->waits, balance->least, (size_t)balance->pending,
                             DIST_FLOAT32, DIST_MIN);
    for (int i = 0; i < balance->pending && status == DIST_OK; i++) {
        balance->own.seconds[BALANCE_COMMUNICATION] += balance->least[i];
        balance->own.seconds[BALANCE_WAITING] += balance->waits[i] - balance->least[i];
    }
    balance->pending = 0;
    return status;
}

static void balance_add(struct balance_rank *own, const struct record_step *step)
{
    static const enum balance_part parts[RECORD_IN_STEP] = {
        [RECORD_DATA] = BALANCE_DATA,         [RECORD_FORWARD] = BALANCE_FORWARD,
        [RECORD_BACKWARD] = BALANCE_BACKWARD, [RECORD_WAIT] = BALANCE_PARTS,
        [RECORD_UPDATE] = BALANCE_UPDATE,
    };
    double other = step->seconds;

    for (int i = 0; i < RECORD_IN_STEP; i++) {
        other -= step->parts[i];
        if (parts[i] != BALANCE_PARTS)
            own->seconds[parts[i]] += step->parts[i];
    }
    own->seconds[BALANCE_OTHER] += other > 0 ? other : 0;
    own->steps++;
}

dist_status balance_step(struct balance *balance, dist_group *group, const struct record_step *step)
{
    balance_add(&balance->own, step);
    balance->waits[balance->pending++] = (float)step->parts[RECORD_WAIT];
    return balance->pending == BALANCE_ROOM ? balance_compare(balance, group) : DIST_OK;
}

dist_status balance_gather(struct balance *balance, dist_group *group)
{
    dist_status status = balance_compare(balance, group);

    if (status == DIST_OK)
        status = dist_all_gather(group, &balance->own, balance->ranks,
                                 sizeof(balance->own) / sizeof(double), DIST_FLOAT64);
    return status;
}
