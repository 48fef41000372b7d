/* SPDX-License-Identifier: BSD-3-Clause */
/* A call on the mailboxes, from stage to stage, and the way its data go. */
#include "base/clock.h"
#include "base/dtype.h"
#include "base/log.h"
#include "node/state.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* A call before it begins: its number, and which way its data go. */

bool disti_node_supports(dist_collective collective)
{
    return disti_node_pattern(collective)->is_supported;
}

/*
 * Long, in rounds of what a bounce buffer holds (r of them; or one, if all data are in segments):
 *
 *   stage 0         stage 1         stage 2                stage r
 *   fill 0  | all   work 0  | all   drain 0  | all  ...   drain r - 1
 *   shown   | there fill 1  | there work 1   | there
 *                                   fill 2
 *
 * While one rank fills the bounce buffer for round k + 1, a slower one may still drain round k - 1:
 * hence three rounds of a bounce buffer. What is direct has neither fill nor drain.
 *
 * A round holds whole lines of each block.
 */
size_t disti_node_piece(const struct disti_node *node, const struct disti_node_op *op)
{
    size_t blocks = node_blocks(node, disti_node_pattern(op->call.collective));

    return node->round_bytes / blocks / NODE_APART * NODE_APART / op->element_bytes;
}

void disti_node_cut(const struct disti_node *node, struct disti_node_op *op)
{
    size_t piece = disti_node_piece(node, op);

    op->piece = piece < op->largest ? piece : op->largest;
    op->rounds = (op->largest + op->piece - 1) / op->piece;
}

/* May OUT be written past the caches: is it more than this rank's cache holds, and not yet in it?
 */
static bool node_may_go_past(const struct disti_node *node, const struct disti_node_op *op)
{
    const struct node_pattern *pattern = disti_node_pattern(op->call.collective);
    bool gathers = !pattern->reduces && pattern->senders == NODE_ALL;
    size_t blocks = gathers || pattern->in_blocks ? (size_t)node->ranks : 1;

    return 2 * blocks * op->largest * op->element_bytes >= node->cache_bytes &&
           !(pattern->reduces && op->call.in == op->call.out);
}

/* ---- how long is short ---- */

static size_t start_bytes(dist_collective collective, int ranks, size_t block)
{
    return disti_node_pattern(collective)->in_blocks ? block * (size_t)ranks : block;
}

/* Of two ranks each sums half of a longer vector; else two copies are sooner made than waited for.
 */
static bool start_is_short(dist_collective collective, int ranks, size_t block)
{
    const struct node_pattern *pattern = disti_node_pattern(collective);
    bool shares = ranks == 2 && pattern->reduces && pattern->receivers == NODE_ALL;

    return start_bytes(collective, ranks, block) <= (shares ? NODE_SHORT_PAIR : NODE_SHORT_MAX);
}

/* Who shares a sum should not do all of it. */
static bool fits_overflow(dist_collective collective, int ranks, size_t block)
{
    const struct node_pattern *pattern = disti_node_pattern(collective);

    return start_bytes(collective, ranks, block) <= NODE_OVERFLOW_BYTES &&
           (!pattern->reduces || (ranks == 2 && pattern->receivers == NODE_ROOT));
}

const char *disti_node_summary(dist_collective collective, int ranks, size_t block)
{
    if (start_is_short(collective, ranks, block))
        return "through mailboxes in shared memory, without messages";
    if (fits_overflow(collective, ranks, block))
        return "memory of dist_alloc directly, other memory through mailboxes in shared memory";
    if (disti_node_pattern(collective)->reduces)
        return "memory of dist_alloc directly, other memory through bounce buffers in shared "
               "memory";
    return "memory of dist_alloc directly, other memory with CMA or through bounce buffers: the "
           "first calls measure which is faster";
}

size_t disti_node_slot_bytes(const struct node_pattern *pattern)
{
    return pattern->senders == NODE_ALL && pattern->receivers == NODE_ALL ? NODE_SLOT_DATA_MUTUAL
                                                                          : NODE_SLOT_DATA;
}

/* In a long call all keep step; in a short one receivers wait for senders. */
static void node_roles(const struct disti_node *node, struct disti_node_op *op)
{
    const struct node_pattern *pattern = disti_node_pattern(op->call.collective);
    bool all = op->method != NODE_METHOD_MAILBOX;

    op->sends = node_has_role(pattern->senders, op, node->rank);
    op->receives = node_has_role(pattern->receivers, op, node->rank);
    op->first = all || pattern->senders == NODE_ALL ? 0 : op->call.root;
    op->end = all || pattern->senders == NODE_ALL ? node->ranks : op->call.root + 1;
    if (!all && !op->receives)
        op->end = op->first;
    op->waits_for_all = op->end - op->first == node->ranks;
    op->awaited = node->others + op->first - (op->first > node->rank);
    op->awaited_end = node->others + op->end - (op->end > node->rank);
    op->published_bytes = 0; /* all blocks of IN */
    if (!all && op->sends && !op->call.in_counts)
        op->published_bytes = op->call.count * node_blocks(node, pattern) * op->element_bytes;
    for (int r = 0; !all && op->sends && op->call.in_counts && r < node->ranks; r++)
        op->published_bytes += op->call.in_counts[r] * op->element_bytes;
    op->block_offset = pattern->in_blocks ? node_in_first(op, node->rank) * op->element_bytes : 0;
    op->pair = node->ranks == 2 && pattern->reduces
                   ? disti_reduce_kernel(op->call.dtype, op->call.op)
                   : NULL;
    op->finish = !op->receives || !op->largest         ? NULL
                 : !pattern->reduces                   ? disti_node_copy_short
                 : op->pair && op->call.op != DIST_AVG ? disti_node_reduce_pair
                                                       : disti_node_reduce_short;
    op->unconfirmed_limit = !op->in_overflow || !op->sends ? node->last_slot + 1
                            : op->chosen                   ? node->overflow_calls
                                                           : NODE_OVERFLOWS_FIXED;
    op->seen = op->first;
}

