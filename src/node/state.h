/* SPDX-License-Identifier: BSD-3-Clause */
/* The state of a node group: mailboxes, operations, pairs of calls, doorbells; private to the node
 * layer. */
#ifndef DISTI_NODE_STATE_H
#define DISTI_NODE_STATE_H

#include "base/clock.h"
#include "node/node.h"

#include <stdalign.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/uio.h>

/* What stands on a rank's mailbox, and when it may be read; private to this folder. */

/* CPUs fetch lines in pairs: what different ranks write lies this far apart. */
#define NODE_APART 128
/* What is asked of memory. */
#define NODE_LINE 64
/* What a rank gives stands on its mailbox up to so many bytes. */
#define NODE_SHORT_MAX ((size_t)8 << 10)
/* Up to so many of ordinary memory, which is copied there sooner than it is waited for. */
#define NODE_OVERFLOW_BYTES ((size_t)32 << 10)
/* Of two ranks: half of a longer vector is sooner summed where it lies than all of it moved. */
#define NODE_SHORT_PAIR ((size_t)2 << 10)
/* From so many bytes on it pays to fetch a slot for writing before it is written. */
#define NODE_PREFETCH_MIN 192

/*
 * Where a rank's data are. Names of which all is zero: in its bounce buffer. What most calls read
 * comes first, and shares the line of the stage: each line more is one to fetch from another CPU.
 *
 * A segment that not all are known to have mapped is offered: the data are in the bounce buffer
 * too, the others try whether they can map it, and each says on its own mailbox if it could not. So
 * a rank without descriptors or mappings makes calls slower, and none fail.
 */
struct node_locations {
    uint8_t rounds; /* of its bounce buffer, before this call, modulo NODE_ROUNDS */
    bool in_place;  /* OUT is the same, and `out` not written */
    bool has_own;   /* a irregular root: it copies a block of its own, too */
    bool in_offered, out_offered;
    bool out_named; /* `out` is to be read; known of calls in which all wait for all */
    bool refuses;   /* from stage 1 on: one of the segments that were offered in this call */
    struct disti_segment_location in;
    struct disti_segment_location out;
    struct disti_segment_location bounce;
    uint64_t in_address, out_address; /* in this rank's own address space */
    uint64_t selector_ns[2];          /* op.c: by bounce buffers, and by CMA */
};

/*
 * Of s slots call number c stands in slot c % s. `stage` is c << NODE_STAGE_BITS | what the rank
 * has reached; it only grows. All else is written before the stage that it belongs to is stored
 * (release), and read after that has been seen (acquire). What a rank gives stands in the slot, or
 * in an overflow slot if the slot is too small. Of s slots or overflow slots one is written for
 * call c when every rank is known to have begun call c - s + 1, so that all have done with call c -
 * s, whose it was. Two would do; with more a rank that only gives need not wait for those that
 * take.
 *
 * `history` is a hash of this call and all before it: where two ranks' are the same in one call, so
 * are all calls before. Who waits for a call reads its slot while that is the call's. Who only
 * looks back at one may find the next in the slot, or half of it: then the stage says so before
 * history and fingerprint do.
 */
#define NODE_SLOTS_ALONE 32
/* Of ranks that share CPUs, which take turns: one that only gives does so much in its own. */
#define NODE_SLOTS 128
#define NODE_STAGE_BITS 24
/* Bytes that a slot has room for, aligned as any element: a root's short blocks for a few ranks. */
#define NODE_SLOT_DATA 992
/* So many are given there in a call in which all wait for all. */
#define NODE_SLOT_NEAR 224
#define NODE_SLOT_ALIGN 32
/* Slots and overflow slots are so much longer: if each began at the same place of a page, few of
 * them would fit in a first-level cache together. */
#define NODE_SLOT_GAP NODE_APART
#define NODE_OVERFLOW_GAP (1024 + NODE_APART)
/* The longest overflow slot; and how many a rank has whose places are fixed. */
#define NODE_OVERFLOW_EACH (NODE_OVERFLOW_BYTES + NODE_OVERFLOW_GAP)
#define NODE_OVERFLOWS_FIXED 8
struct node_slot {
    alignas(NODE_APART) _Atomic uint64_t stage;
    _Atomic uint64_t history, fingerprint;
    uint8_t place; /* of enum disti_node_place, in irregular calls */
    bool cma;      /* of the rank that leads an irregular call: the kernel may copy */
    uint16_t
        overflow;   /* that it gives in, in units of NODE_APART; 0: the one fixed by its number */
    int32_t failed; /* from stage 1 on: errno of a copy that the kernel did not make, or UNSEEN */
    alignas(NODE_SLOT_ALIGN) union {
        struct node_locations locations;
        unsigned char data[NODE_SLOT_DATA + NODE_SLOT_GAP];
    };
};

/* `failed`: a peer's segment could not be mapped. */
#define NODE_UNSEEN (-1)

/*
 * In irregular calls: a block for one rank, or from it. A list of them stands before what is given:
 * in the slot, or else in the overflow slot.
 */
