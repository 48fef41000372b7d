/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Irregular (`_v`) calls: where a rank stores its blocks, and how it copies those of its peers. The
 * protocol is described in state.h.
 */
#include "base/log.h"
#include "node/state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/*
 * Chooses the place of a sender's blocks and of its list. The blocks have `bytes` bytes in total,
 * the list has `listed` entries.
 */
static enum disti_node_place
irregular_place(struct disti_node *node, const struct disti_node_op *op, size_t bytes, int listed)
{
    size_t slot_bytes = disti_node_slot_bytes(disti_node_pattern(op->call.collective));

    if (bytes + irregular_list_bytes(listed, NODE_IN_SLOT) <= slot_bytes)
        return NODE_IN_SLOT;
    if (bytes + irregular_list_bytes(listed, NODE_IN_OVERFLOW) > NODE_OVERFLOW_BYTES)
        return NODE_IN_MEMORY;
    return bytes <= NODE_SHORT_MAX || disti_node_selector_takes_overflow(node, op)
               ? NODE_IN_OVERFLOW
               : NODE_IN_MEMORY;
}

void disti_node_irregular_choose(struct disti_node *node, struct disti_node_op *op)
{
    bool sends = irregular_sends_to_peers(node, op);
    size_t bytes = 0; /* total size of the blocks for other ranks */
    int listed = irregular_listed(node, op);

    for (int r = 0; sends && r < node->ranks; r++) {
        if (r != node->rank && irregular_receives(op, r))
            bytes += irregular_in(op, r).count * op->element_bytes;
    }
    op->chosen = true;
    op->place =
        sends ? irregular_place(node, op, bytes, listed)
              : (op->largest * op->element_bytes > NODE_SHORT_MAX ? NODE_IN_MEMORY : NODE_NOWHERE);
    op->in_overflow = op->place == NODE_IN_OVERFLOW;
    op->published_bytes = 0;
    if (op->place == NODE_IN_SLOT || op->in_overflow)
        op->published_bytes = bytes + irregular_list_bytes(listed, op->place);
    op->unconfirmed_limit = op->place == NODE_IN_SLOT || op->place == NODE_NOWHERE
                                ? node->last_slot + 1
                            : op->published_bytes > NODE_SHORT_MAX ? node->overflow_calls
                                                                   : NODE_OVERFLOWS_FIXED;
    op->cma = node->rank == irregular_leader(op) && disti_node_selector_leads(node, op);
    op->copies_with_peers = false;
    op->base = 1;
    op->rounds = 0;
    /* In a rooted call, a sender waits for the receiver only if both may copy. */
    bool rooted = disti_node_pattern(op->call.collective)->rooted;
    bool waits = !sends || !rooted || op->place == NODE_IN_MEMORY;
    bool all = !rooted || node->rank == op->call.root;
    op->first = all ? 0 : op->call.root;
    op->end = !waits ? op->first : all ? node->ranks : op->first + 1;
    op->waits_for_all = op->end - op->first == node->ranks;
    op->awaited = node->others + op->first - (op->first > node->rank);
    op->awaited_end = node->others + op->end - (op->end > node->rank);
    op->seen = op->first;
}

/*
 * Writes this rank's list of blocks. If the data are in memory, `first` of a block is an offset in
 * IN or OUT, else an offset in the data after the list.
 */
static void irregular_write_list(const struct disti_node *node, const struct disti_node_op *op,
                                 struct node_block *list)
{
    bool sends = irregular_sends_to_peers(node, op);
    int listed = irregular_listed(node, op);
    uint64_t next = 0;

    for (int r = 0; r < listed; r++) {
        int other = listed == 1 ? op->call.root : r;
        struct node_block block = sends ? irregular_in(op, other) : irregular_out(op, other);

        if (op->place != NODE_IN_MEMORY) {
            block.first = next;
            next += listed > 1 && r == node->rank ? 0 : block.count;
        }
        list[r] = block;
    }
}

/*
 * Stores the location of `memory` in its segment. Returns false, with key 0, if it is in no
 * segment, or in one that a peer cannot map.
 */
static bool irregular_find(struct disti_node *node, const void *memory, size_t bytes,
                           struct disti_segment_location *location_p)
{
    bool offered = false;

