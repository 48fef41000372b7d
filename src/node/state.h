/* SPDX-License-Identifier: BSD-3-Clause */
/* The state of a node: mailboxes, calls, peers, copy modes, doorbells. Private to src/node. */
#ifndef DISTI_NODE_STATE_H
#define DISTI_NODE_STATE_H

#include "base/clock.h"
#include "node/node.h"

#include <stdalign.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/uio.h>

/* The contents of a mailbox, and when they may be read. */

/* Distance in bytes between data that different ranks write: CPUs fetch cache lines in pairs. */
#define NODE_APART 128
/* Bytes of a cache line. */
#define NODE_LINE 64
/* Most bytes that a rank sends through its mailbox even if peers could read its buffer in place. */
#define NODE_SHORT_MAX ((size_t)8 << 10)
/*
 * Most bytes that a rank sends through its mailbox from ordinary memory: up to this size a copy
 * costs less than waiting for the other ranks.
 */
#define NODE_OVERFLOW_BYTES ((size_t)32 << 10)
/*
 * Most bytes of a vector that 2 ranks reduce through their mailboxes. Longer vectors are reduced
 * faster if each rank reduces one half in place.
 */
#define NODE_SHORT_PAIR ((size_t)2 << 10)
/* Smallest number of bytes for which prefetching the next slot for writing pays off. */
#define NODE_PREFETCH_MIN 192

/*
 * The locations of a rank's data. If a segment name is all zero, the data are in the rank's bounce
 * buffer. The fields that most calls read come first and share a cache line with the stage, because
 * each further line has to be fetched from another CPU.
 *
 * A segment is offered if it is not known that all ranks can map it. The data are then in the
 * bounce buffer too. The other ranks try to map the segment, and each rank reports a failure in its
 * own mailbox. So if a rank runs out of descriptors or mappings, calls become slower but do not
 * fail.
 */
struct node_locations {
    uint8_t rounds; /* rounds in this rank's bounce buffer before this call, modulo NODE_ROUNDS */
    bool in_place;  /* OUT is the same buffer as IN; `out` is not set */
    bool has_own;   /* irregular: this rank also copies a block from its own IN to its own OUT */
    bool in_offered, out_offered;
    bool out_named; /* `out` names a segment; not used in irregular calls */
    bool refuses;   /* from stage 1 on: this rank could not map an offered segment in this call */
    struct disti_segment_location in;
    struct disti_segment_location out;
    struct disti_segment_location bounce;
    uint64_t in_address, out_address; /* addresses in this rank's own address space */
    uint64_t selector_ns[2]; /* copy selector: this rank's times with bounce buffers, with CMA */
};

/* Number of slots in use if no ranks share CPUs. */
#define NODE_SLOTS_EXCLUSIVE 32
/*
 * Number of slots, all in use if ranks share CPUs. Such ranks run in turns, and a rank that only
 * sends can begin this many calls in its turn.
 */
#define NODE_SLOTS 128
/* Number of the low bits of a slot's `stage` that contain the stage within the call. */
#define NODE_STAGE_BITS 24
/* Data bytes of a slot: enough for the short blocks that a root sends to a few ranks. */
#define NODE_SLOT_DATA 992
/* Data bytes used of a slot in calls in which all ranks wait for each other. */
#define NODE_SLOT_DATA_MUTUAL 224
#define NODE_SLOT_ALIGN 32 /* alignment of the data, enough for any element type */
/*
 * Padding after each slot and each overflow slot. Without padding they would all start at the same
 * offset of a page, so that few of them would fit into a first-level cache together.
 */
#define NODE_SLOT_GAP NODE_APART
#define NODE_OVERFLOW_GAP (1024 + NODE_APART)
/* Bytes of the longest overflow slot, and number of overflow slots with fixed locations. */
#define NODE_OVERFLOW_EACH (NODE_OVERFLOW_BYTES + NODE_OVERFLOW_GAP)
#define NODE_OVERFLOWS_FIXED 8

/*
 * The part of a mailbox for one call. With s slots, call number c uses slot c % s. `stage` is made
 * of the call number and the stage that the rank has reached in the call (node_stage); it only
 * grows. The data of a stage are written before the stage is stored (release) and read after it was
 * loaded (acquire). A rank's data are in the slot, or in an overflow slot if the slot is too small.
 *
 * A rank reuses a slot or overflow slot for call c only after every rank is known to have begun
 * call c - s + 1: all ranks have then finished call c - s, which used the slot before. Two slots
 * would suffice; with more slots, a rank that only sends need not wait for the receivers.
 *
 * `history` is a hash of this call and all calls before it: if it is equal on two ranks, all their
 * calls up to this one are equal. While a rank waits in a call, the peers' slots for the call are
 * not reused. But when a rank compares an earlier call, a peer's slot may already contain a later
 * call, even half-written. The stage is stored before history and fingerprint, so it shows that the
 * slot was reused.
 */
