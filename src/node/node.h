/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of this process that other processes of the machine can map. */
#ifndef DISTI_NODE_NODE_H
#define DISTI_NODE_NODE_H

#include "base/dtype.h"

#include <dist/backend.h>
#include <dist/dist.h>

/*
 * A segment is a sealed memfd that its owner has mapped. It has no name in the file system: a
 * process of the same user maps it through /proc/PID/fd/FD, once, and keeps the mapping.
 *
 *     owner                                  peer
 *     |--- segment 7 (fd 12) ---|            disti_segment_map(pid, {fd 12, key}, ...)
 *     |   block  block    block |  ------->  |--- its own mapping -----|
 *
 * Memory comes as blocks of few large segments, the arenas, so that the number of descriptors and
 * mappings does not grow with the number of blocks (segment.h).
 *
 * Pages are made at first touch. Without memory that ends as with malloc: the kernel kills; but
 * where it is set to grant no more than there is (vm.overcommit_memory=2) they are made by alloc.
 *
 * A forked child owns no segment. Where its parent's were it has a view of its own: what it writes
 * is its own, what the parent writes it sees until it writes to that page itself.
 *
 * The segments of a process are one table for all its groups, guarded by a lock of its own; every
 * function may be called by any thread. A key is never used twice on a machine, so that a
 * descriptor that meanwhile is another file's is recognised.
 */

/* What a peer needs to map it. All zero: no segment. */
struct disti_segment_name {
    uint64_t key;   /* random; stands in the seal page of the memory too */
    uint64_t bytes; /* that can be used */
    int32_t fd;     /* the owner's descriptor */
    int32_t pid;
};

/* Where a range of memory lies in a segment. */
struct disti_segment_location {
    uint64_t offset; /* of its first byte */
    struct disti_segment_name name;
};

/*
 * For the program: at least `bytes` bytes, zeroed, aligned to a page (from 2 MiB on to 2 MiB, with
 * huge pages where the machine gives them), pages made at first touch. Where no shared memory can
 * be made it is ordinary memory, which disti_segment_find does not find. ERR_NO_MEMORY.
 */
dist_status disti_segment_alloc(size_t bytes, void **memory_p);

/*
 * For the library: the same, but shared for certain, out of arenas of its own; and where it lies. A
 * peer maps location_p->name once for all pieces in it. ERR_NO_MEMORY.
 */
dist_status disti_segment_alloc_shared(size_t bytes, void **memory_p,
                                       struct disti_segment_location *location_p);

/*
 * Gives back what alloc or piece gave, at once. Peers may keep their mappings of it: these
 * read zeros and never fault, but may show what comes there next. ERR_INVALID_ARGUMENT: it is from
 * none of them. NULL: nothing.
 */
dist_status disti_segment_free(void *memory);

/*
 * Nothing is allocated any more where memory is now: for when a peer has failed that may still be
 * writing to memory which the program now frees.
 */
void disti_segment_retire(void);

/*
 * Makes memory that the caller owns like that of disti_segment_alloc, in place: the address and the
 * contents stay, its whole pages become shared ones; or stay, where no shared memory can be made.
 * It must be private anonymous memory, and no other thread may write there during the call. What
 * the pages were besides is lost: locked in memory, advised, pinned for a device.
 * ERR_INVALID_ARGUMENT says what is wrong; ERR_NO_MEMORY. Unregister, to be called before the
 * memory is unmapped, makes it private again, contents kept.
 *
 * What lies before the first whole page or behind the last stays where it is, for other data are
 * beside it. Its place in the block is in the twin: the block as this process has it mapped in one
 * piece, as peers have.
 *
 *     memory        ..bbb|bbbbbbbbbb|bbbbbbbbbb|bb....
 *                    end      shared pages      end     load copies the ends to the twin,
 *     twin          ..bbb|bbbbbbbbbb|bbbbbbbbbb|bb....  store those of the twin back
 */
dist_status disti_segment_register(void *memory, size_t bytes);
dist_status disti_segment_unregister(void *memory);

