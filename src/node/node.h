/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shared memory segments of this process, and collectives in memory that the ranks of a node share.
 */
#ifndef DISTI_NODE_NODE_H
#define DISTI_NODE_NODE_H

#include "base/dtype.h"

#include <dist/backend.h>
#include <dist/dist.h>

/*
 * A segment is a sealed memfd that its owner has mapped. It has no name in the file system: a
 * process of the same user maps it once, through /proc/PID/fd/FD, and keeps the mapping.
 *
 *     owner                                  peer
 *     |--- segment 7 (fd 12) ---|            disti_segment_map(pid, {fd 12, key}, ...)
 *     |   block  block    block |  ------->  |--- its own mapping -----|
 *
 * Memory is allocated as blocks of a few large segments, the arenas, so that the number of
 * descriptors and mappings does not grow with the number of blocks (segment.h).
 *
 * Pages are created at first touch. If memory runs out then, the kernel kills the process, as with
 * malloc. With vm.overcommit_memory=2, alloc creates the pages and returns an error instead.
 *
 * A forked child owns no segment. At the addresses of its parent's segments it has private copies:
 * its writes are not shared, and it sees the parent's writes to a page until it writes to that page
 * itself.
 *
 * One table has the segments of all groups of the process; it has a lock of its own, so every
 * function can be called by any thread. A key is never reused on a machine, so a descriptor that
 * was closed and reused for another file is detected.
 */

/* The name of a segment, with which a peer maps it. All zero: no segment. */
struct disti_segment_name {
    uint64_t key;   /* random; also stored in the seal page of the file */
    uint64_t bytes; /* usable size */
    int32_t fd;     /* descriptor in the owner */
    int32_t pid;
};

/* The place of a memory range in a segment. */
struct disti_segment_location {
    uint64_t offset; /* of the first byte */
    struct disti_segment_name name;
};

/*
 * Allocates at least `bytes` bytes for the program: zeroed, page-aligned (aligned to 2 MiB, with
 * huge pages if available, from 2 MiB on), with pages created at first touch. If shared memory
 * cannot be created it returns ordinary memory, which disti_segment_find does not find.
 * ERR_NO_MEMORY.
 */
dist_status disti_segment_alloc(size_t bytes, void **memory_p);

/*
 * Allocates memory for the library from separate arenas, and stores its place. It never returns
 * ordinary memory. A peer maps location_p->name once for all blocks in that segment. ERR_NO_MEMORY.
 */
dist_status disti_segment_alloc_shared(size_t bytes, void **memory_p,
                                       struct disti_segment_location *location_p);

/*
 * Frees memory of disti_segment_alloc or disti_segment_alloc_shared at once. Peers may keep their
 * mappings: these read as zeros and never fault, but may show the contents of a later block.
 * Ignores NULL. ERR_INVALID_ARGUMENT: the memory is from neither function.
 */
dist_status disti_segment_free(void *memory);

/*
 * Allocates no more blocks from the program's present arenas. For use after a peer has failed that
 * may still be writing to memory which the program then frees.
 */
void disti_segment_retire(void);

/*
 * Makes memory that the caller owns shared in place: address and contents stay, but its whole pages
 * become pages of a segment. They stay ordinary if shared memory cannot be created. The memory must
 * be private and anonymous, and no other thread may write to it during the call. Other properties
 * of the pages are lost: locks, advice, pinning for a device. ERR_INVALID_ARGUMENT, ERR_NO_MEMORY.
 *
 * Unregister makes the memory private again and keeps the contents. Call it before unmapping the
 * memory.
 *
 * The bytes before the first and after the last whole page, the ends, stay where they are, because
 * other data share their pages. The twin is this process's contiguous mapping of the block, as
 * peers have it, and has room for copies of the ends.
 *
 *     memory        ..bbb|bbbbbbbbbb|bbbbbbbbbb|bb....
 *                    end      shared pages      end     load copies the ends to the twin,
 *     twin          ..bbb|bbbbbbbbbb|bbbbbbbbbb|bb....  store copies those of the twin back
 */
dist_status disti_segment_register(void *memory, size_t bytes);
dist_status disti_segment_unregister(void *memory);

