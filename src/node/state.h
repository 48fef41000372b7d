/* SPDX-License-Identifier: BSD-3-Clause */
/* The state of a node: mailboxes, calls, peers, copy modes, doorbells; private to src/node. */
#ifndef DISTI_NODE_STATE_H
#define DISTI_NODE_STATE_H

#include "base/clock.h"
#include "node/node.h"

#include <stdalign.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/uio.h>

/* The contents of a mailbox, and when they may be read. */

/* CPUs fetch cache lines in pairs, so data written by different ranks are this many bytes apart. */
#define NODE_APART 128
/* Bytes of a cache line. */
#define NODE_LINE 64
/* Most bytes that a rank sends through its mailbox even if peers could read them in place. */
#define NODE_SHORT_MAX ((size_t)8 << 10)
/*
 * Most bytes that a rank sends through its mailbox from ordinary memory: up to this size a copy
 * costs less than waiting for the other ranks.
 */
#define NODE_OVERFLOW_BYTES ((size_t)32 << 10)
/*
 * Most bytes of a vector that 2 ranks reduce through their mailboxes. For a longer vector it is
 * faster that each rank reduces one half in place.
 */
#define NODE_SHORT_PAIR ((size_t)2 << 10)
/* Fewest bytes for which prefetching the next slot for writing pays off. */
#define NODE_PREFETCH_MIN 192

/*
 * The places of a rank's data. A name that is all zero means the rank's bounce buffer. The fields
 * that most calls read come first and share a cache line with the stage: each further line has to
 * be fetched from another CPU.
 *
 * A segment that some rank is not known to have mapped is "offered": the data are in the bounce
 * buffer too, the other ranks try to map the segment, and each reports on its own mailbox if it
 * failed. So a rank that runs out of descriptors or mappings makes calls slower, but no call fails.
 */
struct node_locations {
    uint8_t rounds; /* of its bounce buffer before this call, modulo NODE_ROUNDS */
    bool in_place;  /* OUT is the same buffer as IN, and `out` is not set */
    bool has_own;   /* root of an irregular call: it copies a block of its own, too */
    bool in_offered, out_offered;
    bool out_named; /* `out` must be read; set only in calls in which all ranks wait for all */
    bool refuses;   /* from stage 1 on: this rank could not map a segment offered in this call */
    struct disti_segment_location in;
    struct disti_segment_location out;
    struct disti_segment_location bounce;
    uint64_t in_address, out_address; /* addresses in this rank's own address space */
    uint64_t selector_ns[2];          /* op.c: this rank's times with bounce buffers and with CMA */
};

/*
 * With s slots, call number c uses slot c % s. `stage` is c << NODE_STAGE_BITS | the stage that the
 * rank has reached; it only grows. Data are written before the stage that they belong to is stored
 * (release), and read after that stage was loaded (acquire). A rank's data are in the slot, or in
 * an overflow slot if the slot is too small. A rank reuses a slot or overflow slot for call c only
 * after every rank is known to have begun call c - s + 1: all ranks have then finished call c - s,
 * which used it before. Two slots would suffice; with more slots a rank that only sends need not
 * wait for the receivers.
 *
 * `history` is a hash of this call and all calls before it: if it is the same on two ranks, so are
 * all their calls up to this one. A rank that waits for a call reads a peer's slot while the slot
 * belongs to that call. A rank that looks back at an earlier call may find the next call in the
 * slot, even half-written. The stage is stored before history and fingerprint, so it shows that the
 * slot was reused.
 */
#define NODE_SLOTS_EXCLUSIVE 32
/*
 * For ranks that share CPUs and so run in turns: a rank that only sends can begin this many calls
 * in its turn.
 */
#define NODE_SLOTS 128
#define NODE_STAGE_BITS 24
/*
 * Data bytes of a slot, aligned for any element type: enough for a root's short blocks for a few
 * ranks.
 */
#define NODE_SLOT_DATA 992
/* Data bytes that a slot is used for in calls in which all ranks wait for all. */
#define NODE_SLOT_NEAR 224
#define NODE_SLOT_ALIGN 32
/*
 * Padding after each slot and each overflow slot. Without it they would all start at the same
 * offset of a page, and few of them would fit into a first-level cache together.
 */
#define NODE_SLOT_GAP NODE_APART
#define NODE_OVERFLOW_GAP (1024 + NODE_APART)
/* Bytes of the longest overflow slot; number of overflow slots with fixed places. */
#define NODE_OVERFLOW_EACH (NODE_OVERFLOW_BYTES + NODE_OVERFLOW_GAP)
#define NODE_OVERFLOWS_FIXED 8
struct node_slot {
    alignas(NODE_APART) _Atomic uint64_t stage;
    _Atomic uint64_t history, fingerprint;
    uint8_t place;     /* enum disti_node_place; in irregular calls */
    bool cma;          /* leader of an irregular call only: CMA may be used */
    uint16_t overflow; /* place, in units of NODE_APART; 0: fixed by the call number */
    int32_t failed;    /* from stage 1 on: errno of a failed CMA copy, or NODE_UNMAPPABLE */
    alignas(NODE_SLOT_ALIGN) union {
        struct node_locations locations;
        unsigned char data[NODE_SLOT_DATA + NODE_SLOT_GAP];
    };
};