    if (bytes && (disti_node_find(node, memory, bytes, location_p, &offered) || offered))
        return true;
    location_p->name.key = 0;
    return false;
}

dist_status disti_node_irregular_publish(struct disti_node *node, struct disti_node_op *op)
{
    struct node_slot *slot = node_slot(node->mailbox, op);
    bool sends = irregular_sends_to_peers(node, op);
    struct node_block *list;

    slot->place = (uint8_t)op->place;
    slot->cma = op->cma;
    slot->failed = 0;
    if (op->place == NODE_NOWHERE)
        return DIST_OK;
    if (op->place != NODE_IN_SLOT)
        slot->overflow = 0;
    if (__builtin_expect(op->published_bytes > NODE_SHORT_MAX, 0))
        node_choose_overflow(node, slot, op->published_bytes);
    list = node_list(node->self, op);
    irregular_write_list(node, op, list);
    if (op->place == NODE_IN_MEMORY) {
        struct node_locations *at = &node_slot(node->mailbox, op)->locations;
        size_t in_bytes = irregular_extent(op->call.in_counts, op->call.in_offsets, node, op);
        size_t out_bytes = irregular_extent(op->call.out_counts, op->call.out_offsets, node, op);
        at->in.name.key = at->out.name.key = 0;
        /* has_own: this rank has to copy a block from its IN to its OUT. */
        struct node_block in, out;
        if (!irregular_sends(op, node->rank) || !irregular_receives(op, node->rank)) {
            at->has_own = false;
        } else {
            in = irregular_in(op, node->rank);
            out = irregular_out(op, node->rank);
            at->has_own = in.count && (const char *)op->call.in + in.first * op->element_bytes !=
                                          (char *)op->call.out + out.first * op->element_bytes;
        }
        at->in_address = (uintptr_t)op->call.in;
        at->out_address = (uintptr_t)op->call.out;
        if (sends && irregular_find(node, op->call.in, in_bytes, &at->in))
            disti_segment_load((void *)(uintptr_t)op->call.in, in_bytes);
        /*
         * A twin is not copied back, because the program may write between the blocks of OUT
         * meanwhile. So an OUT that needs its twin is not published as a segment.
         */
        if (!sends && irregular_find(node, op->call.out, out_bytes, &at->out) &&
            disti_segment_twin(op->call.out, out_bytes) != op->call.out)
            at->out.name.key = 0;
        return sends ? disti_node_publish_bounce(node, at) : DIST_OK;
    }
    /* Copies the blocks, one after another, to the memory after the list. */
    char *to = (char *)list + irregular_list_bytes(irregular_listed(node, op), op->place);
    for (int r = 0; r < node->ranks; r++) {
        struct node_block block = irregular_in(op, r);
        size_t bytes = block.count * op->element_bytes;
        if (r == node->rank || !irregular_receives(op, r) || !bytes)
            continue;
        disti_node_move(to, (const char *)op->call.in + block.first * op->element_bytes, bytes,
                        __builtin_expect(op->copy_mode, 0) ? node_bounce_copy_mode(op) : 0);
        to += bytes;
    }
    return DIST_OK;
}

/* Copies from mailboxes, from mapped memory, with CMA, and from bounce buffers. */

/*
 * Returns true if the sender of the block between this rank and `rank` copies a part of the block,
 * to the receiver's OUT.
 */
static bool irregular_shares(const struct disti_node *node, const struct disti_node_op *op,
                             int rank)
{
    const struct node_slot *mine = node_slot(node->mailbox, op);
    const struct node_slot *theirs = node_slot(node->peers[rank].mailbox, op);
    bool sends = irregular_sends_to_peers(node, op);
    const struct node_slot *sender = sends ? mine : theirs, *receiver = sends ? theirs : mine;

    if (!disti_node_pattern(op->call.collective)->rooted || sender->place != NODE_IN_MEMORY ||
        receiver->place != NODE_IN_MEMORY)
        return false;
    return receiver->locations.out.name.key
               ? irregular_path(op, &sender->locations) != NODE_BY_BOUNCE
               : irregular_path(op, &sender->locations) == NODE_BY_KERNEL;
}

