/* SPDX-License-Identifier: BSD-3-Clause */
/* What stands on a rank's board, and when it may be read; private to this folder. */
#ifndef DISTI_NODE_BOARD_H
#define DISTI_NODE_BOARD_H

#include "node/node.h"

#include <stdalign.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/uio.h>

/* CPUs fetch lines in pairs: what different ranks write lies this far apart. */
#define NODE_APART 128
/* What is asked of memory. */
#define NODE_LINE 64
/* What a rank gives stands on its board up to so many bytes. */
#define NODE_SHORT_MAX ((size_t)8 << 10)
/* Up to so many of ordinary memory, which is copied there sooner than it is waited for. */
#define NODE_AREA_BYTES ((size_t)32 << 10)
/* Of two ranks: half of a longer vector is sooner summed where it lies than all of it moved. */
#define NODE_SHORT_PAIR ((size_t)2 << 10)
/* From so many bytes on it pays to fetch a slot for writing before it is written. */
#define NODE_PREFETCH_MIN 192

/*
 * Where a rank's data are. Names of which all is zero: in its window. What most calls read comes
 * first, and shares the line of the stage: each line more is one to fetch from another CPU.
 *
 * A segment that not all are known to have mapped is offered: the data are in the window too, the
 * others try whether they can map it, and each says on its own board if it could not. So a rank
 * without descriptors or mappings makes calls slower, and none fail.
 */
struct node_locations {
    uint8_t rounds; /* of its window, before this call, modulo NODE_ROUNDS */
    bool in_place;  /* OUT is the same, and `out` not written */
    bool has_own;   /* a root of pairs: it copies a block of its own, too */
    bool in_offered, out_offered;
    bool out_named; /* `out` is to be read; known of calls in which all wait for all */
    bool refuses;   /* from stage 1 on: one of the segments that were offered in this call */
    struct disti_segment_location in;
    struct disti_segment_location out;
    struct disti_segment_location window;
    uint64_t in_address, out_address; /* in this rank's own address space */
    uint64_t mover_ns[2];             /* mover.c: by windows, and by CMA */
};

/*
 * Of s slots call number c stands in slot c % s. `stage` is c << NODE_STAGE_BITS | what the rank
 * has reached; it only grows. All else is written before the stage that it belongs to is stored
 * (release), and read after that has been seen (acquire). What a rank gives stands in the slot, or
 * in an area (area.h) if the slot is too small. Of s slots or areas one is written for call c when
 * every rank is known to have begun call c - s + 1, so that all have done with call c - s, whose it
 * was. Two would do; with more a rank that only gives need not wait for those that take.
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
/* Slots and areas are so much longer: if each began at the same place of a page, few of them would
 * fit in a first-level cache together. */
#define NODE_SLOT_GAP NODE_APART
#define NODE_AREA_GAP (1024 + NODE_APART)
/* The longest area; and how many a rank has whose places are fixed. */
#define NODE_AREA_EACH (NODE_AREA_BYTES + NODE_AREA_GAP)
#define NODE_AREAS_FIXED 8
struct node_slot {
    alignas(NODE_APART) _Atomic uint64_t stage;
    _Atomic uint64_t history, fingerprint;
    uint8_t place;  /* of enum disti_node_place, in calls of pairs */
    bool cma;       /* of the rank that leads a call of pairs: the kernel may copy */
    uint16_t area;  /* that it gives in, in units of NODE_APART; 0: the one fixed by its number */
    int32_t failed; /* from stage 1 on: errno of a copy that the kernel did not make, or UNSEEN */
    alignas(NODE_SLOT_ALIGN) union {
        struct node_locations locations;
        unsigned char data[NODE_SLOT_DATA + NODE_SLOT_GAP];
    };
};

/* `failed`: a peer's segment could not be mapped. */
#define NODE_UNSEEN (-1)

/*
 * In calls of pairs: a block for one rank, or from it. A list of them stands before what is given:
 * in the slot, or else in the area.
 */
struct node_block {
    uint64_t count, first; /* elements; where in IN or OUT it begins, or in what is given */
};

/*
 * The boards of a group's ranks lie in one segment, which rank 0 makes and each of the others maps
 * once: first all boards, then all areas. Who looks at everybody's board touches few pages
 * so.
 *
 *     |board 0|board 1|...|board n - 1|areas of rank 0|areas of rank 1|...|areas of rank n - 1|
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

struct node_board {
    struct node_slot slots[NODE_SLOTS];
    alignas(NODE_APART) _Atomic uint64_t begun; /* its newest call: others seldom look */
    alignas(NODE_APART) _Atomic uint32_t presence;
    _Atomic int32_t cpu;       /* that it was on when it last began a call */
    _Atomic int32_t writes_to; /* that rank's memory, by the kernel; or one of: */
    struct iovec written;      /* where there; a rank that gives up makes it empty */
    uint64_t gave_up;          /* GONE: from this call on */
};

static inline struct node_slot *node_slot(struct node_board *board, const struct disti_node_op *op)
{
    return &board->slots[op->slot];
}

/* Of a rank's areas that of the call in its slot. A branch, so that no reader waits for the slot.
 */
static inline unsigned char *node_area(unsigned char *areas, const struct node_slot *slot,
                                       uint64_t number)
{
    if (__builtin_expect(slot->area != 0, 0))
        return areas + (size_t)slot->area * NODE_APART;
    return areas + number % NODE_AREAS_FIXED * NODE_AREA_EACH;
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

#endif
