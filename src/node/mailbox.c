/* SPDX-License-Identifier: BSD-3-Clause */
/* The mailboxes and bounce buffers of a group's ranks, and whose memory this rank sees. */
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
 * Cross-memory attach: the kernel copies between the memory of two processes (process_vm_readv(2)),
 * once, where a bounce buffer takes two copies. It may refuse (ptrace_scope, containers, seccomp),
 * or not reach some memory (a device's). Only a copy shows that; so whoever fails says so when all
 * have done their part, and the call begins again with bounce buffers.
 */

/* A rank that gives a call up waits for so long for peers that write to its memory. */
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
 * A rank that has given up may use its memory for something else. So a peer says that it writes
 * before it looks whether the rank is there, and the rank says that it is gone before it looks who
 * writes:
 *
 *     writes_to = rank               presence = GONE
 *     presence == GONE? no write     writes_to == rank? written = nothing
 *     write to `written`             wait while writes_to == rank
 *
 * The peer may be stopped between its look and its write, for longer than anybody waits. So the
 * place that it gives to the kernel stands on its mailbox, and the rank takes it away: the kernel,
 * which reads it as the write begins, then writes nothing. What is waited for is a write under way.
 *
 * So it is where a rank itself stores into memory that it sees, a bite at a time (op.c); but for
 * one that is stopped in the middle of a bite, which nobody can keep from going on.
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

        /* What one buffer's memory does not allow, another's may. */
        if (failed && (!error || failed != EFAULT))
            error = failed;
    }
    if (error && error != EFAULT) {
        node->cma = false;
        disti_info(
            "ordinary memory goes through bounce buffers: the kernel does not copy between these "
            "processes: %s",
            strerror(error));
    }
    return error;
}

/* Does the peer write to this rank's memory, and live? */
static bool cma_writes(const struct disti_node *node, int rank)
{
    int32_t to = atomic_load_explicit(&node->peers[rank].mailbox->writes_to, memory_order_seq_cst);

    return (to == node->rank || to == NODE_TO_ANY) &&
           (kill(node->hellos[rank].pid, 0) == 0 || errno != ESRCH);
}

void disti_node_cma_drain(const struct disti_node *node)
{
    int64_t deadline = disti_deadline_ms(CMA_DRAIN_MS);

    for (int r = 0; r < node->ranks; r++) {
        if (r != node->rank && cma_writes(node, r))
            __atomic_store_n(&node->peers[r].mailbox->written.iov_len, 0, __ATOMIC_SEQ_CST);
        while (r != node->rank && cma_writes(node, r) && !disti_expired(deadline))
            disti_sleep_ns(100 * 1000);
    }
}

/* Segments that hold data of a call: who can map whose. */

/* ---- this rank's segments ---- */

/* What is known of a segment of this rank's; NULL: nothing. */
static struct node_proof *view_proof(struct disti_node *node, uint64_t key)
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
    proof = view_proof(node, location_p->name.key);
    *offered_p = !proof;
    if (proof && !proof->mapped)
        location_p->name.key = 0;
    return proof && proof->mapped;
}

static void view_note(struct disti_node *node, uint64_t key, bool mapped)
{
    struct node_proof *proof = view_proof(node, key);

    if (!proof)
        proof = &node->proofs[node->proof_next++ % NODE_VIEWS];
    *proof = (struct node_proof){.key = key, .mapped = mapped};
}

void disti_node_record(struct disti_node *node, const struct disti_node_op *op)
{
    const struct node_locations *locations = &node_slot(node->mailbox, op)->locations;
    bool mapped = true; /* all of them have mapped what was offered */

    if (!locations->in_offered && !locations->out_offered)
        return;
    for (int r = 0; r < node->ranks; r++)
        mapped &= r == node->rank || !node_slot(node->peers[r].mailbox, op)->locations.refuses;
    if (locations->in_offered)
        view_note(node, locations->in.name.key, mapped);
    if (locations->out_offered)
        view_note(node, locations->out.name.key, mapped);
    if (!mapped)
        disti_info("memory of dist_alloc and dist_register is used as ordinary memory is: another "
                   "rank cannot map it");
}

/* ---- the others' ---- */