struct node_block {
    uint64_t count, first; /* elements; where in IN or OUT it begins, or in what is given */
};

/*
 * The mailboxes of a group's ranks lie in one segment, which rank 0 makes and each of the others
 * maps once: first all mailboxes, then all overflow slots. Who looks at everybody's mailbox touches
 * few pages so.
 *
 *     |mailbox 0|mailbox 1|...|mailbox n - 1|overflow slots of rank 0|overflow slots of rank
 * 1|...|overflow slots of rank n - 1|
 */

/*
 * ASLEEP, and the rank that it waits for << NODE_AWAITS: it sleeps, or is about to; that rank's
 * next stage wakes it by its doorbell. Set before the last look at that rank's stage. GONE: it has
 * given up calls that it had begun: what it has not done it will not do.
 */
/* Of writes_to: it writes to no rank's memory, or itself to any that it sees. */
enum { NODE_TO_NONE = -1, NODE_TO_ANY = -2 };

enum node_presence { NODE_AWAKE, NODE_ASLEEP, NODE_GONE };
#define NODE_AWAITS 2 /* bits of the presence below the rank */

struct node_mailbox {
    struct node_slot slots[NODE_SLOTS];
    alignas(NODE_APART) _Atomic uint64_t begun; /* its newest call: others seldom look */
    alignas(NODE_APART) _Atomic uint32_t presence;
    _Atomic int32_t cpu;       /* that it was on when it last began a call */
    _Atomic int32_t writes_to; /* that rank's memory, by the kernel; or one of: */
    struct iovec written;      /* where there; a rank that gives up makes it empty */
    uint64_t gave_up;          /* GONE: from this call on */
};

static inline struct node_slot *node_slot(struct node_mailbox *mailbox,
                                          const struct disti_node_op *op)
{
    return &mailbox->slots[op->slot];
}

/* Of a rank's overflow slots that of the call in its slot. A branch, so that no reader waits for
 * the slot.
 */
static inline unsigned char *node_overflow(unsigned char *overflows, const struct node_slot *slot,
                                           uint64_t number)
{
    if (__builtin_expect(slot->overflow != 0, 0))
        return overflows + (size_t)slot->overflow * NODE_APART;
    return overflows + number % NODE_OVERFLOWS_FIXED * NODE_OVERFLOW_EACH;
}

/* As memcpy. Most short calls are about a number or two, which need no call of it. */
static inline void node_copy(void *to, const void *from, size_t bytes)
{
    if (bytes == sizeof(uint64_t))
        memcpy(to, from, sizeof(uint64_t));
    else
        memcpy(to, from, bytes);
}

static inline uint64_t node_stage(uint64_t number, uint32_t stage)
{
    return number << NODE_STAGE_BITS | stage;
}

/* The stage of a slot that is being written for a call. */
static inline uint64_t node_writing(uint64_t number)
{
    return node_stage(number, 0) - 1;
}

/* How this rank's CPU copies long data best, which its own calls find out; private to this folder.
 */

/*
 * Bits. 0: as the C library copies.
 * ASKS: lines are asked for before they are needed, of several pages in turn.
 * PAST: written past the caches, where nobody reads them soon.
 * STREAMS: what goes into bounce buffers is. To write a line that another CPU has read takes some
 * CPUs ten times as long as to read one that another has written; others read it later from further
 * away.
 */
#define NODE_ASKS 1
#define NODE_PAST 2
#define NODE_STREAMS 4
#define NODE_COPY_MODES 8

/*
 * A trial of alternatives: the first calls take them in turn and are timed, the best is kept, and
 * the trial begins anew after some thousand calls. What every call reads comes first.
 */
struct node_trial {
    uint16_t calls; /* since the trial began */
    uint8_t best;
    bool tried; /* the first trial is over */
    uint64_t
        ns[NODE_COPY_MODES]; /* for 1 MiB, in the fastest call of each alternative; 0: none yet */
};

/* Copy modes of one collective in a size class, by where the data are. */
struct node_copy_modes {
    struct node_trial elsewhere, direct;
    struct node_trial overflow; /* of what stands in overflow slots */
    bool was_direct;            /* the last call */
};

/* The copy mode of what goes into a bounce buffer. */
static inline uint8_t node_bounce_copy_mode(const struct disti_node_op *op)
{
    return (op->copy_mode & NODE_ASKS) | (op->copy_mode & NODE_STREAMS ? NODE_PAST : 0);
}

/* Before anything is copied. past: may it be written past the caches? */
void disti_node_copy_mode_choose(struct disti_node *node, struct disti_node_op *op, bool past);
/* The call has ended. */
void disti_node_copy_mode_learn(struct disti_node *node, const struct disti_node_op *op);

/*
 * Of a call whose data stand in overflow slots, and are longer than short: before this rank puts
 * its own there, and behind; before it takes others', and behind.
 */
void disti_node_overflow_begin(struct disti_node *node, struct disti_node_op *op);
void disti_node_overflow_end(struct disti_node *node, struct disti_node_op *op);