/* Value of `failed`: a peer's segment could not be mapped. */
#define NODE_UNMAPPABLE (-1)

/*
 * A block that a rank sends to or receives from one peer in an irregular call. The list of a rank's
 * blocks is stored before the data, in the slot or in the overflow slot.
 */
struct node_block {
    uint64_t count; /* elements */
    uint64_t first; /* its offset in IN, in OUT, or in the data on the mailbox; in elements */
};

/*
 * The mailboxes of a group are in one segment, which rank 0 creates and every other rank maps once:
 * first all mailboxes, then all overflow slots. So a rank that reads every mailbox touches few
 * pages.
 *
 *     |mailbox 0|...|mailbox n - 1|overflow slots of rank 0|...|overflow slots of rank n - 1|
 */

/* Special values of `writes_to`: no peer's memory; any memory that the rank has mapped. */
enum { NODE_TO_NONE = -1, NODE_TO_ANY = -2 };

/*
 * ASLEEP | rank << NODE_AWAITS: the rank sleeps or is about to; the next stage of the rank that it
 * awaits wakes it through its doorbell. It is stored before the last look at that rank's stage.
 * GONE: the rank has given up calls that it had begun and will not finish them.
 */
enum node_presence { NODE_AWAKE, NODE_ASLEEP, NODE_GONE };
#define NODE_AWAITS 2 /* bits of the presence below the rank number */

struct node_mailbox {
    struct node_slot slots[NODE_SLOTS];
    alignas(NODE_APART) _Atomic uint64_t begun; /* its newest call; peers rarely read it */
    alignas(NODE_APART) _Atomic uint32_t presence;
    _Atomic int32_t cpu;       /* its CPU when it last began a call */
    _Atomic int32_t writes_to; /* whose memory it writes to with CMA; or NODE_TO_NONE, _ANY */
    struct iovec written;      /* range that it writes there; a peer that gives up empties it */
    uint64_t abandoned_from;   /* GONE: number of the first call that it gave up */
};

static inline struct node_slot *node_slot(struct node_mailbox *mailbox,
                                          const struct disti_node_op *op)
{
    return &mailbox->slots[op->slot];
}

/*
 * Returns the overflow slot of a rank for the call in its slot. This is a branch, so that a reader
 * can compute the fixed place before the slot has arrived in its cache.
 */
static inline unsigned char *node_overflow(unsigned char *overflows, const struct node_slot *slot,
                                           uint64_t number)
{
    if (__builtin_expect(slot->overflow != 0, 0))
        return overflows + (size_t)slot->overflow * NODE_APART;
    return overflows + number % NODE_OVERFLOWS_FIXED * NODE_OVERFLOW_EACH;
}

/* memcpy, without a function call for 8 bytes: most short calls carry one or two numbers. */
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

/* The stage that a slot has while it is being written for a call. */
static inline uint64_t node_writing(uint64_t number)
{
    return node_stage(number, 0) - 1;
}

/* Copy modes: how this rank's CPU copies long data fastest, found by timing calls. */

/*
 * Bits of a copy mode; 0 is memcpy of the C library:
 *
 *     PREFETCHES   prefetches lines, of several pages in turn
 *     BYPASSES     stores bypass the caches (non-temporal): for data that no rank reads soon
 *     STREAMS      stores into bounce buffers and overflow slots bypass the caches
 *
 * STREAMS is a tradeoff: on some CPUs, writing a line that another CPU has read takes 10 times as
 * long as reading a line that another CPU has written; but the peers then read the data from memory
 * instead of a cache.
 */
#define NODE_PREFETCHES 1
#define NODE_BYPASSES 2
#define NODE_STREAMS 4
#define NODE_COPY_MODES 8

/*
 * A trial of alternatives: the first calls use them in turn and are timed, the fastest one is kept,
 * and the trial starts again after some thousand calls. The fields that every call reads come
 * first.
 */
struct node_trial {
    uint16_t calls; /* since the trial began */
    uint8_t best;
    bool tried;                   /* the first trial has ended */
    uint64_t ns[NODE_COPY_MODES]; /* per MiB, of the fastest call; 0: not measured */
};

/* Copy modes of one collective in a size class, by where the data are. */
struct node_copy_modes {
    struct node_trial elsewhere, direct;
    struct node_trial overflow; /* for data in overflow slots */
    bool was_direct;            /* in the last call */
};