/*
 * Sets [*from_p, *to_p) to the elements, of the block between this rank and `rank`, that this rank
 * copies in the current round. If both ranks copy and there are p ranks, the root copies 1 / p of
 * the block, because it has p - 1 such blocks; or half of that, if it also has to copy its own
 * block:
 *
 *      block   | root: 1 / p | other rank: 1 - 1 / p |
 */
static void irregular_range(const struct disti_node *node, const struct disti_node_op *op, int rank,
                            size_t *from_p, size_t *to_p)
{
    const struct node_peer *peer = &node->peers[rank];
    size_t first, count = peer->count, elements;

    *from_p = *to_p = 0;
    if (op->stage >= op->base && op->method == NODE_METHOD_BOUNCES) {
        elements = disti_node_round(op, count, op->round, &first);
        if (peer->path == NODE_BY_BOUNCE && elements)
            *from_p = first, *to_p = first + elements;
        return;
    }
    if (peer->path != NODE_BY_BOUNCE && peer->path != NODE_NOTHING)
        *to_p = count;
    if (count && irregular_shares(node, op, rank)) {
        disti_node_slice(node, op, count, 0, from_p, to_p);
        if (node_slot(node->peers[op->call.root].mailbox, op)->locations.has_own)
            *to_p /= 2;
        if (node->rank != op->call.root)
            *from_p = *to_p, *to_p = count;
    }
}

/* Returns the address of element `at` of this rank's block in the sender's bounce buffer. */
static const char *irregular_in_bounce(const struct disti_node *node,
                                       const struct disti_node_op *op, int sender, size_t at)
{
    bool listed = disti_node_pattern(op->call.collective)->in_blocks;
    size_t block = listed ? (size_t)node->rank * op->piece : 0;

    return disti_node_bounce(node, sender, op->round) +
           (block + at - (size_t)op->round * op->piece) * op->element_bytes;
}

/*
 * Copies elements of the block between this rank and `other`, starting with element `at`. sends:
 * this rank is the sender.
 */
static void irregular_copy(struct disti_node *node, struct disti_node_op *op, int other, size_t at,
                           size_t elements, bool sends)
{
    const struct node_peer *peer = &node->peers[other];
    size_t bytes = elements * op->element_bytes, offset = at * op->element_bytes;
    const char *from;
    char *to;

    if (sends) {
        from =
            (const char *)op->call.in + irregular_in(op, other).first * op->element_bytes + offset;
        if (peer->out)
            disti_node_move(peer->out + offset, from, bytes, op->copy_mode);
        else if (!node_slot(peer->mailbox, op)->locations.out.name.key)
            disti_node_cma_put(node, op, other, peer->out_address + offset, from, bytes);
        return;
    }
    to = (char *)op->call.out + irregular_out(op, other).first * op->element_bytes + offset;
    if (peer->path == NODE_BY_BOUNCE)
        disti_node_move(to, irregular_in_bounce(node, op, other, at), bytes, op->copy_mode);
    else if (peer->path == NODE_BY_KERNEL)
        disti_node_cma_get(node, op, other, to, peer->in_address + offset, bytes);
    else if (peer->in)
        disti_node_move(to, peer->in + offset, bytes, op->copy_mode);
}

/* Copies elements of this rank's block for itself, starting with element `at`. */
static void irregular_copy_own(struct disti_node *node, struct disti_node_op *op, size_t at,
                               size_t elements)
{
    struct node_block in = irregular_in(op, node->rank), out = irregular_out(op, node->rank);
    size_t offset = at * op->element_bytes;
    const char *from = (const char *)op->call.in + in.first * op->element_bytes;
    char *to = (char *)op->call.out + out.first * op->element_bytes;

    if (from != to)
        disti_node_move(to + offset, from + offset, elements * op->element_bytes, op->copy_mode);
}

/* Sets [*from_p, *to_p) to the elements of this rank's block for itself; none after stage 0. */
static void irregular_range_own(const struct disti_node *node, const struct disti_node_op *op,
                                size_t *from_p, size_t *to_p)
{
    *from_p = *to_p = 0;
    if (op->stage == 0 && irregular_sends(op, node->rank) && irregular_receives(op, node->rank))
        *to_p = irregular_in(op, node->rank).count;
}

