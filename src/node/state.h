/* SPDX-License-Identifier: BSD-3-Clause */
/* What a rank knows of its calls and peers; private to this folder. */
#ifndef DISTI_NODE_STATE_H
#define DISTI_NODE_STATE_H

#include "node/board.h"
#include "node/moving/gait.h"
#include "node/segment/segment.h"

/* Bytes of a window that one round uses: stays in the caches between being written and read. */
#define NODE_ROUND_BYTES ((size_t)256 << 10)
/* Rounds of a window: one is filled while the one before and the one before that are read. */
#define NODE_ROUNDS 3
/* One call of advance does about this much. */
#define NODE_BITE ((size_t)1 << 20)
/* A tile of a reduction stays in the first-level cache. */
#define NODE_TILE ((size_t)1 << 10)
/* More ranks than any machine has cores for: blocks of a window must not vanish. */
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
enum node_means { NODE_NOTHING, NODE_FROM_BOARD, NODE_SEEN, NODE_BY_KERNEL, NODE_BY_WINDOW };

struct node_peer {
    struct node_board *board;
    unsigned char *areas;
    struct node_far_doorbell *doorbell; /* NULL: not opened yet */
    struct node_view views[NODE_VIEWS]; /* the first was used last */
    const char *in;                     /* of the call under way; NULL: in the window */
    char *out;
    uint64_t in_address, out_address; /* the same in the peer's address space */
    char *window;                     /* NULL: not mapped yet */
    uint64_t window_key;
    uint64_t rounds; /* of its window, before the call under way */
    /* In a call of pairs `in` and `out`, and their addresses, are those of the block between it and
     * this rank, of `count` elements. */
    size_t count;
    enum node_means means; /* of this rank's to get it; else NOTHING, */
    bool by_window;        /* and it gets its own from this rank's window */
    uint32_t last;         /* the stage up to which the two keep step */
};

/* Where a rank's data are in a call on the boards. */
static inline unsigned char *node_given(const struct node_peer *peer,
                                        const struct disti_node_op *op)
{
    struct node_slot *slot = node_slot(peer->board, op);

    return __builtin_expect(op->in_area, 0) ? node_area(peer->areas, slot, op->number) : slot->data;
}

/* How ordinary memory is copied by a collective in a size class; the same on all ranks. */
struct node_mover {
    uint64_t ns[2]; /* of 1 MiB, in this rank's fastest call by windows and by CMA; 0: none yet */
    uint16_t calls; /* that took either, since the trials began */
    bool windows;   /* they are the faster ones */
    bool tried;     /* the first trials are over */
    bool direct;    /* the last call needed neither */
};
/* Size classes: factors of two. */
#define NODE_SIZES 16

/* lead.c's */
struct node_lead {
    int first, end;       /* the ranks that are let go first behind a barrier: [first, end) */
    uint64_t fingerprint; /* of the call in which they are awaited */
    uint64_t barrier;     /* the newest that has ended, by its number */
};