/* Returns the copy mode for writing into a bounce buffer. */
static inline uint8_t node_bounce_copy_mode(const struct disti_node_op *op)
{
    return (op->copy_mode & NODE_PREFETCHES) | (op->copy_mode & NODE_STREAMS ? NODE_BYPASSES : 0);
}

/* Chooses the copy mode before anything is copied. past: stores may bypass the caches. */
void disti_node_copy_mode_choose(struct disti_node *node, struct disti_node_op *op,
                                 bool may_bypass);
/* Counts the time of a call that has ended. */
void disti_node_copy_mode_learn(struct disti_node *node, const struct disti_node_op *op);

/*
 * For a call with long data in overflow slots: begin chooses the copy mode before this rank writes
 * its data, end counts the time after it has read the data of its peers.
 */
void disti_node_overflow_begin(struct disti_node *node, struct disti_node_op *op);
void disti_node_overflow_end(struct disti_node *node, struct disti_node_op *op);

/* Returns the current time if the call's work is timed, else 0. */
static inline int64_t node_copy_mode_clock(const struct disti_node_op *op)
{
    return op->in_copy_mode_trial ? disti_now_ns() : 0;
}

/*
 * Does a part of a stage's work and adds its time to the trial. Returns true if the work is
 * complete.
 */
bool disti_node_work(struct disti_node *node, struct disti_node_op *op);
/*
 * The same for filling this rank's bounce buffer in a round, and for fetching data from peers'
 * buffers.
 */
void disti_node_work_fill(struct disti_node *node, struct disti_node_op *op, uint64_t round);
void disti_node_work_drain(struct disti_node *node, struct disti_node_op *op, uint64_t round);

/* The state of a rank: its calls and its peers. */

/* Bytes of one round of a bounce buffer: few enough to stay in the caches until they are read. */
#define NODE_ROUND_BYTES ((size_t)256 << 10)
/* Rounds in a bounce buffer: one is filled while the previous two are read. */
#define NODE_ROUNDS 3
/* Bytes that one call of advance moves, approximately. */
#define NODE_ADVANCE_BYTES ((size_t)1 << 20)
/* Bytes of a tile of a reduction, which stays in the first-level cache. */
#define NODE_TILE ((size_t)1 << 10)
/* Most ranks of a node. With more, the blocks of a bounce buffer would become empty. */
#define NODE_RANKS_MAX 1024
#define NODE_TILES 24 /* levels of the summation tree; enough for NODE_RANKS_MAX ranks */

/* A mapped segment of a peer. The NODE_VIEWS segments used last stay mapped. */
struct node_view {
    uint64_t key;
    char *memory;
};
#define NODE_VIEWS 8

/* A segment of this rank, and whether all peers could map it. */
struct node_proof {
    uint64_t key;
    bool mapped;
};

/* How a rank reads the block that a peer has for it. */
enum node_path {
    NODE_NOTHING,
    NODE_FROM_MAILBOX,
    NODE_FROM_SEGMENT,
    NODE_BY_KERNEL,
    NODE_BY_BOUNCE
};

struct node_peer {
    struct node_mailbox *mailbox;
    unsigned char *overflows;
    struct node_far_doorbell *doorbell; /* NULL: not opened yet */
    struct node_view views[NODE_VIEWS]; /* the most recently used one first */
    const char *in;                     /* in the current call; NULL: in the bounce buffer */
    char *out;
    uint64_t in_address, out_address; /* the same buffers in the peer's address space */
    char *bounce;                     /* NULL: not mapped yet */
    uint64_t bounce_key;
    uint64_t rounds; /* of its bounce buffer before the current call */
    /*
     * In an irregular call `in`, `out` and their addresses are those of the block of `count`
     * elements between the peer and this rank.
     */
    size_t count;
    enum node_path path; /* how this rank gets the peer's block, or NODE_NOTHING */
    bool by_bounce;      /* the peer gets its block from this rank's bounce buffer */
    uint32_t last;       /* the last stage at which the two wait for each other */
};

/* Returns where a rank's data are in a call through the mailboxes. */
static inline unsigned char *node_mailbox_data(const struct node_peer *peer,
                                               const struct disti_node_op *op)
{
    struct node_slot *slot = node_slot(peer->mailbox, op);

    return __builtin_expect(op->in_overflow, 0) ? node_overflow(peer->overflows, slot, op->number)
                                                : slot->data;
}

/* How a collective copies ordinary memory in a size class; the same on all ranks. */
enum { SELECTOR_CMA, SELECTOR_BOUNCES };
struct node_selector {
    struct node_trial trial; /* of SELECTOR_CMA and SELECTOR_BOUNCES */
    bool direct;             /* the last call needed neither */
};
/* Number of size classes; each is twice the previous one. */
#define NODE_SIZES 16