void disti_node_start(struct disti_node *node, const struct dist_call *call, uint64_t fingerprint,
                      uint64_t history, struct disti_node_op *op)
{
    const struct node_pattern *pattern = disti_node_pattern(call->collective);
    size_t blocks = node_blocks(node, pattern), bytes;

    op->call = *call;
    op->fingerprint = fingerprint;
    op->history = history;
    op->number = ++node->calls;
    op->slot = node_slot_number(node, op->number);
    op->element_bytes = call->collective == DIST_COLL_BARRIER ? 1 : dist_dtype_size(call->dtype);
    op->irregular = pattern->irregular;
    /* The largest block that this rank knows of; and its own, if lists of which all know all say
     * it. */
    const size_t *in = op->call.in_counts, *out = op->call.out_counts;
    if (!op->irregular && (in || out))
        op->call.count = (in ? in : out)[node->rank];
    op->largest = op->call.count;
    for (int r = 0; in && r < node->ranks; r++)
        op->largest = in[r] > op->largest ? in[r] : op->largest;
    for (int r = 0; out && r < node->ranks; r++)
        op->largest = out[r] > op->largest ? out[r] : op->largest;
    bytes = op->largest * op->element_bytes;
    op->method = start_is_short(call->collective, node->ranks, bytes) ? NODE_METHOD_MAILBOX
                                                                      : NODE_METHOD_BOUNCES;
    op->state = NODE_OP_POSTED;
    op->cma = op->chosen = false;
    op->stage = op->base = 0;
    op->in_overflow =
        op->method == NODE_METHOD_MAILBOX && bytes * blocks > disti_node_slot_bytes(pattern);
    op->finish = NULL;
    if (op->irregular)
        op->method = NODE_METHOD_BOUNCES; /* if nothing else is found */
    else
        node_roles(node, op);
    op->admitted = 0;
    op->round = 0;
    op->done = 0;
    op->peers_done = 0;
    op->program_out = NULL;
    op->begun_ns = op->filled_ns = 0;
    op->copy_mode = 0;
    op->in_copy_mode_trial = false;
    op->worked_ns = 0;
    if (!op->irregular && op->method != NODE_METHOD_MAILBOX)
        disti_node_cut(node, op);
}

/* How far a rank may be ahead of the others, whom it waits for, and whether they were called the
 * same. */

/*
 * A rank that only gives ends its call when its data stand on its mailbox, and goes on until its
 * slots are full. Then it looks how far the others have come, and waits until they have half of
 * them behind them, so that it need not look again for as many calls:
 *
 *     number   c - s                c - s / 2              c
 *     ---------|--------------------|----------------------|
 *              confirmed: all       awaited: all must      begun next
 *              have begun it        have begun it
 *
 * In that look it compares the others' histories with its own. A call that differed before in
 * vain, since nobody waited in it, so is found s calls later at most; or in the first in which a
 * rank waits for another. Nobody loses sight of the calls that differ first: to write over them a
 * rank must have compared the calls behind them.
 */

/* ---- what was called ---- */

static uint64_t ahead_begun(const struct disti_node *node, int rank)
{
    return atomic_load_explicit(&node->peers[rank].mailbox->begun, memory_order_acquire);
}

static uint64_t ahead_fingerprint(const struct disti_node *node, int rank, uint64_t number)
{
    struct node_mailbox *mailbox = node->peers[rank].mailbox;

    return atomic_load_explicit(&mailbox->slots[node_slot_number(node, number)].fingerprint,
                                memory_order_acquire);
}

/* The rank's history at that call is another than this one's: ERR_MISMATCH, and which call. OK: it
 * is none that stands on the mailboxes, but one of those between them, which went by messages. */
static dist_status node_differs(const struct disti_node *node, struct disti_node_op *op,
                                uint64_t number, int rank)
{
    uint64_t first = number <= node->last_slot ? 1 : number - node->last_slot;

    if (first <= node->confirmed)
        first = node->confirmed + 1;
    while (first < number &&
           ahead_fingerprint(node, node->rank, first) == ahead_fingerprint(node, rank, first))
        first++;
    op->peer = rank;
    op->mine = ahead_fingerprint(node, node->rank, first);
    op->theirs = ahead_fingerprint(node, rank, first);
    op->sequence = node->sequences[node_slot_number(node, first)];
    return op->mine == op->theirs ? DIST_OK : DIST_ERR_MISMATCH;
}

/*
 * Were all calls the same that both this rank and that one have begun? The other may have left the
 * last of them behind: then its slot holds a later call, or half of it, and the stage says so.
 */
static dist_status ahead_compare(const struct disti_node *node, struct disti_node_op *op, int rank)
{
    uint64_t mine = ahead_begun(node, node->rank), theirs = ahead_begun(node, rank);
    uint64_t number = theirs < mine ? theirs : mine;
    size_t at = node_slot_number(node, number);
    struct node_slot *slot = &node->peers[rank].mailbox->slots[at];
    uint64_t history;

    if (number <= node->confirmed)
        return DIST_OK;
    history = atomic_load_explicit(&slot->history, memory_order_acquire);
    if (history == node->mailbox->slots[at].history ||
        atomic_load_explicit(&slot->stage, memory_order_relaxed) >=
            node_writing(number + node->last_slot + 1))
        return DIST_OK;
    return node_differs(node, op, number, rank);
}