/*
 * For a range that disti_segment_find has found. twin: where all of it is seen together, in
 * the twin if something lies in an end, else at memory. load, for what peers are to read, copies
 * the ends there as well; store, for what they have written, copies them back.
 */
void *disti_segment_twin(void *memory, size_t bytes);
void *disti_segment_load(void *memory, size_t bytes);
void disti_segment_store(void *memory, size_t bytes);

/* Does [memory, memory + bytes) lie in one block? Then writes where. Takes some ten nanoseconds. */
bool disti_segment_find(const void *memory, size_t bytes,
                        struct disti_segment_location *location_p);

/* How many mappings that nobody holds are kept: those that were released last. */
#define DISTI_SEGMENT_KEEP 64

/*
 * This process's mapping of a peer's segment, made if need be; the owner's own is found too. It is
 * held until disti_segment_unmap has been called once for each call of this. Fails if the peer is
 * gone or the segment is, if the process may not see the peer's descriptors (another user, a
 * container, not dumpable), or without memory.
 */
dist_status disti_segment_map(const struct disti_segment_name *name, void **memory_p);

/* The status that disti_segment_map would return for another process's segment, but for memory. */
dist_status disti_segment_can_map(const struct disti_segment_name *name);

/* Releases it. Does nothing for a key of this process's own, or 0. */
void disti_segment_unmap(uint64_t key);

/*
 * Whether a child that this process forks has those bytes of a mapping that is held too: as they
 * are, not as a view of its own. At first it has not. Does nothing for memory of this process.
 */
void disti_segment_inherit(const struct disti_segment_location *location, size_t bytes,
                           bool inherited);

/* Unmaps what nobody holds, except the `keep` mappings that were released last. */
void disti_segment_trim(size_t keep);

/* Collectives among the ranks of one machine, straight in memory that all of them see. */

/*
 * Every rank has a mailbox, in memory that all have mapped and only it writes. A collective
 * is a few stages: each rank does its part, says so on its mailbox, and goes on when the others
 * have said so too. No message, no queue, no system call.
 *
 *   short: what a rank gives stands on its mailbox       long: the mailbox says where the data are
 *
 *   rank 0   [stage | data]                            rank 0   [stage | in, out, bounce buffer]
 *   rank 1   [stage | data]   each takes what it       rank 1   [stage | in, out, bounce buffer]
 *   rank 2   [stage | data]   needs from the others    rank 2   [stage | in, out, bounce buffer]
 *
 * Long data that lie in segments (dist_alloc) are read and written where they are. Other memory
 * goes in pieces through the rank's bounce buffer, a segment too.
 *
 * Reductions add in the order of reproducible results (plan/plan.h), always.
 */
struct disti_node;

/*
 * Where a call stands:
 *
 *                  its slot is free,      all have come     the last stage:
 *                  what it has is shown   to `stage`        no work is left
 *   start ----> POSTED ----------> WAITING ----------> WORKING ----------> ENDED
 *                                   |    ^                |                 ^
 *                                   |    '----------------'                 |
 *                                   |    done, and published: stage + 1     |
 *                                   '---------------------------------------'
 *                                     short: what is needed has come, and is taken
 *
 * One that fails stays where it is.
 */
enum disti_node_op_state { NODE_OP_POSTED, NODE_OP_WAITING, NODE_OP_WORKING, NODE_OP_ENDED };

/*
 * Where its data are. MAILBOX and BOUNCE BUFFERS are told apart by start; what begins as BOUNCE
 * BUFFERS turns out to be SWAPPED, DIRECT or CMA when all ranks have shown theirs: at stage 0,
 * before any work. CMA becomes BOUNCE BUFFERS again if the kernel refuses.
 */
enum disti_node_way {
    NODE_WAY_MAILBOX, /* short: on the mailboxes */
    NODE_WAY_BOUNCES, /* they go through bounce buffers; */
    NODE_WAY_SWAPPED, /* of two ranks, each of which writes into the other's */
    NODE_WAY_DIRECT,  /* all see them where they lie */
    NODE_WAY_CMA      /* the kernel copies what a rank does not see (mailbox.c) */
};

