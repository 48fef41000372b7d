/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shared memory segments of this process, and collectives in memory shared by the ranks of a node.
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
 * its writes are not shared, and it sees the parent's writes to a page until the child itself
 * writes to that page.
 *
 * One table contains the segments of all groups of the process. The table has its own lock, so any
 * thread may call any of the functions. A key is never reused on a machine, so a descriptor that
 * was closed and reused for another file is detected.
 */

/* The name of a segment, which a peer needs to map the segment. All zero: no segment. */
struct disti_segment_name {
    uint64_t key;   /* random; also stored in the seal page of the file */
    uint64_t bytes; /* usable size */
    int32_t fd;     /* descriptor number in the owner's process */
    int32_t pid;    /* of the owner */
};

/* The location of a memory range in a segment. */
struct disti_segment_location {
    uint64_t offset; /* offset of the range in the segment */
    struct disti_segment_name name;
};

/*
 * Allocates at least `bytes` bytes for the program. The memory is zeroed and page-aligned; from 2
 * MiB on, it is aligned to 2 MiB and has huge pages if available. Pages are created at first touch.
 * If shared memory cannot be created, returns ordinary memory, which disti_segment_find does not
 * find. ERR_NO_MEMORY.
 */
dist_status disti_segment_alloc(size_t bytes, void **memory_p);

/*
 * Allocates memory for the library from separate arenas and stores its location. Never returns
 * ordinary memory. A peer maps location_p->name once for all blocks in that segment. ERR_NO_MEMORY.
 */
dist_status disti_segment_alloc_shared(size_t bytes, void **memory_p,
                                       struct disti_segment_location *location_p);

/*
 * Frees memory of disti_segment_alloc or disti_segment_alloc_shared at once. Peers may keep their
 * mappings: reads from them return zeros or the contents of a later block, and never fault. Ignores
 * NULL. ERR_INVALID_ARGUMENT: the memory is from neither function.
 */
dist_status disti_segment_free(void *memory);

/*
 * Stops the allocation of blocks from the program's existing arenas, and frees the empty ones. For
 * use after the failure of a peer that may still write to memory that the program then frees.
 */
void disti_segment_retire(void);

/*
 * Makes memory that the caller owns shared in place: address and contents stay, but its whole pages
 * become pages of a segment. The pages stay ordinary memory if shared memory cannot be created. The
 * memory must be private and anonymous, and no other thread may write to it during the call. Other
 * properties of the pages are lost: locks, advice, pinning for a device. ERR_INVALID_ARGUMENT,
 * ERR_NO_MEMORY.
 *
 * disti_segment_unregister makes the memory private again and keeps the contents. Call it before
 * unmapping the memory.
 *
 * The bytes before the first and after the last whole page are the ends of the memory. They are not
 * moved to the segment, because other data share their pages. The twin is this process's contiguous
 * mapping of the whole block, as peers map it. It has room for copies of the ends.
 *
 *     memory        ..bbb|bbbbbbbbbb|bbbbbbbbbb|bb....
 *                    end      shared pages      end     load copies the ends to the twin,
 *     twin          ..bbb|bbbbbbbbbb|bbbbbbbbbb|bb....  store copies those of the twin back
 */
dist_status disti_segment_register(void *memory, size_t bytes);
dist_status disti_segment_unregister(void *memory);

/*
 * The range must have been found by disti_segment_find. twin returns the address at which the range
 * is contiguous: in the twin if part of the range is in an end, else `memory`. load returns the
 * same and copies the ends to the twin, for data that peers read. store copies the ends back, for
 * data that peers have written.
 */
void *disti_segment_twin(void *memory, size_t bytes);
void *disti_segment_load(void *memory, size_t bytes);
void disti_segment_store(void *memory, size_t bytes);

/*
 * Returns true, and stores the location, if [memory, memory + bytes) is in one block of a segment.
 * Takes about 10 ns.
 */
bool disti_segment_find(const void *memory, size_t bytes,
                        struct disti_segment_location *location_p);

/*
 * Largest number of unused mappings that are kept; the least recently released ones are unmapped
 * first.
 */
#define DISTI_SEGMENT_KEEP 64

/*
 * Returns this process's mapping of a segment; creates it if necessary. The mapping of a peer's
 * segment is valid until disti_segment_unmap has been called once for each call of this function.
 * Fails if the owner has exited, the segment is freed, this process may not open the owner's
 * descriptors (another user, a container, not dumpable), or memory is exhausted.
 */
