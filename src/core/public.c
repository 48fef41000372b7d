/* SPDX-License-Identifier: BSD-3-Clause */
/* The public calls: collectives, messages, and reduction operations that the program created. */
#include "base/dtype.h"
#include "base/hash.h"
#include "base/lock.h"
#include "base/log.h"
#include "core/call.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* The public calls that reduce, and the barrier. */

/* All that have blocks of one length, or none; root 0 where there is none. */
static dist_status calls_make(dist_group *group, dist_collective collective, const void *in,
                              void *out, size_t count, dist_dtype dtype, dist_op op, int root,
                              struct calls_form form)
{
    const struct calls_kind kind = {
        .collective = collective, .dtype = dtype, .op = op, .root = root};

    return calls_even(group, kind, in, out, count, form);
}

static dist_status calls_reduce_scatter_v(dist_group *group, const void *in, void *out,
                                          const size_t *counts, dist_dtype dtype, dist_op op,
                                          struct calls_form form)
{
    const struct calls_kind kind = {
        .collective = DIST_COLL_REDUCE_SCATTER_V, .dtype = dtype, .op = op};
    const struct calls_lists lists = {.in_counts = counts};

    return calls_uneven(group, kind, in, out, 0, &lists, form);
}

dist_status dist_all_reduce(dist_group *group, const void *in, void *out, size_t count,
                            dist_dtype dtype, dist_op op)
{
    return calls_make(group, DIST_COLL_ALL_REDUCE, in, out, count, dtype, op, 0, calls_blocking);
}

dist_status dist_all_reduce_async(dist_group *group, const void *in, void *out, size_t count,
                                  dist_dtype dtype, dist_op op, dist_work **work_p)
{
    return calls_make(group, DIST_COLL_ALL_REDUCE, in, out, count, dtype, op, 0,
                      calls_async(work_p));
}

dist_status dist_reduce(dist_group *group, const void *in, void *out, size_t count,
                        dist_dtype dtype, dist_op op, int root)
{
    return calls_make(group, DIST_COLL_REDUCE, in, out, count, dtype, op, root, calls_blocking);
}

dist_status dist_reduce_async(dist_group *group, const void *in, void *out, size_t count,
                              dist_dtype dtype, dist_op op, int root, dist_work **work_p)
{
    return calls_make(group, DIST_COLL_REDUCE, in, out, count, dtype, op, root,
                      calls_async(work_p));
}

dist_status dist_reduce_scatter(dist_group *group, const void *in, void *out, size_t count,
                                dist_dtype dtype, dist_op op)
{
    return calls_make(group, DIST_COLL_REDUCE_SCATTER, in, out, count, dtype, op, 0,
                      calls_blocking);
}

dist_status dist_reduce_scatter_async(dist_group *group, const void *in, void *out, size_t count,
                                      dist_dtype dtype, dist_op op, dist_work **work_p)
{
    return calls_make(group, DIST_COLL_REDUCE_SCATTER, in, out, count, dtype, op, 0,
                      calls_async(work_p));
}

dist_status dist_reduce_scatter_v(dist_group *group, const void *in, void *out,
                                  const size_t *counts, dist_dtype dtype, dist_op op)
{
    return calls_reduce_scatter_v(group, in, out, counts, dtype, op, calls_blocking);
}

dist_status dist_reduce_scatter_v_async(dist_group *group, const void *in, void *out,
                                        const size_t *counts, dist_dtype dtype, dist_op op,
                                        dist_work **work_p)
{
    return calls_reduce_scatter_v(group, in, out, counts, dtype, op, calls_async(work_p));
}

dist_status dist_barrier(dist_group *group)
{
    return calls_make(group, DIST_COLL_BARRIER, NULL, NULL, 0, DIST_UINT8, DIST_SUM, 0,
                      calls_blocking);
}

dist_status dist_barrier_async(dist_group *group, dist_work **work_p)
{
    return calls_make(group, DIST_COLL_BARRIER, NULL, NULL, 0, DIST_UINT8, DIST_SUM, 0,
                      calls_async(work_p));
}