/* Puts the view at the front, where it is found first. */
static char *view_use(struct node_peer *peer, int at, struct node_view view)
{
    memmove(&peer->views[1], &peer->views[0], (size_t)at * sizeof(view));
    peer->views[0] = view;
    return view.memory;
}

/* The mapping of a segment: one of the last few, or a new one. */
static dist_status view_map(struct node_peer *peer, const struct disti_segment_name *name,
                            char **memory_p)
{
    void *memory;
    int at = 0;
    dist_status status;

    while (at < NODE_VIEWS && peer->views[at].key != name->key)
        at++;
    if (at < NODE_VIEWS) {
        *memory_p = at ? view_use(peer, at, peer->views[at]) : peer->views[0].memory;
        return DIST_OK;
    }
    status = disti_segment_map(name, &memory);
    if (status != DIST_OK)
        return status;
    disti_segment_unmap(peer->views[NODE_VIEWS - 1].key);
    *memory_p =
        view_use(peer, NODE_VIEWS - 1, (struct node_view){.key = name->key, .memory = memory});
    return DIST_OK;
}

/* An address in the peer's segment, NULL if it has shown none. */
static dist_status node_see(struct node_peer *peer, const struct disti_segment_location *at,
                            size_t bytes, char **memory_p)
{
    char *memory = NULL;
    dist_status status = DIST_OK;

    if (at->name.key && (at->offset > at->name.bytes || bytes > at->name.bytes - at->offset))
        return disti_fail(DIST_ERR_INTERNAL, "a peer shows memory beyond its segment's end");
    if (at->name.key)
        status = view_map(peer, &at->name, &memory);
    *memory_p = memory ? memory + at->offset : NULL;
    return status;
}

char *disti_node_try_see(struct node_peer *peer, const struct disti_segment_location *at,
                         size_t bytes)
{
    const struct disti_log *log = disti_log_current();
    char *memory;
    dist_status status;

    disti_log_use(NULL);
    status = node_see(peer, at, bytes, &memory);
    disti_log_use(log);
    return status == DIST_OK ? memory : NULL;
}

void disti_node_disprove(struct disti_node *node, uint64_t key)
{
    if (key)
        view_note(node, key, false);
}

/* Maps what the peer has offered. Failure is an answer, which this rank's slot then gives. */
static void node_try(struct disti_node *node, const struct disti_node_op *op,
                     struct node_peer *peer, const struct disti_segment_location *at)
{
    const struct disti_log *log = disti_log_current();
    char *memory;

    disti_log_use(NULL);
    if (view_map(peer, &at->name, &memory) != DIST_OK)
        node_slot(node->mailbox, op)->locations.refuses = true;
    disti_log_use(log);
}

/* Where the data of a long call are: in segments of the ranks, or in their bounce buffers. */

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
    size_t grain = NODE_APART / op->element_bytes; /* elements on a whole number of lines */
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

/* ---- this rank's ---- */

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

dist_status disti_node_show_bounce(struct disti_node *node, struct node_locations *locations)
{
    dist_status status = bounce_make(node);

    node->peers[node->rank].rounds = node->rounds;
    locations->rounds = node->rounds % NODE_ROUNDS;
    if (status == DIST_OK)
        locations->bounce = node->bounce_location;
    return status;
}

/* Elements to the end of the last block. */
static size_t bounce_extent(const size_t *counts, const size_t *offsets, int blocks)
{
    size_t extent = 0;

    for (int b = 0; b < blocks; b++) {
        if (counts[b] && offsets[b] + counts[b] > extent)
            extent = offsets[b] + counts[b];
    }
    return extent;
}

/* Bytes of a rank's IN, and of OUT. */
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

