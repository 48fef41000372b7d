/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Cross-memory attach: the kernel copies between the memory of two processes (process_vm_readv(2)),
 * once, where a window takes two copies. It may refuse (ptrace_scope, containers, seccomp), or not
 * reach some memory (a device's). Only a copy shows that; so whoever fails says so when all have
 * done their part, and the call begins again with windows.
 */
#include "base/clock.h"
#include "base/log.h"
#include "base/process/reach.h"
#include "base/settings/config.h"
#include "node/state.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/uio.h>

/* A rank that gives a call up waits for so long for peers that write to its memory. */
#define CMA_DRAIN_MS 1000

dist_status disti_node_cma_open(struct disti_node_hello *hello)
{
    int wanted;
    dist_status status = disti_env_int("DIST_SHM_CMA", 0, 1, 1, &wanted);

    if (status == DIST_OK)
        hello->cma = wanted;
    return status;
}

typedef ssize_t (*cma_call)(int pid, const struct iovec *here, const struct iovec *there);

static int cma_pid(const struct disti_node *node, int rank)
{
    return node->hellos[rank].pid;
}

static void cma_copy(struct disti_node *node, struct disti_node_op *op, int rank, cma_call call,
                     void *here, size_t bytes, const struct iovec *there)
{
    int32_t *failed = &node_slot(node->board, op)->failed;
    struct iovec own = {.iov_base = here, .iov_len = bytes};
    ssize_t copied;

    if (*failed)
        return;
    copied = call(cma_pid(node, rank), &own, there);
    if (copied < 0)
        *failed = errno;
    else if ((size_t)copied < bytes)
        *failed = EFAULT;
}

void disti_node_cma_get(struct disti_node *node, struct disti_node_op *op, int rank, void *to,
                        uint64_t from, size_t bytes)
{
    struct iovec there = {.iov_base = (void *)(uintptr_t)from, .iov_len = bytes};

    cma_copy(node, op, rank, disti_process_read, to, bytes, &there);
}

/*
 * A rank that has given up may use its memory for something else. So a peer says that it writes
 * before it looks whether the rank is there, and the rank says that it is gone before it looks who
 * writes:
 *
 *     writes_to = rank               presence = GONE
 *     presence == GONE? no write     writes_to == rank? written = nothing
 *     write to `written`             wait while writes_to == rank
 *
 * The peer may be stopped between its look and its write, for longer than anybody waits. So the
 * place that it gives to the kernel stands on its board, and the rank takes it away: the kernel,
 * which reads it as the write begins, then writes nothing. What is waited for is a write under way.
 *
 * So it is where a rank itself stores into memory that it sees, a bite at a time (op.c); but for
 * one that is stopped in the middle of a bite, which nobody can keep from going on.
 */
void disti_node_cma_put(struct disti_node *node, struct disti_node_op *op, int rank, uint64_t to,
                        const void *from, size_t bytes)
{
    _Atomic int32_t *writes_to = &node->board->writes_to;
    struct iovec *written = &node->board->written;
    int32_t before = atomic_load_explicit(writes_to, memory_order_relaxed);

    *written = (struct iovec){.iov_base = (void *)(uintptr_t)to, .iov_len = bytes};
    atomic_store_explicit(writes_to, rank, memory_order_seq_cst);
    if (atomic_load_explicit(&node->peers[rank].board->presence, memory_order_seq_cst) != NODE_GONE)
        cma_copy(node, op, rank, disti_process_write, (void *)(uintptr_t)from, bytes, written);
    atomic_store_explicit(writes_to, before, memory_order_release);
}

bool disti_node_cma_failed(struct disti_node *node, const struct disti_node_op *op)
{
    int error = 0;

    for (int r = 0; r < node->ranks; r++) {
        int32_t failed = node_slot(node->peers[r].board, op)->failed;

        /* What one buffer's memory does not allow, another's may. */
        if (failed && (!error || failed != EFAULT))
            error = failed;
    }
    if (error && error != EFAULT) {
        node->cma = false;
        disti_info("ordinary memory goes through windows: the kernel does not copy between these "
                   "processes: %s",
                   strerror(error));
    }
    return error;
}

/* Does the peer write to this rank's memory, and live? */
static bool cma_writes(const struct disti_node *node, int rank)
{
    int32_t to = atomic_load_explicit(&node->peers[rank].board->writes_to, memory_order_seq_cst);

    return (to == node->rank || to == NODE_TO_ANY) &&
           (kill(cma_pid(node, rank), 0) == 0 || errno != ESRCH);
}

void disti_node_cma_drain(const struct disti_node *node)
{
    int64_t deadline = disti_deadline_ms(CMA_DRAIN_MS);

    for (int r = 0; r < node->ranks; r++) {
        if (r != node->rank && cma_writes(node, r))
            __atomic_store_n(&node->peers[r].board->written.iov_len, 0, __ATOMIC_SEQ_CST);
        while (r != node->rank && cma_writes(node, r) && !disti_expired(deadline))
            disti_sleep_ns(100 * 1000);
    }
}