dist_status dist_all_reduce_init(dist_group *group, const void *in, void *out, size_t count,
                                 dist_dtype dtype, dist_op op, dist_work **work_p)
{
    const struct dist_call call = {.collective = DIST_COLL_ALL_REDUCE,
                                   .in = in,
                                   .out = out,
                                   .count = count,
                                   .dtype = dtype,
                                   .op = op};
    struct disti_start start;
    dist_status status = disti_call_check(group, &call, calls_async(work_p), &start);

    if (status != DIST_OK)
        return status;
    status = disti_stage_empty(group, &start);
    if (status == DIST_OK)
        status = disti_work_prepare(group, &start, work_p);
    if (status != DIST_OK)
        disti_start_release(&start);
    return status;
}

/* The public calls that move blocks: broadcast, gathers, scatters, all-to-all. */

static inline struct calls_kind calls_kind_of(dist_collective collective, dist_dtype dtype,
                                              int root)
{
    return (struct calls_kind){
        .collective = collective, .dtype = dtype, .op = DIST_SUM, .root = root};
}

static dist_status calls_all_gather_v(dist_group *group, const void *in, void *out,
                                      const size_t *counts, const size_t *offsets, dist_dtype dtype,
                                      struct calls_form form)
{
    const struct calls_kind kind = calls_kind_of(DIST_COLL_ALL_GATHER_V, dtype, 0);
    const struct calls_lists lists = {.out_counts = counts, .out_offsets = offsets};

    return calls_uneven(group, kind, in, out, 0, &lists, form);
}

static dist_status calls_gather_v(dist_group *group, const void *in, size_t count, void *out,
                                  const size_t *counts, const size_t *offsets, dist_dtype dtype,
                                  int root, struct calls_form form)
{
    const struct calls_kind kind = calls_kind_of(DIST_COLL_GATHER_V, dtype, root);
    const struct calls_lists lists = {.out_counts = counts, .out_offsets = offsets};

    return calls_uneven(group, kind, in, out, count, &lists, form);
}

static dist_status calls_scatter_v(dist_group *group, const void *in, const size_t *counts,
                                   const size_t *offsets, void *out, size_t count, dist_dtype dtype,
                                   int root, struct calls_form form)
{
    const struct calls_kind kind = calls_kind_of(DIST_COLL_SCATTER_V, dtype, root);
    const struct calls_lists lists = {.in_counts = counts, .in_offsets = offsets};

    return calls_uneven(group, kind, in, out, count, &lists, form);
}

static dist_status calls_all_to_all_v(dist_group *group, const void *in, const size_t *in_counts,
                                      const size_t *in_offsets, void *out, const size_t *out_counts,
                                      const size_t *out_offsets, dist_dtype dtype,
                                      struct calls_form form)
{
    const struct calls_kind kind = calls_kind_of(DIST_COLL_ALL_TO_ALL_V, dtype, 0);
    const struct calls_lists lists = {in_counts, in_offsets, out_counts, out_offsets};

    return calls_uneven(group, kind, in, out, 0, &lists, form);
}

dist_status dist_broadcast(dist_group *group, void *buffer, size_t count, dist_dtype dtype,
                           int root)
{
    return calls_make(group, DIST_COLL_BROADCAST, buffer, buffer, count, dtype, DIST_SUM, root,
                      calls_blocking);
}

dist_status dist_broadcast_async(dist_group *group, void *buffer, size_t count, dist_dtype dtype,
                                 int root, dist_work **work_p)
{
    return calls_make(group, DIST_COLL_BROADCAST, buffer, buffer, count, dtype, DIST_SUM, root,
                      calls_async(work_p));
}

dist_status dist_all_gather(dist_group *group, const void *in, void *out, size_t count,
                            dist_dtype dtype)
{
    return calls_make(group, DIST_COLL_ALL_GATHER, in, out, count, dtype, DIST_SUM, 0,
                      calls_blocking);
}