/* The time, in a call whose work is timed. */
static inline int64_t node_copy_mode_clock(const struct disti_node_op *op)
{
    return op->tries_copy_mode ? disti_now_ns() : 0;
}

/* Some of a stage's work, whose time counts in a trial. True: that was the rest. */
bool disti_node_work(struct disti_node *node, struct disti_node_op *op);
/* The same of what this rank puts into its bounce buffer for a round, and of what it fetches. */
void disti_node_work_fill(struct disti_node *node, struct disti_node_op *op, uint64_t round);
void disti_node_work_drain(struct disti_node *node, struct disti_node_op *op, uint64_t round);

/* What a rank knows of its calls and peers; private to this folder. */

/* Bytes of a bounce buffer that one round uses: stays in the caches between being written and read.
 */
#define NODE_ROUND_BYTES ((size_t)256 << 10)
/* Rounds of a bounce buffer: one is filled while the one before and the one before that are read.
 */
#define NODE_ROUNDS 3
/* One call of advance does about this much. */
#define NODE_BITE ((size_t)1 << 20)
/* A tile of a reduction stays in the first-level cache. */
#define NODE_TILE ((size_t)1 << 10)
/* More ranks than any machine has cores for: blocks of a bounce buffer must not vanish. */
#define NODE_RANKS_MAX 1024
#define NODE_TILES 24 /* levels of the tree of additions: more than any machine has ranks for */

/* A segment of a peer's that is mapped, and stays so while it is one of the last few used. */
struct node_view {
    uint64_t key;
    char *memory;
};
#define NODE_VIEWS 8

/* A segment of this rank's that all have mapped, or else that one could not. */
struct node_proof {
    uint64_t key;
    bool mapped;
};

/* How a rank gets its block of another's. */
enum node_means { NODE_NOTHING, NODE_FROM_MAILBOX, NODE_SEEN, NODE_BY_KERNEL, NODE_BY_BOUNCE };

struct node_peer {
    struct node_mailbox *mailbox;
    unsigned char *overflows;
    struct node_far_doorbell *doorbell; /* NULL: not opened yet */
    struct node_view views[NODE_VIEWS]; /* the first was used last */
    const char *in;                     /* of the call under way; NULL: in the bounce buffer */
    char *out;
    uint64_t in_address, out_address; /* the same in the peer's address space */
    char *bounce;                     /* NULL: not mapped yet */
    uint64_t bounce_key;
    uint64_t rounds; /* of its bounce buffer, before the call under way */
    /* In an irregular call `in` and `out`, and their addresses, are those of the block between it
     * and this rank, of `count` elements. */
    size_t count;
    enum node_means means; /* of this rank's to get it; else NOTHING, */
    bool by_bounce;        /* and it gets its own from this rank's bounce buffer */
    uint32_t last;         /* the stage up to which the two keep step */
};

/* Where a rank's data are in a call on the mailboxes. */
static inline unsigned char *node_given(const struct node_peer *peer,
                                        const struct disti_node_op *op)
{
    struct node_slot *slot = node_slot(peer->mailbox, op);

    return __builtin_expect(op->in_overflow, 0) ? node_overflow(peer->overflows, slot, op->number)
                                                : slot->data;
}

/* How ordinary memory is copied by a collective in a size class; the same on all ranks. */
enum { SELECTOR_CMA, SELECTOR_BOUNCES };
struct node_selector {
    struct node_trial trial; /* of SELECTOR_CMA and SELECTOR_BOUNCES */
    bool direct;             /* the last call needed neither */
};
/* Size classes: factors of two. */
#define NODE_SIZES 16

/* Barriers of crowded ranks: see waking.c. */
struct node_lead {
    int first, end;       /* the ranks that are let go first behind a barrier: [first, end) */
    uint64_t fingerprint; /* of the call in which they are awaited */
    uint64_t barrier;     /* the newest that has ended, by its number */
};