/* For barriers of ranks that share CPUs: see waking.c. */
struct node_yield {
    int first, end;       /* ranks that this rank lets run first after a barrier: [first, end) */
    uint64_t fingerprint; /* of the call in which this rank waits for them */
    uint64_t barrier;     /* number of the last barrier that has ended */
};

struct disti_node {
    const struct dist_backend_config *config;
    int rank, ranks;
    void *mailboxes;              /* rank 0: the block with all mailboxes */
    struct node_mailbox *mailbox; /* this rank's; NULL: not mapped */
    struct node_peer *self;       /* the entry of this rank in peers */
    struct node_peer *peers;      /* by rank, this rank included */
    struct node_mailbox **others; /* mailboxes of all ranks but this one */
    struct disti_node_hello *hellos;
    char *bounce; /* this rank's; NULL: not needed yet */
    struct disti_segment_location bounce_location;
    size_t round_bytes;
    size_t overflow_bytes;   /* of all overflow slots of a rank */
    size_t overflow_next;    /* offset of the next slot of the ring; 0: ring not in use */
    uint64_t overflow_calls; /* calls that fit into the ring, or into the fixed slots */
    int cpus;                /* usable by the ranks of the node; at most `ranks` */
    size_t cache_bytes;      /* second-level cache of this rank's CPU */
    uint64_t calls;          /* number of the newest call */
    uint64_t confirmed;      /* newest call that all ranks have begun, as far as is known */
    uint64_t last_slot;      /* slots in use - 1, which is a bit mask; the same on all ranks */
    uint64_t sequences[NODE_SLOTS]; /* of the calls in the slots, as the group counts */
    uint64_t rounds;                /* of this rank's bounce buffer, so far */
    struct node_selector selectors[DIST_COLL_COUNT][NODE_SIZES];
    struct node_copy_modes copy_modes[DIST_COLL_COUNT][NODE_SIZES];
    struct node_again *agains[DIST_COLL_COUNT]; /* irregular.c; NULL: none yet */
    struct node_proof proofs[NODE_VIEWS];
    unsigned proof_next;                     /* index of the entry to overwrite next */
    int abandoned_rank;                      /* a rank that has given up; -1: none is known */
    uint64_t abandoned_from;                 /* number of the first call that it gave up */
    bool stays;                              /* this rank never migrates to another CPU */
    int cpu;                                 /* the value in the mailbox */
    int64_t migrate_at_ns, migrate_every_ns; /* time of the next check; interval */
    const char *stat_path;                   /* file that has the idle times of the CPUs */
    struct node_idle *idle;                  /* NULL: not read yet */
    uint32_t failed_polls;                   /* polls without success, so far */
    bool fences;                             /* stages are stored with a fence */
    bool cma;          /* CMA works, as far as is known; the same on all ranks */
    bool cma_refused;  /* CMA failed in an irregular call; peers may not know */
    bool used;         /* all ranks can map the node's memory */
    bool has_doorbell; /* it has the number below in this process */
    uint32_t doorbell_number;
    struct node_yield yield;
    int sleeper; /* doorbell of the sleeping thread, -1: none; under doorbell_lock (waking.c) */
    bool armed;
    bool abandoned;
    int operands;         /* of the summation tree: the largest power of 2 not above `ranks` */
    const char **sources; /* arrays of `ranks` pointers, for temporary use */
    char **targets;
    char *tiles; /* NODE_TILES tiles */
};

/* Returns the slot of a call by its number. */
static inline size_t node_slot_number(const struct disti_node *node, uint64_t number)
{
    return (size_t)(number & node->last_slot);
}

/* ---- properties of the collectives ---- */

/*
 * Ranks in `senders` have IN, ranks in `receivers` get OUT.
 *
 * in_blocks: IN has a block for each rank. slices: each rank reduces one slice of the result and
 * writes it into the OUT of all receivers. rooted: the data are copied from or to one rank.
 * irregular: a rank knows only the counts of its own blocks.
 */
enum node_role { NODE_ALL, NODE_ROOT };
struct node_pattern {
    bool is_supported; /* the collective is implemented here */
    bool reduces, in_blocks, slices, rooted, irregular;
    uint8_t senders, receivers;
};
extern const struct node_pattern disti_node_patterns[DIST_COLL_COUNT];

static inline const struct node_pattern *disti_node_pattern(dist_collective collective)
{
    return &disti_node_patterns[collective];
}

static inline bool node_has_role(uint8_t role, const struct disti_node_op *op, int rank)
{
    return role == NODE_ALL || rank == op->call.root;
}

/* Returns the number of blocks in IN. */
static inline size_t node_blocks(const struct disti_node *node, const struct node_pattern *pattern)
{
    return pattern->in_blocks ? (size_t)node->ranks : 1;
}

/* Elements of a block of this rank's IN or OUT, and the offset of the block. */
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