struct node_slot {
    alignas(NODE_APART) _Atomic uint64_t stage;
    _Atomic uint64_t history, fingerprint;
    uint8_t place;     /* irregular: enum disti_node_place of the rank's data */
    bool cma;          /* irregular, leader only: CMA may be used */
    uint16_t overflow; /* offset of the overflow slot / NODE_APART; 0: fixed by the call number */
    int32_t failed;    /* from stage 1 on: 0, errno of a failed CMA copy, or NODE_UNMAPPABLE */
    alignas(NODE_SLOT_ALIGN) union {
        struct node_locations locations;
        unsigned char data[NODE_SLOT_DATA + NODE_SLOT_GAP];
    };
};

/* Value of `failed`: this rank could not map a peer's segment. */
#define NODE_UNMAPPABLE (-1)

/*
 * A block that a rank sends to one peer, or receives from one, in an irregular call. The list of a
 * rank's blocks is stored before the data, in the slot or in the overflow slot.
 */
struct node_block {
    uint64_t count; /* elements */
    uint64_t first; /* offset in IN, in OUT, or in the data in the mailbox; in elements */
};

/*
 * The mailboxes of a group are in one segment, which rank 0 creates and every other rank maps once.
 * All mailboxes come first, then all overflow slots, so that a rank that reads every mailbox
 * touches few pages.
 *
 *     |mailbox 0|...|mailbox n - 1|overflow slots of rank 0|...|overflow slots of rank n - 1|
 */

/*
 * Special values of `writes_to`: the rank writes to no peer's memory; or possibly to any memory
 * that it has mapped.
 */
enum { NODE_TO_NONE = -1, NODE_TO_ANY = -2 };

/*
 * NODE_ASLEEP | r << NODE_PRESENCE_BITS: this rank sleeps, or is about to sleep, until rank r
 * reaches a stage. Rank r then rings this rank's doorbell. This value is stored before the last
 * check of r's stage. NODE_GONE: this rank has given up calls that it had begun and will not finish
 * them.
 */
enum node_presence { NODE_AWAKE, NODE_ASLEEP, NODE_GONE };
#define NODE_PRESENCE_BITS 2 /* number of bits of enum node_presence, below the rank number */

struct node_mailbox {
    struct node_slot slots[NODE_SLOTS];
    alignas(NODE_APART) _Atomic uint64_t begun; /* its newest call; peers rarely read it */
    alignas(NODE_APART) _Atomic uint32_t presence;
    _Atomic int32_t cpu;       /* the CPU on which it was last seen to run; -1: unknown */
    _Atomic int32_t writes_to; /* rank to whose memory it writes, NODE_TO_NONE or NODE_TO_ANY */
    struct iovec written; /* range that it writes with CMA; a peer that abandons calls empties it */
    uint64_t abandoned_from; /* NODE_GONE: number of the first call that it gave up */
};

static inline struct node_slot *node_slot(struct node_mailbox *mailbox,
                                          const struct disti_node_op *op)
{
    return &mailbox->slots[op->slot];
}

/*
 * Returns the overflow slot of a rank for the call in its slot. The code has a branch rather than a
 * conditional move, so that a reader can compute a fixed location before the slot has arrived in
 * its cache.
 */
static inline unsigned char *node_overflow(unsigned char *overflows, const struct node_slot *slot,
                                           uint64_t number)
{
    if (__builtin_expect(slot->overflow != 0, 0))
        return overflows + (size_t)slot->overflow * NODE_APART;
    return overflows + number % NODE_OVERFLOWS_FIXED * NODE_OVERFLOW_EACH;
}

/* Copies memory, without a function call for 8 bytes: most short calls carry one or two numbers. */
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

/* Returns the stage of a slot while it is being written for a call. */
static inline uint64_t node_writing(uint64_t number)
{
    return node_stage(number, 0) - 1;
}

/* Copy modes: how this rank copies long data. The fastest mode is found by timing calls. */

/*
 * Bits of a copy mode; 0 is memcpy of the C library:
 *
 *     PREFETCHES   prefetches lines, of several pages in turn
 *     BYPASSES     stores bypass the caches (non-temporal): for data that no rank reads soon
 *     STREAMS      stores into bounce buffers and overflow slots bypass the caches
 *
 * STREAMS is a tradeoff: on some CPUs, writing a line that another CPU has read is 10 times slower
 * than reading a line that another CPU has written. But with STREAMS, the peers read the data
 * from memory instead of a cache.
 */