dist_status dist_all_gather_async(dist_group *group, const void *in, void *out, size_t count,
                                  dist_dtype dtype, dist_work **work_p)
{
    return calls_make(group, DIST_COLL_ALL_GATHER, in, out, count, dtype, DIST_SUM, 0,
                      calls_async(work_p));
}

dist_status dist_all_gather_v(dist_group *group, const void *in, void *out, const size_t *counts,
                              const size_t *offsets, dist_dtype dtype)
{
    return calls_all_gather_v(group, in, out, counts, offsets, dtype, calls_blocking);
}

dist_status dist_all_gather_v_async(dist_group *group, const void *in, void *out,
                                    const size_t *counts, const size_t *offsets, dist_dtype dtype,
                                    dist_work **work_p)
{
    return calls_all_gather_v(group, in, out, counts, offsets, dtype, calls_async(work_p));
}

dist_status dist_gather(dist_group *group, const void *in, void *out, size_t count,
                        dist_dtype dtype, int root)
{
    return calls_make(group, DIST_COLL_GATHER, in, out, count, dtype, DIST_SUM, root,
                      calls_blocking);
}

dist_status dist_gather_async(dist_group *group, const void *in, void *out, size_t count,
                              dist_dtype dtype, int root, dist_work **work_p)
{
    return calls_make(group, DIST_COLL_GATHER, in, out, count, dtype, DIST_SUM, root,
                      calls_async(work_p));
}

dist_status dist_gather_v(dist_group *group, const void *in, size_t count, void *out,
                          const size_t *counts, const size_t *offsets, dist_dtype dtype, int root)
{
    return calls_gather_v(group, in, count, out, counts, offsets, dtype, root, calls_blocking);
}

dist_status dist_gather_v_async(dist_group *group, const void *in, size_t count, void *out,
                                const size_t *counts, const size_t *offsets, dist_dtype dtype,
                                int root, dist_work **work_p)
{
    return calls_gather_v(group, in, count, out, counts, offsets, dtype, root, calls_async(work_p));
}

dist_status dist_scatter(dist_group *group, const void *in, void *out, size_t count,
                         dist_dtype dtype, int root)
{
    return calls_make(group, DIST_COLL_SCATTER, in, out, count, dtype, DIST_SUM, root,
                      calls_blocking);
}

dist_status dist_scatter_async(dist_group *group, const void *in, void *out, size_t count,
                               dist_dtype dtype, int root, dist_work **work_p)
{
    return calls_make(group, DIST_COLL_SCATTER, in, out, count, dtype, DIST_SUM, root,
                      calls_async(work_p));
}

dist_status dist_scatter_v(dist_group *group, const void *in, const size_t *counts,
                           const size_t *offsets, void *out, size_t count, dist_dtype dtype,
                           int root)
{
    return calls_scatter_v(group, in, counts, offsets, out, count, dtype, root, calls_blocking);
}

dist_status dist_scatter_v_async(dist_group *group, const void *in, const size_t *counts,
                                 const size_t *offsets, void *out, size_t count, dist_dtype dtype,
                                 int root, dist_work **work_p)
{
    return calls_scatter_v(group, in, counts, offsets, out, count, dtype, root,
                           calls_async(work_p));
}

dist_status dist_all_to_all(dist_group *group, const void *in, void *out, size_t count,
                            dist_dtype dtype)
{
    return calls_make(group, DIST_COLL_ALL_TO_ALL, in, out, count, dtype, DIST_SUM, 0,
                      calls_blocking);
}

dist_status dist_all_to_all_async(dist_group *group, const void *in, void *out, size_t count,
                                  dist_dtype dtype, dist_work **work_p)
{
    return calls_make(group, DIST_COLL_ALL_TO_ALL, in, out, count, dtype, DIST_SUM, 0,
                      calls_async(work_p));
}