/* Returns the number of elements in about `bytes` bytes, in whole cache lines. */
static inline size_t node_line_elements(const struct disti_node_op *op, size_t bytes)
{
    return (bytes / NODE_APART + 1) * (NODE_APART / op->element_bytes);
}

/* Prefetches lines that are about to be written. */
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

/* Returns how many of a block's `count` elements are in a round; *first_p is the first of them. */
size_t disti_node_round(const struct disti_node_op *op, size_t count, uint64_t round,
                        size_t *first_p);
/* Computes slice s of `elements` elements: [*from_p, *to_p). Slices share no cache line. */
void disti_node_slice(const struct disti_node *node, const struct disti_node_op *op,
                      size_t elements, int s, size_t *from_p, size_t *to_p);
/* Returns the address of element `at` of the round in a block of a rank's IN. */
const char *disti_node_in(const struct disti_node *node, const struct disti_node_op *op, int rank,
                          int block, size_t at);
/* Returns a rank's bounce buffer for a round of the current call. */
char *disti_node_bounce(const struct disti_node *node, int rank, uint64_t round);
/* Writes the places of this rank's data and bounce buffer into its slot. */
dist_status disti_node_publish(struct disti_node *node, struct disti_node_op *op);
/* Copies data that peers have written into a twin to the program's buffer, when the call ends. */
void disti_node_copy_back(const struct disti_node *node, const struct disti_node_op *op);
/*
 * Reads the places of all ranks' data, which all ranks have published, and chooses the method of
 * the call.
 */
dist_status disti_node_resolve(struct disti_node *node, struct disti_node_op *op);
/* Switches the call to bounce buffers. */
dist_status disti_node_resolve_to_bounces(struct disti_node *node, struct disti_node_op *op);

/* Maps the peer's bounce buffer, unless it is mapped. */
dist_status disti_node_attach(struct disti_node *node, const struct disti_node_op *op, int rank);
/*
 * Writes the place of this rank's bounce buffer into its slot; creates the buffer if there is none.
 */
dist_status disti_node_publish_bounce(struct disti_node *node, struct node_locations *locations);

/* ---- mailbox.c: which segments the peers can map ---- */

/*
 * Returns true if the memory is in a segment that the peers can map, as far as is known, and stores
 * the place.
 */
bool disti_node_find(struct disti_node *node, const void *memory, size_t bytes,
                     struct disti_segment_location *location_p, bool *offered_p);
/*
 * Records which offered segments the peers could map. Requires that all ranks reached a later
 * stage.
 */
void disti_node_record(struct disti_node *node, const struct disti_node_op *op);

/*
 * Returns the address of a peer's memory in this process, after mapping it if necessary. NULL,
 * without an error, if it cannot be mapped.
 */
char *disti_node_try_map(struct node_peer *peer, const struct disti_segment_location *at,
                         size_t bytes);
/* Records that a peer could not map this segment of this rank. */
void disti_node_mark_unmappable(struct disti_node *node, uint64_t key);

/* ---- copy.c: moving long data ---- */

/* Returns the size of a CPU's second-level cache in bytes. */
size_t disti_node_cache(void);
void disti_node_move(char *to, const char *from, size_t bytes, uint8_t copy_mode);
/*
 * Orders non-temporal stores before later stores. To be called before the peers are notified of
 * data that were copied with NODE_BYPASSES.
 */
void disti_node_store_fence(void);

/* ---- mailbox.c: CMA, copies that the kernel makes between the ranks' own memory ---- */

/* Copies from the peer's memory, or into it. A failure is noted in this rank's slot. */
void disti_node_cma_get(struct disti_node *node, struct disti_node_op *op, int rank, void *to,
                        uint64_t from, size_t bytes);
void disti_node_cma_put(struct disti_node *node, struct disti_node_op *op, int rank, uint64_t to,
                        const void *from, size_t bytes);
/*
 * Returns true if the copy of any rank has failed; no rank then uses CMA again. Requires that all
 * ranks have done their part.
 */
bool disti_node_cma_failed(struct disti_node *node, const struct disti_node_op *op);
/* Blocks until no peer writes to this rank's memory any more. Requires that this rank is GONE. */
void disti_node_cma_drain(const struct disti_node *node);

/* ---- op.c: preparing a call ---- */

/*
 * Returns the bytes that a rank may send in a slot; more go into an overflow slot. It is less if
 * all ranks wait for all: such calls use only 2 slots, and smaller ones stay in the caches.
 */
size_t disti_node_slot_bytes(const struct node_pattern *pattern);
/* Returns the elements of a block that fit into one round of a bounce buffer. */
size_t disti_node_piece(const struct disti_node *node, const struct disti_node_op *op);

/* Divides a call through bounce buffers into rounds. */
void disti_node_cut(const struct disti_node *node, struct disti_node_op *op);

/* ---- op.c: the copy selector, which chooses how ordinary memory is copied ---- */