/*
 * For a range that disti_segment_find has found. twin returns the address at which the range is
 * contiguous: in the twin if part of the range is in an end, else `memory`. load returns the same
 * and copies the ends to the twin, for data that peers read. store copies the ends back, for data
 * that peers have written.
 */
void *disti_segment_twin(void *memory, size_t bytes);
void *disti_segment_load(void *memory, size_t bytes);
void disti_segment_store(void *memory, size_t bytes);

/*
 * Returns true, and stores the place, if [memory, memory + bytes) is in one block. Takes about 10
 * ns.
 */
bool disti_segment_find(const void *memory, size_t bytes,
                        struct disti_segment_location *location_p);

/* Number of unused mappings that are kept, the most recently released ones. */
#define DISTI_SEGMENT_KEEP 64

/*
 * Returns this process's mapping of a peer's segment, or of its own; creates it if necessary. It is
 * held until disti_segment_unmap has been called as often as this function. Fails if the peer has
 * exited, the segment is freed, the process may not open the peer's descriptors (another user, a
 * container, not dumpable), or memory is exhausted.
 */
dist_status disti_segment_map(const struct disti_segment_name *name, void **memory_p);

/*
 * Returns the status that disti_segment_map would return for another process's segment, unless
 * memory is exhausted.
 */
dist_status disti_segment_can_map(const struct disti_segment_name *name);

/* Releases one hold of a mapping. Ignores 0 and the keys of this process's own segments. */
void disti_segment_unmap(uint64_t key);

/*
 * Sets whether a child that this process forks shares these bytes of a held mapping; initially it
 * does not. Does nothing for memory of this process.
 */
void disti_segment_inherit(const struct disti_segment_location *location, size_t bytes,
                           bool inherited);

/* Unmaps all unused mappings except the `keep` most recently released ones. */
void disti_segment_trim(size_t keep);

/*
 * Collectives among the ranks of a node. Every rank has a mailbox in memory that all ranks have
 * mapped and only the rank itself writes. A collective is a few stages: in each, a rank does its
 * part, publishes the stage on its mailbox, and continues when the other ranks have published
 * theirs. There is no message, no queue and no system call.
 *
 *   short: the data are on the mailbox                 long: the mailbox has the places of the data
 *
 *   rank 0   [stage | data]                            rank 0   [stage | in, out, bounce buffer]
 *   rank 1   [stage | data]   each rank reads what     rank 1   [stage | in, out, bounce buffer]
 *   rank 2   [stage | data]   it needs                 rank 2   [stage | in, out, bounce buffer]
 *
 * Long data in segments (dist_alloc) are read and written in place. Other memory is copied in
 * pieces through the rank's bounce buffer, which is in a segment too, or by the kernel (CMA).
 *
 * Reductions always add in the order of reproducible results (plan/plan.h).
 */
struct disti_node;

/*
 * The states of a call:
 *
 *                  its slot is free;      all ranks have       last stage,
 *                  its data are shown     reached `stage`      all work done
 *   start ----> POSTED ----------> WAITING ----------> WORKING ----------> ENDED
 *                                   |    ^                |                 ^
 *                                   |    '----------------'                 |
 *                                   |    work done and published: stage + 1 |
 *                                   '---------------------------------------'
 *                                     short: the awaited data are there and have been read
 *
 * A call that fails keeps its state.
 */
enum disti_node_op_state { NODE_OP_POSTED, NODE_OP_WAITING, NODE_OP_WORKING, NODE_OP_ENDED };

/*
 * How a call moves its data. start chooses MAILBOX or BOUNCES. BOUNCES becomes SWAPPED, DIRECT or
 * CMA if possible, at stage 0, when all ranks have published the places of their data and no work
 * has been done. CMA becomes BOUNCES again if the kernel refuses to copy.
 */
enum disti_node_method {
    NODE_METHOD_MAILBOX, /* short data, on the mailboxes */
    NODE_METHOD_BOUNCES, /* through bounce buffers */
    NODE_METHOD_SWAPPED, /* 2 ranks, each of which writes into the other's bounce buffer */
    NODE_METHOD_DIRECT,  /* in place, as all ranks have mapped the data */
    NODE_METHOD_CMA      /* the kernel copies data that a rank has not mapped (mailbox.c) */
};

struct disti_node_op;
struct node_mailbox;
typedef void (*node_finish_fn)(struct disti_node *node, const struct disti_node_op *op);