dist_status disti_segment_map(const struct disti_segment_name *name, void **memory_p);

/*
 * Checks that a segment can be mapped, without mapping it. Returns the status that
 * disti_segment_map would return, except that it does not detect exhausted memory. Always OK for a
 * segment of this process.
 */
dist_status disti_segment_can_map(const struct disti_segment_name *name);

/*
 * Drops one reference to a mapping; without references, the mapping may be unmapped. Ignores 0 and
 * the keys of this process's own segments.
 */
void disti_segment_unmap(uint64_t key);

/*
 * Sets whether forked children inherit these bytes of a peer's mapped segment; by default they do
 * not. Does nothing for segments of this process.
 */
void disti_segment_inherit(const struct disti_segment_location *location, size_t bytes,
                           bool inherited);

/* Unmaps all unused mappings except the `keep` most recently released ones. */
void disti_segment_trim(size_t keep);

/*
 * Collectives among the ranks of a node. Every rank has a mailbox in memory that all ranks have
 * mapped; only the rank itself writes to it. A collective has a few stages: in each, a rank does
 * its part of the work, publishes the stage in its mailbox, and continues when the other ranks have
 * published the stage too. There are no messages, no queues and no system calls.
 *
 *   short: the mailbox has the data                    long: the mailbox has their locations
 *
 *   rank 0   [stage | data]                            rank 0   [stage | in, out, bounce buffer]
 *   rank 1   [stage | data]   each rank reads what     rank 1   [stage | in, out, bounce buffer]
 *   rank 2   [stage | data]   it needs                 rank 2   [stage | in, out, bounce buffer]
 *
 * Long data in segments (dist_alloc) are read and written in place. Other memory is copied in
 * pieces through the rank's bounce buffer, which is in a segment too, or by the kernel (CMA).
 *
 * Reductions always combine the data of the ranks in the order of reproducible results
 * (plan/plan.h).
 */
struct disti_node;

/*
 * The states of a call:
 *
 *                  its slot is free;      all ranks have       last stage,
 *                  data are published     reached `stage`      all work done
 *   start ----> POSTED ----------> WAITING ----------> WORKING ----------> ENDED
 *                                   |    ^                |                 ^
 *                                   |    '----------------'                 |
 *                                   |    work done and published: stage + 1 |
 *                                   '---------------------------------------'
 *                                     short: the awaited data are published and have been read
 *
 * A call that fails keeps its state.
 */
enum disti_node_op_state { NODE_OP_POSTED, NODE_OP_WAITING, NODE_OP_WORKING, NODE_OP_ENDED };

/*
 * How a call moves its data. disti_node_start chooses MAILBOX or BOUNCES. BOUNCES becomes SWAPPED,
 * DIRECT or CMA if possible, at stage 0, when all ranks have published the locations of their data
 * and no rank has started the work. CMA becomes BOUNCES again if the kernel refuses to copy.
 */
enum disti_node_method {
    NODE_METHOD_MAILBOX, /* short data, in the mailboxes */
    NODE_METHOD_BOUNCES, /* through bounce buffers */
    NODE_METHOD_SWAPPED, /* 2 ranks; each writes into the other's bounce buffer */
    NODE_METHOD_DIRECT,  /* in place; all ranks have mapped the data */
    NODE_METHOD_CMA      /* the kernel copies data that are not mapped (mailbox.c) */
};

struct disti_node_op;
struct node_mailbox;
typedef void (*node_finish_fn)(struct disti_node *node, const struct disti_node_op *op);

/* The place in which a rank stores the data that it sends in an irregular call (irregular.c). */
enum disti_node_place {
    NODE_NOWHERE, /* the rank sends nothing */
    NODE_IN_SLOT,
    NODE_IN_OVERFLOW,
    NODE_IN_MEMORY /* the slot has the location; also for OUT of a rank that only receives */
};

/*
 * A call in progress. The caller owns the memory and sets none of the fields. After
 * disti_node_start the call must be advanced until it has ended, or the node must be closed.
 */