bool disti_node_irregular_are_short(const struct disti_node *node, const struct disti_node_op *op)
{
    size_t from, to;

    if (op->place == NODE_IN_MEMORY)
        return false;
    for (int r = op->first; r < op->end; r++) {
        if (node_slot(node->peers[r].mailbox, op)->place == NODE_IN_MEMORY)
            return false;
    }
    irregular_range_own(node, op, &from, &to);
    return to * op->element_bytes <= NODE_ADVANCE_BYTES;
}

/*
 * Reads the entry of this rank's block from a sender's list. Returns ERR_MISMATCH, and sets the
 * fields of the op for it, if this rank expects another count.
 */
static dist_status irregular_read_block(struct disti_node *node, struct disti_node_op *op,
                                        int sender, struct node_block *block_p)
{
    bool listed = disti_node_pattern(op->call.collective)->in_blocks;
    struct node_block *list = node_list(&node->peers[sender], op);
    uint64_t count = irregular_out(op, sender).count;

    *block_p = list[listed ? node->rank : 0];
    if (block_p->count == count)
        return DIST_OK;
    op->expected = count * op->element_bytes;
    op->sent = block_p->count * op->element_bytes;
    op->peer = sender;
    op->mine = op->theirs = op->fingerprint;
    op->sequence = op->call.sequence;
    return DIST_ERR_MISMATCH;
}

dist_status disti_node_irregular_finish(struct disti_node *node, struct disti_node_op *op)
{
    dist_status status = DIST_OK;
    size_t from, to;

    for (int r = op->first; r < op->end && status == DIST_OK; r++) {
        char *out = (char *)op->call.out + irregular_out(op, r).first * op->element_bytes;
        struct node_block block;

        if (r == node->rank)
            continue;
        status = irregular_read_block(node, op, r, &block);
        if (status == DIST_OK && block.count)
            memcpy(out, irregular_in_mailbox(node, op, r, &block), block.count * op->element_bytes);
    }
    irregular_range_own(node, op, &from, &to);
    if (status == DIST_OK && to)
        irregular_copy_own(node, op, 0, to);
    return status;
}

bool disti_node_irregular_work(struct disti_node *node, struct disti_node_op *op)
{
    size_t budget = node_line_elements(op, NODE_ADVANCE_BYTES), from, to;
    bool sends =
        irregular_sends_to_peers(node, op) && disti_node_pattern(op->call.collective)->rooted;

    while (op->peers_done < node->ranks && budget > 0) {
        int other = (node->rank + 1 + op->peers_done) % node->ranks;
        size_t part;

        if (other == node->rank)
            irregular_range_own(node, op, &from, &to);
        else
            irregular_range(node, op, other, &from, &to);
        part = to - from - op->done < budget ? to - from - op->done : budget;
        if (part && other == node->rank)
            irregular_copy_own(node, op, from + op->done, part);
        else if (part)
            irregular_copy(node, op, other, from + op->done, part, sends);
        budget -= part;
        op->done += part;
        if (from + op->done == to) {
            op->done = 0;
            op->peers_done++;
        }
    }
    return op->peers_done == node->ranks;
}

/* Finding the blocks between this rank and its peers, from the mailboxes. */

/*
 * Returns the address of a location in the peer's segment; NULL if the peer has published no
 * segment. If the segment cannot be mapped, also returns NULL, and reports the failure in this
 * rank's slot.
 */
static char *irregular_map(struct disti_node *node, const struct disti_node_op *op, int rank,
                           const struct disti_segment_location *at, size_t bytes)
{
    char *memory = NULL;

    if (at->name.key)
        memory = disti_node_try_map(&node->peers[rank], at, bytes);
    if (at->name.key && !memory)
        node_slot(node->mailbox, op)->failed = NODE_UNMAPPABLE;
    return memory;
}