/* Returns the op's size class. */
int disti_node_size_class(const struct disti_node_op *op);

/* For the leader of an irregular call: returns true if CMA may be used. */
bool disti_node_selector_leads(struct disti_node *node, const struct disti_node_op *op);
/*
 * For irregular calls: returns true, and counts the call, if this rank may send long data through
 * an overflow slot.
 */
bool disti_node_selector_takes_overflow(struct disti_node *node, const struct disti_node_op *op);
/* Chooses the method that a long call begins with; the same on all ranks. */
void disti_node_selector_choose(struct disti_node *node, struct disti_node_op *op);
/* Publishes this rank's times, before stage 0. */
void disti_node_selector_publish(struct disti_node *node, const struct disti_node_op *op);
/*
 * begin: all ranks have published their times, and the op's method has been chosen. end: the op has
 * ended.
 */
void disti_node_selector_begin(struct disti_node *node, struct disti_node_op *op);
void disti_node_selector_end(struct disti_node *node, const struct disti_node_op *op);

/* ---- copy.c: the work ---- */

/* Short calls: computes this rank's result from the mailboxes. */
void disti_node_copy_short(struct disti_node *node, const struct disti_node_op *op);
void disti_node_reduce_short(struct disti_node *node, const struct disti_node_op *op);
/* The same for 2 ranks, if the sum needs no further step. */
void disti_node_reduce_pair(struct disti_node *node, const struct disti_node_op *op);

/* ---- op.c ---- */

/*
 * Changes the state of an op; all changes use this function. ERR_INTERNAL if the drawing in node.h
 * has no such arrow; the state is then unchanged.
 */
dist_status disti_node_op_go(struct disti_node_op *op, enum disti_node_op_state to);
/*
 * Prepares a call that disti_node_start_again has begun, and that has not ended, for
 * disti_node_advance. Returns IN_PROGRESS.
 */
dist_status disti_node_op_continue(struct disti_node_op *op, const struct dist_call *call,
                                   uint64_t history);

/* ---- migrate.c ---- */

/* Reads DIST_MIGRATE, or DIST_STEP_ASIDE with a warning. ERR_INVALID_ARGUMENT. */
dist_status disti_node_migrate_open(struct disti_node *node);
void disti_node_migrate_close(struct disti_node *node);

/* ---- waking.c ---- */

/*
 * Wakes the ranks that sleep until this rank reaches a stage, and notes ranks that have given up.
 * To be called after a stage was stored.
 */
void disti_node_ring(struct disti_node *node);

/* Notes ranks that have given up. */
void disti_node_note_abandoned(struct disti_node *node);

/*
 * Overflow slots, for data that are too long for a slot and too short to be read from the rank's
 * memory.
 */

/*
 * The overflow slots of a rank: NODE_OVERFLOWS_FIXED slots with fixed places, then a ring:
 *
 *     | of call 8 | of call 9 | ... | of call 15 | call 7 | call 20, long  | call 22 |  ...  |
 *                                                                                    next
 *
 * A reader can prefetch a fixed slot before it has read the rank's slot, because the place depends
 * only on the call's number; so short blocks use these. Longer blocks follow each other in the
 * ring. Writing a line that another CPU has read and still caches takes several times as long as
 * writing a line that has left that CPU's caches. So all overflow slots together are
 * NODE_OVERFLOWS_ALL bytes, several times the size of a second-level cache.
 *
 * The first write to a page waits for the kernel. So a rank starts to use its ring only after it
 * has sent long blocks several times. Each rank decides this alone: its slot says where the
 * overflow slot is.
 */
#define NODE_OVERFLOWS_ALL ((size_t)4 << 20)

/* Returns the bytes of a rank's overflow slots. With many ranks there is no ring. */
static inline size_t node_overflows_bytes(int ranks)
{
    size_t overflows = NODE_OVERFLOWS_ALL / (size_t)ranks / NODE_OVERFLOW_EACH;

    return NODE_OVERFLOW_EACH *
           (overflows > 2 * NODE_OVERFLOWS_FIXED ? overflows : NODE_OVERFLOWS_FIXED);
}

static inline void node_size_overflows(struct disti_node *node)
{
    node->overflow_bytes = node_overflows_bytes(node->ranks);
    node->overflow_calls = NODE_OVERFLOWS_FIXED;
    node->overflow_next = 0;
}

/* Starts to use the ring. Returns false if it is in use already or there is none. */
static inline bool node_use_ring(struct disti_node *node)
{
    size_t overflows = node->overflow_bytes / NODE_OVERFLOW_EACH;

    if (node->overflow_next || overflows <= NODE_OVERFLOWS_FIXED)
        return false;
    overflows -= NODE_OVERFLOWS_FIXED + 1; /* one may be lost at the end of the ring */
    node->overflow_next = NODE_OVERFLOWS_FIXED * NODE_OVERFLOW_EACH;
    node->overflow_calls = overflows <= node->last_slot ? overflows : node->last_slot + 1;
    return true;
}