dist_status dist_all_to_all_v(dist_group *group, const void *in, const size_t *in_counts,
                              const size_t *in_offsets, void *out, const size_t *out_counts,
                              const size_t *out_offsets, dist_dtype dtype)
{
    return calls_all_to_all_v(group, in, in_counts, in_offsets, out, out_counts, out_offsets, dtype,
                              calls_blocking);
}

dist_status dist_all_to_all_v_async(dist_group *group, const void *in, const size_t *in_counts,
                                    const size_t *in_offsets, void *out, const size_t *out_counts,
                                    const size_t *out_offsets, dist_dtype dtype, dist_work **work_p)
{
    return calls_all_to_all_v(group, in, in_counts, in_offsets, out, out_counts, out_offsets, dtype,
                              calls_async(work_p));
}

/*
 * All-reduce of a list of buffers: small ones are packed together and travel as one, each large one
 * by itself. As collectives of a group end in order, the last of them stands for all.
 */

/* Below this the fixed cost of an operation outweighs that of copying twice. */
#define COALESCED_SMALL_BYTES ((size_t)64 * 1024)

/* What errors call it, and each of its parts. */
static const char coalesced_name[] = "all_reduce_coalesced";

/* The call, as the program made it. */
struct coalesced {
    dist_group *group;
    void *const *buffers;
    const size_t *counts;
    int buffer_count;
    dist_dtype dtype;
    dist_op op;
    struct calls_form form;
    uint32_t
        hash; /* of the counts, which all its parts carry: is the list the same on every rank? */
};

/* The packed buffers: where each goes back to, and the memory in between. */
struct coalesced_pack {
    const struct dist_group *group;
    size_t element;
    int buffer_count;
    void **buffers; /* all of the call's; the small ones are packed */
    size_t *counts;
    char *packed;
};

static bool coalesced_is_small(size_t count, size_t element)
{
    return count <= COALESCED_SMALL_BYTES / element;
}

/* to_user: unpacks; else packs. Which buffers are packed does not depend on where they are. */
static dist_status coalesced_copy(const struct coalesced_pack *pack, bool to_user)
{
    dist_status status = DIST_OK;
    char *cursor = pack->packed;

    for (int i = 0; i < pack->buffer_count && status == DIST_OK; i++) {
        size_t bytes = pack->counts[i] * pack->element;

        if (!bytes || !coalesced_is_small(pack->counts[i], pack->element))
            continue;
        status = disti_stage_copy(pack->group, to_user ? pack->buffers[i] : cursor,
                                  to_user ? cursor : pack->buffers[i], bytes);
        cursor += bytes;
    }
    return status;
}

static dist_status coalesced_finish(void *owned)
{
    return coalesced_copy(owned, true);
}

/* One allocation: the pack, its two arrays, and `elements` packed elements. */
static dist_status coalesced_pack_new(const struct coalesced *list, size_t elements,
                                      struct coalesced_pack **pack_p)
{
    size_t n = (size_t)list->buffer_count, bytes = elements * dist_dtype_size(list->dtype);
    struct coalesced_pack *pack =
        malloc(sizeof(*pack) + n * (sizeof(*pack->buffers) + sizeof(*pack->counts)) + bytes);
    dist_status status;

    if (!pack)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory to pack %zu bytes of %d buffers", bytes,
                          list->buffer_count);
    pack->group = list->group;
    pack->element = dist_dtype_size(list->dtype);
    pack->buffer_count = list->buffer_count;
    pack->buffers = (void **)(pack + 1);
    pack->counts = (size_t *)(pack->buffers + n);
    pack->packed = (char *)(pack->counts + n);
    if (n) {
        memcpy(pack->buffers, list->buffers, n * sizeof(*pack->buffers));
        memcpy(pack->counts, list->counts, n * sizeof(*pack->counts));
    }
    status = coalesced_copy(pack, false);
    if (status == DIST_OK)
        *pack_p = pack;
    else
        free(pack);
    return status;
}

/* A part of the call. */
static struct dist_call coalesced_call(const struct coalesced *list, void *buffer, size_t count)
{
    return (struct dist_call){.collective = DIST_COLL_ALL_REDUCE,
                              .in = buffer,
                              .out = buffer,
                              .count = count,
                              .dtype = list->dtype,
                              .op = list->op,
                              .list = list->hash};
}

