/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All-reduce of a list of buffers: small ones are packed together and travel as one, each large one
 * by itself. As collectives of a group end in order, the last of them stands for all.
 */
#include "base/hash.h"
#include "core/call/calls.h"

#include <stdlib.h>
#include <string.h>

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