/* The place of the data that a rank sends in an irregular call (irregular.c). */
enum disti_node_place {
    NODE_NOWHERE, /* it sends nothing */
    NODE_IN_SLOT,
    NODE_IN_OVERFLOW,
    NODE_IN_MEMORY /* the slot has the place; also for a rank that only receives into its memory */
};

/*
 * A call in progress. The caller owns the memory and sets none of the fields. After start it must
 * be advanced until it has ended, or the node must be closed.
 */
struct disti_node_op {
    struct dist_call call;
    void *program_out; /* the program's OUT if call.out is its twin (segment.h); else NULL */
    uint64_t fingerprint, number;
    size_t slot;      /* its slot in all mailboxes */
    uint64_t history; /* hash of this call and all before it */
    size_t element_bytes;
    size_t largest;              /* elements of the largest block */
    size_t piece;                /* elements of a block per round */
    size_t published_bytes;      /* MAILBOX: bytes of this rank's data on its mailbox */
    uint8_t copy_mode;           /* how this rank copies: NODE_PREFETCHES etc. */
    bool in_copy_mode_trial;     /* the work of the call is timed */
    int64_t worked_ns;           /* time of the work so far */
    bool cma;                    /* CMA is tried before bounce buffers */
    int64_t begun_ns;            /* selector trial: when all ranks had arrived; 0: no trial */
    int64_t filled_ns;           /* selector trial: time to fill the bounce buffer before that */
    bool chosen;                 /* MAILBOX: op.c has chosen it for this call only */
    bool irregular;              /* see irregular.c */
    bool copies_with_peers;      /* irregular: this rank and peers copy together */
    enum disti_node_place place; /* of the data that this rank sends */
    bool in_overflow;            /* MAILBOX: the data are in an overflow slot */
    bool sends, receives;        /* this rank's roles in the call */
    int first, end;              /* the awaited ranks: [first, end) without this rank */
    struct node_mailbox **awaited, **awaited_end; /* MAILBOX: the same ranks */
    bool waits_for_all;    /* MAILBOX: it awaits all ranks, so all have begun it when it ends */
    size_t block_offset;   /* MAILBOX: of this rank's block in a sender's data */
    node_finish_fn finish; /* MAILBOX: computes the result; NULL: no result here */
    disti_reduce_fn pair;  /* sums the data of 2 ranks; NULL: more ranks, or DIST_USER */
    uint64_t
        unconfirmed_limit; /* most calls like this one that may be begun and not yet confirmed */
    enum disti_node_op_state state;
    enum disti_node_method method;
    uint64_t rounds, round;
    size_t done;             /* of this round's work */
    int peers_done;          /* peers that this rank is done with in this stage */
    uint32_t stage;          /* at which the other ranks are awaited */
    uint32_t base;           /* stage of the first round */
    int admitted;            /* POSTED: the ranks below this one let it begin */
    int seen;                /* WAITING: the ranks below this one have reached `stage` */
    int peer;                /* ERR_MISMATCH: the rank that made another call */
    uint64_t mine, theirs;   /* ERR_MISMATCH: both fingerprints */
    uint64_t sequence;       /* ERR_MISMATCH: sequence of this rank's call */
    uint64_t expected, sent; /* ERR_MISMATCH: bytes expected by this rank, sent by the peer */
};

/* The message of a rank to its peers at start-up, sent as bytes. All zero: it has no mailbox. */
struct disti_node_hello {
    struct disti_segment_location mailboxes; /* of all ranks; set by rank 0 only */
    struct disti_segment_location bounce;    /* of this rank; all zero: not created yet */
    uint64_t doorbell_inode;
    int32_t pid;
    int32_t doorbell_fd; /* the end to write to */
    uint32_t doorbell_number;
    int8_t usable, fences; /* fences: membarrier(2) does not work for this rank */
    int8_t crowded;        /* it shares a CPU */
    int32_t cma;           /* CMA may work between this rank and its peers */
};

/*
 * Fills *hello if all ranks of config are on one machine; rank 0 creates the mailboxes. Otherwise
 * *node_p stays NULL. If mailboxes cannot be created, or DIST_NODE_MEMORY is 0, the hello says so.
 * Communicates with no other rank. config must outlive the node. ERR_NO_MEMORY,
 * ERR_INVALID_ARGUMENT.
 */