/* Finds this rank's block in a sender's mailbox or memory. */
static dist_status irregular_find_sender(struct disti_node *node, struct disti_node_op *op,
                                         int sender)
{
    struct node_peer *peer = &node->peers[sender];
    const struct node_slot *slot = node_slot(peer->mailbox, op);
    struct node_block block;
    dist_status status = irregular_read_block(node, op, sender, &block);
    size_t first, bytes;

    if (status != DIST_OK)
        return status;
    peer->count = block.count;
    if (slot->place != NODE_IN_MEMORY) {
        peer->path = NODE_FROM_MAILBOX;
        peer->in = irregular_in_mailbox(node, op, sender, &block);
        return DIST_OK;
    }
    first = block.first * op->element_bytes;
    bytes = block.count * op->element_bytes;
    peer->path = irregular_path(op, &slot->locations);
    peer->in = irregular_map(node, op, sender, &slot->locations.in, first + bytes);
    peer->in = peer->in ? peer->in + first : NULL;
    peer->in_address = slot->locations.in_address + first;
    peer->rounds = slot->locations.rounds;
    return DIST_OK;
}

/* Finds the receiver's OUT, because this sender may copy a part of the block. */
static void irregular_find_receiver(struct disti_node *node, struct disti_node_op *op, int receiver)
{
    struct node_peer *peer = &node->peers[receiver];
    const struct node_slot *slot = node_slot(peer->mailbox, op);
    const struct node_block *list = node_list(peer, op), *theirs;
    size_t first, bytes;

    peer->count = irregular_in(op, receiver).count;
    peer->by_bounce =
        irregular_path(op, &node_slot(node->mailbox, op)->locations) == NODE_BY_BOUNCE;
    if (slot->place != NODE_IN_MEMORY)
        return;
    theirs = &list[receiver == op->call.root ? node->rank : 0];
    if (theirs->count != peer->count) {
        /* The receiver reports the mismatch; this rank must not write to its OUT. */
        peer->count = 0;
        return;
    }
    first = theirs->first * op->element_bytes;
    bytes = peer->count * op->element_bytes;
    peer->out = irregular_map(node, op, receiver, &slot->locations.out, first + bytes);
    peer->out = peer->out ? peer->out + first : NULL;
    peer->out_address = slot->locations.out_address + first;
}

dist_status disti_node_irregular_resolve(struct disti_node *node, struct disti_node_op *op)
{
    const struct node_pattern *pattern = disti_node_pattern(op->call.collective);
    bool sends = irregular_sends_to_peers(node, op);
    dist_status status = DIST_OK;
    bool visible = true;

    for (int r = 0; r < node->ranks; r++) {
        struct node_peer *peer = &node->peers[r];

        peer->count = 0;
        peer->path = NODE_NOTHING;
        peer->in = peer->out = NULL;
        peer->by_bounce = false;
        peer->last = 0;
    }
    op->method = NODE_METHOD_DIRECT;
    if (op->end == op->first) {
        op->peers_done = node->ranks - 1; /* only this rank's own block remains, the last one */
        return DIST_OK;
    }
    op->cma = node_slot(node->peers[irregular_leader(op)].mailbox, op)->cma;
    for (int r = op->first; r < op->end && status == DIST_OK; r++) {
        struct node_peer *peer = &node->peers[r];
        bool receives = !pattern->rooted || !sends;
        bool in_memory = receives && node_slot(peer->mailbox, op)->place == NODE_IN_MEMORY;

        if (r == node->rank)
            continue;
        if (receives)
            status = irregular_find_sender(node, op, r);
        if (sends && op->place == NODE_IN_MEMORY) {
            in_memory = true;
            if (pattern->rooted)
                irregular_find_receiver(node, op, r);
            else
                peer->by_bounce =
                    irregular_path(op, &node_slot(node->mailbox, op)->locations) == NODE_BY_BOUNCE;
        }
        peer->last = in_memory;
        op->copies_with_peers |= in_memory;
        visible = visible && !peer->by_bounce && peer->path <= NODE_FROM_SEGMENT;
    }
    if (op->place == NODE_IN_MEMORY && sends)
        visible = visible && node_slot(node->mailbox, op)->locations.in.name.key;
    if (op->copies_with_peers) {
        size_t bytes = irregular_extent(op->call.in_counts, op->call.in_offsets, node, op) +
                       irregular_extent(op->call.out_counts, op->call.out_offsets, node, op);
        op->piece = disti_node_piece(node, op);
        op->method = visible ? NODE_METHOD_DIRECT : NODE_METHOD_CMA;
        disti_node_copy_mode_choose(node, op, bytes >= node->cache_bytes);
    }
    return status;
}

/* Copying the remaining blocks through bounce buffers, after stage 1. */