#define NODE_PREFETCHES 1
#define NODE_BYPASSES 2
#define NODE_STREAMS 4
#define NODE_COPY_MODES 8

/*
 * A trial of alternatives, such as copy modes: the first calls use them in turn and are timed, and
 * later calls use the fastest one. The trial starts again after some thousand calls. The fields
 * that every call reads come first.
 */
struct node_trial {
    uint16_t calls;               /* number of calls since the trial began */
    uint8_t best;                 /* index of the fastest alternative so far */
    bool tried;                   /* the first trial has ended */
    uint64_t ns[NODE_COPY_MODES]; /* fastest time per MiB of each alternative; 0: not measured */
};

/* Copy modes of one collective in a size class, by the location of the data. */
struct node_copy_modes {
    struct node_trial elsewhere, direct; /* calls through bounce buffers; calls in place */
    struct node_trial overflow;          /* calls with data in overflow slots */
    bool was_direct;                     /* the last call was in place */
};

/* Returns the copy mode for writing into a bounce buffer. */
static inline uint8_t node_bounce_copy_mode(const struct disti_node_op *op)
{
    return (op->copy_mode & NODE_PREFETCHES) | (op->copy_mode & NODE_STREAMS ? NODE_BYPASSES : 0);
}

/*
 * Chooses the copy mode of a long call, before any data are copied. may_bypass: NODE_BYPASSES is
 * allowed.
 */
void disti_node_copy_mode_choose(struct disti_node *node, struct disti_node_op *op,
                                 bool may_bypass);
/* Adds the time of an ended call to the trial. */
void disti_node_copy_mode_learn(struct disti_node *node, const struct disti_node_op *op);

/*
 * For a call with long data in overflow slots. begin chooses the copy mode, before this rank writes
 * its data. end adds the time to the trial, after this rank has read the data of its peers.
 */
void disti_node_overflow_begin(struct disti_node *node, struct disti_node_op *op);
void disti_node_overflow_end(struct disti_node *node, struct disti_node_op *op);

/* Returns the current time if the call is part of a copy mode trial, else 0. */
static inline int64_t node_copy_mode_clock(const struct disti_node_op *op)
{
    return op->in_copy_mode_trial ? disti_now_ns() : 0;
}

/*
 * Does a part of the work of a stage and adds its duration to op->worked_ns. Returns true if the
 * work of the stage is complete.
 */
bool disti_node_work(struct disti_node *node, struct disti_node_op *op);
/*
 * fill copies the data of a round into this rank's bounce buffer; drain copies the results of a
 * round from bounce buffers to OUT. Both add their duration to op->worked_ns.
 */
void disti_node_work_fill(struct disti_node *node, struct disti_node_op *op, uint64_t round);
void disti_node_work_drain(struct disti_node *node, struct disti_node_op *op, uint64_t round);

/* The state of this rank: its calls and its peers. */

/* Bytes of one round in a bounce buffer: few enough to stay in the caches until they are read. */
#define NODE_ROUND_BYTES ((size_t)256 << 10)
/* Number of rounds that a bounce buffer holds: one is filled while the previous two are read. */
#define NODE_ROUNDS 3
/* Approximate number of bytes that one call of disti_node_advance moves. */
#define NODE_ADVANCE_BYTES ((size_t)1 << 20)
/* Bytes of a tile of a reduction, which stays in the first-level cache. */
#define NODE_TILE ((size_t)1 << 10)
/*
 * Largest number of ranks of a node. With more ranks, the blocks of a bounce buffer would become
 * empty.
 */
#define NODE_RANKS_MAX 1024
#define NODE_TILES 24 /* enough for the reduction tree of NODE_RANKS_MAX ranks */

/* A mapped segment of a peer. The NODE_VIEWS most recently used segments of a peer stay mapped. */
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

/* How this rank gets a block from a peer. */
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
    const char *in; /* IN in the current call; NULL: not mapped, or in the bounce buffer */
    char *out;      /* OUT, likewise */
    uint64_t in_address, out_address; /* the same buffers in the peer's address space */
    char *bounce;                     /* NULL: not mapped yet */
    uint64_t bounce_key;
    uint64_t rounds; /* number of rounds in its bounce buffer before the current call */
    /*
     * In an irregular call `in`, `out` and their addresses are those of the block between the peer
     * and this rank, which has `count` elements.
     */
    size_t count;
    enum node_path path; /* how this rank gets the peer's block */
    bool by_bounce;      /* the peer gets its block from this rank's bounce buffer */
    uint32_t last;       /* last stage at which the peer and this rank wait for each other */
};