dist_status disti_node_open(const struct dist_backend_config *config,
                            struct disti_node_hello *hello, struct disti_node **node_p);

/* Stores the hello of a rank, which may be this one. node may be NULL. */
void disti_node_store_hello(struct disti_node *node, int rank,
                            const struct disti_node_hello *hello);

/*
 * Maps the mailboxes, after every hello has been stored, and checks that the memory of every rank
 * can be mapped. Returns false if not, and logs the reason. The node may be used only if this
 * returns true on all ranks.
 */
bool disti_node_map(struct disti_node *node);

/*
 * Closes the node without waiting for peers. Memory that a peer may still read is freed later.
 * Ignores NULL.
 */
void disti_node_close(struct disti_node *node);

/* Writes the CPU that this rank runs on to its mailbox. node may be NULL. */
void disti_node_publish_cpu(struct disti_node *node);
/*
 * To be called after each poll without success. From time to time it moves this thread to an idle
 * CPU if another rank was last seen on its CPU. node may be NULL.
 */
void disti_node_migrate_cpu(struct disti_node *node);

/*
 * To be called before a close with calls that have not ended: notifies the other ranks that this
 * rank gives up `op`, the first of these calls, and all later ones.
 */
void disti_node_abandon(struct disti_node *node, const struct disti_node_op *op);

/* Returns true if this collective is implemented here. */
bool disti_node_supports(dist_collective collective);

/* Returns a static text: how blocks of `block` bytes are moved. */
const char *disti_node_summary(dist_collective collective, int ranks, size_t block);

/*
 * For ranks that share CPUs: learn is called when a call has to wait, follow when a barrier has
 * ended.
 */
void disti_node_yield_learn(struct disti_node *node, const struct disti_node_op *op);
void disti_node_yield_after_barrier(struct disti_node *node, const struct disti_node_op *op);

/* Returns true if there are more ranks than CPUs for them. */
bool disti_node_is_crowded(const struct disti_node *node);

/*
 * Begins a call and copies `call`. `history` is a hash of it and of all calls before it, including
 * calls that were not made in this node. All ranks must start the same calls in the same order, and
 * advance each until it has ended before they advance the next. Never blocks.
 */
void disti_node_start(struct disti_node *node, const struct dist_call *call, uint64_t fingerprint,
                      uint64_t history, struct disti_node_op *op);

/*
 * Repeats a short call of this rank that has ended, with other buffers, sequence and history, and
 * checks the peers once. OK: it has ended. UNSUPPORTED: nothing was done, use start. Other
 * statuses: it has begun and has to be advanced. Reports no error.
 */
dist_status disti_node_start_again(struct disti_node *node, const struct dist_call *call,
                                   uint64_t history, struct disti_node_op *op);

/*
 * Returns true if disti_node_start_again may repeat this call, which has begun. It is false if
 * ranks share CPUs and the call waits for all of them: the peers have rarely arrived by then.
 */
bool disti_node_can_start_again(const struct disti_node *node, const struct disti_node_op *op);

/*
 * Does the work that is possible without waiting, about 1 MiB at most, and increments *moved if
 * there was any. IN_PROGRESS; OK, once, when the call has ended; ERR_MISMATCH, without a report:
 * op->peer made another call; ERR_PEER_LOST: a rank has given up; or another failure.
 */
dist_status disti_node_advance(struct disti_node *node, struct disti_node_op *op, int *moved);

/*
 * Compares a call that has waited for a while with those of all ranks, even ranks that it does not
 * wait for. Returns OK, or ERR_MISMATCH like advance.
 */
dist_status disti_node_compare(const struct disti_node *node, struct disti_node_op *op);

/* Returns true if the call waits for that rank. */
bool disti_node_waits_for(const struct disti_node *node, const struct disti_node_op *op, int rank);

/* Lists the ranks that the call waits for: "rank 2, rank 5". */
void disti_node_describe(const struct disti_node *node, const struct disti_node_op *op, char *text,
                         size_t size);

/*
 * To be called before and after a sleep, as in a transport. arm returns a descriptor that becomes
 * readable when `op` can continue, or DIST_ARM_READY.
 */
int disti_node_arm(struct disti_node *node, struct disti_node_op *op);
void disti_node_disarm(struct disti_node *node);

#endif