/*
 * Returns true if this rank or the peer has failed to copy or to map memory. If the peer could not
 * map this rank's segments, marks them, so that they are not published again.
 */
static bool irregular_failed(struct disti_node *node, const struct disti_node_op *op, int rank)
{
    struct node_slot *mine = node_slot(node->mailbox, op);
    int32_t theirs = node_slot(node->peers[rank].mailbox, op)->failed;
    int32_t failed = mine->failed ? mine->failed : theirs;

    if (theirs == NODE_UNMAPPABLE && op->place == NODE_IN_MEMORY) {
        disti_node_mark_unmappable(node, mine->locations.in.name.key);
        disti_node_mark_unmappable(node, mine->locations.out.name.key);
    }
    if (failed > 0 && failed != EFAULT && !node->cma_refused) {
        node->cma_refused = true;
        disti_info("using bounce buffers for ordinary memory: the kernel cannot copy between these "
                   "processes: %s",
                   strerror(failed));
    }
    return failed;
}

bool disti_node_irregular_needs_bounces(struct disti_node *node, struct disti_node_op *op)
{
    bool sends = irregular_sends_to_peers(node, op) && op->place == NODE_IN_MEMORY;

    for (int r = op->first; r < op->end && op->stage == 1; r++) {
        struct node_peer *peer = &node->peers[r];
        uint32_t rounds;

        if (r == node->rank || !peer->last)
            continue;
        if (irregular_failed(node, op, r)) {
            peer->by_bounce |= sends;
            if (peer->path == NODE_FROM_SEGMENT || peer->path == NODE_BY_KERNEL)
                peer->path = NODE_BY_BOUNCE;
        }
        /* Computes the number of bounce buffer rounds that this rank and the peer still need. */
        size_t send_count = sends ? irregular_in(op, r).count : 0;
        size_t most = peer->path == NODE_BY_BOUNCE ? peer->count : 0;
        if (peer->by_bounce && send_count > most)
            most = send_count;
        rounds = (uint32_t)((most + op->piece - 1) / op->piece);
        peer->last = rounds ? 2 + rounds : 1;
        if (rounds > op->rounds)
            op->rounds = rounds;
    }
    return op->stage == 1 && op->rounds;
}

dist_status disti_node_irregular_to_bounces(struct disti_node *node, struct disti_node_op *op)
{
    dist_status status = DIST_OK;

    op->method = NODE_METHOD_BOUNCES;
    for (int r = op->first; r < op->end && status == DIST_OK; r++) {
        if (r != node->rank && node->peers[r].path == NODE_BY_BOUNCE)
            status = disti_node_attach(node, op, r);
    }
    return status;
}

void disti_node_irregular_fill(struct disti_node *node, struct disti_node_op *op, uint64_t round)
{
    bool listed = disti_node_pattern(op->call.collective)->in_blocks;

    for (int r = op->first; r < op->end; r++) {
        struct node_block block;
        size_t first, elements;

        if (r == node->rank || !node->peers[r].by_bounce)
            continue;
        block = irregular_in(op, r);
        elements = disti_node_round(op, block.count, round, &first);
        disti_node_move(disti_node_bounce(node, node->rank, round) +
                            (listed ? (size_t)r * op->piece : 0) * op->element_bytes,
                        (const char *)op->call.in + (block.first + first) * op->element_bytes,
                        elements * op->element_bytes, node_bounce_copy_mode(op));
    }
}

/*
 * Fast path of irregular calls with short data: if a call is repeated with other buffers, the
 * counts and offsets of all its copies are already computed.
 */

/* A range of IN that is copied to the mailbox, after the data of the previous range. */
struct again_range {
    size_t from, bytes;
};

/* A block that this rank receives. */
struct again_block {
    const struct node_peer *peer; /* the sender */
    uint64_t count;               /* elements that this rank expects */
    size_t to, bytes;             /* the block's place in OUT */
};

struct node_again {
    bool ready; /* describes the last repeatable call of its collective */
    bool leads; /* this rank decides whether CMA may be used */
    int mine;   /* index of this rank's block in a sender's list */
    /* Size of a list, which precedes the blocks: in a slot [0], in an overflow slot [1]. */
    size_t own_list_bytes[2];
    size_t sender_list_bytes[2];
    size_t element_bytes;
    size_t own_from, own_to, own_bytes; /* this rank's block for itself: from IN to OUT */
    int listed, range_count, block_count;
    struct node_block *list; /* this rank's list, with `listed` entries */
    struct again_range *ranges;
    struct again_block *blocks;
};