/* For MAILBOX calls: returns the address of a rank's data in its slot or overflow slot. */
static inline unsigned char *node_mailbox_data(const struct node_peer *peer,
                                               const struct disti_node_op *op)
{
    struct node_slot *slot = node_slot(peer->mailbox, op);

    return __builtin_expect(op->in_overflow, 0) ? node_overflow(peer->overflows, slot, op->number)
                                                : slot->data;
}

/* How a collective copies ordinary memory in a size class. All ranks make the same choice. */
enum { SELECTOR_CMA, SELECTOR_BOUNCES };
struct node_selector {
    struct node_trial trial; /* alternatives: SELECTOR_CMA and SELECTOR_BOUNCES */
    bool direct;             /* the last call was in place, so it needed neither */
};
/* Number of size classes; the sizes of a class are twice those of the previous class. */
#define NODE_SIZE_CLASSES 16

/* The ranks to which this rank yields its CPU after a barrier (waking.c). */
struct node_yield {
    int first, end;       /* the ranks [first, end) run first */
    uint64_t fingerprint; /* fingerprint of the call in which this rank waits for them */
    uint64_t barrier;     /* number of the last barrier that has ended */
};

struct disti_node {
    const struct dist_backend_config *config;
    int rank, ranks;
    void *mailboxes;                 /* rank 0 only: the block with all mailboxes */
    struct node_mailbox *mailbox;    /* mailbox of this rank; NULL: not mapped */
    struct node_peer *self;          /* entry of this rank in `peers` */
    struct node_peer *peers;         /* indexed by rank; includes this rank */
    struct node_mailbox **others;    /* mailboxes of all other ranks */
    struct disti_node_hello *hellos; /* indexed by rank */
    char *bounce;                    /* this rank's bounce buffer; NULL: not created yet */
    struct disti_segment_location bounce_location;
    size_t round_bytes;      /* bytes of a round in a bounce buffer */
    size_t overflow_bytes;   /* bytes of all overflow slots of a rank */
    size_t overflow_next;    /* offset of the next slot in the ring; 0: ring not in use */
    uint64_t overflow_calls; /* number of calls that fit into the ring, or into the fixed slots */
    int cpus;                /* number of CPUs that the ranks may use; at most `ranks` */
    size_t cache_bytes;      /* second-level cache of a CPU, divided by its ranks */
    uint64_t calls;          /* number of the newest call */
    uint64_t confirmed;      /* newest call that all ranks are known to have begun */
    uint64_t last_slot;      /* number of slots in use - 1: a bit mask; the same on all ranks */
    uint64_t sequences[NODE_SLOTS]; /* by slot: sequence number of the call in the group */
    uint64_t rounds;                /* number of rounds in this rank's bounce buffer so far */
    struct node_selector selectors[DIST_COLL_COUNT][NODE_SIZE_CLASSES];
    struct node_copy_modes copy_modes[DIST_COLL_COUNT][NODE_SIZE_CLASSES];
    struct node_again *agains[DIST_COLL_COUNT]; /* for irregular.c; NULL: none yet */
    struct node_proof proofs[NODE_VIEWS];
    unsigned proof_next;                     /* index of the entry to overwrite next */
    int abandoned_rank;                      /* a rank that has given up calls; -1: none is known */
    uint64_t abandoned_from;                 /* number of the first call that it gave up */
    bool stays;                              /* this rank never migrates to another CPU */
    int cpu;                                 /* the CPU published in the mailbox */
    int64_t migrate_at_ns, migrate_every_ns; /* time of the next check; interval */
    const char *stat_path;                   /* file with the idle times of the CPUs */
    struct node_idle *idle;                  /* NULL: not read yet */
    uint32_t failed_polls;                   /* number of unsuccessful polls so far */
    bool fences;                             /* stages are stored with a fence */
    bool cma;                                /* CMA is not known to fail; the same on all ranks */
    bool cma_refused;         /* CMA failed in an irregular call, which some peers may not know */
    bool used;                /* all ranks can map the node's memory */
    bool has_doorbell;        /* `doorbell_number` is valid */
    uint32_t doorbell_number; /* number of this node in the process */
    struct node_yield yield;
    int sleeper;    /* doorbell of the sleeping thread; -1: none; under doorbell_lock (waking.c) */
    bool armed;     /* between disti_node_arm and disti_node_disarm */
    bool abandoned; /* this rank has given up calls */
    int operands;   /* operands of the reduction tree: the largest power of 2 <= `ranks` */
    const char **sources; /* arrays of `ranks` pointers, for temporary use */
    char **targets;
    char *tiles; /* scratch memory: NODE_TILES tiles */
};

