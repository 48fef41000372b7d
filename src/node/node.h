/* SPDX-License-Identifier: BSD-3-Clause */
/* Collectives among the ranks of one machine, straight in memory that all of them see. */
#ifndef DISTI_NODE_NODE_H
#define DISTI_NODE_NODE_H

#include "base/dtype.h"
#include "node/segment/segment.h"

#include <dist/backend.h>

/*
 * Every rank has a board, in memory that all have mapped and only it writes. A collective
 * is a few stages: each rank does its part, says so on its board, and goes on when the others have
 * said so too. No message, no queue, no system call.
 *
 *   short: what a rank gives stands on its board       long: the board says where the data are
 *
 *   rank 0   [stage | data]                            rank 0   [stage | in, out, window]
 *   rank 1   [stage | data]   each takes what it       rank 1   [stage | in, out, window]
 *   rank 2   [stage | data]   needs from the others    rank 2   [stage | in, out, window]
 *
 * Long data that lie in segments (dist_alloc) are read and written where they are. Other memory
 * goes in pieces through the rank's window, a segment too.
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
 * Where its data are. BOARD and WINDOWS are told apart by start; what begins as WINDOWS turns out
 * to be SWAPPED, DIRECT or CMA when all ranks have shown theirs: at stage 0, before any work. CMA
 * becomes WINDOWS again if the kernel refuses.
 */
enum disti_node_way {
    NODE_WAY_BOARD,   /* short: on the boards */
    NODE_WAY_WINDOWS, /* they go through windows; */
    NODE_WAY_SWAPPED, /* of two ranks, each of which writes into the other's */
    NODE_WAY_DIRECT,  /* all see them where they lie */
    NODE_WAY_CMA      /* the kernel copies what a rank does not see (cma.c) */
};

struct disti_node_op;
struct node_board;
typedef void (*node_finish_fn)(struct disti_node *node, const struct disti_node_op *op);

/* Where what a rank gives stands, in a call of pairs (pairs/). */
enum disti_node_place {
    NODE_NOWHERE, /* it gives nothing, and shows nothing */
    NODE_IN_SLOT,
    NODE_IN_AREA,
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
    size_t slot;      /* of all boards: its own */
    uint64_t history; /* a hash of this call and all before it */
    size_t element_bytes;
    size_t largest;              /* elements of the largest block */
    size_t piece;                /* elements of a block that go in one round */
    size_t given;                /* BOARD: bytes of this rank's that stand on its board */
    uint8_t gait;                /* how this rank copies: gait.h */
    bool tries_gait;             /* its work is timed, */
    int64_t worked_ns;           /* so far */
    bool cma;                    /* it does not begin in windows: the kernel will do */
    int64_t begun_ns;            /* while both are tried: when all had come; 0: it is no trial */
    int64_t filled_ns;           /* the same: what it took to fill its window before */
    bool chosen;                 /* BOARD: mover.c has chosen it for this call alone */
    bool paired;                 /* a call of pairs (pairs/), */
    bool together;               /* in which this rank and others copy */
    enum disti_node_place place; /* of what it gives */
    bool in_area;                /* BOARD: what is given is too much for a slot */
    bool gives, takes;           /* this rank */
    int first, end;              /* the ranks that are awaited: [first, end), but for this one */
    struct node_board **awaited, **awaited_end; /* BOARD: the same */
    bool met;              /* BOARD: those are all; so all have begun it when it ends */
    size_t offset;         /* BOARD: where in what is given this rank's block begins */
    node_finish_fn finish; /* BOARD: takes what has come; NULL: there is nothing */
    disti_reduce_fn pair;  /* sums what two ranks give; NULL: there are more, or DIST_USER */
    uint64_t depth;        /* so many calls like this one may stand on the board at once */
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

/* What a rank sends to each of the others, as bytes. All zero: it has no board. */
struct disti_node_hello {
    struct disti_segment_location boards; /* of all ranks; from rank 0 only */
    struct disti_segment_location window; /* this rank's; all zero: not made yet */
    uint64_t doorbell_inode;
    int32_t pid;
    int32_t doorbell_fd; /* the end to write to */
    uint32_t doorbell_number;
    int8_t usable, fences; /* fences: it cannot have the kernel fence the others */
    int8_t crowded;        /* it shares a CPU */
    int32_t cma;           /* the kernel may copy between its memory and the others' */
};

/*
 * Fills *hello, if all ranks of config are on one machine; rank 0 makes the boards. If they are
 * not, *node_p stays NULL. If boards cannot be made, or DIST_NODE_MEMORY is 0, the hello says so.
 * Local: talks to no other rank. config must outlive the node. ERR_NO_MEMORY, ERR_INVALID_ARGUMENT.
 */
dist_status disti_node_open(const struct dist_backend_config *config,
                            struct disti_node_hello *hello, struct disti_node **node_p);

/* Stores the hello of a rank, this one's included. node may be NULL. */
void disti_node_meet(struct disti_node *node, int rank, const struct disti_node_hello *hello);

/*
 * Maps the boards, once every hello has been stored, and checks that the memory of every rank can
 * be mapped. False: some cannot, and the log says why. The node may be used only if this is true on
 * all ranks.
 */
bool disti_node_map(struct disti_node *node);

/* Local and bounded. Memory that a peer may still read is freed later. NULL: nothing. */
void disti_node_close(struct disti_node *node);

/* Writes the CPU that this rank runs on to its board. node may be NULL. */
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

/* Will this call run here? Every rank gets the same answer. node may be NULL: no. */
bool disti_node_takes(const struct disti_node *node, const struct dist_call *call);

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