/* ---- the first repetition ---- */

static void again_list_bytes(int listed, size_t bytes[2])
{
    bytes[0] = irregular_list_bytes(listed, NODE_IN_SLOT);
    bytes[1] = irregular_list_bytes(listed, NODE_IN_OVERFLOW);
}

/*
 * Computes the copies of the op. Returns NULL if memory is exhausted. Cold: it runs only when a
 * call is repeated for the first time.
 */
__attribute__((cold, noinline)) static struct node_again *
again_prepare(struct disti_node *node, const struct disti_node_op *op)
{
    const struct node_pattern *pattern = disti_node_pattern(op->call.collective);
    struct node_again *again = node->agains[op->call.collective];
    bool sends = irregular_sends_to_peers(node, op);

    if (!again) {
        size_t ranks = (size_t)node->ranks;
        size_t each = sizeof(*again->list) + sizeof(*again->ranges) + sizeof(*again->blocks);

        again = calloc(1, sizeof(*again) + ranks * each);
        if (!again)
            return NULL;
        again->blocks = (void *)(again + 1);
        again->list = (void *)(again->blocks + ranks);
        again->ranges = (void *)(again->list + ranks);
        node->agains[op->call.collective] = again;
    }
    again->ready = true;
    again->leads = node->rank == 0 && !pattern->rooted;
    again->mine = pattern->in_blocks ? node->rank : 0;
    again->element_bytes = op->element_bytes;
    again->listed = irregular_listed(node, op);
    again_list_bytes(again->listed, again->own_list_bytes);
    again_list_bytes(pattern->in_blocks ? node->ranks : 1, again->sender_list_bytes);
    again->range_count = 0;
    if (op->place != NODE_NOWHERE)
        irregular_write_list(node, op, again->list);
    if (sends) {
        /* Blocks that are adjacent in IN form one range. */
        struct again_range *last = NULL;
        again->range_count = 0;
        for (int r = 0; r < node->ranks; r++) {
            struct node_block block = irregular_in(op, r);
            size_t from = block.first * op->element_bytes, bytes = block.count * op->element_bytes;
            if (r == node->rank || !irregular_receives(op, r) || !bytes)
                continue;
            if (last && last->from + last->bytes == from) {
                last->bytes += bytes;
                continue;
            }
            last = &again->ranges[again->range_count++];
            *last = (struct again_range){from, bytes};
        }
    }
    again->block_count = 0;
    for (int r = op->first; r < op->end; r++) {
        struct node_block block = irregular_out(op, r);
        if (r != node->rank)
            again->blocks[again->block_count++] =
                (struct again_block){.peer = &node->peers[r],
                                     .count = block.count,
                                     .to = block.first * op->element_bytes,
                                     .bytes = block.count * op->element_bytes};
    }
    bool own = irregular_sends(op, node->rank) && irregular_receives(op, node->rank);
    again->own_bytes = own ? irregular_in(op, node->rank).count * op->element_bytes : 0;
    again->own_from = own ? irregular_in(op, node->rank).first * op->element_bytes : 0;
    again->own_to = own ? irregular_out(op, node->rank).first * op->element_bytes : 0;
    return again;
}

bool disti_node_irregular_can_start_again(const struct disti_node *node,
                                          const struct disti_node_op *op)
{
    struct node_again *again = node->agains[op->call.collective];
    bool own = irregular_sends(op, node->rank) && irregular_receives(op, node->rank);

    if (again)
        again->ready = false;
    return op->state != NODE_OP_POSTED && op->method == NODE_METHOD_BOUNCES && op->stage == 0 &&
           op->place != NODE_IN_MEMORY && op->published_bytes <= NODE_SHORT_MAX &&
           (!own || irregular_in(op, node->rank).count * op->element_bytes <= NODE_SHORT_MAX);
}

/* ---- every repetition ---- */