/* Returns the index of the slot that call `number` uses. */
static inline size_t node_slot_number(const struct disti_node *node, uint64_t number)
{
    return (size_t)(number & node->last_slot);
}

/* ---- properties of the collectives ---- */

/*
 * Ranks in `senders` have IN, ranks in `receivers` get OUT.
 *
 * in_blocks: IN has a block for each rank. slices: each rank reduces one slice of the result and
 * writes the slice into the OUT of all receivers. rooted: the data are copied from or to the root.
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

/* The number of elements and the offset, in elements, of a block of this rank's IN or OUT. */
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

/* Returns the number of elements in about `bytes` bytes, a multiple of NODE_APART bytes. */
static inline size_t node_line_elements(const struct disti_node_op *op, size_t bytes)
{
    return (bytes / NODE_APART + 1) * (NODE_APART / op->element_bytes);
}

/* Prefetches cache lines that are about to be written. */
static inline void node_prefetch_write(const void *memory, size_t bytes)
{
#if defined(__x86_64__)
    for (size_t at = 0; at < bytes; at += 64)
        __asm__ volatile("prefetchw %0" : : "m"(((const char *)memory)[at]));
#else
    (void)memory, (void)bytes;
#endif
}

/* ---- mailbox.c: locations of the data of a long call ---- */

/*
 * Returns the number of elements that a round has of a block of `count` elements, and stores the
 * index of the first of them in *first_p.
 */
size_t disti_node_round(const struct disti_node_op *op, size_t count, uint64_t round,
                        size_t *first_p);
/* Computes slice s of `elements` elements: [*from_p, *to_p). Slices share no cache line. */
void disti_node_slice(const struct disti_node *node, const struct disti_node_op *op,
                      size_t elements, int s, size_t *from_p, size_t *to_p);
/* Returns the address of element `at` of the current round, in a block of the IN of `rank`. */
const char *disti_node_in(const struct disti_node *node, const struct disti_node_op *op, int rank,
                          int block, size_t at);
/* Returns the address of a round of the current call in the bounce buffer of `rank`. */
char *disti_node_bounce(const struct disti_node *node, int rank, uint64_t round);
/* Writes the locations of this rank's data and of its bounce buffer into its slot. */
dist_status disti_node_publish(struct disti_node *node, struct disti_node_op *op);
/*
 * Copies data that peers have written into the twin of OUT to the program's OUT. To be called when
 * the call ends.
 */
void disti_node_copy_back(const struct disti_node *node, const struct disti_node_op *op);
/*
 * Reads the locations of all ranks' data and chooses the method of the call. Requires that all
 * ranks have published them.
 */
dist_status disti_node_resolve(struct disti_node *node, struct disti_node_op *op);
/* Switches the call to bounce buffers. */
dist_status disti_node_resolve_to_bounces(struct disti_node *node, struct disti_node_op *op);

/* Maps the bounce buffer of `rank` if it is not mapped. */
dist_status disti_node_attach(struct disti_node *node, const struct disti_node_op *op, int rank);
/*
 * Writes the location of this rank's bounce buffer into `locations`; creates the buffer if there is
 * none.
 */
dist_status disti_node_publish_bounce(struct disti_node *node, struct node_locations *locations);

/* ---- mailbox.c: segments that the peers can map ---- */

/*
 * Returns true, and stores the location, if the memory is in a segment that all peers are known to
 * be able to map. If that is not known yet, sets *offered_p, stores the location, and returns
 * false.
 */
bool disti_node_find(struct disti_node *node, const void *memory, size_t bytes,
                     struct disti_segment_location *location_p, bool *offered_p);
/*
 * Records whether all peers could map the segments that this rank offered in the call. Requires
 * that all ranks have reached a later stage than 0.
 */
void disti_node_record(struct disti_node *node, const struct disti_node_op *op);

/*
 * Returns the address in this process of a peer's memory, and maps it if necessary. Returns NULL,
 * without an error message, if it cannot be mapped.
 */
char *disti_node_try_map(struct node_peer *peer, const struct disti_segment_location *at,
                         size_t bytes);
/* Records that a peer could not map this segment of this rank. */
void disti_node_mark_unmappable(struct disti_node *node, uint64_t key);

/* ---- copy.c: moving long data ---- */