struct disti_node {
    const struct dist_backend_config *config;
    int rank, ranks;
    void *mailboxes;              /* rank 0: what it has made for all */
    struct node_mailbox *mailbox; /* this rank's; NULL: not mapped */
    struct node_peer *self;       /* this rank */
    struct node_peer *peers;      /* by rank; [rank]: itself */
    struct node_mailbox **others; /* the mailboxes of all but this rank, one after the other */
    struct disti_node_hello *hellos;
    char *bounce; /* this rank's, NULL: not needed yet */
    struct disti_segment_location bounce_location;
    size_t round_bytes;
    size_t overflow_bytes;   /* of all overflow slots of a rank; */
    size_t overflow_next;    /* of the ring the next one; 0: it is not used yet */
    uint64_t overflow_depth; /* so many calls find room in it, or among those that are fixed */
    int cpus;                /* for this rank and the others, no more than ranks */
    size_t cache_bytes;      /* this rank's, of the second level */
    uint64_t calls;          /* numbered so far */
    uint64_t confirmed; /* the last that every rank is known to have begun, and was the same to */
    uint64_t last_slot; /* of those in use, a power of two of them; the same on all ranks */
    uint64_t sequences[NODE_SLOTS]; /* of the calls in this rank's slots, as its group counts */
    uint64_t rounds;                /* of bounce buffers, so far */
    struct node_selector selectors[DIST_COLL_COUNT][NODE_SIZES];
    struct node_copy_modes copy_modes[DIST_COLL_COUNT][NODE_SIZES];
    struct node_again *agains[DIST_COLL_COUNT]; /* irregular.c; NULL: there was none yet */
    struct node_proof proofs[NODE_VIEWS];
    unsigned proof_next; /* that is written next */
    int gone;            /* a rank that has given up, -1: none is known, */
    uint64_t gone_from;  /* and from which call on */
    bool stays;          /* on its CPU, even if that is the awaited rank's too */
    int cpu;             /* what the mailbox says */
    int64_t migrate_at_ns, migrate_every_ns; /* time of the next check, and from there on */
    const char *stat_path;                   /* where idle CPUs are counted */
    struct node_idle *idle;                  /* NULL: CPUs have not been counted */
    uint32_t looks;                          /* in vain, so far */
    bool fences;                             /* a stage is stored with a fence */
    bool cma;          /* the kernel copies between ranks, as far as is known; same on all */
    bool cma_refused;  /* it did not, in an irregular call; this rank knows, others may not */
    bool used;         /* its ranks have agreed to use it */
    bool has_doorbell; /* with this number among those of the process: */
    uint32_t doorbell_number;
    struct node_lead lead;
    int sleeper; /* the doorbell of the thread that sleeps, -1: none; guarded by waking.c's lock
                  */
    bool armed;
    bool abandoned;
    int operands;         /* of the tree of additions: the largest power of two in ranks */
    const char **sources; /* ranks of them, to work with */
    char **targets;
    char *tiles; /* NODE_TILES tiles */
};

/* The slot of the call of that number. */
static inline size_t node_slot_number(const struct disti_node *node, uint64_t number)
{
    return (size_t)(number & node->last_slot);
}

/* ---- what the collectives are ---- */

/*
 * Givers have IN, takers get OUT.
 *
 * in_blocks: IN has a block for each rank, not one. slices: a
 * result is reduced by all ranks, a slice by each, who write it into the takers' OUT. rooted: is
 * copied from or to one rank. paired: a rank knows the counts of its own blocks only.
 */
enum node_who { NODE_ALL, NODE_ROOT };
struct node_pattern {
    bool taken; /* is it done here at all? */
    bool reduces, in_blocks, slices, rooted, irregular;
    uint8_t givers, takers;
};
extern const struct node_pattern disti_node_patterns[DIST_COLL_COUNT];

static inline const struct node_pattern *disti_node_pattern(dist_collective collective)
{
    return &disti_node_patterns[collective];
}

static inline bool node_is(uint8_t who, const struct disti_node_op *op, int rank)
{
    return who == NODE_ALL || rank == op->call.root;
}

/* Blocks of an IN. */
static inline size_t node_blocks(const struct disti_node *node, const struct node_pattern *pattern)
{
    return pattern->in_blocks ? (size_t)node->ranks : 1;
}

/* Elements of a block of this rank's IN or OUT, and where in it they begin. */
static inline size_t node_in_count(const struct disti_node_op *op, int block)
{
    return op->call.in_counts ? op->call.in_counts[block] : op->call.count;
}

static inline size_t node_in_first(const struct disti_node_op *op, int block)
{
    return op->call.in_counts ? op->call.in_offsets[block] : (size_t)block * op->call.count;
}

static inline size_t node_out_count(const struct disti_node_op *op, int block)
{
    return op->call.out_counts ? op->call.out_counts[block] : op->call.count;
}

static inline size_t node_out_first(const struct disti_node_op *op, int block)
{
    return op->call.out_counts ? op->call.out_offsets[block] : (size_t)block * op->call.count;
}

/* Elements that are about so many bytes, on whole lines. */
static inline size_t node_bite(const struct disti_node_op *op, size_t bytes)
{
    return (bytes / NODE_APART + 1) * (NODE_APART / op->element_bytes);
}

/* Lines of memory that are about to be written are fetched for that. */
static inline void node_prefetch_write(const void *memory, size_t bytes)
{
#if defined(__x86_64__)
    for (size_t at = 0; at < bytes; at += 64)
        __asm__ volatile("prefetchw %0" : : "m"(((const char *)memory)[at]));
#else
    (void)memory, (void)bytes;
#endif
}

/* ---- mailbox.c: where data are in a long call ---- */

/* Of a block of so many elements those that go in the round, and the first of them. */
size_t disti_node_round(const struct disti_node_op *op, size_t count, uint64_t round,
                        size_t *first_p);
/* Slice s of that many elements: [*from_p, *to_p), on lines of its own. */
void disti_node_slice(const struct disti_node *node, const struct disti_node_op *op,
                      size_t elements, int s, size_t *from_p, size_t *to_p);
