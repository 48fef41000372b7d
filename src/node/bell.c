/* SPDX-License-Identifier: BSD-3-Clause */
/* Sleeping until a peer has reached a stage, and waking those that sleep. */
#include "node/state.h"

#include <fcntl.h>
#include <linux/membarrier.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/*
 * Who stores a stage and then looks who sleeps, and who says that it sleeps and then looks at the
 * stages, must not both look before the other's store is seen:
 *
 *     stage = 7                      mood = ASLEEP
 *     ------------ a fence on both sides, or one on all CPUs ------------
 *     mood == ASLEEP? ring           stage == 7? do not sleep
 *
 * A stage is stored in every call and drains the store buffer if it is fenced; a rank goes to sleep
 * rarely. So the one that sleeps has the kernel fence the CPUs of all processes that have
 * registered for it (membarrier(2)), and the other needs none. Where a rank cannot, all of them
 * fence.
 */
static bool bell_barrier(int command)
{
    return syscall(SYS_membarrier, command, 0, 0) == 0;
}

/* The bell is a pipe: a process of the same user can open it through the owner's descriptor. */
dist_status disti_node_bell_open(struct disti_node *node, struct node_hello *hello)
{
    struct stat info;

    if (pipe2(node->bell, O_CLOEXEC | O_NONBLOCK) < 0 || fstat(node->bell[1], &info) < 0)
        return DIST_ERR_SYSTEM;
    hello->fences = !bell_barrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED);
    hello->bell_fd = node->bell[1];
    hello->bell_inode = info.st_ino;
    return DIST_OK;
}

/* Opens the peer's bell; -1: it is gone. To read too: to write to a pipe without readers is a
 * signal that kills. */
static int bell_reach(const struct node_hello *hello)
{
    struct stat info;
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)hello->board.pid, (int)hello->bell_fd);
    if (stat(path, &info) < 0 || !S_ISFIFO(info.st_mode) ||
        (uint64_t)info.st_ino != hello->bell_inode)
        return -1;
    return open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
}

/* A full pipe has woken its owner already; one that sleeps deaf looks up by itself soon. */
static void bell_ring(struct disti_node *node, int rank)
{
    struct node_peer *peer = &node->peers[rank];

    if (peer->bell < 0)
        peer->bell = bell_reach(&node->hellos[rank]);
    if (peer->bell >= 0)
        (void)!write(peer->bell, "", 1);
}

/* What it has ended before, the others may end too. */
static void bell_miss(struct disti_node *node, int rank)
{
    uint64_t from = node->peers[rank].board->gave_up;

    if (node->gone >= 0 && node->gone_from <= from)
        return;
    node->gone = rank;
    node->gone_from = from;
}

/* Of several that see it asleep one rings. */
static void bell_rouse(struct disti_node *node, int rank)
{
    uint32_t mood = NODE_ASLEEP;

    if (atomic_compare_exchange_strong(&node->peers[rank].board->mood, &mood, NODE_AWAKE))
        bell_ring(node, rank);
    else if (mood == NODE_GONE)
        bell_miss(node, rank);
}

void disti_node_ring(struct disti_node *node)
{
    for (int r = 0; r < node->ranks; r++) {
        if (atomic_load_explicit(&node->peers[r].board->mood, memory_order_seq_cst) != NODE_AWAKE)
            bell_rouse(node, r);
    }
}

int disti_node_arm(struct disti_node *node, struct disti_node_op *op)
{
    node->armed = true;
    atomic_store_explicit(&node->board->mood, NODE_ASLEEP, memory_order_seq_cst);
    if (!node->fences && !bell_barrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED))
        return DIST_ARM_READY; /* it has worked when it was tried: without memory now, perhaps */
    return disti_node_ready(node, op) ? DIST_ARM_READY : node->bell[0];
}

void disti_node_disarm(struct disti_node *node)
{
    char rung[64];

    if (!node->armed)
        return;
    node->armed = false;
    atomic_store_explicit(&node->board->mood, NODE_AWAKE, memory_order_relaxed);
    while (read(node->bell[0], rung, sizeof(rung)) == (ssize_t)sizeof(rung))
        ;
}

void disti_node_abandon(struct disti_node *node, const struct disti_node_op *op)
{
    node->board->gave_up = op->number;
    atomic_store_explicit(&node->board->mood, NODE_GONE, memory_order_seq_cst);
    disti_node_ring(node);
}

void disti_node_miss(struct disti_node *node)
{
    for (int r = 0; r < node->ranks; r++) {
        if (atomic_load_explicit(&node->peers[r].board->mood, memory_order_acquire) == NODE_GONE)
            bell_miss(node, r);
    }
}