struct disti_node_op;
struct node_mailbox;
typedef void (*node_finish_fn)(struct disti_node *node, const struct disti_node_op *op);

/* Where what a rank gives stands, in an irregular call (irregular.c). */
enum disti_node_place {
    NODE_NOWHERE, /* it gives nothing, and shows nothing */
    NODE_IN_SLOT,
    NODE_IN_OVERFLOW,
    NODE_IN_MEMORY /* the slot says where; or that is where it takes */
};

/*
 * A call under way; in memory of the caller, who fills nothing in it. After start it must be
 * advanced until it has ended, or the node be closed.
 */
struct disti_node_op {
    struct dist_call call;
    void *program_out; /* what call.out stands for, if that is its twin (segment.h); else NULL */
    uint64_t fingerprint, number;
    size_t slot;      /* of all mailboxes: its own */
    uint64_t history; /* a hash of this call and all before it */
    size_t element_bytes;
    size_t largest;              /* elements of the largest block */
    size_t piece;                /* elements of a block that go in one round */
    size_t given;                /* MAILBOX: bytes of this rank's that stand on its mailbox */
    uint8_t copy_mode;           /* how this rank copies: see NODE_ASKS */
    bool tries_copy_mode;        /* its work is timed, */
    int64_t worked_ns;           /* so far */
    bool cma;                    /* it does not begin in bounce buffers: the kernel will do */
    int64_t begun_ns;            /* while both are tried: when all had come; 0: it is no trial */
    int64_t filled_ns;           /* the same: what it took to fill its bounce buffer before */
    bool chosen;                 /* MAILBOX: op.c has chosen it for this call alone */
    bool irregular;              /* an irregular call (irregular.c), */
    bool together;               /* in which this rank and others copy */
    enum disti_node_place place; /* of what it gives */
    bool in_overflow;            /* MAILBOX: what is given is too much for a slot */
    bool gives, takes;           /* this rank */
    int first, end;              /* the ranks that are awaited: [first, end), but for this one */
    struct node_mailbox **awaited, **awaited_end; /* MAILBOX: the same */
    bool met;              /* MAILBOX: those are all; so all have begun it when it ends */
    size_t offset;         /* MAILBOX: where in what is given this rank's block begins */
    node_finish_fn finish; /* MAILBOX: takes what has come; NULL: there is nothing */
    disti_reduce_fn pair;  /* sums what two ranks give; NULL: there are more, or DIST_USER */
    uint64_t depth;        /* so many calls like this one may stand on the mailbox at once */
    enum disti_node_op_state state;
    enum disti_node_way way;
    uint64_t rounds, round;
    size_t done;             /* of this round's work */
    int others;              /* that a root has done with */
    uint32_t stage;          /* that the others are awaited at */
    uint32_t base;           /* the stage that its rounds are counted from */
    int admitted;            /* POSTED: ranks below this let it begin */
    int seen;                /* WAITING: ranks below this have come to its stage */
    int peer;                /* on ERR_MISMATCH: who called something else, */
    uint64_t mine, theirs;   /* both fingerprints, */
    uint64_t sequence;       /* the number of that call of mine, */
    uint64_t expected, sent; /* and what I expected of the peer, and what that gave: bytes */
};

/* What a rank sends to each of the others, as bytes. All zero: it has no mailbox. */
struct disti_node_hello {
    struct disti_segment_location mailboxes; /* of all ranks; from rank 0 only */
    struct disti_segment_location bounce;    /* this rank's; all zero: not made yet */
    uint64_t doorbell_inode;
    int32_t pid;
    int32_t doorbell_fd; /* the end to write to */
    uint32_t doorbell_number;
    int8_t usable, fences; /* fences: it cannot have the kernel fence the others */
    int8_t crowded;        /* it shares a CPU */
    int32_t cma;           /* the kernel may copy between its memory and the others' */
};

/*
 * Fills *hello, if all ranks of config are on one machine; rank 0 makes the mailboxes. If they are
 * not, *node_p stays NULL. If mailboxes cannot be made, or DIST_NODE_MEMORY is 0, the hello says
 * so. Local: talks to no other rank. config must outlive the node. ERR_NO_MEMORY,
 * ERR_INVALID_ARGUMENT.
 */