/* Element `at` of the round, of a block of a rank's IN. */
const char *disti_node_in(const struct disti_node *node, const struct disti_node_op *op, int rank,
                          int block, size_t at);
/* A rank's bounce buffer in a round of the call under way. */
char *disti_node_bounce(const struct disti_node *node, int rank, uint64_t round);
/* Writes where this rank's data and its bounce buffer are into its slot. */
dist_status disti_node_publish(struct disti_node *node, struct disti_node_op *op);
/* Brings what peers have written into a twin to where the program has it; at the call's end. */
void disti_node_take_back(const struct disti_node *node, const struct disti_node_op *op);
/* Learns where the others' are, and what follows for the call. All have shown theirs. */
dist_status disti_node_resolve(struct disti_node *node, struct disti_node_op *op);
/* It goes through bounce buffers after all. */
dist_status disti_node_resolve_to_bounces(struct disti_node *node, struct disti_node_op *op);

/* Maps the peer's bounce buffer, if it is not. */
dist_status disti_node_attach(struct disti_node *node, const struct disti_node_op *op, int rank);
/* Writes where this rank's bounce buffer is into its slot; makes it if there is none. */
dist_status disti_node_show_bounce(struct disti_node *node, struct node_locations *locations);

/* ---- mailbox.c: who can map whose segments ---- */

/* Is that memory in a segment that the others can map, as far as is known? Writes where. */
bool disti_node_find(struct disti_node *node, const void *memory, size_t bytes,
                     struct disti_segment_location *location_p, bool *offered_p);
/* Learns who could map what this rank has offered. All have reached a later stage. */
void disti_node_record(struct disti_node *node, const struct disti_node_op *op);

/* The same without a word if it cannot be mapped: NULL. */
char *disti_node_try_see(struct node_peer *peer, const struct disti_segment_location *at,
                         size_t bytes);
/* A peer could not map that segment of this rank's. */
void disti_node_disprove(struct disti_node *node, uint64_t key);

/* ---- copy.c: moving long data ---- */

/* Bytes of a CPU's second-level cache. */
size_t disti_node_cache(void);
void disti_node_move(char *to, const char *from, size_t bytes, uint8_t copy_mode);
/* After moves past the caches, before others are told of them: such stores are in no order. */
void disti_node_store_fence(void);

/* ---- mailbox.c: copies that the kernel makes between the ranks' own memory ---- */

/* From the peer's memory, or into it. A failure is noted in this rank's slot. */
void disti_node_cma_get(struct disti_node *node, struct disti_node_op *op, int rank, void *to,
                        uint64_t from, size_t bytes);
void disti_node_cma_put(struct disti_node *node, struct disti_node_op *op, int rank, uint64_t to,
                        const void *from, size_t bytes);
/* Has a rank failed to copy? All have done their part. Then none relies on the kernel again. */
bool disti_node_cma_failed(struct disti_node *node, const struct disti_node_op *op);
/* This rank has said that it is gone: returns when no peer writes to its memory any more. */
void disti_node_cma_drain(const struct disti_node *node);

/* ---- op.c: a call before it begins ---- */

/* Bytes that a rank gives in a slot, rather than in an overflow slot. Where all wait for all two
 * slots are in use; so fewer, larger ones stay in the caches. */
size_t disti_node_slot_bytes(const struct node_pattern *pattern);
/* Elements of a block that go in a round of a bounce buffer. */
size_t disti_node_piece(const struct disti_node *node, const struct disti_node_op *op);

/* Cuts a call that goes through bounce buffers into rounds. */
void disti_node_cut(const struct disti_node *node, struct disti_node_op *op);

/* ---- op.c: which way ordinary memory is copied ---- */

/* The op's size class. */
int disti_node_size_class(const struct disti_node_op *op);

/* In an irregular call. May the kernel copy? Asked of the rank that leads it. */
bool disti_node_selector_leads(struct disti_node *node, const struct disti_node_op *op);
/* May what this rank gives stand in an overflow slot, though it is long? True: counted. */
bool disti_node_selector_takes_overflow(struct disti_node *node, const struct disti_node_op *op);
/* Chooses the way that a long call begins with; the same on all ranks. */
void disti_node_selector_choose(struct disti_node *node, struct disti_node_op *op);
/* Shows the others this rank's times, before stage 0. */
void disti_node_selector_show(struct disti_node *node, const struct disti_node_op *op);
/* All have shown theirs, and the op's way is known; and it has ended. */
void disti_node_selector_begin(struct disti_node *node, struct disti_node_op *op);
void disti_node_selector_end(struct disti_node *node, const struct disti_node_op *op);

/* ---- copy.c: the work ---- */

/* Short: takes this rank's result from the mailboxes. */
void disti_node_copy_short(struct disti_node *node, const struct disti_node_op *op);
void disti_node_reduce_short(struct disti_node *node, const struct disti_node_op *op);
/* The same of two ranks, where nothing is left to do with their sum. */
void disti_node_reduce_pair(struct disti_node *node, const struct disti_node_op *op);