/* Chooses the overflow slot for a long block of `bytes` bytes: in the ring, if that is used. */
static inline void node_choose_overflow(struct disti_node *node, struct node_slot *slot,
                                        size_t bytes)
{
    slot->overflow = 0;
    if (!node->overflow_next)
        return;
    if (node->overflow_next + bytes > node->overflow_bytes)
        node->overflow_next = NODE_OVERFLOWS_FIXED * NODE_OVERFLOW_EACH;
    slot->overflow = (uint16_t)(node->overflow_next / NODE_APART);
    node->overflow_next += (bytes + NODE_OVERFLOW_GAP) / NODE_APART * NODE_APART;
}

/* The start of a call and the end of a short one; inline for repeated calls. */

/* A rank writes its CPU to its mailbox once in this many short calls. */
#define SHORT_CPU_CALLS 8

/* Makes call `number` this rank's newest call. Requires that its slot is free. */
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

/* Short calls: writes this rank's data into its slot or overflow slot. */
static inline void short_write(struct disti_node *node, struct node_slot *slot,
                               const struct disti_node_op *op)
{
    size_t bytes = op->published_bytes;

    if (!bytes)
        return;
    if (__builtin_expect(op->in_overflow, 0)) {
        slot->overflow = 0;
        node_copy(node_overflow(node->self->overflows, slot, op->number), op->call.in, bytes);
    } else {
        node_copy(slot->data, op->call.in, bytes);
    }
}

/*
 * Stores the stage and wakes sleeping peers. The store must be visible before this rank looks for
 * sleepers; waking.c explains how, with or without a fence.
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

/* Returns true if all awaited ranks have published the same call. */
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
 * Prefetches the next call's slot for writing while this rank waits for the peers' data: all peers
 * have read it, so its lines are in their caches.
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

/* Short calls: all awaited ranks have published their data; computes this rank's result. */
static inline void short_finish(struct disti_node *node, const struct disti_node_op *op,
                                uint64_t number)
{
    if (op->waits_for_all)
        node->confirmed = number;
    short_prefetch_next(node, op, op->published_bytes);
    if (op->finish)
        op->finish(node, op);
}

/* Functions of irregular.c that op.c uses. */

/* Chooses where this rank's blocks are stored and which ranks it awaits. */
void disti_node_irregular_choose(struct disti_node *node, struct disti_node_op *op);
/* Writes this rank's list into its slot or overflow slot, and its blocks or their place. */
dist_status disti_node_irregular_publish(struct disti_node *node, struct disti_node_op *op);
/*
 * Reads what the peers have published. ERR_MISMATCH: two ranks have different counts for a block.
 */
dist_status disti_node_irregular_resolve(struct disti_node *node, struct disti_node_op *op);
/* Does some of this rank's part, starting at op->done. Returns true if the part is complete. */
bool disti_node_irregular_work(struct disti_node *node, struct disti_node_op *op);
/*
 * are_short returns true if this rank and all awaited ranks send through mailboxes. take then does
 * the whole call at once.
 */
bool disti_node_irregular_are_short(const struct disti_node *node, const struct disti_node_op *op);
dist_status disti_node_irregular_finish(struct disti_node *node, struct disti_node_op *op);
/*
 * Returns true if blocks remain that go through bounce buffers, after all other blocks have been
 * copied.
 */
bool disti_node_irregular_needs_bounces(struct disti_node *node, struct disti_node_op *op);
/* Prepares the bounce buffers for these blocks. */
dist_status disti_node_irregular_to_bounces(struct disti_node *node, struct disti_node_op *op);
/*
 * Returns true if the op may be repeated by disti_node_start_again: this rank sends little data,
 * whatever its peers send. Forgets the previous op that could be repeated.
 */
bool disti_node_irregular_can_start_again(const struct disti_node *node,
                                          const struct disti_node_op *op);
/* Like disti_node_start_again. */
dist_status disti_node_irregular_start_again(struct disti_node *node, const struct dist_call *call,
                                             uint64_t history, struct disti_node_op *op);
/* Copies the round's pieces into this rank's bounce buffer. */
void disti_node_irregular_fill(struct disti_node *node, struct disti_node_op *op, uint64_t round);

/* Irregular calls: definitions for op.c and irregular.c. */