dist_status disti_node_compare(const struct disti_node *node, struct disti_node_op *op)
{
    dist_status status = DIST_OK;

    for (int r = 0; r < node->ranks && status == DIST_OK; r++)
        status = ahead_compare(node, op, r);
    return status;
}

/* ---- how far ahead ---- */

/* The call that all must have begun before this one is, if it has to wait. */
static uint64_t ahead_awaited(const struct disti_node_op *op)
{
    uint64_t half = op->unconfirmed_limit / 2;

    return op->number < half ? 0 : op->number - half;
}

/* POSTED: is the rank so far behind that the op cannot begin? */
static bool node_is_behind(const struct disti_node *node, const struct disti_node_op *op, int rank)
{
    return rank != node->rank && atomic_load_explicit(&node->peers[rank].mailbox->begun,
                                                      memory_order_seq_cst) < ahead_awaited(op);
}

/*
 * May the call be begun? OK: its slot and overflow slot are free. IN_PROGRESS: a rank is too far
 * behind. ERR_MISMATCH: a rank has called something else.
 */
static dist_status node_admit(struct disti_node *node, struct disti_node_op *op)
{
    if (op->number - node->confirmed < op->unconfirmed_limit)
        return DIST_OK;
    for (; op->admitted < node->ranks; op->admitted++) {
        bool behind = node_is_behind(node, op, op->admitted);
        dist_status status = ahead_compare(node, op, op->admitted); /* all that it has begun */

        if (status != DIST_OK || behind)
            return status == DIST_OK ? DIST_IN_PROGRESS : status;
    }
    node->confirmed = ahead_awaited(op);
    return DIST_OK;
}

/* ---- for whom it waits ---- */

bool disti_node_waits_for(const struct disti_node *node, const struct disti_node_op *op, int rank)
{
    struct node_slot *slot = node_slot(node->peers[rank].mailbox, op);

    if (op->state == NODE_OP_POSTED)
        return node_is_behind(node, op, rank);
    if (op->irregular && op->stage > node->peers[rank].last)
        return false;
    return rank != node->rank && rank >= op->first && rank < op->end &&
           atomic_load_explicit(&slot->stage, memory_order_seq_cst) <
               node_stage(op->number, op->stage);
}

void disti_node_describe(const struct disti_node *node, const struct disti_node_op *op, char *text,
                         size_t size)
{
    size_t used = 0;

    text[0] = '\0';
    for (int r = 0; r < node->ranks && used + 16 < size; r++) {
        if (disti_node_waits_for(node, op, r))
            used += (size_t)snprintf(text + used, size - used, "%srank %d", used ? ", " : "", r);
    }
}

/*
 * The copy mode of a copy: as the C library does it, or with lines asked for ahead, or past the
 * caches. All give the same result. Which is soonest depends on the CPU (on some it takes twice as
 * long to ask for a line that another CPU has, on others half), on sizes, caches, and on who else
 * uses them. So every rank tries them in its own calls, of each collective and size class, and need
 * not agree with others:
 *
 *   call     0 1 2 0 1 2 0 1 2 0 1 2                               without bounce buffers
 *            0 4 1 5 2 6 3 7 0 4 1 5 2 6 3 7                       copies through bounce buffers
 *            0 0 0 0   4 4 4 4   1 1 1 1   5 5 5 5   2 2 2 2 ...   reductions; then the best
 *
 *   8 ...    0 4 0 4 0 4 0 4                                       by overflow slots: too short for
 * more
 *
 * What counts is the rank's own work, without its waits. All ranks try the same in the same call,
 * so that a bounce buffer's reader pays for how it was written.
 */

#define COPY_MODE_TURNS 3 /* of those that do not stream */
/* Calls by overflow slots in which both ways are tried. */
#define COPY_MODE_OVERFLOW_TRIALS 8
/* They begin behind so many. */
#define COPY_MODE_OVERFLOW_BEFORE 8

/* Number of calls of a class after which its trial begins anew: the first time, and later. */
#define TRIAL_CALLS_FIRST 64
#define TRIAL_CALLS 2000

static bool trial_runs(const struct node_trial *trial, int before, int calls)
{
    return trial->calls >= before && trial->calls < before + calls;
}

static void trial_record(struct node_trial *trial, int which, const struct disti_node_op *op,
                         int64_t took_ns)
{
    uint64_t bytes = op->largest * op->element_bytes;
    uint64_t ns = (uint64_t)took_ns * 1024 / (bytes / 1024 + 1) + 1;

    if (!trial->ns[which] || ns < trial->ns[which])
        trial->ns[which] = ns;
}

static void trial_count(struct node_trial *trial)
{
    if (++trial->calls == (trial->tried ? TRIAL_CALLS : TRIAL_CALLS_FIRST))
        *trial = (struct node_trial){.best = trial->best, .tried = true};
}

/* ---- the copy mode ---- */

static struct node_copy_modes *copy_modes_of(struct disti_node *node,
                                             const struct disti_node_op *op)
{
    return &node->copy_modes[op->call.collective][disti_node_size_class(op)];
}

/* A sum in segments reads and writes the memory of all ranks at once: it does best to ask for it.
 */