/* ---- mailbox.c ---- */

/* ---- op.c ---- */

/* The only way to another state. ERR_INTERNAL: the drawing has no such arrow; it stays. */
dist_status disti_node_op_go(struct disti_node_op *op, enum disti_node_op_state to);
/* A call that was begun once more has not ended: it takes its course from there. IN_PROGRESS. */
dist_status disti_node_op_left(struct disti_node_op *op, const struct dist_call *call,
                               uint64_t history);

/* ---- migrate.c ---- */

/* Reads DIST_STEP_ASIDE. */
dist_status disti_node_migrate_open(struct disti_node *node);
void disti_node_migrate_close(struct disti_node *node);

/* ---- waking.c ---- */

/* Wakes those that sleep until this rank comes, and sees who is gone; after a stage has been
 * stored.
 */
void disti_node_ring(struct disti_node *node);

/* Sees who is gone. */
void disti_node_check_gone(struct disti_node *node);

/* Overflow slots: what a rank gives in a call stands in one, if a slot is too small and memory too
 * far. */

/*
 * A rank's overflow slots, NODE_OVERFLOWS_FIXED of them and a ring:
 *
 *     | of call 8 | of call 9 | ... | of call 15 | call 7 | call 20, long  | call 22 |  ...  |
 *                                                                                    next
 *
 * Whose place is fixed by a call's number a reader asks for before it has seen the slot: so short
 * blocks stand there. Longer ones follow each other in the ring. To write a line that another CPU
 * has read, and still holds, takes several times as long as to write one that has left that CPU's
 * caches; and all overflow slots together are NODE_OVERFLOWS_ALL, some times what a CPU has of the
 * second level.
 *
 * Whoever writes first to a page waits for it. So a rank uses its ring when it has given long
 * blocks several times. That is its own matter: its slot says where the overflow slot is.
 */
#define NODE_OVERFLOWS_ALL ((size_t)4 << 20)

/* How many bytes of overflow slots a rank has. With many ranks there is no ring. */
static inline size_t node_overflows_bytes(int ranks)
{
    size_t overflows = NODE_OVERFLOWS_ALL / (size_t)ranks / NODE_OVERFLOW_EACH;

    return NODE_OVERFLOW_EACH *
           (overflows > 2 * NODE_OVERFLOWS_FIXED ? overflows : NODE_OVERFLOWS_FIXED);
}

static inline void node_size_overflows(struct disti_node *node)
{
    node->overflow_bytes = node_overflows_bytes(node->ranks);
    node->overflow_depth = NODE_OVERFLOWS_FIXED;
    node->overflow_next = 0;
}

/* True: from now on the ring is used, and has not been before. */
static inline bool node_use_ring(struct disti_node *node)
{
    size_t overflows = node->overflow_bytes / NODE_OVERFLOW_EACH;

    if (node->overflow_next || overflows <= NODE_OVERFLOWS_FIXED)
        return false;
    overflows -= NODE_OVERFLOWS_FIXED + 1; /* one may be lost where the ring ends */
    node->overflow_next = NODE_OVERFLOWS_FIXED * NODE_OVERFLOW_EACH;
    node->overflow_depth = overflows <= node->last_slot ? overflows : node->last_slot + 1;
    return true;
}

/* The slot's call gives so many bytes, which are long, in the ring if that is used. */
static inline void node_take_overflow(struct disti_node *node, struct node_slot *slot, size_t bytes)
{
    slot->overflow = 0;
    if (!node->overflow_next)
        return;
    if (node->overflow_next + bytes > node->overflow_bytes)
        node->overflow_next = NODE_OVERFLOWS_FIXED * NODE_OVERFLOW_EACH;
    slot->overflow = (uint16_t)(node->overflow_next / NODE_APART);
    node->overflow_next += (bytes + NODE_OVERFLOW_GAP) / NODE_APART * NODE_APART;
}

/* How a call begins and a short one ends: inline, for one that comes again. */

/* Each so many say which CPU the rank is on. */
#define SHORT_CPU_CALLS 8

/* Its slot is free: it is this rank's newest call from now on. */
static inline void short_begin(struct disti_node *node, size_t at, uint64_t number,
                               uint64_t sequence, uint64_t fingerprint, uint64_t history)
{
    struct node_mailbox *mailbox = node->mailbox;
    struct node_slot *slot = &mailbox->slots[at];

    node->sequences[at] = sequence;
    atomic_store_explicit(&slot->stage, node_writing(number), memory_order_relaxed);
    atomic_store_explicit(&slot->history, history, memory_order_release);
    atomic_store_explicit(&slot->fingerprint, fingerprint, memory_order_release);
    atomic_store_explicit(&mailbox->begun, number, memory_order_release);
}

/* Short: what this rank gives. */
static inline void short_show(struct disti_node *node, struct node_slot *slot,
                              const struct disti_node_op *op)
{
    size_t given = op->given;

    if (!given)
        return;
    if (__builtin_expect(op->in_overflow, 0)) {
        slot->overflow = 0;
        node_copy(node_overflow(node->self->overflows, slot, op->number), op->call.in, given);
    } else {
        node_copy(slot->data, op->call.in, given);
    }
}

