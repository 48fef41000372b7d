/* SPDX-License-Identifier: BSD-3-Clause */
/* Reduction operations that the program created: a table of the process. */
#include "base/dtype.h"
#include "base/lock.h"
#include "base/log.h"
#include "core/call.h"

#include <pthread.h>
#include <stdlib.h>

/*
 * The value of a created operation, so that a freed one is told from what took its slot:
 *
 *    30  29        16 15          0
 *   | 1 | generation  | slot        |         bit 30 is DIST_OP_DYNAMIC
 */
#define OP_SLOTS_MAX 0x10000
#define OP_GENERATION_SHIFT 16
#define OP_GENERATIONS 0x4000

struct op_slot {
    struct dist_reduction reduction;
    dist_op kind; /* PREMUL_SUM or USER */
    unsigned generation;
    bool used;
};

/* Slots are allocated one by one, so that a reduction's address stays. */
DISTI_PROCESS_LOCK(op_lock);
static struct op_slot **op_slots;
static unsigned op_count;
static unsigned op_full; /* the slots before this one are in use */

static dist_op op_value(unsigned slot)
{
    return (dist_op)(op_slots[slot]->generation << OP_GENERATION_SHIFT | DIST_OP_DYNAMIC | slot);
}

/* The slot of a value that is in use, else NULL. */
static struct op_slot *op_find(dist_op op)
{
    unsigned slot = (unsigned)op % OP_SLOTS_MAX;

    if (!((unsigned)op & DIST_OP_DYNAMIC) || slot >= op_count || !op_slots[slot]->used ||
        op_value(slot) != op)
        return NULL;
    return op_slots[slot];
}

/* A slot nobody uses: an old one, or one more. op_count or more: no memory. */
static unsigned op_free_slot(void)
{
    struct op_slot **grown, *slot;
    unsigned free_slot = op_full;

    while (free_slot < op_count && op_slots[free_slot]->used)
        free_slot++;
    op_full = free_slot;
    if (free_slot < op_count || op_count == OP_SLOTS_MAX)
        return free_slot;
    grown = realloc(op_slots, (op_count + 1) * sizeof(struct op_slot *));
    if (!grown)
        return op_count;
    op_slots = grown;
    slot = calloc(1, sizeof(*slot));
    if (!slot)
        return op_count;
    op_slots[op_count++] = slot;
    return free_slot;
}

static dist_status op_create(dist_op kind, struct dist_reduction reduction, dist_op *op_p)
{
    dist_status status = DIST_OK;
    unsigned slot;

    pthread_mutex_lock(&op_lock);
    slot = op_free_slot();
    if (slot < op_count) {
        op_slots[slot]->reduction = reduction;
        op_slots[slot]->kind = kind;
        op_slots[slot]->used = true;
        *op_p = op_value(slot);
    } else {
        status = disti_fail(
            DIST_ERR_NO_MEMORY,
            "no room for another operation: %u exist; free unused ones with dist_op_free",
            op_count);
    }
    pthread_mutex_unlock(&op_lock);
    return status;
}

dist_status dist_op_create(dist_reduce_fn fn, void *arg, dist_op *op_p)
{
    if (!fn || !op_p)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "dist_op_create: %s is NULL",
                          fn ? "op_p" : "fn");
    return op_create(DIST_USER, (struct dist_reduction){.fn = fn, .arg = arg}, op_p);
}

dist_status dist_op_create_premul_sum(double factor, dist_op *op_p)
{
    if (!op_p)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "dist_op_create_premul_sum: op_p is NULL");
    return op_create(DIST_PREMUL_SUM, (struct dist_reduction){.factor = factor}, op_p);
}

dist_status dist_op_free(dist_op op)
{
    struct op_slot *slot;

    pthread_mutex_lock(&op_lock);
    slot = op_find(op);
    if (slot) {
        slot->used = false;
        slot->generation = (slot->generation + 1) % OP_GENERATIONS;
        if ((unsigned)op % OP_SLOTS_MAX < op_full)
            op_full = (unsigned)op % OP_SLOTS_MAX;
    }
    pthread_mutex_unlock(&op_lock);
    if (slot)
        return DIST_OK;
    return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                      "dist_op_free: op %#x was not created, or was freed before", (unsigned)op);
}

static dist_status op_refuse(dist_op op)
{
    if (op == DIST_PREMUL_SUM)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "op DIST_PREMUL_SUM has no factor: create it with "
                          "dist_op_create_premul_sum");
    if (op == DIST_USER)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "op DIST_USER has no function: create it with dist_op_create");
    if ((int)op >= DIST_OP_DYNAMIC)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "op %#x was freed, or never created: create it with dist_op_create or "
                          "dist_op_create_premul_sum",
                          (unsigned)op);
    return disti_fail(DIST_ERR_INVALID_ARGUMENT, "op %d is none of dist_op", (int)op);
}

dist_status disti_op_resolve(dist_op op, dist_op *kind_p, const struct dist_reduction **reduction_p)
{
    const struct op_slot *slot = NULL;

    if (disti_op_valid(op) && op != DIST_PREMUL_SUM && op != DIST_USER) {
        *kind_p = op;
        *reduction_p = NULL;
        return DIST_OK;
    }
    pthread_mutex_lock(&op_lock);
    slot = op_find(op);
    if (slot) {
        *kind_p = slot->kind;
        *reduction_p = &slot->reduction;
    }
    pthread_mutex_unlock(&op_lock);
    return slot ? DIST_OK : op_refuse(op);
}
