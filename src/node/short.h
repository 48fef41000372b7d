/* SPDX-License-Identifier: BSD-3-Clause */
/* How a call begins and a short one ends: inline, for one that comes again. */
#ifndef DISTI_NODE_SHORT_H
#define DISTI_NODE_SHORT_H

#include "node/area.h"

/* Each so many say which CPU the rank is on. */
#define SHORT_CPU_CALLS 8

/* Its slot is free: it is this rank's newest call from now on. */
static inline void short_begin(struct disti_node *node, size_t at, uint64_t number,
                               uint64_t sequence, uint64_t fingerprint, uint64_t history)
{
    struct node_board *board = node->board;
    struct node_slot *slot = &board->slots[at];

    node->sequences[at] = sequence;
    atomic_store_explicit(&slot->stage, node_writing(number), memory_order_relaxed);
    atomic_store_explicit(&slot->history, history, memory_order_release);
    atomic_store_explicit(&slot->fingerprint, fingerprint, memory_order_release);
    atomic_store_explicit(&board->begun, number, memory_order_release);
}

/* Short: what this rank gives. */
static inline void short_show(struct disti_node *node, struct node_slot *slot,
                              const struct disti_node_op *op)
{
    size_t given = op->given;

    if (!given)
        return;
    if (__builtin_expect(op->in_area, 0)) {
        slot->area = 0;
        node_copy(node_area(node->self->areas, slot, op->number), op->call.in, given);
    } else {
        node_copy(slot->data, op->call.in, given);
    }
}

/* The store must stand before the look at who sleeps: presence.c says how, without a fence or with.
 */
static inline void short_publish(struct disti_node *node, struct node_slot *mine, uint64_t stage)
{
    struct node_board **other = node->others, **end = other + node->ranks - 1;

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
    struct node_board *const *other = op->awaited, *const *end = op->awaited_end;

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
    node_prefetch_write(&node->board->slots[node_slot_number(node, next)],
                        NODE_SLOT_ALIGN + (op->in_area ? NODE_SLOT_NEAR : bytes));
    if (op->in_area && !(op->gait & NODE_STREAMS))
        node_prefetch_write(op->chosen && node->area_next
                                ? node->self->areas + node->area_next
                                : node->self->areas + next % NODE_AREAS_FIXED * NODE_AREA_EACH,
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

#endif