/* The store must stand before the look at who sleeps: waking.c says how, without a fence or with.
 */
static inline void short_publish(struct disti_node *node, struct node_slot *mine, uint64_t stage)
{
    struct node_mailbox **other = node->others, **end = other + node->ranks - 1;

    if (node->fences)
        atomic_store_explicit(&mine->stage, stage, memory_order_seq_cst);
    else
        atomic_store_explicit(&mine->stage, stage, memory_order_release);
    atomic_signal_fence(memory_order_seq_cst);
    for (; other < end; other++) {
        if (atomic_load_explicit(&(*other)->presence, memory_order_seq_cst) != NODE_AWAKE) {
            disti_node_ring(node);
            return;
        }
    }
}

/* Have all that it waits for shown the same call? */
static inline bool short_has_all(const struct disti_node_op *op, size_t at, uint64_t number,
                                 uint64_t history)
{
    struct node_mailbox *const *other = op->awaited, *const *end = op->awaited_end;

    for (; other < end; other++) {
        struct node_slot *slot = &(*other)->slots[at];

        if (atomic_load_explicit(&slot->stage, memory_order_acquire) < node_stage(number, 0) ||
            atomic_load_explicit(&slot->history, memory_order_relaxed) != history)
            return false;
    }
    return true;
}

/*
 * The next call's slot has been read by all, and so is in their caches: it is fetched back for
 * writing while the others' data are on their way.
 */
static inline void short_prefetch_next(struct disti_node *node, const struct disti_node_op *op,
                                       size_t bytes)
{
    uint64_t next = op->number + 1;

    if (bytes < NODE_PREFETCH_MIN)
        return;
    node_prefetch_write(&node->mailbox->slots[node_slot_number(node, next)],
                        NODE_SLOT_ALIGN + (op->in_overflow ? NODE_SLOT_NEAR : bytes));
    if (op->in_overflow && !(op->copy_mode & NODE_STREAMS))
        node_prefetch_write(op->chosen && node->overflow_next
                                ? node->self->overflows + node->overflow_next
                                : node->self->overflows +
                                      next % NODE_OVERFLOWS_FIXED * NODE_OVERFLOW_EACH,
                            bytes);
}

/* Short: all have come; takes what they give. */
static inline void short_take(struct disti_node *node, const struct disti_node_op *op,
                              uint64_t number)
{
    if (op->met)
        node->confirmed = number;
    short_prefetch_next(node, op, op->given);
    if (op->finish)
        op->finish(node, op);
}

/* What op.c asks of a call in which a rank knows the counts of its own blocks only. */

/* Chooses where this rank's blocks stand, and whom it awaits. */
void disti_node_irregular_choose(struct disti_node *node, struct disti_node_op *op);
/* Writes its list into its slot or overflow slot, and its blocks or where they are. */
dist_status disti_node_irregular_show(struct disti_node *node, struct disti_node_op *op);
/* Learns what the others have shown. ERR_MISMATCH: another count. */
dist_status disti_node_irregular_resolve(struct disti_node *node, struct disti_node_op *op);
/* Some of this rank's part, from op->done on. True: that was the rest. */
bool disti_node_irregular_work(struct disti_node *node, struct disti_node_op *op);
/* Do all that it waits for, and this rank, give on mailboxes? Then take does all, at once. */
bool disti_node_irregular_are_short(const struct disti_node *node, const struct disti_node_op *op);
dist_status disti_node_irregular_take(struct disti_node *node, struct disti_node_op *op);
/* Is there something left that goes through bounce buffers? All is done that went without. */
bool disti_node_irregular_remain(struct disti_node *node, struct disti_node_op *op);
/* Readies the bounce buffers for it. */
dist_status disti_node_irregular_to_bounces(struct disti_node *node, struct disti_node_op *op);
/* irregular.c: may the op, which has begun, come again: does this rank give little, whatever others
 * do? What was known of the last such is forgotten. */
bool disti_node_irregular_recur(const struct disti_node *node, const struct disti_node_op *op);
/* As disti_node_start_again. */
dist_status disti_node_irregular_again(struct disti_node *node, const struct dist_call *call,
                                       uint64_t history, struct disti_node_op *op);
/* Puts the round's pieces into this rank's bounce buffer. */
void disti_node_irregular_fill(struct disti_node *node, struct disti_node_op *op, uint64_t round);

/* What the files of this folder share. */