/*
 * Every buffer is checked before anything starts. *elements_p: how many are packed; *memories_p:
 * bits 1 << dist_memory, where those are that are not empty.
 */
static dist_status coalesced_check(struct coalesced *list, size_t *elements_p, unsigned *memories_p)
{
    struct dist_call call = coalesced_call(list, NULL, 0);
    struct disti_start start;
    dist_status status = disti_call_check(list->group, &call, list->form, &start);

    if (status != DIST_OK)
        return status;
    if (list->buffer_count < 0)
        return disti_call_bad(list->group, coalesced_name, "buffer_count is negative");
    if (list->buffer_count && (!list->buffers || !list->counts))
        return disti_call_bad(list->group, coalesced_name,
                              list->buffers ? "counts is NULL" : "buffers is NULL");
    for (int i = 0; i < list->buffer_count && status == DIST_OK; i++) {
        call = coalesced_call(list, list->buffers[i], list->counts[i]);
        status = disti_call_check(list->group, &call, list->form, &start);
        if (status == DIST_OK && list->counts[i])
            *memories_p |= 1u << start.call.memory;
        if (status == DIST_OK && coalesced_is_small(list->counts[i], dist_dtype_size(list->dtype)))
            *elements_p += list->counts[i];
    }
    list->hash = disti_hash_counts(list->counts, list->buffer_count) | 1;
    return status;
}

/*
 * Starts buffer i; work_p NULL: nobody waits for it. hosted: who waits, waits on the host even if a
 * stream orders it.
 */
static dist_status coalesced_start_one(const struct coalesced *list, int i, bool hosted,
                                       dist_work **work_p)
{
    const struct dist_call call = coalesced_call(list, list->buffers[i], list->counts[i]);
    const struct calls_form form = {.name = coalesced_name};
    struct disti_start start;
    dist_status status = disti_call_check(list->group, &call, form, &start);

    if (status != DIST_OK)
        return status;
    start.detached = !work_p;
    if (hosted && start.manner == DIST_MANNER_STREAM)
        start.manner = DIST_MANNER_HOST;
    status = disti_stage(list->group, &start);
    if (status == DIST_OK)
        status = disti_work_post(list->group, &start, work_p);
    if (status != DIST_OK)
        disti_start_release(&start);
    return status;
}

/* The small ones together, behind the large ones, for which nobody waits. */
static dist_status coalesced_start_packed(const struct coalesced *list, size_t elements)
{
    struct coalesced_pack *pack = NULL;
    struct disti_start start;
    struct dist_call call;
    dist_status status = coalesced_pack_new(list, elements, &pack);

    if (status != DIST_OK)
        return status;
    for (int i = 0; i < list->buffer_count && status == DIST_OK; i++) {
        if (!coalesced_is_small(list->counts[i], pack->element))
            status = coalesced_start_one(list, i, false, NULL);
    }
    call = coalesced_call(list, pack->packed, elements);
    if (status == DIST_OK)
        status = disti_call_check(list->group, &call, list->form, &start);
    start.owned = pack;
    start.finish = coalesced_finish;
    if (status == DIST_OK)
        status = disti_work_post(list->group, &start, list->form.work_p);
    if (status != DIST_OK)
        free(pack);
    return status;
}

/*
 * A backend that starts several together needs no packing by the host: each buffer by itself, the
 * last that is not empty stands for all. hosted: some are in host memory, for which no stream
 * waits.
 */
static dist_status coalesced_start_each(const struct coalesced *list, bool hosted)
{
    dist_status status = disti_group_batch(list->group, true), ended;
    int n = list->buffer_count;
    dist_work *last = NULL;

    while (n > 1 && !list->counts[n - 1])
        n--;
    for (int i = 0; i < n && status == DIST_OK; i++)
        status = coalesced_start_one(list, i, hosted, i + 1 < n ? NULL : &last);
    ended = disti_group_batch(list->group, false);
    if (status == DIST_OK && ended != DIST_OK && last)
        status = dist_wait(last);
    else if (status == DIST_OK)
        *list->form.work_p = last;
    return status == DIST_OK ? ended : status;
}