static bool copy_mode_is_given(const struct node_copy_modes *copy_modes,
                               const struct disti_node_op *op)
{
    return copy_modes->was_direct && disti_node_pattern(op->call.collective)->reduces;
}

/* Is there no bounce buffer to stream into? Of two ranks that sum for both each writes over what it
 * has just read, in the other's bounce buffer. */
static bool copy_mode_never_streams(const struct disti_node *node, const struct disti_node_op *op,
                                    bool direct)
{
    const struct node_pattern *pattern = disti_node_pattern(op->call.collective);

    return direct || (node->ranks == 2 && pattern->slices && pattern->receivers == NODE_ALL);
}

static size_t node_class_bytes(int size_class);

/*
 * Calls in a row in which one is tried. A reduction tries each until the bounce buffers' rounds
 * have all been written so: until then they lie where another copy mode has left them. A long call
 * uses each of them more than once. Where the kernel may copy, the selector compares it with few
 * calls, which are to show several.
 */
static int copy_mode_run(const struct disti_node_op *op)
{
    if (!disti_node_pattern(op->call.collective)->reduces)
        return 1;
    if (node_class_bytes(disti_node_size_class(op)) > NODE_ROUNDS * NODE_ROUND_BYTES)
        return 2;
    return 4;
}

/* Calls in which all are tried, each twice at least. */
static int copy_mode_trials(const struct disti_node *node, const struct disti_node_op *op,
                            bool direct)
{
    const int run = copy_mode_run(op);

    if (copy_mode_never_streams(node, op, direct))
        return COPY_MODE_TURNS * NODE_STREAMS;
    return (run > 1 ? run : 2) * NODE_COPY_MODES;
}

static uint8_t copy_mode_tried(const struct disti_node *node, const struct disti_node_op *op,
                               bool direct, int calls)
{
    const int turn = calls / copy_mode_run(op) % NODE_COPY_MODES;

    if (copy_mode_never_streams(node, op, direct))
        return (uint8_t)(calls % NODE_STREAMS);
    return (uint8_t)(turn / 2 | (turn % 2 ? NODE_STREAMS : 0));
}

void disti_node_copy_mode_choose(struct disti_node *node, struct disti_node_op *op, bool may_bypass)
{
    struct node_copy_modes *copy_modes = copy_modes_of(node, op);
    bool direct = copy_modes->was_direct;
    const struct node_trial *copy_mode = direct ? &copy_modes->direct : &copy_modes->elsewhere;

    op->worked_ns = 0;
    op->in_copy_mode_trial = trial_runs(copy_mode, 0, copy_mode_trials(node, op, direct)) &&
                             !copy_mode_is_given(copy_modes, op);
    op->copy_mode = op->in_copy_mode_trial ? copy_mode_tried(node, op, direct, copy_mode->calls)
                                           : copy_mode->best;
    if (copy_mode_is_given(copy_modes, op))
        op->copy_mode = NODE_PREFETCHES | NODE_BYPASSES;
    if (!may_bypass)
        op->copy_mode &= (uint8_t)~NODE_BYPASSES;
}

/*
 * Streams must save a quarter: the ranks may not agree, and who does not stream pays for others.
 * Who only gives does not see what its readers pay: it must save half.
 */
static uint64_t copy_mode_cost(const struct node_trial *copy_mode, uint8_t which, bool only_gives)
{
    return copy_mode->ns[which] * (!(which & NODE_STREAMS) ? 3 : only_gives ? 6 : 4);
}

/* The trial ends after so many calls. */
static void copy_mode_count(struct node_trial *copy_mode, const struct disti_node_op *op,
                            int trials, bool only_gives)
{
    if (op->in_copy_mode_trial)
        trial_record(copy_mode, op->copy_mode, op, op->worked_ns);
    if (copy_mode->calls + 1 == trials) {
        for (uint8_t i = 0; i < NODE_COPY_MODES; i++) {
            bool better = !copy_mode->ns[copy_mode->best] ||
                          copy_mode_cost(copy_mode, i, only_gives) <
                              copy_mode_cost(copy_mode, copy_mode->best, only_gives);
            if (copy_mode->ns[i] && better)
                copy_mode->best = i;
        }
    }
    trial_count(copy_mode);
}

void disti_node_copy_mode_learn(struct disti_node *node, const struct disti_node_op *op)
{
    struct node_copy_modes *copy_modes = copy_modes_of(node, op);
    bool direct = op->method == NODE_METHOD_DIRECT, was_direct = copy_modes->was_direct;

    copy_modes->was_direct = direct;
    if (op->method != NODE_METHOD_CMA && direct == was_direct)
        copy_mode_count(direct ? &copy_modes->direct : &copy_modes->elsewhere, op,
                        copy_mode_trials(node, op, direct), false);
}

/* ---- overflow slots ---- */

void disti_node_overflow_begin(struct disti_node *node, struct disti_node_op *op)
{
    const struct node_trial *copy_mode = &copy_modes_of(node, op)->overflow;

    op->in_copy_mode_trial =
        trial_runs(copy_mode, COPY_MODE_OVERFLOW_BEFORE, COPY_MODE_OVERFLOW_TRIALS);
    if (copy_mode->calls == COPY_MODE_OVERFLOW_BEFORE) {
        /* This rank's ring of overflow slots is used from now on, and its pages are there. */
        if (node_use_ring(node)) {
#ifdef MADV_POPULATE_WRITE /* where the kernel cannot, pages come one by one */
            const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
            unsigned char *ring = node->self->overflows;
            (void)madvise(ring - (uintptr_t)ring % page, node->overflow_bytes, MADV_POPULATE_WRITE);
#endif
        }
    }
    op->copy_mode = op->in_copy_mode_trial ? copy_mode->calls % 2 * NODE_STREAMS : copy_mode->best;
    op->worked_ns = -node_copy_mode_clock(op);
}

