/* SPDX-License-Identifier: BSD-3-Clause */
/* Stand-in for Ascend: a communicator of HCCL, inside. */
#ifndef TESTS_STANDIN_ASCEND_COMM_H
#define TESTS_STANDIN_ASCEND_COMM_H

#include "standin/ascend.h"

#include <stdatomic.h>

struct ascend_shared;

struct ascend_comm {
    struct ascend_shared *shared;
    size_t bytes;
    int ranks, rank;
    bool is_linked;
    long calls;
    atomic_int busy, gone, error;
    atomic_ullong turn;
};

/* HcclSendRecvItem, with what the stand-in can reach. */
struct ascend_item {
    int type;
    void *data;
    uint64_t count;
    int dtype;
    uint32_t peer;
};

/* A message on its way. */
struct ascend_part {
    bool sends;
    int peer;
    char *data;
    uint64_t bytes, moved;
    uint64_t head[2], head_moved; /* what it is, and its length; both sides must say the same */
};

enum ascend_kind {
    ALL_REDUCE = 1,
    BROADCAST,
    REDUCE,
    ALL_GATHER,
    REDUCE_SCATTER,
    SCATTER,
    ALL_TO_ALL,
    PAIRS,
    BARRIER
};

struct ascend_operation {
    struct ascend_comm *comm;
    uint64_t turn;
    enum ascend_kind kind;
    char *in, *out;
    uint64_t count;
    int dtype, op, root;
    bool hangs, fails;
    int items;
    struct ascend_item item[];
};

/* ---- ascend_comm.c ---- */

void ascend_nap(void);

/* The first call's: waits until all ranks have come to theirs. */
int ascend_link(struct ascend_comm *comm);

/* Moves all parts, which are `what` on both sides. */
int ascend_exchange(struct ascend_comm *comm, struct ascend_part *parts, int count, uint64_t what);

/* ---- ascend_operation.c ---- */

/* A task of a stream: does the operation, and frees nothing. */
int ascend_operation_run(void *arg);

#endif