/*
 * Irregular calls are gather_v, scatter_v and all_to_all_v: a rank knows only the counts of its own
 * blocks. Both ranks of a pair know the block between them. Everything else is read from the
 * mailboxes:
 *
 *     place of the sender  slot, overflow slot         memory
 *     on its mailbox         list, blocks       list, places of the blocks
 *     stage 0              received; the end    both copy a part; or wait for bounce buffers
 *     stage 1                                   all blocks without bounce buffers are done
 *     stage 2, 3, ...                           the bounce buffer holds round 0, 1, ...
 *
 * Every sender chooses its place alone, by the size of its data. So a rank that sends little never
 * waits for ranks that send more. If both ranks of a pair copy, each waits for the other until the
 * last stage of that pair, and no longer: other pairs may need more rounds, or none.
 *
 * The root, or else rank 0, is the leader: its mailbox says whether ordinary memory is copied by
 * CMA or through bounce buffers. Blocks that the kernel refuses to copy, or that a rank cannot map,
 * go through bounce buffers from stage 2 on: the rank that failed says so at stage 1.
 */
static inline bool irregular_sends(const struct disti_node_op *op, int rank)
{
    return node_has_role(disti_node_pattern(op->call.collective)->senders, op, rank);
}

static inline bool irregular_receives(const struct disti_node_op *op, int rank)
{
    return node_has_role(disti_node_pattern(op->call.collective)->receivers, op, rank);
}

/*
 * Returns true if this rank sends to peers. Between the root and another rank, one sends and the
 * other receives.
 */
static inline bool irregular_sends_to_peers(const struct disti_node *node,
                                            const struct disti_node_op *op)
{
    const struct node_pattern *pattern = disti_node_pattern(op->call.collective);

    if (!pattern->rooted)
        return true;
    return (pattern->senders == NODE_ROOT) == (node->rank == op->call.root);
}

/* The block of IN for a receiver. IN has a block for each rank, or only one, for the root. */
static inline struct node_block irregular_in(const struct disti_node_op *op, int receiver)
{
    int block = op->call.in_counts ? receiver : 0;

    return (struct node_block){node_in_count(op, block), node_in_first(op, block)};
}

/* The block of OUT that comes from a sender. */
static inline struct node_block irregular_out(const struct disti_node_op *op, int sender)
{
    int block = op->call.out_counts ? sender : 0;

    return (struct node_block){node_out_count(op, block), node_out_first(op, block)};
}

/* Returns the bytes from the start of IN or OUT to the end of its last block. */
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

/*
 * Returns the bytes of a list, after which the first block begins. In an overflow slot, blocks are
 * copied in whole cache lines, so the list is rounded up.
 */
static inline size_t irregular_list_bytes(int listed, enum disti_node_place place)
{
    size_t bytes = (size_t)listed * sizeof(struct node_block);

    return place == NODE_IN_SLOT ? bytes : (bytes + NODE_LINE - 1) / NODE_LINE * NODE_LINE;
}

/* Returns the rank that decides how ordinary memory is copied. */
static inline int irregular_leader(const struct disti_node_op *op)
{
    return disti_node_pattern(op->call.collective)->rooted ? op->call.root : 0;
}

/* Returns the length of this rank's list: one block for each rank, or a single block. */
static inline int irregular_listed(const struct disti_node *node, const struct disti_node_op *op)
{
    return op->call.in_counts || op->call.out_counts ? node->ranks : 1;
}

/* Returns how a sender's memory is reached. */
static inline enum node_path irregular_path(const struct disti_node_op *op,
                                            const struct node_locations *sender)
{
    return sender->in.name.key ? NODE_FROM_SEGMENT : op->cma ? NODE_BY_KERNEL : NODE_BY_BOUNCE;
}

/* Returns the list of a rank in an irregular call. */
static inline struct node_block *node_list(const struct node_peer *peer,
                                           const struct disti_node_op *op)
{
    struct node_slot *slot = node_slot(peer->mailbox, op);

    if (__builtin_expect(slot->place == NODE_IN_SLOT, 1))
        return (void *)slot->data;
    return (void *)node_overflow(peer->overflows, slot, op->number);
}

/* Returns where a block of a sender is stored on its mailbox. */
static inline const char *irregular_in_mailbox(const struct disti_node *node,
                                               const struct disti_node_op *op, int sender,
                                               const struct node_block *block)
{
    const struct node_peer *peer = &node->peers[sender];
    int listed = disti_node_pattern(op->call.collective)->in_blocks ? node->ranks : 1;
    enum disti_node_place place = (enum disti_node_place)node_slot(peer->mailbox, op)->place;

    return (const char *)node_list(peer, op) + irregular_list_bytes(listed, place) +
           block->first * op->element_bytes;
}

/* The doorbell of a process, which wakes its threads that sleep in a call. */

/* Prepares the process's doorbell for this node, and writes its address to *hello. */
dist_status disti_node_doorbell_open(struct disti_node *node, struct disti_node_hello *hello);
/*
 * Closes the node's references to its peers' doorbells, and the process's own doorbell if this was
 * its last node.
 */
void disti_node_doorbell_close(struct disti_node *node);

/* Wakes the sleeping thread of a rank. */
void disti_node_doorbell_ring(struct disti_node *node, int rank);

#endif