static void overflow_shown(struct disti_node_op *op)
{
    if (op->copy_mode & NODE_STREAMS)
        disti_node_store_fence();
    op->worked_ns += node_copy_mode_clock(op);
}

void disti_node_overflow_end(struct disti_node *node, struct disti_node_op *op)
{
    const struct node_pattern *pattern = disti_node_pattern(op->call.collective);

    op->worked_ns += node_copy_mode_clock(op);
    copy_mode_count(&copy_modes_of(node, op)->overflow, op,
                    COPY_MODE_OVERFLOW_BEFORE + COPY_MODE_OVERFLOW_TRIALS,
                    pattern->senders != pattern->receivers);
}

/*
 * Which way ordinary memory is moved. Where the data are is known only when all have come to a
 * call; so the calls before it, of the same collective and size class, tell.
 *
 * Up to NODE_OVERFLOW_BYTES a mailbox is best, for who gives need not wait; unless the data are in
 * segments, where it would be a needless copy. So a few calls see where they are.
 *
 * Longer data go through bounce buffers, copied twice, in rounds; or are copied by the kernel,
 * once, at the price of system calls. What is faster depends on caches, kernel, size, and on how
 * many ranks share a CPU. So a few calls in a row take one way, then a few the other (bounce
 * buffers are sooner when they lie in the caches), and all ranks show what they measured:
 *
 *   call     0 ... 7   8 ... 11   12 ... 15   16
 *            CMA       CMA        bounce buffers     all see all times: the sooner way from now on
 *
 * A bounce buffer that nobody has used yet has no pages, and whoever fills it first waits for each
 * of them: a program that makes a few calls does without, so the kernel copies in those. Long calls
 * use each page more than once: they try from the third on, and decide in the eleventh.
 *
 * What counts is the time from when all had come, and what a rank has put into its bounce buffer
 * before. Ranks that share a CPU count the time that they had one: whoever gets it last finds the
 * others' work done, and would call that quick. The times of all ranks are added.
 *
 * Every rank counts the same calls and sees the same times, and so comes to the same answer. They
 * try again soon, when buffers and bounce buffers lie in the caches as they do from then on; and
 * now and then, for ranks move to other CPUs, and neighbours come and go.
 */

/* The trials begin behind so many calls; the call behind them decides. */
#define SELECTOR_BEFORE 8
#define SELECTOR_TRIALS 8
/* The same of calls so long that the bounce buffers' first pages are little of them. */
#define SELECTOR_BEFORE_LONG 2
/* So many calls in a row with data elsewhere than in segments: mailboxes are taken. */
#define SELECTOR_LOOKS 2
/* The least class: calls of up to so many bytes. */
#define SELECTOR_LEAST 13

int disti_node_size_class(const struct disti_node_op *op)
{
    size_t bytes = op->largest * op->element_bytes;
    int size = 0;

    while (size < NODE_SIZE_CLASSES - 1 && bytes >> SELECTOR_LEAST >> size)
        size++;
    return size;
}

/* The least bytes of a size class. */
static size_t node_class_bytes(int size_class)
{
    return size_class ? (size_t)1 << (SELECTOR_LEAST - 1 + size_class) : 0;
}

static struct node_selector *selector_of(struct disti_node *node, const struct disti_node_op *op)
{
    return &node->selectors[op->call.collective][disti_node_size_class(op)];
}

/* Calls before the trial. */
static int selector_before(const struct disti_node_op *op)
{
    const bool is_long = op->largest * op->element_bytes >= NODE_ROUNDS * NODE_ROUND_BYTES;

    return is_long ? SELECTOR_BEFORE_LONG : SELECTOR_BEFORE;
}

static bool selector_tries(const struct node_selector *selector, const struct disti_node_op *op)
{
    return trial_runs(&selector->trial, selector_before(op), SELECTOR_TRIALS);
}

static bool selector_decides(const struct node_selector *selector, const struct disti_node_op *op)
{
    return selector->trial.calls == selector_before(op) + SELECTOR_TRIALS;
}

static bool selector_begins_with_cma(const struct node_selector *selector,
                                     const struct disti_node_op *op)
{
    const bool cma_is_best = selector->trial.best == SELECTOR_CMA;
    int trial;

    if (selector->direct)
        return true;
    if (selector->trial.calls < SELECTOR_BEFORE_LONG) /* short calls stay here */
        return cma_is_best;
    trial = selector->trial.calls - selector_before(op);
    if (trial == SELECTOR_TRIALS)
        return true;
    return trial >= 0 && trial < SELECTOR_TRIALS ? trial < SELECTOR_TRIALS / 2 : cma_is_best;
}

/* Irregular calls reduce nothing. */
bool disti_node_selector_leads(struct disti_node *node, const struct disti_node_op *op)
{
    return node->cma && !node->cma_refused && selector_begins_with_cma(selector_of(node, op), op);
}

bool disti_node_selector_takes_overflow(struct disti_node *node, const struct disti_node_op *op)
{
    struct node_selector *selector = selector_of(node, op);

    if (selector->trial.calls < SELECTOR_LOOKS)
        return false;
    trial_count(&selector->trial);
    return true;
}

