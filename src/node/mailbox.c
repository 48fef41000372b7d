/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Creates and maps the mailboxes and bounce buffers of a group's ranks, and locates the data of
 * calls in them, in mapped segments, or in ordinary memory (CMA).
 */
#include "base/clock.h"
#include "base/faults.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/process.h"
#include "base/settings/config.h"
#include "node/state.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/queue.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/*
 * Cross-memory attach (CMA): the kernel copies between the memory of two processes
 * (process_vm_readv(2)). That needs one copy; a bounce buffer needs two. The kernel may refuse
 * (ptrace_scope, containers, seccomp) or be unable to access some memory (a device's). Only an
 * attempt to copy shows whether CMA works. A rank whose copy fails therefore stores the error in
 * its slot. When all ranks have finished their part, they read these errors and, if there are any,
 * repeat the call with bounce buffers.
 */

/*
 * Longest time for which a rank that has abandoned a call waits for peers that write to its memory.
 */
#define CMA_DRAIN_MS 1000

typedef ssize_t (*cma_call)(int pid, const struct iovec *here, const struct iovec *there);

static void cma_copy(struct disti_node *node, struct disti_node_op *op, int rank, cma_call call,
                     void *here, size_t bytes, const struct iovec *there)
{
    int32_t *failed = &node_slot(node->mailbox, op)->failed;
    struct iovec own = {.iov_base = here, .iov_len = bytes};
    ssize_t copied;

    if (*failed)
        return;
    copied = call(node->hellos[rank].pid, &own, there);
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
 * A rank that abandons a call may reuse its memory for something else. A peer therefore publishes
 * that it writes before it checks whether that rank is gone, and the rank publishes that it is gone
 * before it checks which peers write:
 *
 *     the peer                       the rank that abandons
 *
 *     writes_to = rank               presence = GONE
 *     presence == GONE? no write     writes_to == rank? written.iov_len = 0
 *     write to `written`             wait while writes_to == rank
 *
 * The peer may be suspended between its check and its write for longer than the rank waits. The
 * iovec that the peer passes to the kernel is therefore stored in the peer's mailbox, where the
 * rank makes it empty. The kernel reads the iovec when the write starts, and then writes nothing.
 * So the rank only has to wait for writes that have already started.
 *
 * A rank also stores directly into mapped memory of another rank, about NODE_ADVANCE_BYTES bytes at
 * a time (op.c). These stores follow the same protocol. But a rank that is suspended in the middle
 * of such a piece may continue its stores later, and nothing can prevent that.
 */
void disti_node_cma_put(struct disti_node *node, struct disti_node_op *op, int rank, uint64_t to,
                        const void *from, size_t bytes)
{
    _Atomic int32_t *writes_to = &node->mailbox->writes_to;
    struct iovec *written = &node->mailbox->written;
    int32_t before = atomic_load_explicit(writes_to, memory_order_relaxed);

    *written = (struct iovec){.iov_base = (void *)(uintptr_t)to, .iov_len = bytes};
    atomic_store_explicit(writes_to, rank, memory_order_seq_cst);
    if (atomic_load_explicit(&node->peers[rank].mailbox->presence, memory_order_seq_cst) !=
        NODE_GONE)
        cma_copy(node, op, rank, disti_process_write, (void *)(uintptr_t)from, bytes, written);
    atomic_store_explicit(writes_to, before, memory_order_release);
}

bool disti_node_cma_failed(struct disti_node *node, const struct disti_node_op *op)
{
    int error = 0;

    for (int r = 0; r < node->ranks; r++) {
        int32_t failed = node_slot(node->peers[r].mailbox, op)->failed;

        /* EFAULT concerns this call's buffers only; any other error rules out CMA for all calls. */
        if (failed && (!error || failed != EFAULT))
            error = failed;
    }
    if (error && error != EFAULT) {
        node->cma = false;
        disti_info("using bounce buffers for ordinary memory: the kernel cannot copy between these "
                   "processes: %s",
                   strerror(error));
    }
    return error;
}

/* Returns true if the peer may be writing to this rank's memory and its process still exists. */
static bool cma_is_writing(const struct disti_node *node, int rank)
{
    int32_t to = atomic_load_explicit(&node->peers[rank].mailbox->writes_to, memory_order_seq_cst);

    return (to == node->rank || to == NODE_TO_ANY) &&
           (kill(node->hellos[rank].pid, 0) == 0 || errno != ESRCH);
}

void disti_node_cma_drain(const struct disti_node *node)
{
    int64_t deadline = disti_deadline_ms(CMA_DRAIN_MS);

    for (int r = 0; r < node->ranks; r++) {
        if (r != node->rank && cma_is_writing(node, r))
            __atomic_store_n(&node->peers[r].mailbox->written.iov_len, 0, __ATOMIC_SEQ_CST);
        while (r != node->rank && cma_is_writing(node, r) && !disti_expired(deadline))
            disti_sleep_ns(100 * 1000);
    }
}

/* The segments that contain the data of a call, and which of them the ranks can map. */

/* ---- this rank's segments ---- */

/* Returns the entry of one of this rank's segments in node->proofs, or NULL. */
static struct node_proof *proof_find(struct disti_node *node, uint64_t key)
{
    for (int i = 0; i < NODE_VIEWS; i++) {
        if (node->proofs[i].key == key)
            return &node->proofs[i];
    }
    return NULL;
}

bool disti_node_find(struct disti_node *node, const void *memory, size_t bytes,
                     struct disti_segment_location *location_p, bool *offered_p)
{
    const struct node_proof *proof;

    *offered_p = false;
    if (!disti_segment_find(memory, bytes, location_p))
        return false;
    proof = proof_find(node, location_p->name.key);
    *offered_p = !proof;
    if (proof && !proof->mapped)
        location_p->name.key = 0;
    return proof && proof->mapped;
}

static void proof_record(struct disti_node *node, uint64_t key, bool mapped)
{
    struct node_proof *proof = proof_find(node, key);

    if (!proof)
        proof = &node->proofs[node->proof_next++ % NODE_VIEWS];
    *proof = (struct node_proof){.key = key, .mapped = mapped};
}

void disti_node_record(struct disti_node *node, const struct disti_node_op *op)
{
    const struct node_locations *locations = &node_slot(node->mailbox, op)->locations;
    bool mapped = true; /* whether all peers have mapped the offered segments */

    if (!locations->in_offered && !locations->out_offered)
        return;
    for (int r = 0; r < node->ranks; r++)
        mapped &= r == node->rank || !node_slot(node->peers[r].mailbox, op)->locations.refuses;
    if (locations->in_offered)
        proof_record(node, locations->in.name.key, mapped);
    if (locations->out_offered)
        proof_record(node, locations->out.name.key, mapped);
    if (!mapped)
        disti_info("using memory of dist_alloc and dist_register like ordinary memory: another "
                   "rank cannot map it");
}

/* ---- the peers' segments ---- */

/*
 * Stores `view` as the first entry of peer->views, and shifts the entries before index `at`.
 * Returns the memory of `view`.
 */
static char *view_move_to_front(struct node_peer *peer, int at, struct node_view view)
{
    memmove(&peer->views[1], &peer->views[0], (size_t)at * sizeof(view));
    peer->views[0] = view;
    return view.memory;
}

/*
 * Returns the mapping of a peer's segment: one of the NODE_VIEWS most recently used, or a new one.
 */
static dist_status view_map(struct node_peer *peer, const struct disti_segment_name *name,
                            char **memory_p)
{
    void *memory;
    int at = 0;
    dist_status status;

    while (at < NODE_VIEWS && peer->views[at].key != name->key)
        at++;
    if (at < NODE_VIEWS) {
        *memory_p = at ? view_move_to_front(peer, at, peer->views[at]) : peer->views[0].memory;
        return DIST_OK;
    }
    status = disti_segment_map(name, &memory);
    if (status != DIST_OK)
        return status;
    disti_segment_unmap(peer->views[NODE_VIEWS - 1].key);
    *memory_p = view_move_to_front(peer, NODE_VIEWS - 1,
                                   (struct node_view){.key = name->key, .memory = memory});
    return DIST_OK;
}

/*
 * Stores the address of a location in the peer's segment in *memory_p; NULL if the peer has
 * published no segment.
 */
static dist_status view_address(struct node_peer *peer, const struct disti_segment_location *at,
                                size_t bytes, char **memory_p)
{
    char *memory = NULL;
    dist_status status = DIST_OK;

    if (at->name.key && (at->offset > at->name.bytes || bytes > at->name.bytes - at->offset))
        return disti_fail(DIST_ERR_INTERNAL,
                          "a peer published memory beyond the end of its segment: use the "
                          "same version of libdist on all ranks");
    if (at->name.key)
        status = view_map(peer, &at->name, &memory);
    *memory_p = memory ? memory + at->offset : NULL;
    return status;
}

char *disti_node_try_map(struct node_peer *peer, const struct disti_segment_location *at,
                         size_t bytes)
{
    const struct disti_log *log = disti_log_current();
    char *memory;
    dist_status status;

    disti_log_use(NULL);
    status = view_address(peer, at, bytes, &memory);
    disti_log_use(log);
    return status == DIST_OK ? memory : NULL;
}

void disti_node_mark_unmappable(struct disti_node *node, uint64_t key)
{
    if (key)
        proof_record(node, key, false);
}

/*
 * Maps a segment that the peer offers. If that fails, sets `refuses` in this rank's slot and
 * returns normally.
 */
static void view_try(struct disti_node *node, const struct disti_node_op *op,
                     struct node_peer *peer, const struct disti_segment_location *at)
{
    const struct disti_log *log = disti_log_current();
    char *memory;

    disti_log_use(NULL);
    if (view_map(peer, &at->name, &memory) != DIST_OK)
        node_slot(node->mailbox, op)->locations.refuses = true;
    disti_log_use(log);
}

/* The location of a long call's data: in segments or in bounce buffers. */

size_t disti_node_round(const struct disti_node_op *op, size_t count, uint64_t round,
                        size_t *first_p)
{
    size_t first = (size_t)round * op->piece;

    *first_p = first;
    if (first >= count)
        return 0;
    return count - first < op->piece ? count - first : op->piece;
}

void disti_node_slice(const struct disti_node *node, const struct disti_node_op *op,
                      size_t elements, int s, size_t *from_p, size_t *to_p)
{
    size_t grain = NODE_APART / op->element_bytes; /* elements in NODE_APART bytes */
    size_t share = (elements / (size_t)node->ranks + grain) / grain * grain;
    size_t from = share * (size_t)s, to = from + share;

    *from_p = from < elements ? from : elements;
    *to_p = to < elements ? to : elements;
}

char *disti_node_bounce(const struct disti_node *node, int rank, uint64_t round)
{
    char *bounce = rank == node->rank ? node->bounce : node->peers[rank].bounce;

    return bounce + (node->peers[rank].rounds + round) % NODE_ROUNDS * node->round_bytes;
}

const char *disti_node_in(const struct disti_node *node, const struct disti_node_op *op, int rank,
                          int block, size_t at)
{
    const char *in = rank == node->rank ? op->call.in : node->peers[rank].in;
    size_t first = (size_t)op->round * op->piece;

    if (in)
        return in + (node_in_first(op, block) + first + at) * op->element_bytes;
    return disti_node_bounce(node, rank, op->round) +
           ((size_t)block * op->piece + at) * op->element_bytes;
}

/* ---- this rank's data ---- */

static dist_status bounce_make(struct disti_node *node)
{
    void *memory;
    dist_status status = DIST_OK;

    if (node->bounce)
        return DIST_OK;
    status = disti_segment_alloc_shared(NODE_ROUNDS * node->round_bytes, &memory,
                                        &node->bounce_location);
    if (status == DIST_OK)
        node->bounce = memory;
    return status;
}

dist_status disti_node_publish_bounce(struct disti_node *node, struct node_locations *locations)
{
    dist_status status = bounce_make(node);

    node->peers[node->rank].rounds = node->rounds;
    locations->rounds = node->rounds % NODE_ROUNDS;
    if (status == DIST_OK)
        locations->bounce = node->bounce_location;
    return status;
}

/* Returns the number of elements up to the end of the last block. */
static size_t bounce_extent(const size_t *counts, const size_t *offsets, int blocks)
{
    size_t extent = 0;

    for (int b = 0; b < blocks; b++) {
        if (counts[b] && offsets[b] + counts[b] > extent)
            extent = offsets[b] + counts[b];
    }
    return extent;
}

/* Returns the size of a rank's IN in bytes. */
static size_t bounce_in_bytes(const struct disti_node *node, const struct disti_node_op *op,
                              int rank)
{
    const struct node_pattern *pattern = disti_node_pattern(op->call.collective);
    size_t elements = op->call.count;

    if (op->call.in_counts)
        elements = bounce_extent(op->call.in_counts, op->call.in_offsets, node->ranks);
    else if (pattern->in_blocks)
        elements *= (size_t)node->ranks;
    else if (op->call.out_counts)
        elements = op->call.out_counts[rank];
    return elements * op->element_bytes;
}

/* Returns the size of OUT in bytes. */
static size_t bounce_out_bytes(const struct disti_node *node, const struct disti_node_op *op)
{
    const struct node_pattern *pattern = disti_node_pattern(op->call.collective);
    bool gathers = !pattern->reduces && pattern->senders == NODE_ALL;

    if (op->call.out_counts)
        return bounce_extent(op->call.out_counts, op->call.out_offsets, node->ranks) *
               op->element_bytes;
    return op->call.count * op->element_bytes * (gathers ? (size_t)node->ranks : 1);
}

dist_status disti_node_publish(struct disti_node *node, struct disti_node_op *op)
{
    const struct node_pattern *pattern = disti_node_pattern(op->call.collective);
    struct node_locations *locations = &node_slot(node->mailbox, op)->locations;
    struct node_peer *self = &node->peers[node->rank];
    bool is_sender = node_has_role(pattern->senders, op, node->rank);
    bool is_receiver =
        (pattern->slices || pattern->rooted) && node_has_role(pattern->receivers, op, node->rank);
    size_t in_bytes = bounce_in_bytes(node, op, node->rank), out_bytes = bounce_out_bytes(node, op);

    self->in = self->out = NULL;
    locations->in.name.key = locations->out.name.key = 0;
    locations->in_offered = locations->out_offered = locations->refuses = false;
    node_slot(node->mailbox, op)->failed = 0;
    if (is_sender &&
        disti_node_find(node, op->call.in, in_bytes, &locations->in, &locations->in_offered))
        self->in = op->call.in;
    locations->in_place =
        is_receiver && self->in && self->in == op->call.out && in_bytes >= out_bytes;
    if (locations->in_place ||
        (is_receiver &&
         disti_node_find(node, op->call.out, out_bytes, &locations->out, &locations->out_offered)))
        self->out = op->call.out;
    locations->out_named = locations->out.name.key;
    /*
     * Peers write to the twin of OUT (node.h), so this rank uses the twin too. IN is then replaced
     * by its twin as well, so that the twins overlap in the same way as the program's buffers. Only
     * IN is loaded into its twin: OUT is overwritten completely, except for the part that it shares
     * with IN.
     */
    void *in = self->in
                   ? disti_segment_load((void *)op->call.in, bounce_in_bytes(node, op, node->rank))
                   : NULL;
    void *out = self->out ? disti_segment_twin(self->out, bounce_out_bytes(node, op)) : NULL;
    if (out && out != op->call.out) {
        op->program_out = op->call.out;
        self->out = op->call.out = out;
        if (in)
            self->in = op->call.in = in;
    }
    locations->in_address = (uintptr_t)op->call.in;
    locations->out_address = (uintptr_t)op->call.out;
    /*
     * Published even if all data are in segments: if this rank exits early, peers can no longer map
     * the buffer.
     */
    return disti_node_publish_bounce(node, locations);
}

void disti_node_copy_back(const struct disti_node *node, const struct disti_node_op *op)
{
    if (op->program_out)
        disti_segment_store(op->program_out, bounce_out_bytes(node, op));
}

/* ---- the peers' data ---- */

/* Returns true if all data that ranks access in other ranks' memory are in mapped segments. */
static bool bounce_all_visible(const struct disti_node *node, const struct disti_node_op *op)
{
    const struct node_pattern *pattern = disti_node_pattern(op->call.collective);

    for (int r = 0; r < node->ranks; r++) {
        const struct node_peer *peer = &node->peers[r];
        bool empty = op->call.out_counts && !op->call.out_counts[r];

        if ((node_has_role(pattern->senders, op, r) && !peer->in && !empty) ||
            (pattern->slices && node_has_role(pattern->receivers, op, r) && !peer->out))
            return false;
    }
    return true;
}

/*
 * Maps a peer's bounce buffer. A peer has the same buffer in all calls; it stays mapped until
 * close.
 */
static dist_status bounce_attach(struct disti_node *node, int rank,
                                 const struct disti_segment_location *at)
{
    struct node_peer *peer = &node->peers[rank];
    size_t bytes = NODE_ROUNDS * node->round_bytes;
    void *memory;
    dist_status status;

    if (at->offset > at->name.bytes || bytes > at->name.bytes - at->offset)
        return disti_fail(
            DIST_ERR_INTERNAL,
            "rank %d's bounce buffer exceeds its segment: use the same version of libdist on all "
            "ranks",
            rank);
    status = disti_segment_map(&at->name, &memory);
    if (status == DIST_OK) {
        peer->bounce = (char *)memory + at->offset;
        peer->bounce_key = at->name.key;
    }
    return status;
}

dist_status disti_node_attach(struct disti_node *node, const struct disti_node_op *op, int rank)
{
    struct node_peer *peer = &node->peers[rank];

    return peer->bounce
               ? DIST_OK
               : bounce_attach(node, rank, &node_slot(peer->mailbox, op)->locations.bounce);
}

/*
 * If `map`, maps the bounce buffers of all other ranks; else checks that the bounce buffer of the
 * next rank can be mapped. Returns the first rank whose bounce buffer cannot be mapped, or -1.
 * Ranks without a bounce buffer are skipped.
 */
static int bounces_check(struct disti_node *node, bool map)
{
    bool tried = disti_log_trying(true);
    int failed = -1;

    for (int r = 0; r < node->ranks && failed < 0; r++) {
        const struct disti_segment_location *at = &node->hellos[r].bounce;
        dist_status status = DIST_OK;

        if (r == node->rank || !at->name.key)
            continue;
        if (map)
            status = bounce_attach(node, r, at);
        else if (r == (node->rank + 1) % node->ranks)
            status = disti_segment_can_map(&at->name);
        if (status != DIST_OK)
            failed = r;
    }
    disti_log_trying(tried);
    return failed;
}

static dist_status bounce_attach_all(struct disti_node *node, const struct disti_node_op *op)
{
    dist_status status = DIST_OK;

    for (int r = 0; r < node->ranks && status == DIST_OK; r++) {
        if (r != node->rank)
            status = disti_node_attach(node, op, r);
    }
    return status;
}

/*
 * Returns true for a reduction of 2 ranks of which both need bounce buffers. Each rank then
 * overwrites the operands that it has read, in the other rank's bounce buffer, with its results. So
 * a cache line of a bounce buffer moves to the other CPU and back once instead of twice:
 *
 *            bounce buffer of rank 0              bounce buffer of rank 1
 *   fill     rank 0 stores slice 1 of its IN      rank 1 stores slice 0 of its IN
 *   work     rank 1 adds its slice 1              rank 0 adds its slice 0
 *   drain    rank 0 copies the sum to its OUT     rank 1 copies the sum to its OUT
 */
static bool bounce_swaps(const struct disti_node *node, const struct disti_node_op *op)
{
    const struct node_pattern *pattern = disti_node_pattern(op->call.collective);

    if (node->ranks != 2 || !pattern->slices || pattern->receivers != NODE_ALL)
        return false;
    for (int r = 0; r < 2; r++) {
        if (node->peers[r].in || node->peers[r].out)
            return false;
    }
    return true;
}

dist_status disti_node_resolve(struct disti_node *node, struct disti_node_op *op)
{
    dist_status status = DIST_OK;

    for (int r = 0; r < node->ranks && status == DIST_OK; r++) {
        if (r != node->rank) {
            struct node_peer *peer = &node->peers[r];
            const struct node_locations *locations = &node_slot(peer->mailbox, op)->locations;
            char *in = NULL, *out = NULL;
            status = DIST_OK;
            if (locations->in_offered)
                view_try(node, op, peer, &locations->in);
            else
                status = view_address(peer, &locations->in, bounce_in_bytes(node, op, r), &in);
            if (locations->out_offered)
                view_try(node, op, peer, &locations->out);
            else if (status == DIST_OK && locations->out_named && !locations->in_place)
                status = view_address(peer, &locations->out, bounce_out_bytes(node, op), &out);
            peer->in = in;
            peer->out = locations->in_place ? in : out;
            peer->rounds = locations->rounds;
            if (op->cma) {
                peer->in_address = locations->in_address;
                peer->out_address = locations->out_address;
            }
        }
    }
    if (status != DIST_OK)
        return status;
    if (!op->cma && !bounce_all_visible(node, op)) {
        op->method = bounce_swaps(node, op) ? NODE_METHOD_SWAPPED : NODE_METHOD_BOUNCES;
        return bounce_attach_all(node, op);
    }
    op->method = bounce_all_visible(node, op) ? NODE_METHOD_DIRECT : NODE_METHOD_CMA;
    op->piece = op->largest;
    op->rounds = 1;
    return DIST_OK;
}

dist_status disti_node_resolve_to_bounces(struct disti_node *node, struct disti_node_op *op)
{
    op->method = NODE_METHOD_BOUNCES;
    disti_node_cut(node, op);
    return bounce_attach_all(node, op);
}

/* Creating and mapping the mailboxes. */

/*
 * In groups of at most this many ranks, each rank maps all bounce buffers at the start, because it
 * may have no free descriptor later. In larger groups a rank only checks that it can map the next
 * rank's bounce buffer, so that the cost does not grow with the number of ranks. The memory of
 * every rank is then checked by one other rank.
 */
#define MAILBOX_RANKS_MAPPED 16

static size_t mailbox_bytes(const struct disti_node *node)
{
    return (size_t)node->ranks * (sizeof(struct node_mailbox) + node->overflow_bytes);
}

/*
 * Creates this rank's part of the shared memory and fills *hello. If that is impossible,
 * hello->usable stays 0, and no rank uses mailboxes.
 */
static dist_status mailbox_make(struct disti_node *node, struct disti_node_hello *hello)
{
    bool tried;
    int wanted;
    dist_status status = disti_variable_int("DIST_NODE_MEMORY", 1, &wanted);

    if (status != DIST_OK || !wanted || disti_faults_need_messages())
        return status;
    tried = disti_log_trying(true);
    /* Rank 0 allocates the mailboxes of all ranks, without touching any page. */
    if (node->rank == 0)
        status =
            disti_segment_alloc_shared(mailbox_bytes(node), &node->mailboxes, &hello->mailboxes);
    /* If this fails, the first call that needs the bounce buffer creates it. */
    if (status == DIST_OK && bounce_make(node) == DIST_OK)
        hello->bounce = node->bounce_location;
    disti_log_trying(tried);
    if (status != DIST_OK)
        return DIST_OK;
    node->cpu = -1;
    hello->pid = (int32_t)getpid();
    hello->usable = disti_node_doorbell_open(node, hello) == DIST_OK;
    hello->fences =
        syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) != 0; /* waking.c */
    hello->crowded = node->config->crowded;
    status = disti_variable_int("DIST_SHM_CMA", 1, &wanted);
    if (status == DIST_OK)
        hello->cma = wanted;
    return status;
}

/*
 * Returns the first rank that cannot use mailboxes, or -1. Also derives the settings of the node
 * from the hellos of all ranks: fences, number of slots, CMA.
 */
static int mailbox_find_unusable(struct disti_node *node)
{
    const struct disti_segment_location *mailboxes = &node->hellos[0].mailboxes;

    if (mailboxes->offset > mailboxes->name.bytes ||
        mailboxes->name.bytes - mailboxes->offset < mailbox_bytes(node))
        return 0;
    node->cma = true;
    for (int r = 0; r < node->ranks; r++) {
        if (!node->hellos[r].usable)
            return r;
        node->fences |= node->hellos[r].fences;
        if (node->hellos[r].crowded)
            node->last_slot = NODE_SLOTS - 1;
        node->cma &= node->hellos[r].cma;
    }
    return -1;
}

/* Maps the mailboxes of all ranks. Returns false if that fails; the group then uses messages. */
static bool mailbox_map(struct disti_node *node)
{
    const struct disti_segment_location *at = &node->hellos[0].mailboxes;
    bool tried = disti_log_trying(true);
    struct node_mailbox *mailboxes, **other = node->others;
    unsigned char *overflows;
    void *memory;
    dist_status status = disti_segment_map(&at->name, &memory);

    disti_log_trying(tried);
    if (status != DIST_OK)
        return false;
    mailboxes = (void *)((char *)memory + at->offset);
    overflows = (void *)(mailboxes + node->ranks);
    for (int r = 0; r < node->ranks; r++) {
        node->peers[r].mailbox = &mailboxes[r];
        node->peers[r].overflows = overflows + (size_t)r * node->overflow_bytes;
        if (r != node->rank)
            *other++ = &mailboxes[r];
    }
    node->self = &node->peers[node->rank];
    node->mailbox = node->self->mailbox; /* no rank reads it before this rank's first stage */
    atomic_init(&node->mailbox->cpu, -1);
    atomic_init(&node->mailbox->writes_to, NODE_TO_NONE);
    return true;
}

void disti_node_store_hello(struct disti_node *node, int rank, const struct disti_node_hello *hello)
{
    if (node)
        node->hellos[rank] = *hello;
}

bool disti_node_map(struct disti_node *node)
{
    int unusable = mailbox_find_unusable(node);
    int unmapped = -1; /* the first rank whose memory cannot be mapped */

    if (unusable < 0)
        unmapped = mailbox_map(node) ? bounces_check(node, node->ranks <= MAILBOX_RANKS_MAPPED) : 0;
    node->used = unusable < 0 && unmapped < 0;
    if (unusable >= 0)
        disti_info(
            "not using shared memory for collectives: %s",
            unusable == node->rank
                ? "DIST_NODE_MEMORY=0 or DIST_FAULT is set, or memory or descriptors are lacking"
                : "another rank does not use it");
    else if (unmapped >= 0)
        disti_info("not using shared memory for collectives: rank %d cannot map the memory of "
                   "rank %d: %s",
                   node->rank, unmapped, dist_last_error());
    return node->used;
}

static dist_status mailbox_reserve(struct disti_node *node)
{
    size_t ranks = (size_t)node->ranks;

    node->peers = calloc(ranks, sizeof(*node->peers));
    node->others = calloc(ranks, sizeof(*node->others));
    node->hellos = calloc(ranks, sizeof(*node->hellos));
    node->sources = calloc(ranks, sizeof(*node->sources));
    node->targets = calloc(ranks + 1, sizeof(*node->targets));
    node->tiles = aligned_alloc(NODE_APART, NODE_TILES * NODE_TILE);
    if (!node->peers || !node->others || !node->hellos || !node->sources || !node->targets ||
        !node->tiles)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for the mailboxes of %d ranks",
                          node->ranks);
    return DIST_OK;
}