struct disti_node_op {
    struct dist_call call;
    void *program_out; /* the program's OUT if call.out is its twin (see above); else NULL */
    uint64_t fingerprint, number; /* number: counts the calls of this node, from 1 */
    size_t slot;                  /* index of its slot, the same in all mailboxes */
    uint64_t history;             /* hash of this call and all before it */
    size_t element_bytes;
    size_t largest;          /* number of elements in the largest block */
    size_t piece;            /* elements of each block that one round moves */
    size_t published_bytes;  /* bytes that this rank writes to its slot or overflow slot */
    uint8_t copy_mode;       /* how this rank copies: NODE_PREFETCHES etc. */
    bool in_copy_mode_trial; /* its work is timed, to choose the copy mode */
    int64_t worked_ns;       /* in a copy mode trial: duration of the work so far */
    bool cma;                /* CMA is tried before bounce buffers */
    int64_t begun_ns;  /* selector trial: when all ranks had arrived, minus filled_ns; else 0 */
    int64_t filled_ns; /* selector trial: time taken to fill the bounce buffer before that */
    bool chosen;       /* MAILBOX: chosen by the copy selector; irregular: `place` is set */
    bool irregular;    /* see irregular.c */
    bool copies_with_peers;      /* irregular: this rank and peers wait for each other's copies */
    enum disti_node_place place; /* irregular: where this rank stores the data that it sends */
    bool in_overflow; /* MAILBOX: all ranks' data are in overflow slots; irregular: this rank's */
    bool sends, receives; /* this rank's roles in the call */
    int first, end;       /* the awaited ranks: [first, end), except this rank */
    struct node_mailbox **awaited, **awaited_end; /* mailboxes of the awaited ranks */
    bool waits_for_all;    /* all ranks are awaited, so all have begun this call when it ends */
    size_t block_offset;   /* MAILBOX: offset in bytes of this rank's block in a sender's data */
    node_finish_fn finish; /* MAILBOX: computes the result; NULL: this rank has no result */
    disti_reduce_fn pair;  /* kernel for a reduction of 2 ranks; NULL: any other call, DIST_USER */
    /* The call begins when fewer calls than this, itself included, are unconfirmed (state.h). */
    uint64_t unconfirmed_limit;
    enum disti_node_op_state state;
    enum disti_node_method method;
    uint64_t rounds, round; /* number of rounds; index of the current round */
    size_t done;    /* elements already processed, of the current block or slice of the round */
    int peers_done; /* ranks whose blocks have been processed in this stage */
    uint32_t stage; /* the call continues when the awaited ranks have reached this stage */
    uint32_t base;  /* stage of the first round */
    int admitted;   /* POSTED: the ranks below this one have begun enough calls for it to begin */
    int seen;       /* WAITING: the awaited ranks below this one have reached `stage` */
    int peer;       /* ERR_MISMATCH: the rank that made another call */
    uint64_t mine, theirs;   /* ERR_MISMATCH: both fingerprints */
    uint64_t sequence;       /* ERR_MISMATCH: sequence number of this rank's mismatched call */
    uint64_t expected, sent; /* ERR_MISMATCH: bytes expected by this rank, sent by the peer */
};

/*
 * The start-up message of a rank to its peers, sent as bytes. All zero: the rank cannot use
 * mailboxes.
 */
struct disti_node_hello {
    struct disti_segment_location mailboxes; /* the mailboxes of all ranks; set by rank 0 only */
    struct disti_segment_location bounce;    /* this rank's; all zero: not created yet */
    uint64_t doorbell_inode;
    int32_t pid;
    int32_t doorbell_fd;      /* write end of the doorbell */
    uint32_t doorbell_number; /* what to write to it */
    int8_t usable, fences;    /* usable: can use mailboxes; fences: membarrier(2) does not work */
    int8_t crowded;           /* this machine has more ranks than CPUs for them */
    int32_t cma;              /* CMA is not disabled by DIST_SHM_CMA */
};

/*
 * Creates the state of a node and fills *hello, if all ranks of config are on one machine; else
 * *node_p stays NULL. Rank 0 creates the mailboxes of all ranks. If the mailboxes cannot be
 * created, or DIST_NODE_MEMORY is 0, hello->usable is 0. Does not communicate with other ranks.
 * config must outlive the node. ERR_NO_MEMORY, ERR_INVALID_ARGUMENT.
 */
dist_status disti_node_open(const struct dist_backend_config *config,
                            struct disti_node_hello *hello, struct disti_node **node_p);

/* Stores the hello of a rank, which may be this one. node may be NULL. */
void disti_node_store_hello(struct disti_node *node, int rank,
                            const struct disti_node_hello *hello);