static size_t bounce_out_bytes(const struct disti_node *node, const struct disti_node_op *op)
{
    const struct node_pattern *pattern = disti_node_pattern(op->call.collective);
    bool gathers = !pattern->reduces && pattern->givers == NODE_ALL;

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
    bool gives = node_is(pattern->givers, op, node->rank);
    bool takes = (pattern->slices || pattern->rooted) && node_is(pattern->takers, op, node->rank);
    size_t in_bytes = bounce_in_bytes(node, op, node->rank), out_bytes = bounce_out_bytes(node, op);

    self->in = self->out = NULL;
    locations->in.name.key = locations->out.name.key = 0;
    locations->in_offered = locations->out_offered = locations->refuses = false;
    node_slot(node->mailbox, op)->failed = 0;
    if (gives &&
        disti_node_find(node, op->call.in, in_bytes, &locations->in, &locations->in_offered))
        self->in = op->call.in;
    locations->in_place = takes && self->in && self->in == op->call.out && in_bytes >= out_bytes;
    if (locations->in_place || (takes && disti_node_find(node, op->call.out, out_bytes,
                                                         &locations->out, &locations->out_offered)))
        self->out = op->call.out;
    locations->out_named = locations->out.name.key;
    /*
     * Where peers write, this rank writes in the twin as well, and reads there: so what lies where
     * stays as the program has it. All of OUT is written, but for what is IN too.
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
    /* Even if all should be visible: a peer attaches it now or, once this rank is gone, never. */
    return disti_node_show_bounce(node, locations);
}

void disti_node_take_back(const struct disti_node *node, const struct disti_node_op *op)
{
    if (op->program_out)
        disti_segment_store(op->program_out, bounce_out_bytes(node, op));
}

/* ---- the others' ---- */

/* Are all data visible that anybody reads or writes but their owner? */
static bool bounce_all_seen(const struct disti_node *node, const struct disti_node_op *op)
{
    const struct node_pattern *pattern = disti_node_pattern(op->call.collective);

    for (int r = 0; r < node->ranks; r++) {
        const struct node_peer *peer = &node->peers[r];
        bool empty = op->call.out_counts && !op->call.out_counts[r];

        if ((node_is(pattern->givers, op, r) && !peer->in && !empty) ||
            (pattern->slices && node_is(pattern->takers, op, r) && !peer->out))
            return false;
    }
    return true;
}

/* A bounce buffer stays mapped as long as the group is: it is the same for all calls. */
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
            "rank %d's bounce buffer lies beyond its segment's end: give all ranks the same "
            "version of libdist",
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

/* Maps the bounce buffers of all ranks, or checks that it could map the next rank's. Returns the
 * first rank whose bounce buffer cannot be mapped, or -1. Bounce buffers that are not made yet
 * count as mapped. */
static int bounces_meet(struct disti_node *node, bool map)
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
 * Of two ranks that both go through bounce buffers each writes its sums over what it read, in the
 * other's bounce buffer. So a line of a bounce buffer goes to and fro between the CPUs once, and
 * not twice:
 *
 *   bounce buffer of    rank 0                  rank 1
 *   fill         0: slice 1 of its IN    1: slice 0 of its IN
 *   work         1: adds its own         0: adds its own
 *   drain        0: into OUT             1: into OUT
 */
static bool bounce_swaps(const struct disti_node *node, const struct disti_node_op *op)
{
    const struct node_pattern *pattern = disti_node_pattern(op->call.collective);

    if (node->ranks != 2 || !pattern->slices || pattern->takers != NODE_ALL)
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
                node_try(node, op, peer, &locations->in);
            else
                status = node_see(peer, &locations->in, bounce_in_bytes(node, op, r), &in);
            if (locations->out_offered)
                node_try(node, op, peer, &locations->out);
            else if (status == DIST_OK && locations->out_named && !locations->in_place)
                status = node_see(peer, &locations->out, bounce_out_bytes(node, op), &out);
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
    if (!op->cma && !bounce_all_seen(node, op)) {
        op->way = bounce_swaps(node, op) ? NODE_WAY_SWAPPED : NODE_WAY_BOUNCES;
        return bounce_attach_all(node, op);
    }
    op->way = bounce_all_seen(node, op) ? NODE_WAY_DIRECT : NODE_WAY_CMA;
    op->piece = op->largest;
    op->rounds = 1;
    return DIST_OK;
}

dist_status disti_node_resolve_to_bounces(struct disti_node *node, struct disti_node_op *op)
{
    op->way = NODE_WAY_BOUNCES;
    disti_node_cut(node, op);
    return bounce_attach_all(node, op);
}

/* Making the mailboxes of a group's ranks, and mapping them. */

/* In groups of at most this many ranks each rank maps all bounce buffers when it starts: later it
 * may have no descriptor left. In larger groups it only checks that it could map the next rank's,
 * so that starting costs no more with more ranks: every rank's memory is checked by one rank. */