bool disti_node_is_crowded(const struct disti_node *node)
{
    return node->config->crowded;
}

dist_status disti_node_open(const struct dist_backend_config *config,
                            struct disti_node_hello *hello, struct disti_node **node_p)
{
    struct disti_node *node;
    dist_status status;

    memset(hello, 0, sizeof(*hello));
    if (config->world_size <= 1 || config->world_size > NODE_RANKS_MAX)
        return DIST_OK;
    for (int r = 1; r < config->world_size; r++) {
        if (config->places[r].node != config->places[0].node)
            return DIST_OK;
    }
    node = calloc(1, sizeof(*node));
    if (!node)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for the state of a node of %d ranks",
                          config->world_size);
    node->config = config;
    node->rank = config->rank;
    node->ranks = config->world_size;
    node->round_bytes = NODE_ROUND_BYTES;
    node_size_overflows(node);
    node->last_slot = NODE_SLOTS_EXCLUSIVE - 1;
    cpu_set_t usable;
    node->cpus = config->world_size;
    if (config->crowded && sched_getaffinity(0, sizeof(usable), &usable) == 0 &&
        CPU_COUNT(&usable) < node->cpus)
        node->cpus = CPU_COUNT(&usable);
    node->cache_bytes = disti_node_cache() * (size_t)node->cpus / (size_t)node->ranks;
    node->abandoned_rank = -1;
    for (node->operands = 1; 2 * node->operands <= node->ranks;)
        node->operands *= 2;
    node->sleeper = -1;
    status = disti_node_migrate_open(node);
    if (status == DIST_OK)
        status = mailbox_reserve(node);
    if (status == DIST_OK)
        status = mailbox_make(node, hello);
    if (status == DIST_OK)
        *node_p = node;
    else
        disti_node_close(node);
    return status;
}