struct disti_node {
    const struct dist_backend_config *config;
    int rank, ranks;
    void *boards;               /* rank 0: what it has made for all */
    struct node_board *board;   /* this rank's; NULL: not mapped */
    struct node_peer *self;     /* this rank */
    struct node_peer *peers;    /* by rank; [rank]: itself */
    struct node_board **others; /* the boards of all but this rank, one after the other */
    struct disti_node_hello *hellos;
    char *window; /* this rank's, NULL: not needed yet */
    struct disti_segment_location window_location;
    size_t round_bytes;
    size_t area_bytes;   /* of all areas of a rank; */
    size_t area_next;    /* of the ring the next one; 0: it is not used yet */
    uint64_t area_depth; /* so many calls find room in it, or among those that are fixed */
    int cpus;            /* for this rank and the others, no more than ranks */
    size_t cache_bytes;  /* this rank's, of the second level */
    uint64_t calls;      /* numbered so far */
    uint64_t confirmed;  /* the last that every rank is known to have begun, and was the same to */
    uint64_t last_slot;  /* of those in use, a power of two of them; the same on all ranks */
    uint64_t sequences[NODE_SLOTS]; /* of the calls in this rank's slots, as its group counts */
    uint64_t rounds;                /* of windows, so far */
    struct node_mover movers[DIST_COLL_COUNT][NODE_SIZES];
    struct node_gaits gaits[DIST_COLL_COUNT][NODE_SIZES];
    struct node_again *agains[DIST_COLL_COUNT]; /* pairs/again.c's; NULL: there was none yet */
    struct node_proof proofs[NODE_VIEWS];
    unsigned proof_next; /* that is written next */
    int gone;            /* a rank that has given up, -1: none is known, */
    uint64_t gone_from;  /* and from which call on */
    bool stays;          /* on its CPU, even if that is the awaited rank's too */
    int cpu;             /* what the board says */
    int64_t migrate_at_ns, migrate_every_ns; /* time of the next check, and from there on */
    const char *stat_path;                   /* where idle CPUs are counted */
    struct node_idle *idle;                  /* migrate.c's; NULL: CPUs have not been counted */
    uint32_t looks;                          /* in vain, so far */
    bool fences;                             /* a stage is stored with a fence */
    bool cma;          /* the kernel copies between ranks, as far as is known; same on all */
    bool cma_refused;  /* it did not, in a call of pairs; this rank knows, others may not */
    bool used;         /* its ranks have agreed to use it */
    bool has_doorbell; /* with this number among those of the process: */
    uint32_t doorbell_number;
    struct node_lead lead;
    int sleeper; /* the doorbell of the thread that sleeps, -1: none; guarded by doorbell.c's lock
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
    bool reduces, in_blocks, slices, rooted, paired;
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

/* ---- window.c: where data are in a long call ---- */

/* Of a block of so many elements those that go in the round, and the first of them. */
size_t disti_node_round(const struct disti_node_op *op, size_t count, uint64_t round,
                        size_t *first_p);
/* Slice s of that many elements: [*from_p, *to_p), on lines of its own. */
void disti_node_slice(const struct disti_node *node, const struct disti_node_op *op,
                      size_t elements, int s, size_t *from_p, size_t *to_p);
/* Element `at` of the round, of a block of a rank's IN. */
const char *disti_node_in(const struct disti_node *node, const struct disti_node_op *op, int rank,
                          int block, size_t at);
/* A rank's window in a round of the call under way. */
char *disti_node_window(const struct disti_node *node, int rank, uint64_t round);
/* Makes this rank's window, of which no page is touched, and says where it is; if it can. */
void disti_node_window_offer(struct disti_node *node, struct disti_node_hello *hello);
/* Maps the windows of all ranks, or checks that it could map the next rank's. Returns the first
 * rank whose window cannot be mapped, or -1. Windows that are not made yet count as mapped. */
int disti_node_windows_meet(struct disti_node *node, bool map);
/* Writes where this rank's data and its window are into its slot. */
dist_status disti_node_publish(struct disti_node *node, struct disti_node_op *op);
/* Brings what peers have written into a twin to where the program has it; at the call's end. */
void disti_node_take_back(const struct disti_node *node, const struct disti_node_op *op);
/* Learns where the others' are, and what follows for the call. All have shown theirs. */
dist_status disti_node_resolve(struct disti_node *node, struct disti_node_op *op);
/* It goes through windows after all. */
dist_status disti_node_resolve_to_windows(struct disti_node *node, struct disti_node_op *op);

/* Maps the peer's window, if it is not. */
dist_status disti_node_attach(struct disti_node *node, const struct disti_node_op *op, int rank);
/* Writes where this rank's window is into its slot; makes it if there is none. */
dist_status disti_node_show_window(struct disti_node *node, struct node_locations *locations);

/* ---- view.c: who can map whose segments ---- */

/* Is that memory in a segment that the others can map, as far as is known? Writes where. */
bool disti_node_find(struct disti_node *node, const void *memory, size_t bytes,
                     struct disti_segment_location *location_p, bool *offered_p);
/* Learns who could map what this rank has offered. All have reached a later stage. */
void disti_node_record(struct disti_node *node, const struct disti_node_op *op);
/* An address in the peer's segment, NULL if it has shown none. */
dist_status disti_node_see(struct node_peer *peer, const struct disti_segment_location *at,
                           size_t bytes, char **memory_p);
/* The same without a word if it cannot be mapped: NULL. */
char *disti_node_try_see(struct node_peer *peer, const struct disti_segment_location *at,
                         size_t bytes);
/* A peer could not map that segment of this rank's. */
void disti_node_disprove(struct disti_node *node, uint64_t key);
/* Maps what the peer has offered. Failure is an answer, which this rank's slot then gives. */
void disti_node_try(struct disti_node *node, const struct disti_node_op *op, struct node_peer *peer,
                    const struct disti_segment_location *at);
/* Releases what is mapped of a peer. */
void disti_node_unview(struct node_peer *peer);

/* ---- move.c: moving long data ---- */

/* Bytes of a CPU's second-level cache. */
size_t disti_node_cache(void);
void disti_node_move(char *to, const char *from, size_t bytes, uint8_t gait);
/* After moves past the caches, before others are told of them: such stores are in no order. */
void disti_node_store_fence(void);
/* Asks for a tile some way behind `at`, if there is one, to be read or written soon. */
void disti_node_prefetch(const char *memory, size_t bytes, size_t at);
void disti_node_prefetch_write(char *memory, size_t bytes, size_t at);

/* ---- cma.c: copies that the kernel makes between the ranks' own memory ---- */

/* Reads DIST_SHM_CMA, and says so in the hello. */
dist_status disti_node_cma_open(struct disti_node_hello *hello);
/* From the peer's memory, or into it. A failure is noted in this rank's slot. */
void disti_node_cma_get(struct disti_node *node, struct disti_node_op *op, int rank, void *to,
                        uint64_t from, size_t bytes);
void disti_node_cma_put(struct disti_node *node, struct disti_node_op *op, int rank, uint64_t to,
                        const void *from, size_t bytes);
/* Has a rank failed to copy? All have done their part. Then none relies on the kernel again. */
bool disti_node_cma_failed(struct disti_node *node, const struct disti_node_op *op);
/* This rank has said that it is gone: returns when no peer writes to its memory any more. */
void disti_node_cma_drain(const struct disti_node *node);

/* ---- start.c ---- */

/* Who gives, takes and is awaited, once the op's way is known. */
void disti_node_roles(const struct disti_node *node, struct disti_node_op *op);
/* Bytes that a rank gives in a slot, rather than in an area. Where all wait for all two slots are
 * in use; so fewer, larger ones stay in the caches. */
size_t disti_node_slot_bytes(const struct node_pattern *pattern);
/* Elements of a block that go in a round of a window. */
size_t disti_node_piece(const struct disti_node *node, const struct disti_node_op *op);
/* May OUT be written past the caches: is it more than this rank's cache holds, and not yet in it?
 */
bool disti_node_may_go_past(const struct disti_node *node, const struct disti_node_op *op);
/* Cuts a call that goes through windows into rounds. */
void disti_node_cut(const struct disti_node *node, struct disti_node_op *op);
/* May ordinary memory go by the boards, in blocks of so many bytes? */
bool disti_node_fits_area(dist_collective collective, int ranks, size_t block);

/* ---- mover.c: which way ordinary memory is copied ---- */

/* The op's size class. */
int disti_node_size_class(const struct disti_node_op *op);
/* The least bytes of a size class. */
size_t disti_node_class_bytes(int size_class);
/* In a call of pairs. May the kernel copy? Asked of the rank that leads it. */
bool disti_node_mover_leads(struct disti_node *node, const struct disti_node_op *op);
/* May what this rank gives stand in an area, though it is long? True: counted. */
bool disti_node_mover_takes_area(struct disti_node *node, const struct disti_node_op *op);
/* Chooses the way that a long call begins with; the same on all ranks. */
void disti_node_mover_choose(struct disti_node *node, struct disti_node_op *op);
/* Shows the others this rank's times, before stage 0. */
void disti_node_mover_show(struct disti_node *node, const struct disti_node_op *op);
/* Fills this rank's window for the first round. */
void disti_node_mover_fill(struct disti_node *node, struct disti_node_op *op);
/* All have shown theirs, and the op's way is known; and it has ended. */
void disti_node_mover_begin(struct disti_node *node, struct disti_node_op *op);
void disti_node_mover_end(struct disti_node *node, const struct disti_node_op *op);

/* ---- copy.c, reduce.c: the work ---- */

/* Short: takes this rank's result from the boards. */
void disti_node_copy_short(struct disti_node *node, const struct disti_node_op *op);
void disti_node_reduce_short(struct disti_node *node, const struct disti_node_op *op);
/* The same of two ranks, where nothing is left to do with their sum. */
void disti_node_reduce_pair(struct disti_node *node, const struct disti_node_op *op);

/* Long: some of this rank's part of the op's round, from op->done on. True: that was the rest. */
bool disti_node_copy_some(struct disti_node *node, struct disti_node_op *op);
bool disti_node_reduce_some(struct disti_node *node, struct disti_node_op *op);

/* Puts the round's pieces of IN into this rank's window, for others to read. */
void disti_node_fill(struct disti_node *node, struct disti_node_op *op, uint64_t round);
/* Fetches the round's slices that others have reduced. */
void disti_node_drain(struct disti_node *node, struct disti_node_op *op, uint64_t round);

/* ---- ahead.c: how far ranks are ahead of each other, and whether they call the same ---- */

/* Has that rank begun the call of that number, or a later one? */
bool disti_node_has_begun(const struct disti_node *node, int rank, uint64_t number);
/*
 * May the call be begun? OK: its slot and area are free. IN_PROGRESS: a rank is too far behind.
 * ERR_MISMATCH: a rank has called something else.
 */
dist_status disti_node_admit(struct disti_node *node, struct disti_node_op *op);
/* The rank's history at that call is another than this one's: ERR_MISMATCH, and which call. OK: it
 * is none that stands on the boards, but one of those between them, which went by messages. */
dist_status disti_node_differs(const struct disti_node *node, struct disti_node_op *op,
                               uint64_t number, int rank);
/* POSTED: is the rank so far behind that the op cannot begin? */
bool disti_node_is_behind(const struct disti_node *node, const struct disti_node_op *op, int rank);

/* ---- board.c ---- */

/* This rank's ring of areas is used from now on, and its pages are there. */
void disti_node_use_ring(struct disti_node *node);

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

/* ---- deferred.c: memory that peers read ---- */

/*
 * Frees memory of disti_segment_alloc_shared, now or once every call of the group's ranks must have
 * met its deadline: a peer that has not heard of the group's end may still read it. NULL: nothing.
 */
void disti_node_free(void *memory, bool now, int timeout_ms);

/* ---- presence.c ---- */

/* Registers this process, whose CPUs others may then have the kernel fence. False: it cannot be. */
bool disti_node_can_fence(void);

/* Wakes those that sleep until this rank comes, and sees who is gone; after a stage has been
 * stored.
 */
void disti_node_ring(struct disti_node *node);

/* Sees who is gone. */
void disti_node_check_gone(struct disti_node *node);

#endif