/*
 * Maps the mailboxes and checks that the memory of the other ranks can be mapped. Requires that the
 * hellos of all ranks have been stored. Returns false if mapping fails, and logs the reason. The
 * node may be used only if this function returns true on all ranks.
 */
bool disti_node_map(struct disti_node *node);

/*
 * Closes the node without waiting for peers. Memory that a peer may still read is freed later.
 * Ignores NULL.
 */
void disti_node_close(struct disti_node *node);

/* Publishes, in the mailbox of this rank, the CPU on which it runs. node may be NULL. */
void disti_node_publish_cpu(struct disti_node *node);
/*
 * To be called after each unsuccessful poll. From time to time it moves this thread to an idle
 * CPU if another rank was last seen on its CPU. node may be NULL.
 */
void disti_node_migrate_cpu(struct disti_node *node);

/*
 * To be called before closing a node with calls that have not ended. Notifies the other ranks that
 * this rank abandons `op`, the first of these calls, and all later ones. Blocks until no peer
 * writes to this rank's memory, for at most 1 s.
 */
void disti_node_abandon(struct disti_node *node, const struct disti_node_op *op);

/* Returns true if this collective is implemented in shared memory. */
bool disti_node_supports(dist_collective collective);

/* Returns a static string that describes how blocks of `block` bytes are moved. */
const char *disti_node_summary(dist_collective collective, int ranks, size_t block);

/*
 * For ranks that share CPUs (waking.c). learn is to be called when a call has to wait; if the call
 * directly follows a barrier and its data are sent in one direction only, the node stores the ranks
 * that it waits for. after_barrier is to be called when a barrier has ended; it yields the CPU to
 * the stored ranks.
 */
void disti_node_yield_learn(struct disti_node *node, const struct disti_node_op *op);
void disti_node_yield_after_barrier(struct disti_node *node, const struct disti_node_op *op);

/* Returns true if there are more ranks than CPUs for them. */
bool disti_node_is_crowded(const struct disti_node *node);

/*
 * Prepares a call in *op, with a copy of *call; the first disti_node_advance begins it. `history`
 * is a hash of this call and of all calls before it, including calls that were not made in this
 * node. All ranks must start the same calls in the same order, and advance each call until it has
 * ended before they advance the next. Never blocks.
 */
void disti_node_start(struct disti_node *node, const struct dist_call *call, uint64_t fingerprint,
                      uint64_t history, struct disti_node_op *op);

/*
 * Repeats a short call of this rank that has ended, with other buffers, sequence and history, and
 * checks the peers once. Returns OK if the call has ended. UNSUPPORTED: nothing was done, use
 * disti_node_start. IN_PROGRESS: the call has begun and must be advanced. Sets no error message.
 */
dist_status disti_node_start_again(struct disti_node *node, const struct dist_call *call,
                                   uint64_t history, struct disti_node_op *op);

/*
 * Returns true if disti_node_start_again may repeat this call, which has begun. Returns false if
 * the call waits for all ranks and the ranks share CPUs: the peers have then rarely arrived at the
 * first check.
 */
bool disti_node_can_start_again(const struct disti_node *node, const struct disti_node_op *op);

/*
 * Does the work that is possible without waiting, about 1 MiB at most, and increments *moved if
 * there was any. Returns OK, once, when the call has ended; IN_PROGRESS before; ERR_MISMATCH,
 * without an error message, if op->peer made another call; ERR_PEER_LOST if a rank has given up the
 * call; or another error.
 */
dist_status disti_node_advance(struct disti_node *node, struct disti_node_op *op, int *moved);

/*
 * Compares this rank's calls with those of all other ranks, including ranks that the op does not
 * wait for. To be called when the op has waited for a while. Returns OK, or ERR_MISMATCH as
 * disti_node_advance does.
 */
dist_status disti_node_compare(const struct disti_node *node, struct disti_node_op *op);

/* Returns true if the call waits for `rank`. */
bool disti_node_waits_for(const struct disti_node *node, const struct disti_node_op *op, int rank);

/* Writes the ranks that the call waits for to `text`: "rank 2, rank 5". */
void disti_node_describe(const struct disti_node *node, const struct disti_node_op *op, char *text,
                         size_t size);

/*
 * To be called before and after a sleep, like arm and disarm of a transport. arm returns a
 * descriptor that becomes readable when `op` may continue, or DIST_ARM_READY.
 */
int disti_node_arm(struct disti_node *node, struct disti_node_op *op);
void disti_node_disarm(struct disti_node *node);

#endif