#define MAILBOX_RANKS_MET 16

static size_t mailbox_bytes(const struct disti_node *node)
{
    return (size_t)node->ranks * (sizeof(struct node_mailbox) + node->overflow_bytes);
}

/* Where this rank cannot, the others are told, and no mailbox is used. */
static dist_status mailbox_make(struct disti_node *node, struct disti_node_hello *hello)
{
    bool tried;
    int wanted;
    dist_status status = disti_variable_int("DIST_NODE_MEMORY", 1, &wanted);

    if (status != DIST_OK || !wanted || disti_faults_need_messages())
        return status;
    tried = disti_log_trying(true);
    /* Memory for all mailboxes, of which each rank makes the pages of its own. */
    if (node->rank == 0)
        status =
            disti_segment_alloc_shared(mailbox_bytes(node), &node->mailboxes, &hello->mailboxes);
    /* This rank's bounce buffer, of which no page is touched; if it can be made. */
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
    /* Reads DIST_SHM_CMA, and says so in the hello. */
    status = disti_variable_int("DIST_SHM_CMA", 1, &wanted);
    if (status == DIST_OK)
        hello->cma = wanted;
    return status;
}

/* -1: all can; else the first rank that cannot. Also sees whether one needs fences, or slots. */
static int mailbox_who_cannot(struct disti_node *node)
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

/* Failures are no errors: messages are used instead. */
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
    node->mailbox = node->self->mailbox; /* nobody reads it before this rank's first stage */
    atomic_init(&node->mailbox->cpu, -1);
    atomic_init(&node->mailbox->writes_to, NODE_TO_NONE);
    return true;
}

void disti_node_meet(struct disti_node *node, int rank, const struct disti_node_hello *hello)
{
    if (node)
        node->hellos[rank] = *hello;
}

bool disti_node_map(struct disti_node *node)
{
    int cannot = mailbox_who_cannot(node);
    int hidden = -1; /* the first rank whose memory cannot be mapped */

    if (cannot < 0)
        hidden = mailbox_map(node) ? bounces_meet(node, node->ranks <= MAILBOX_RANKS_MET) : 0;
    node->used = cannot < 0 && hidden < 0;
    if (cannot >= 0)
        disti_info("no collectives in shared memory: %s",
                   cannot == node->rank ? "DIST_NODE_MEMORY=0, DIST_FAULT, or no memory"
                                        : "another rank does not use it");
    else if (hidden >= 0)
        disti_info("no collectives in shared memory: rank %d cannot map the memory of rank %d: %s",
                   node->rank, hidden, dist_last_error());
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
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for the ranks of this machine");
    node->config = config;
    node->rank = config->rank;
    node->ranks = config->world_size;
    node->round_bytes = NODE_ROUND_BYTES;
    node_size_overflows(node);
    node->last_slot = NODE_SLOTS_ALONE - 1;
    cpu_set_t usable;
    node->cpus = config->world_size;
    if (config->crowded && sched_getaffinity(0, sizeof(usable), &usable) == 0 &&
        CPU_COUNT(&usable) < node->cpus)
        node->cpus = CPU_COUNT(&usable);
    node->cache_bytes = disti_node_cache() * (size_t)node->cpus / (size_t)node->ranks;
    node->gone = -1;
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

/* Mailboxes and bounce buffers of groups that have ended, while peers may still read them. */

/* A call that began as the group ended may meet its deadline after its own, and wait for a lock. */
#define DEFERRED_TIMEOUTS 2

struct deferred {
    SLIST_ENTRY(deferred) entry;
    void *memory;
    int64_t until_ns;
};

DISTI_PROCESS_LOCK(deferred_lock);
static SLIST_HEAD(, deferred) deferred_list;

/*
 * Frees memory of disti_segment_alloc_shared, now or once every call of the group's ranks must have
 * met its deadline: a peer that has not heard of the group's end may still read it. NULL: nothing.
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
    deferred = memory && !now ? calloc(1, sizeof(*deferred)) : NULL; /* NULL: never freed */
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
        /* Releases what is mapped of a peer. */
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
    if (node->abandoned)
        disti_segment_trim(0); /* the memory of ranks that were killed is kept by no other */
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