/* What was started before something failed stays started, here and elsewhere. */
static dist_status coalesced_start(struct coalesced list)
{
    unsigned memories = 0;
    size_t elements = 0;
    dist_status status;

    list.form.name = coalesced_name;
    status = coalesced_check(&list, &elements, &memories);
    if (status == DIST_OK && list.buffer_count && list.group->backend->batch)
        status = coalesced_start_each(&list, memories & 1u << DIST_MEMORY_HOST);
    else if (status == DIST_OK)
        status = coalesced_start_packed(&list, elements);
    return status == DIST_OK ? status : disti_group_unstarted(list.group, status);
}

dist_status dist_all_reduce_coalesced_async(dist_group *group, void *const *buffers,
                                            const size_t *counts, int buffer_count,
                                            dist_dtype dtype, dist_op op, dist_work **work_p)
{
    return coalesced_start((struct coalesced){group, buffers, counts, buffer_count, dtype, op,
                                              .form = calls_async(work_p)});
}

dist_status dist_all_reduce_coalesced(dist_group *group, void *const *buffers, const size_t *counts,
                                      int buffer_count, dist_dtype dtype, dist_op op)
{
    dist_work *work = NULL;
    dist_status status = disti_work_may_wait(coalesced_name);

    if (status != DIST_OK)
        return status;
    if (disti_batch_is_open())
        disti_batch_start();
    status =
        dist_all_reduce_coalesced_async(group, buffers, counts, buffer_count, dtype, op, &work);
    if (status != DIST_OK || disti_batch_note_work(group, work, &status))
        return status;
    return dist_wait(work);
}

/* The public calls from point to point. */

static dist_status calls_send(dist_group *group, const void *data, size_t count, dist_dtype dtype,
                              int peer, int tag, struct calls_form form)
{
    const struct dist_call call = {.collective = DIST_COLL_SEND,
                                   .in = data,
                                   .count = count,
                                   .dtype = dtype,
                                   .root = peer,
                                   .tag = tag};

    return disti_call(group, &call, form);
}

static dist_status calls_recv(dist_group *group, void *data, size_t count, dist_dtype dtype,
                              int peer, int tag, int *source_p, struct calls_form form)
{
    const struct dist_call call = {.collective = DIST_COLL_RECV,
                                   .out = data,
                                   .count = count,
                                   .dtype = dtype,
                                   .root = peer,
                                   .tag = tag,
                                   .source = source_p};

    return disti_call(group, &call, form);
}

dist_status dist_send(dist_group *group, const void *data, size_t count, dist_dtype dtype, int peer,
                      int tag)
{
    return calls_send(group, data, count, dtype, peer, tag, calls_blocking);
}

dist_status dist_isend(dist_group *group, const void *data, size_t count, dist_dtype dtype,
                       int peer, int tag, dist_work **work_p)
{
    return calls_send(group, data, count, dtype, peer, tag, calls_async(work_p));
}

dist_status dist_recv(dist_group *group, void *data, size_t count, dist_dtype dtype, int peer,
                      int tag, int *source_p)
{
    return calls_recv(group, data, count, dtype, peer, tag, source_p, calls_blocking);
}

dist_status dist_irecv(dist_group *group, void *data, size_t count, dist_dtype dtype, int peer,
                       int tag, int *source_p, dist_work **work_p)
{
    return calls_recv(group, data, count, dtype, peer, tag, source_p, calls_async(work_p));
}

/* Reduction operations that the program created: a table of the process. */

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
            "cannot create another op: the maximum of %u exist; free unused ones with dist_op_free",
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
    return disti_fail(DIST_ERR_INVALID_ARGUMENT, "op %d is not a value of dist_op", (int)op);
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