/* Returns the size of a CPU's second-level cache in bytes. */
size_t disti_node_cache(void);
/* Copies `bytes` bytes in a copy mode; of its bits, uses NODE_PREFETCHES and NODE_BYPASSES. */
void disti_node_move(char *to, const char *from, size_t bytes, uint8_t copy_mode);
/*
 * Orders non-temporal stores before later stores. To be called between a copy with NODE_BYPASSES
 * and the store that notifies the peers of the data.
 */
void disti_node_store_fence(void);

/* ---- mailbox.c: CMA, copies by the kernel between the memory of two processes ---- */

/* Copies from the memory of `rank`, or into it. A failure is stored in this rank's slot. */
void disti_node_cma_get(struct disti_node *node, struct disti_node_op *op, int rank, void *to,
                        uint64_t from, size_t bytes);
void disti_node_cma_put(struct disti_node *node, struct disti_node_op *op, int rank, uint64_t to,
                        const void *from, size_t bytes);
/*
 * Returns true if a CMA copy of any rank has failed in this call. Unless the error is EFAULT, no
 * rank uses CMA again. Requires that all ranks have done their part.
 */
bool disti_node_cma_failed(struct disti_node *node, const struct disti_node_op *op);
/*
 * Blocks until no peer writes to this rank's memory any more, for at most 1 s. Requires that this
 * rank's presence is NODE_GONE.
 */
void disti_node_cma_drain(const struct disti_node *node);

/* ---- op.c: preparing a call ---- */

/*
 * Returns the number of bytes that a rank may send in a slot; longer data go into an overflow slot.
 * The limit is lower for calls in which all ranks wait for all ranks, so that the slots of these
 * calls stay in the caches.
 */
size_t disti_node_slot_bytes(const struct node_pattern *pattern);
/* Returns the elements of a block that fit into one round of a bounce buffer. */
size_t disti_node_piece(const struct disti_node *node, const struct disti_node_op *op);

/* Divides a call through bounce buffers into rounds. */
void disti_node_cut(const struct disti_node *node, struct disti_node_op *op);

/* ---- op.c: the copy selector, which chooses how ordinary memory is copied ---- */

int disti_node_size_class(const struct disti_node_op *op);

/* For the leader of an irregular call: returns true if the ranks may use CMA. */
bool disti_node_selector_leads(struct disti_node *node, const struct disti_node_op *op);
/*
 * For irregular calls: returns true if this rank may send long data through an overflow slot, and
 * then counts the call in the trial.
 */
bool disti_node_selector_takes_overflow(struct disti_node *node, const struct disti_node_op *op);
/* Chooses the method of a long call before it begins; all ranks make the same choice. */
void disti_node_selector_choose(struct disti_node *node, struct disti_node_op *op);
/* Publishes this rank's times before stage 0, if the trial is decided in this call. */
void disti_node_selector_publish(struct disti_node *node, const struct disti_node_op *op);
/*
 * To be called in stage 0, when all ranks have published their times and the method of the op has
 * been chosen (begin), and when the op has ended (end).
 */
void disti_node_selector_begin(struct disti_node *node, struct disti_node_op *op);
void disti_node_selector_end(struct disti_node *node, const struct disti_node_op *op);

/* ---- copy.c: copies and reductions ---- */

/* Short calls: computes this rank's result from the mailboxes. */
void disti_node_copy_short(struct disti_node *node, const struct disti_node_op *op);
void disti_node_reduce_short(struct disti_node *node, const struct disti_node_op *op);
/* Like disti_node_reduce_short, for 2 ranks with op->pair, except DIST_AVG. */
void disti_node_reduce_pair(struct disti_node *node, const struct disti_node_op *op);

/* ---- op.c ---- */

/*
 * Changes the state of an op; every change of state uses this function. Returns ERR_INTERNAL, and
 * leaves the state unchanged, if the drawing in node.h has no such arrow.
 */
dist_status disti_node_op_go(struct disti_node_op *op, enum disti_node_op_state to);
/*
 * Prepares a call that disti_node_start_again has begun, but that has not ended, for
 * disti_node_advance. Returns IN_PROGRESS.
 */
dist_status disti_node_op_continue(struct disti_node_op *op, const struct dist_call *call,
                                   uint64_t history);

/* ---- migrate.c ---- */

/* Reads DIST_MIGRATE, or its old name DIST_STEP_ASIDE with a warning. ERR_INVALID_ARGUMENT. */
dist_status disti_node_migrate_open(struct disti_node *node);
void disti_node_migrate_close(struct disti_node *node);

/* ---- waking.c ---- */

/*
 * Wakes the ranks that sleep until this rank reaches a stage, and notes ranks that have given up.
 * To be called after storing a stage.
 */
void disti_node_ring(struct disti_node *node);

/* Notes ranks that have given up. */
void disti_node_note_abandoned(struct disti_node *node);

