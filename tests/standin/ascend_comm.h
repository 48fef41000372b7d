/* SPDX-License-Identifier: BSD-3-Clause */
/* Stand-in for Ascend: the internals of an HCCL communicator. */
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

/* HcclSendRecvItem with the address that the stand-in can access. */
struct ascend_item {
    int type;
    void *data;
    uint64_t count;
    int dtype;
    uint32_t peer;
};

/* A message in progress. */
struct ascend_part {
    bool sends;
    int peer;
    char *data;
    uint64_t bytes, moved;
    uint64_t head[2], head_moved; /* kind and length; must be equal on both sides */
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

void ascend_sleep(void);

/* Waits in the first call until all ranks have made theirs. */
int ascend_link(struct ascend_comm *comm);

/* Transfers all parts; `what` must be equal on both sides. */
int ascend_exchange(struct ascend_comm *comm, struct ascend_part *parts, int count, uint64_t what);

/* ---- ascend_operation.c ---- */

/* Executes an operation as a task of a stream. Frees nothing. */
int ascend_operation_run(void *arg);

#endif