/*
 * Calls in which a rank knows the counts of its own blocks only: gather_v, scatter_v, all_to_all_v.
 * What they are to others is a matter of two ranks, who both know the block between them, and of
 * what stands on the mailboxes:
 *
 *     place of the giver   slot, overflow slot         memory
 *     on its mailbox         list, blocks       list, where they are
 *     stage 0              taken, the end     both copy a part; or it waits for bounce buffers
 *     stage 1                                 all is done that goes without bounce buffers
 *     stage 2, 3, ...                         the bounce buffer holds round 0, 1, ...
 *
 * Every giver chooses its place by itself, from what it gives. So a rank that gives little never
 * waits, whatever others give. Where two ranks copy, each awaits the other until the last stage of
 * that pair, and no longer: other pairs may need more rounds, or none.
 *
 * The root leads, or else rank 0: whether the kernel or bounce buffers move ordinary memory stands
 * on its mailbox. What the kernel refuses, or a rank cannot map, goes through bounce buffers from
 * stage 2 on: either of the two says at stage 1 that it has failed.
 */
static inline bool irregular_gives(const struct disti_node_op *op, int rank)
{
    return node_is(disti_node_pattern(op->call.collective)->givers, op, rank);
}

static inline bool irregular_takes(const struct disti_node_op *op, int rank)
{
    return node_is(disti_node_pattern(op->call.collective)->takers, op, rank);
}

/* Does this rank give to others? Between a root and another one gives, the other takes. */
static inline bool irregular_gives_others(const struct disti_node *node,
                                          const struct disti_node_op *op)
{
    const struct node_pattern *pattern = disti_node_pattern(op->call.collective);

    if (!pattern->rooted)
        return true;
    return (pattern->givers == NODE_ROOT) == (node->rank == op->call.root);
}

/* The block of IN that is for that rank: all have one, or the root has the only one. */
static inline struct node_block irregular_in(const struct disti_node_op *op, int taker)
{
    int block = op->call.in_counts ? taker : 0;

    return (struct node_block){node_in_count(op, block), node_in_first(op, block)};
}

/* The block of OUT that comes from that rank. */
static inline struct node_block irregular_out(const struct disti_node_op *op, int giver)
{
    int block = op->call.out_counts ? giver : 0;

    return (struct node_block){node_out_count(op, block), node_out_first(op, block)};
}

/* Bytes to the end of the last block of IN or OUT. */
static inline size_t irregular_extent(const size_t *counts, const size_t *offsets,
                                      const struct disti_node *node, const struct disti_node_op *op)
{
    size_t end = counts ? 0 : op->call.count;

    for (int r = 0; counts && r < node->ranks; r++) {
        if (counts[r] && offsets[r] + counts[r] > end)
            end = offsets[r] + counts[r];
    }
    return end * op->element_bytes;
}

/* Bytes before the first block that stands behind a list; those in an overflow slot are copied by
 * lines. */
static inline size_t irregular_list_bytes(int listed, enum disti_node_place place)
{
    size_t bytes = (size_t)listed * sizeof(struct node_block);

    return place == NODE_IN_SLOT ? bytes : (bytes + NODE_LINE - 1) / NODE_LINE * NODE_LINE;
}

/* Whose word counts on how ordinary memory is copied. */
static inline int irregular_leader(const struct disti_node_op *op)
{
    return disti_node_pattern(op->call.collective)->rooted ? op->call.root : 0;
}

/* Has this rank a list of all ranks' blocks, or is there only one? */
static inline int irregular_listed(const struct disti_node *node, const struct disti_node_op *op)
{
    return op->call.in_counts || op->call.out_counts ? node->ranks : 1;
}

/* How a giver's memory is reached. */
static inline enum node_means irregular_means(const struct disti_node_op *op,
                                              const struct node_locations *giver)
{
    return giver->in.name.key ? NODE_SEEN : op->cma ? NODE_BY_KERNEL : NODE_BY_BOUNCE;
}

/* Its list, in an irregular call. */
static inline struct node_block *node_list(const struct node_peer *peer,
                                           const struct disti_node_op *op)
{
    struct node_slot *slot = node_slot(peer->mailbox, op);

    if (__builtin_expect(slot->place == NODE_IN_SLOT, 1))
        return (void *)slot->data;
    return (void *)node_overflow(peer->overflows, slot, op->number);
}

/* Where a block of a giver's stands on its mailbox. */
static inline const char *irregular_on_mailbox(const struct disti_node *node,
                                               const struct disti_node_op *op, int giver,
                                               const struct node_block *block)
{
    const struct node_peer *peer = &node->peers[giver];
    int listed = disti_node_pattern(op->call.collective)->in_blocks ? node->ranks : 1;
    enum disti_node_place place = (enum disti_node_place)node_slot(peer->mailbox, op)->place;

    return (const char *)node_list(peer, op) + irregular_list_bytes(listed, place) +
           block->first * op->element_bytes;
}

/* A process's doorbell: who sleeps until a peer's call comes is woken through it. */

/* Readies the process's doorbell for this rank, and writes how it is reached. */
dist_status disti_node_doorbell_open(struct disti_node *node, struct disti_node_hello *hello);
/* The process's, if this was its last node, and its hold of its peers'. */
void disti_node_doorbell_close(struct disti_node *node);

/* Wakes that rank's sleeper. */
void disti_node_doorbell_ring(struct disti_node *node, int rank);

#endif