dist_status disti_node_open(const struct dist_backend_config *config,
                            struct disti_node_hello *hello, struct disti_node **node_p);

/* Stores the hello of a rank, this one's included. node may be NULL. */
void disti_node_meet(struct disti_node *node, int rank, const struct disti_node_hello *hello);

/*
 * Maps the mailboxes, once every hello has been stored, and checks that the memory of every rank
 * can be mapped. False: some cannot, and the log says why. The node may be used only if this is
 * true on all ranks.
 */
bool disti_node_map(struct disti_node *node);

/* Local and bounded. Memory that a peer may still read is freed later. NULL: nothing. */
void disti_node_close(struct disti_node *node);

/* Writes the CPU that this rank runs on to its mailbox. node may be NULL. */
void disti_node_publish_cpu(struct disti_node *node);
/* To be called after each poll that found nothing. Now and then moves this thread to a free CPU, if
 * another rank was last seen on this one. node may be NULL. */
void disti_node_migrate_cpu(struct disti_node *node);

/* Before a close with calls that have not ended: tells the others that this rank takes no part in
 * `op`, the first of them, and in those after it. */
void disti_node_abandon(struct disti_node *node, const struct disti_node_op *op);

/* Is this collective implemented here? */
bool disti_node_knows(dist_collective collective);

/* How it moves blocks of so many bytes, in words; static. */
const char *disti_node_summary(dist_collective collective, int ranks, size_t block);

/* Of ranks that are crowded: the call has to wait; and it was a barrier, which has ended. */
void disti_node_lead_learn(struct disti_node *node, const struct disti_node_op *op);
void disti_node_lead_follow(struct disti_node *node, const struct disti_node_op *op);

/* Are there more ranks than CPUs for them? */
bool disti_node_is_crowded(const struct disti_node *node);

/*
 * Begins a call, of which `call` is copied; `history` is a hash of it and all before it, also of
 * those that were not made here. All ranks must start the same calls in the same order, and advance
 * each of them until it has ended before they advance the next. Never blocks.
 */
void disti_node_start(struct disti_node *node, const struct dist_call *call, uint64_t fingerprint,
                      uint64_t history, struct disti_node_op *op);

/*
 * Begins once more a short call of this rank's that has ended, with other buffers and another
 * sequence and history, and looks for the others once. OK: it has ended. UNSUPPORTED: nothing was
 * done; start it. Else it has begun, and advance goes on with it. Reports nothing.
 */
dist_status disti_node_start_again(struct disti_node *node, const struct dist_call *call,
                                   uint64_t history, struct disti_node_op *op);

/* Is it worth it to begin this call, which has begun, once more so? Of crowded ranks hardly one
 * that waits for all finds them there. */
bool disti_node_can_start_again(const struct disti_node *node, const struct disti_node_op *op);

/*
 * Does what can be done without waiting, about a megabyte at most, and adds to *moved if that was
 * anything. IN_PROGRESS; OK, once, when the call has ended; ERR_MISMATCH, not reported: op->peer
 * made another call; ERR_PEER_LOST: a rank has given up; or another failure.
 */
dist_status disti_node_advance(struct disti_node *node, struct disti_node_op *op, int *moved);

/* For a call that has waited for a while: compares it with those of all ranks, also of ranks that
 * it does not wait for. OK, or ERR_MISMATCH as of advance. */
dist_status disti_node_compare(const struct disti_node *node, struct disti_node_op *op);

/* Does it wait for that rank? */
bool disti_node_waits_for(const struct disti_node *node, const struct disti_node_op *op, int rank);

/* The ranks that it waits for: "rank 2, rank 5". */
void disti_node_describe(const struct disti_node *node, const struct disti_node_op *op, char *text,
                         size_t size);

/*
 * Before and after a sleep, as in a transport: a descriptor that becomes readable when `op` can go
 * on, or DIST_ARM_READY.
 */
int disti_node_arm(struct disti_node *node, struct disti_node_op *op);
void disti_node_disarm(struct disti_node *node);

#endif