/* Overflow slots: for data that are too long for a slot, and too short to be read in place. */

/*
 * The overflow slots of a rank are NODE_OVERFLOWS_FIXED slots with fixed locations, followed by a
 * ring. Example:
 *
 *     | of call 8 | of call 9 | ... | of call 15 | call 7 | call 20, long  | call 22 |  ...  |
 *                                                                                    next
 *
 * A reader can prefetch a fixed overflow slot before it has read the rank's slot, because the
 * location depends only on the call's number. So short blocks use the fixed slots, and longer
 * blocks are stored one after another in the ring. Writing a line that another CPU has read and
 * still caches takes several times as long as writing a line that has left that CPU's caches. So
 * all overflow slots together have NODE_OVERFLOWS_ALL bytes, several times the size of a
 * second-level cache.
 *
 * The first write to a page waits for the kernel. So a rank starts to use its ring only after it
 * has sent long blocks several times. Each rank decides this alone; its slot has the location of
 * the overflow slot.
 */
#define NODE_OVERFLOWS_ALL ((size_t)4 << 20)

/* Returns the size of all overflow slots of a rank. With many ranks there is no ring. */
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
    overflows -= NODE_OVERFLOWS_FIXED + 1; /* the end of the ring may be too short for one */
    node->overflow_next = NODE_OVERFLOWS_FIXED * NODE_OVERFLOW_EACH;
    node->overflow_calls = overflows <= node->last_slot ? overflows : node->last_slot + 1;
    return true;
}

/* Chooses the overflow slot for `bytes` bytes: in the ring if it is in use, else the fixed slot. */
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

/* The start of a call and the end of a short one; inline, for the fast path of repeated calls. */

/* Number of short calls after which a rank publishes its CPU again. */
#define SHORT_CPU_CALLS 8

/* Makes call `number` this rank's newest call; `at` is its slot. Requires that the slot is free. */
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
 * Stores the stage and wakes the peers that sleep until this rank reaches a stage. The store must
 * be visible before this rank checks for sleeping peers; waking.c explains how, with or without a
 * fence.
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

/* Returns true if all awaited ranks have published stage 0 of the same call. */
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
 * Prefetches the next call's slot for writing, because its lines are in the caches of the peers
 * that have read it.
 */
static inline void short_prefetch_next(struct disti_node *node, const struct disti_node_op *op,
                                       size_t bytes)
{
    uint64_t next = op->number + 1;

    if (bytes < NODE_PREFETCH_MIN)
        return;
    node_prefetch_write(&node->mailbox->slots[node_slot_number(node, next)],
                        NODE_SLOT_ALIGN + (op->in_overflow ? NODE_SLOT_DATA_MUTUAL : bytes));
    if (op->in_overflow && !(op->copy_mode & NODE_STREAMS))
        node_prefetch_write(op->chosen && node->overflow_next
                                ? node->self->overflows + node->overflow_next
                                : node->self->overflows +
                                      next % NODE_OVERFLOWS_FIXED * NODE_OVERFLOW_EACH,
                            bytes);
}

/*
 * Short calls: computes this rank's result. Requires that all awaited ranks have published their
 * data.
 */
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

/* Chooses where this rank's blocks are stored and which ranks it waits for. */
void disti_node_irregular_choose(struct disti_node *node, struct disti_node_op *op);
/*
 * Writes this rank's list of blocks into its slot or overflow slot, followed by the blocks or their
 * locations.
 */
dist_status disti_node_irregular_publish(struct disti_node *node, struct disti_node_op *op);
/*
 * Finds the blocks between this rank and its peers, and chooses how each is copied. ERR_MISMATCH:
 * two ranks have different counts for a block.
 */
dist_status disti_node_irregular_resolve(struct disti_node *node, struct disti_node_op *op);
/* Copies a part of this rank's blocks in the stage. Returns true if all are copied. */
bool disti_node_irregular_work(struct disti_node *node, struct disti_node_op *op);
/*
 * are_short returns true if this rank and all awaited ranks send through mailboxes. Then finish
 * does all copies of the call at once.
 */
bool disti_node_irregular_are_short(const struct disti_node *node, const struct disti_node_op *op);
dist_status disti_node_irregular_finish(struct disti_node *node, struct disti_node_op *op);
/*
 * Returns true if there are blocks that must be copied through bounce buffers, after all other
 * blocks have been copied.
 */