/* Mailboxes and bounce buffers of closed groups that peers may still read. */

/*
 * Number of group timeouts until the memory is freed. A peer's call that began when the group ended
 * expires after one timeout, and may have to wait for a lock in addition.
 */
#define DEFERRED_TIMEOUTS 2

struct deferred {
    SLIST_ENTRY(deferred) entry;
    void *memory;
    int64_t until_ns;
};

DISTI_PROCESS_LOCK(deferred_lock);
static SLIST_HEAD(, deferred) deferred_list;

/*
 * Frees memory of disti_segment_alloc_shared, at once if `now`. Else frees it after
 * DEFERRED_TIMEOUTS timeouts, because a peer that does not know that the group has ended may read
 * it until then. Also frees the memory of other closed groups whose time has passed. memory may be
 * NULL.
 */
static void mailbox_free(void *memory, bool now, int timeout_ms)
{
    struct deferred *deferred, *next;

    pthread_mutex_lock(&deferred_lock);
    for (deferred = SLIST_FIRST(&deferred_list); deferred; deferred = next) {
        next = SLIST_NEXT(deferred, entry);
        if (!disti_expired(deferred->until_ns))
            continue;
        SLIST_REMOVE(&deferred_list, deferred, deferred, entry);
        disti_segment_free(deferred->memory);
        free(deferred);
    }
    /* If calloc fails, `memory` is leaked. */
    deferred = memory && !now ? calloc(1, sizeof(*deferred)) : NULL;
    if (deferred) {
        deferred->memory = memory;
        deferred->until_ns = disti_deadline_ms((int64_t)DEFERRED_TIMEOUTS * timeout_ms);
        SLIST_INSERT_HEAD(&deferred_list, deferred, entry);
    } else if (memory && now) {
        disti_segment_free(memory);
    }
    pthread_mutex_unlock(&deferred_lock);
}

void disti_node_close(struct disti_node *node)
{
    bool now;

    if (!node)
        return;
    now = node->config->left || !node->used;
    for (int r = 0; node->peers && node->hellos && r < node->ranks; r++) {
        if (r == node->rank)
            continue;
        for (int i = 0; i < NODE_VIEWS; i++) {
            disti_segment_unmap(node->peers[r].views[i].key);
            node->peers[r].views[i] = (struct node_view){0};
        }
        disti_segment_unmap(node->peers[r].bounce_key);
    }
    if (node->mailbox)
        disti_segment_unmap(node->hellos[0].mailboxes.name.key);
    disti_node_doorbell_close(node);
    mailbox_free(node->mailboxes, now, node->config->timeout_ms);
    mailbox_free(node->bounce, now, node->config->timeout_ms);
    /* The memory of killed ranks is freed when its last mapping is unmapped. */
    if (node->abandoned)
        disti_segment_trim(0);
    disti_node_migrate_close(node);
    free(node->peers);
    free(node->others);
    free(node->hellos);
    free(node->sources);
    free(node->targets);
    free(node->tiles);
    for (int i = 0; i < DIST_COLL_COUNT; i++)
        free(node->agains[i]);
    free(node);
}