void disti_node_selector_choose(struct disti_node *node, struct disti_node_op *op)
{
    struct node_selector *selector = selector_of(node, op);

    op->cma = (node->cma && !disti_node_pattern(op->call.collective)->reduces) &&
              selector_begins_with_cma(selector, op);
    if (selector->trial.calls < SELECTOR_LOOKS ||
        !fits_overflow(op->call.collective, node->ranks, op->largest * op->element_bytes))
        return;
    op->method = NODE_METHOD_MAILBOX;
    op->in_overflow = op->chosen = true;
    node_roles(node, op);
    trial_count(&selector->trial);
}

void disti_node_selector_publish(struct disti_node *node, const struct disti_node_op *op)
{
    const struct node_selector *selector = selector_of(node, op);
    struct node_locations *locations = &node_slot(node->mailbox, op)->locations;

    if (selector_decides(selector, op)) {
        locations->selector_ns[false] = selector->trial.ns[SELECTOR_BOUNCES];
        locations->selector_ns[true] = selector->trial.ns[SELECTOR_CMA];
    }
}

static int64_t selector_clock(const struct disti_node *node)
{
    struct timespec now; /* the CPU time of this thread, the kernel's work for it included */

    if (!disti_node_is_crowded(node))
        return disti_now_ns();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void disti_node_selector_begin(struct disti_node *node, struct disti_node_op *op)
{
    struct node_selector *selector = selector_of(node, op);

    op->begun_ns = 0;
    if (op->method == NODE_METHOD_DIRECT) {
        if (!selector->direct)
            *selector = (struct node_selector){.direct = true};
        return;
    }
    selector->direct = false;
    if (selector_decides(selector, op)) {
        /* Decides by the sum of all ranks' times; in an irregular call the leader decides alone. */
        uint64_t all[2] = {0, 0};
        for (int r = 0; !op->irregular && r < node->ranks; r++) {
            const struct node_locations *locations =
                &node_slot(node->peers[r].mailbox, op)->locations;
            all[SELECTOR_BOUNCES] += locations->selector_ns[false];
            all[SELECTOR_CMA] += locations->selector_ns[true];
        }
        /* In the first trials bounce buffers have not found their copy mode: they may take a
         * quarter more. */
        const uint64_t *ns = op->irregular ? selector->trial.ns : all;
        const uint64_t cma = ns[SELECTOR_CMA], bounces = ns[SELECTOR_BOUNCES];
        const bool prefers = selector->trial.tried ? cma >= bounces : cma * 5 >= bounces * 4;
        selector->trial.best = prefers ? SELECTOR_BOUNCES : SELECTOR_CMA;
    } else if (selector_tries(selector, op))
        op->begun_ns = selector_clock(node) - op->filled_ns;
    trial_count(&selector->trial);
}

void disti_node_selector_end(struct disti_node *node, const struct disti_node_op *op)
{
    if (op->begun_ns)
        trial_record(&selector_of(node, op)->trial, op->cma ? SELECTOR_CMA : SELECTOR_BOUNCES, op,
                     selector_clock(node) - op->begun_ns);
}

/* A call on the mailboxes, from stage to stage. */

/* The arrows of the drawing in node.h, by where they begin. */
static const uint8_t op_arrows[] = {
    [NODE_OP_POSTED] = 1 << NODE_OP_WAITING,
    [NODE_OP_WAITING] = 1 << NODE_OP_WORKING | 1 << NODE_OP_ENDED,
    [NODE_OP_WORKING] = 1 << NODE_OP_WAITING | 1 << NODE_OP_ENDED,
    [NODE_OP_ENDED] = 0,
};

dist_status disti_node_op_go(struct disti_node_op *op, enum disti_node_op_state to)
{
    if (!(op_arrows[op->state] & 1 << to))
        return disti_fail_transition("a call in shared memory", (int)op->state, (int)to);
    op->state = to;
    return DIST_OK;
}

/* ---- saying and hearing how far one is ---- */

/* Have all that are awaited reached the op's stage? */
static inline dist_status op_poll(struct disti_node *node, struct disti_node_op *op)
{
    bool apart = op->irregular && op->stage;
    uint64_t want = node_stage(op->number, op->stage), history = op->history;
    size_t at = op->slot;
    const struct node_peer *peers = node->peers;
    int r = op->seen, end = op->end, rank = node->rank;

    for (; r < end; r++) {
        struct node_slot *slot = &peers[r].mailbox->slots[at];

        if (r == rank || (apart && op->stage > peers[r].last))
            continue;
        if (atomic_load_explicit(&slot->stage, memory_order_acquire) < want)
            break;
        if (atomic_load_explicit(&slot->history, memory_order_relaxed) != history &&
            node_differs(node, op, op->number, r) != DIST_OK)
            return DIST_ERR_MISMATCH;
    }
    op->seen = r;
    return r < end ? DIST_IN_PROGRESS : DIST_OK;
}

/* ---- its course ---- */

static void op_begin(struct disti_node *node, const struct disti_node_op *op)
{
    short_begin(node, op->slot, op->number, op->call.sequence, op->fingerprint, op->history);
}

/* Do its data stand in overflow slots, and are they so long that it matters how they are put there?
 */
static bool op_has_copy_mode(const struct disti_node_op *op)
{
    return op->in_overflow && op->chosen &&
           (!op->irregular || op->published_bytes > NODE_SHORT_MAX);
}

static dist_status op_show_long(struct disti_node *node, struct disti_node_op *op)
{
    dist_status status;

    op_begin(node, op);
    status = disti_node_publish(node, op);
    if (status != DIST_OK)
        return status;
    disti_node_selector_publish(node, op);
    disti_node_copy_mode_choose(node, op, node_may_go_past(node, op));
    if (!op->cma) {
        /* Fills this rank's bounce buffer for the first round. */
        const bool timed = selector_tries(selector_of(node, op), op);
        const int64_t begun = timed ? selector_clock(node) : 0;
        disti_node_work_fill(node, op, 0);
        if (timed)
            op->filled_ns = selector_clock(node) - begun;
    }
    return disti_node_op_go(op, NODE_OP_WAITING);
}

static dist_status op_enter(struct disti_node *node, struct disti_node_op *op)
{
    dist_status status;

    /* Which way its data go: once. */
    if (op->irregular && !op->chosen)
        disti_node_irregular_choose(node, op);
    else if (!op->irregular && op->method == NODE_METHOD_BOUNCES)
        disti_node_selector_choose(node, op);
    status = node_admit(node, op);
    if (status == DIST_OK && op->irregular) {
        op_begin(node, op);
        if (op_has_copy_mode(op))
            disti_node_overflow_begin(node, op);
        status = disti_node_irregular_publish(node, op);
        if (op_has_copy_mode(op))
            overflow_shown(op);
        status = status == DIST_OK ? disti_node_op_go(op, NODE_OP_WAITING) : status;
    } else if (status == DIST_OK && op->method == NODE_METHOD_MAILBOX) {
        op_begin(node, op);
        if (op_has_copy_mode(op)) {
            disti_node_overflow_begin(node, op);
            if (op->published_bytes) {
                node_choose_overflow(node, node_slot(node->mailbox, op), op->published_bytes);
                disti_node_move((char *)node_mailbox_data(node->self, op), op->call.in,
                                op->published_bytes, node_bounce_copy_mode(op));
            }
            overflow_shown(op);
        } else
            short_write(node, node_slot(node->mailbox, op), op);
        status = disti_node_op_go(op, NODE_OP_WAITING);
    } else if (status == DIST_OK)
        status = op_show_long(node, op);
    if (status != DIST_OK)
        return status;
    if (!op->irregular || op->place == NODE_IN_MEMORY || op->number % SHORT_CPU_CALLS == 0)
        disti_node_publish_cpu(node);
    short_publish(node, node_slot(node->mailbox, op), node_stage(op->number, 0));
    return DIST_OK;
}

static dist_status op_finish_short(struct disti_node *node, struct disti_node_op *op)
{
    const bool copy_mode = op_has_copy_mode(op);
    dist_status status;

    if (copy_mode)
        op->worked_ns -= node_copy_mode_clock(op);
    status = op->irregular ? disti_node_irregular_finish(node, op) : DIST_OK;
    if (status == DIST_OK)
        status = disti_node_op_go(op, NODE_OP_ENDED);
    if (status == DIST_OK)
        short_finish(node, op, op->number);
    if (copy_mode)
        disti_node_overflow_end(node, op);
    return status;
}

/* Has a rank given up this call? */
static bool op_is_lost(const struct disti_node *node, const struct disti_node_op *op)
{
    return node->abandoned_rank >= 0 && op->number >= node->abandoned_from;
}

static bool op_has_bounces(const struct disti_node_op *op)
{
    return op->method == NODE_METHOD_BOUNCES || op->method == NODE_METHOD_SWAPPED;
}

/* What the work of a stage of a long call begins with, once: all are there. */
static dist_status op_turn(struct disti_node *node, struct disti_node_op *op)
{
    dist_status status = DIST_OK;

    if (op->waits_for_all)
        node->confirmed = op->number;
    if (op->stage == 0) {
        status =
            op->irregular ? disti_node_irregular_resolve(node, op) : disti_node_resolve(node, op);
        if (status == DIST_OK && (!op->irregular || op->copies_with_peers))
            disti_node_selector_begin(node, op);
    }
    if (status == DIST_OK && !op->irregular && op_has_bounces(op) && op->stage > op->base)
        disti_node_work_drain(node, op, op->stage - op->base - 1);
    if (op->copy_mode & NODE_BYPASSES) /* before anybody is told that the call has ended */
        disti_node_store_fence();
    return status == DIST_OK ? disti_node_op_go(op, NODE_OP_WORKING) : status;
}

/* The last stage of a long call: nobody needs this rank's part any more. */
static dist_status op_finish_long(struct disti_node *node, struct disti_node_op *op)
{
    dist_status status = disti_node_op_go(op, NODE_OP_ENDED);

    if (status != DIST_OK)
        return status;
    if (op->irregular) {
        short_prefetch_next(node, op, op->published_bytes);
    } else {
        disti_node_copy_back(node, op);
        disti_node_record(node, op);
    }
    disti_node_selector_end(node, op);
    if (!op->irregular || op->copies_with_peers)
        disti_node_copy_mode_learn(node, op);
    node->rounds += op_has_bounces(op) ? op->rounds : 0;
    return DIST_OK;
}

/* This rank's part of the stage is done: the others are told, and awaited. */
static dist_status op_reach(struct disti_node *node, struct disti_node_op *op)
{
    dist_status status = disti_node_op_go(op, NODE_OP_WAITING);

    if (status != DIST_OK)
        return status;
    op->stage++;
    op->seen = op->first;
    short_publish(node, node_slot(node->mailbox, op), node_stage(op->number, op->stage));
    return DIST_IN_PROGRESS;
}

/* The kernel has not copied all, or not all could go without bounce buffers. */
static bool op_must_again(struct disti_node *node, struct disti_node_op *op)
{
    if (op->irregular)
        return disti_node_irregular_needs_bounces(node, op);
    return op->method == NODE_METHOD_CMA && disti_node_cma_failed(node, op);
}

/* The same once more, through bounce buffers. */
static dist_status op_begin_again(struct disti_node *node, struct disti_node_op *op)
{
    dist_status status = op->irregular ? disti_node_irregular_to_bounces(node, op)
                                       : disti_node_resolve_to_bounces(node, op);

    if (status != DIST_OK)
        return status;
    op->round = 0;
    op->base = op->stage + 1;
    disti_node_work_fill(node, op, op->round);
    return op_reach(node, op);
}

/* The round is done: says so, and has the next one filled. */
static dist_status op_next_stage(struct disti_node *node, struct disti_node_op *op)
{
    op->done = 0;
    op->peers_done = 0;
    op->round++;
    if (op_has_bounces(op) && op->round < op->rounds)
        disti_node_work_fill(node, op, op->round);
    return op_reach(node, op);
}

/*
 * Some of a stage's work; true: that was the rest. A rank that has given up may use its memory for
 * something else: the mailbox says that this one writes before it looks who is gone (mailbox.c).
 */
static bool op_bite(struct disti_node *node, struct disti_node_op *op)
{
    _Atomic int32_t *writes_to = &node->mailbox->writes_to;
    bool ended;

    if (!op_has_bounces(op)) {
        atomic_store_explicit(writes_to, NODE_TO_ANY, memory_order_seq_cst);
        atomic_thread_fence(memory_order_seq_cst);
    }
    disti_node_note_abandoned(node);
    ended = !op_is_lost(node, op) && disti_node_work(node, op);
    if (op->copy_mode &
        (NODE_BYPASSES | NODE_STREAMS)) /* which may come later than the next store */
        disti_node_store_fence();
    if (!op_has_bounces(op)) /* the others look at this line in every call */
        atomic_store_explicit(writes_to, NODE_TO_NONE, memory_order_release);
    return ended;
}

dist_status disti_node_advance(struct disti_node *node, struct disti_node_op *op, int *moved)
{
    dist_status status = op->state == NODE_OP_POSTED ? op_enter(node, op) : DIST_OK;

    if (status == DIST_OK && op_is_lost(node, op))
        status =
            disti_fail(DIST_ERR_PEER_LOST,
                       "rank %d abandoned a call that it had begun: its own error has the cause",
                       node->abandoned_rank);
    if (status != DIST_OK)
        return status;
    status = op_poll(node, op);
    if (status == DIST_IN_PROGRESS)
        disti_node_migrate_cpu(node);
    if (status != DIST_OK)
        return status;
    ++*moved;
    if (op->irregular && op->stage == 0 && op->state == NODE_OP_WAITING &&
        disti_node_irregular_are_short(node, op))
        return op_finish_short(node, op);
    if (op->method == NODE_METHOD_MAILBOX)
        return op_finish_short(node, op);
    /* One bite of a stage of a long call that all have reached. OK: the call has ended. */
    status = op->state == NODE_OP_WAITING ? op_turn(node, op) : DIST_OK;
    if (status != DIST_OK)
        return status;
    if (op->stage == op->base + op->rounds)
        return op_must_again(node, op) ? op_begin_again(node, op) : op_finish_long(node, op);
    if (!op_bite(node, op))
        return DIST_IN_PROGRESS;
    return op->irregular && !op->copies_with_peers ? op_finish_long(node, op)
                                                   : op_next_stage(node, op);
}

/* ---- once more ---- */

bool disti_node_can_start_again(const struct disti_node *node, const struct disti_node_op *op)
{
    bool fits = op->irregular ? disti_node_irregular_can_start_again(node, op)
                              : op->method == NODE_METHOD_MAILBOX && !op->chosen;

    return fits && !op->call.reduction && !op->call.list &&
           !(disti_node_is_crowded(node) && op->waits_for_all);
}

__attribute__((cold, noinline)) dist_status
disti_node_op_continue(struct disti_node_op *op, const struct dist_call *call, uint64_t history)
{
    op->call.sequence = call->sequence;
    op->history = history;
    op->seen = op->first;
    op->state = NODE_OP_WAITING;
    return DIST_IN_PROGRESS;
}

dist_status disti_node_start_again(struct disti_node *node, const struct dist_call *call,
                                   uint64_t history, struct disti_node_op *op)
{
    uint64_t number = node->calls + 1;
    size_t at = node_slot_number(node, number);
    struct node_slot *slot = &node->mailbox->slots[at];

    if (op->irregular)
        return disti_node_irregular_start_again(node, call, history, op);
    if (number - node->confirmed >= op->unconfirmed_limit || node->abandoned_rank >= 0)
        return DIST_ERR_UNSUPPORTED;
    node->calls = op->number = number;
    op->slot = at;
    op->call.in = call->in;
    op->call.out = call->out;
    short_begin(node, at, number, call->sequence, op->fingerprint, history);
    short_write(node, slot, op);
    if (number % SHORT_CPU_CALLS == 0)
        disti_node_publish_cpu(node);
    short_publish(node, slot, node_stage(number, 0));
    if (!short_has_all(op, at, number, history))
        return disti_node_op_continue(op, call, history);
    short_finish(node, op, number);
    return DIST_OK;
}