/* Returns the address of a rank's list, which the blocks follow, in its slot or overflow slot. */
static inline char *again_data(const struct node_peer *peer, struct node_slot *slot,
                               uint64_t number)
{
    return (char *)(slot->place == NODE_IN_SLOT ? slot->data
                                                : node_overflow(peer->overflows, slot, number));
}

static inline void again_publish(struct disti_node *node, struct node_slot *slot,
                                 const struct disti_node_op *op, const struct node_again *again)
{
    const struct again_range *range = again->ranges, *end = range + again->range_count;
    struct node_block *list;
    char *to;

    slot->place = (uint8_t)op->place;
    slot->cma = op->cma;
    slot->failed = 0;
    if (op->place == NODE_NOWHERE)
        return;
    slot->overflow = 0;
    to = again_data(node->self, slot, op->number);
    list = (void *)to;
    for (int r = 0; r < again->listed; r++)
        list[r] = again->list[r];
    to += again->own_list_bytes[op->place - NODE_IN_SLOT];
    for (; range < end; range++) {
        node_copy(to, (const char *)op->call.in + range->from, range->bytes);
        to += range->bytes;
    }
}

/*
 * Copies one block to OUT. Returns false if the sender has not published it yet, has not stored it
 * in its mailbox, has made another call, or has another count.
 */
static inline bool again_receive(const struct disti_node_op *op, const struct node_again *again,
                                 const struct again_block *expected, uint64_t history)
{
    struct node_slot *slot = node_slot(expected->peer->mailbox, op);
    const struct node_block *block;
    const char *data;

    if (atomic_load_explicit(&slot->stage, memory_order_acquire) < node_stage(op->number, 0) ||
        atomic_load_explicit(&slot->history, memory_order_relaxed) != history ||
        slot->place == NODE_IN_MEMORY)
        return false;
    data = again_data(expected->peer, slot, op->number);
    block = (const void *)data;
    block += again->mine;
    if (block->count != expected->count)
        return false;
    data +=
        again->sender_list_bytes[slot->place - NODE_IN_SLOT] + block->first * again->element_bytes;
    if (expected->bytes)
        node_copy((char *)op->call.out + expected->to, data, expected->bytes);
    return true;
}

/* Copies all blocks to OUT. Returns false if again_receive does for one of them. */
static inline bool again_receive_all(const struct disti_node_op *op, const struct node_again *again,
                                     uint64_t history)
{
    const struct again_block *expected = again->blocks, *end = expected + again->block_count;

    for (; expected < end; expected++) {
        if (!again_receive(op, again, expected, history))
            return false;
    }
    return true;
}

/*
 * Returns the prepared copies of the op, and computes them if necessary. Returns NULL if memory is
 * exhausted or the call may not begin yet.
 */
static inline const struct node_again *again_find(struct disti_node *node,
                                                  const struct disti_node_op *op)
{
    const struct node_again *again = node->agains[op->call.collective];

    if (node->calls + 1 - node->confirmed >= op->unconfirmed_limit || node->abandoned_rank >= 0)
        return NULL;
    return again && again->ready ? again : again_prepare(node, op);
}

dist_status disti_node_irregular_start_again(struct disti_node *node, const struct dist_call *call,
                                             uint64_t history, struct disti_node_op *op)
{
    const struct node_again *again = again_find(node, op);
    uint64_t number = node->calls + 1;
    size_t at = node_slot_number(node, number);
    struct node_slot *slot = &node->mailbox->slots[at];

    if (!again)
        return DIST_ERR_UNSUPPORTED;
    node->calls = op->number = number;
    op->slot = at;
    op->call.in = call->in;
    op->call.out = call->out;
    if (again->leads) /* peers may have long blocks for each other */
        op->cma = disti_node_selector_leads(node, op);
    short_begin(node, at, number, call->sequence, op->fingerprint, history);
    again_publish(node, slot, op, again);
    if (number % SHORT_CPU_CALLS == 0)
        disti_node_publish_cpu(node);
    short_publish(node, slot, node_stage(number, 0));
    if (!again_receive_all(op, again, history))
        return disti_node_op_continue(op, call, history);
    const char *from = (const char *)op->call.in + again->own_from;
    char *to = (char *)op->call.out + again->own_to;
    if (again->own_bytes && from != to)
        node_copy(to, from, again->own_bytes);
    short_finish(node, op, number);
    return DIST_OK;
}