bool disti_node_irregular_needs_bounces(struct disti_node *node, struct disti_node_op *op);
/* Switches the call to bounce buffers, and maps those of the peers. */
dist_status disti_node_irregular_to_bounces(struct disti_node *node, struct disti_node_op *op);
/*
 * Returns true if disti_node_start_again may repeat the op: this rank sends little data, whatever
 * its peers send. Discards what was prepared for the previous such op of the collective.
 */
bool disti_node_irregular_can_start_again(const struct disti_node *node,
                                          const struct disti_node_op *op);
/* Like disti_node_start_again. */
dist_status disti_node_irregular_start_again(struct disti_node *node, const struct dist_call *call,
                                             uint64_t history, struct disti_node_op *op);
/* Copies the pieces of the round into this rank's bounce buffer. */
void disti_node_irregular_fill(struct disti_node *node, struct disti_node_op *op, uint64_t round);

/* Irregular calls: the protocol and functions for op.c and irregular.c. */

/*
 * Irregular calls are gather_v, scatter_v and all_to_all_v: a rank knows only the counts of its own
 * blocks. The sender and the receiver of a block both know its count. Everything else is read from
 * the mailboxes:
 *
 *     sender's place       slot, overflow slot  memory
 *     sender's mailbox     list, blocks         list, locations of the blocks
 *     stage 0              received; the end    both copy a part; or wait for bounce buffers
 *     stage 1                                   all blocks without bounce buffers are done
 *     stage 2, 3, ...                           the bounce buffer holds round 0, 1, ...
 *
 * Every sender chooses its place (enum disti_node_place) alone, by the size of its data. So a rank
 * that sends little never waits for ranks that send more. If both ranks of a pair copy, they wait
 * for each other until the last stage of their pair only: other pairs may need more rounds, or
 * none.
 *
 * The leader is the root, or rank 0 if there is no root. Its mailbox says whether ordinary memory
 * is copied by CMA or through bounce buffers. If the kernel refuses to copy a block, or a rank
 * cannot map it, the rank reports this at stage 1, and the block is copied through bounce buffers
 * from stage 2 on.
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
 * Returns true if this rank sends to peers. In a rooted call, either the root sends to all other
 * ranks or all other ranks send to the root.
 */
static inline bool irregular_sends_to_peers(const struct disti_node *node,
                                            const struct disti_node_op *op)
{
    const struct node_pattern *pattern = disti_node_pattern(op->call.collective);

    if (!pattern->rooted)
        return true;
    return (pattern->senders == NODE_ROOT) == (node->rank == op->call.root);
}

/*
 * Returns the block of IN for a receiver. IN has a block for each rank, or a single block, for the
 * root.
 */
static inline struct node_block irregular_in(const struct disti_node_op *op, int receiver)
{
    int block = op->call.in_counts ? receiver : 0;

    return (struct node_block){node_in_count(op, block), node_in_first(op, block)};
}

/* Returns the block of OUT for the data of a sender. */
static inline struct node_block irregular_out(const struct disti_node_op *op, int sender)
{
    int block = op->call.out_counts ? sender : 0;

    return (struct node_block){node_out_count(op, block), node_out_first(op, block)};
}

/* Returns the number of bytes from the start of IN or OUT to the end of its last block. */
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
 * Returns the size of a list of `listed` blocks, after which the first block begins. In an overflow
 * slot the size is rounded up to whole cache lines, because blocks are copied by line.
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

/* Returns how a receiver gets data from a sender's memory. */
static inline enum node_path irregular_path(const struct disti_node_op *op,
                                            const struct node_locations *sender)
{
    return sender->in.name.key ? NODE_FROM_SEGMENT : op->cma ? NODE_BY_KERNEL : NODE_BY_BOUNCE;
}

/* Returns the address of the list of a rank in an irregular call. */
static inline struct node_block *node_list(const struct node_peer *peer,
                                           const struct disti_node_op *op)
{
    struct node_slot *slot = node_slot(peer->mailbox, op);

    if (__builtin_expect(slot->place == NODE_IN_SLOT, 1))
        return (void *)slot->data;
    return (void *)node_overflow(peer->overflows, slot, op->number);
}

/* Returns the address of a block in a sender's mailbox. */
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

/* The doorbell of a process, which wakes the threads that sleep in a call. */

/*
 * Creates the process's doorbell if there is none, and writes what peers need to ring it for this
 * node to *hello.
 */
dist_status disti_node_doorbell_open(struct disti_node *node, struct disti_node_hello *hello);
/*
 * Closes the node's references to its peers' doorbells, and the process's own doorbell if this was
 * its last node.
 */
void disti_node_doorbell_close(struct disti_node *node);

/* Wakes the thread of `rank` that sleeps in this node. */
void disti_node_doorbell_ring(struct disti_node *node, int rank);

#endif
