/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How long the ranks take, and who waits for whom. In a step all ranks have the reduced gradients
 * at about the same moment, so the one that waits least is the last that comes; what another rank
 * waits longer than that, it waits for the last one. The rest is communication.
 */
#ifndef TRAIN_RECORDS_BALANCE_H
#define TRAIN_RECORDS_BALANCE_H

#include <dist/dist.h>

#include "records.h"

/* Where a step's time goes, all ranks' parts told apart. */
enum balance_part {
    BALANCE_FORWARD,
    BALANCE_BACKWARD,
    BALANCE_UPDATE,
    BALANCE_DATA,
    BALANCE_COMMUNICATION, /* that nothing hides */
    BALANCE_WAITING,       /* for the slowest rank */
    BALANCE_OTHER,         /* loss, lines, checkpoints */
    BALANCE_PARTS
};

/* Seconds of a rank's steps, added up. */
struct balance_rank {
    double seconds[BALANCE_PARTS];
    double steps;
};

enum { BALANCE_ROOM = 1024 }; /* steps between two comparisons */

struct balance {
    struct balance_rank own;
    float waits[BALANCE_ROOM], least[BALANCE_ROOM]; /* of steps not compared yet; over the ranks */
    int pending;
    struct balance_rank *ranks; /* of each rank, as it was when it was gathered last */
    int world;
};

int balance_open(int world, struct balance *balance);
void balance_close(struct balance *balance);

/* Collective once in BALANCE_ROOM steps. */
dist_status balance_step(struct balance *balance, dist_group *group,
                         const struct record_step *step);

/* Brings balance->ranks up to date. Collective. */
dist_status balance_gather(struct balance *balance, dist_group *group);

#endif
