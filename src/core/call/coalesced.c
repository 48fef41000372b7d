/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All-reduce of a list of buffers: small ones are packed together and travel as one, each large one
 * by itself. As collectives of a group end in order, the last of them stands for all.
 */
#include "base/checked.h"
#include "base/dtype.h"
#include "base/hash.h"
#include "core/call/calls.h"

#include <stdlib.h>
#include <string.h>

/* Below this the fixed cost of an operation outweighs that of copying twice. */
#define COALESCED_SMALL_BYTES ((size_t)64 * 1024)

/* What errors call it, and each of its parts. */
static const char coalesced_name[] = "all_reduce_coalesced";

/* The packed buffers: where each goes back to, and the memory in between. */
struct coalesced {
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
static dist_status coalesced_copy(const struct coalesced *list, bool to_user)
{
    dist_status status = DIST_OK;
    char *cursor = list->packed;

    for (int i = 0; i < list->buffer_count && status == DIST_OK; i++) {
        size_t bytes = list->counts[i] * list->element;

        if (!bytes || !coalesced_is_small(list->counts[i], list->element))
            continue;
        status = disti_stage_copy(list->group, to_user ? list->buffers[i] : cursor,
                                  to_user ? cursor : list->buffers[i], bytes);
        cursor += bytes;
    }
    return status;
}

static dist_status coalesced_finish(void *owned)
{
    return coalesced_copy(owned, true);
}

/* One allocation: the list, its two arrays, and `elements` packed elements. */
static dist_status coalesced_new(const struct dist_group *group, void *const *buffers,
                                 const size_t *counts, int buffer_count, size_t element,
                                 size_t elements, struct coalesced **list_p)
{
    size_t n = (size_t)buffer_count, arrays = n * (sizeof(*buffers) + sizeof(*counts));
    struct coalesced *list = malloc(sizeof(*list) + arrays + elements * element);
    dist_status status;

    if (!list)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory to pack %zu bytes of %d buffers",
                          elements * element, buffer_count);
    list->group = group;
    list->element = element;
    list->buffer_count = buffer_count;
    list->buffers = (void **)(list + 1);
    list->counts = (size_t *)(list->buffers + n);
    list->packed = (char *)(list->counts + n);
    if (n) {
        memcpy(list->buffers, buffers, n * sizeof(*buffers));
        memcpy(list->counts, counts, n * sizeof(*counts));
    }
    status = coalesced_copy(list, false);
    if (status == DIST_OK)
        *list_p = list;
    else
        free(list);
    return status;
}

/* A call of the list, before and after it was checked. */
static struct dist_call coalesced_call(void *buffer, size_t count, dist_dtype dtype, dist_op op,
                                       uint32_t list)
{
    return (struct dist_call){.collective = DIST_COLL_ALL_REDUCE,
                              .in = buffer,
                              .out = buffer,
                              .count = count,
                              .dtype = dtype,
                              .op = op,
                              .list = list};
}

/* The same list on every rank? All its calls say which it is. */
static uint32_t coalesced_hash(const size_t *counts, int buffer_count)
{
    return disti_hash_counts(counts, buffer_count) | 1;
}

static struct calls_form coalesced_form(dist_work **work_p)
{
    struct calls_form form = work_p ? calls_async(work_p) : calls_blocking;

    form.name = coalesced_name;
    return form;
}

/*
 * Every buffer is checked before anything starts. *elements_p: how many are packed; *memories_p:
 * bits 1 << dist_memory, where those are that are not empty.
 */
static dist_status coalesced_check(dist_group *group, void *const *buffers, const size_t *counts,
                                   int buffer_count, dist_dtype dtype, dist_op op,
                                   struct calls_form form, size_t *elements_p, unsigned *memories_p)
{
    struct dist_call call = coalesced_call(NULL, 0, dtype, op, 0);
    struct disti_start start;
    dist_status status = disti_call_check(group, &call, form, &start);

    if (status == DIST_OK && buffer_count < 0)
        return disti_call_bad(group, coalesced_name, "buffer_count is negative");
    if (status == DIST_OK && buffer_count && (!buffers || !counts))
        return disti_call_bad(group, coalesced_name,
                              buffers ? "counts is NULL" : "buffers is NULL");
    for (int i = 0; i < buffer_count && status == DIST_OK; i++) {
        call = coalesced_call(buffers[i], counts[i], dtype, op, 0);
        status = disti_call_check(group, &call, form, &start);
        if (status == DIST_OK && counts[i])
            *memories_p |= 1u << start.call.memory;
        if (status == DIST_OK && coalesced_is_small(counts[i], dist_dtype_size(dtype)))
            *elements_p += counts[i];
    }
    return status;
}

/*
 * Starts one of the buffers; work_p NULL: nobody waits for it. hosted: who waits, waits on the host
 * even if a stream orders it.
 */
static dist_status coalesced_start_one(dist_group *group, struct dist_call call, bool hosted,
                                       dist_work **work_p)
{
    struct disti_start start;
    dist_status status = disti_call_check(group, &call, coalesced_form(NULL), &start);

    if (status != DIST_OK)
        return status;
    start.detached = !work_p;
    if (hosted && start.manner == DIST_MANNER_STREAM)
        start.manner = DIST_MANNER_HOST;
    status = disti_stage(group, &start);
    if (status == DIST_OK)
        status = disti_work_post(group, &start, work_p);
    if (status != DIST_OK)
        disti_start_release(&start);
    return status;
}

/* Starts the large ones; nobody waits for them. */
static dist_status coalesced_start_large(dist_group *group, void *const *buffers,
                                         const size_t *counts, int buffer_count, dist_dtype dtype,
                                         dist_op op)
{
    uint32_t hash = coalesced_hash(counts, buffer_count);
    dist_status status = DIST_OK;

    for (int i = 0; i < buffer_count && status == DIST_OK; i++) {
        if (!coalesced_is_small(counts[i], dist_dtype_size(dtype)))
            status = coalesced_start_one(
                group, coalesced_call(buffers[i], counts[i], dtype, op, hash), false, NULL);
    }
    return status;
}

/*
 * A backend that starts several together needs no packing by the host: each buffer by itself, the
 * last that is not empty stands for all. hosted: some are in host memory, for which no stream
 * waits.
 */
static dist_status coalesced_start_each(dist_group *group, void *const *buffers,
                                        const size_t *counts, int buffer_count, dist_dtype dtype,
                                        dist_op op, bool hosted, dist_work **work_p)
{
    dist_status status = disti_group_batch(group, true), ended;
    uint32_t hash = coalesced_hash(counts, buffer_count);
    dist_work *last = NULL;

    while (buffer_count > 1 && !counts[buffer_count - 1])
        buffer_count--;
    for (int i = 0; i < buffer_count && status == DIST_OK; i++)
        status = coalesced_start_one(group, coalesced_call(buffers[i], counts[i], dtype, op, hash),
                                     hosted, i + 1 < buffer_count ? NULL : &last);
    ended = disti_group_batch(group, false);
    if (status == DIST_OK && ended != DIST_OK && last)
        status = dist_wait(last);
    else if (status == DIST_OK)
        *work_p = last;
    return status == DIST_OK ? ended : status;
}

static dist_status coalesced_try(dist_group *group, void *const *buffers, const size_t *counts,
                                 int buffer_count, dist_dtype dtype, dist_op op,
                                 struct calls_form form)
{
    struct disti_start start;
    struct coalesced *list = NULL;
    struct dist_call call;
    const unsigned host = 1u << DIST_MEMORY_HOST;
    unsigned memories = 0;
    size_t elements = 0;
    dist_status status = coalesced_check(group, buffers, counts, buffer_count, dtype, op, form,
                                         &elements, &memories);

    if (status != DIST_OK)
        return status;
    if (buffer_count && group->backend->batch)
        return coalesced_start_each(group, buffers, counts, buffer_count, dtype, op,
                                    memories & host, form.work_p);
    status = coalesced_new(group, buffers, counts, buffer_count, dist_dtype_size(dtype), elements,
                           &list);
    if (status != DIST_OK)
        return status;
    call = coalesced_call(list->packed, elements, dtype, op, coalesced_hash(counts, buffer_count));
    status = coalesced_start_large(group, buffers, counts, buffer_count, dtype, op);
    if (status == DIST_OK)
        status = disti_call_check(group, &call, form, &start);
    start.owned = list;
    start.finish = coalesced_finish;
    if (status == DIST_OK)
        status = disti_work_post(group, &start, form.work_p);
    if (status != DIST_OK)
        free(list);
    return status;
}

/* What was started before something failed stays started, here and elsewhere. */
static dist_status coalesced_start(dist_group *group, void *const *buffers, const size_t *counts,
                                   int buffer_count, dist_dtype dtype, dist_op op,
                                   struct calls_form form)
{
    dist_status status = coalesced_try(group, buffers, counts, buffer_count, dtype, op, form);

    return status == DIST_OK ? status : disti_group_unstarted(group, status);
}

dist_status dist_all_reduce_coalesced_async(dist_group *group, void *const *buffers,
                                            const size_t *counts, int buffer_count,
                                            dist_dtype dtype, dist_op op, dist_work **work_p)
{
    struct calls_form form = calls_async(work_p);

    form.name = coalesced_name;
    return coalesced_start(group, buffers, counts, buffer_count, dtype, op, form);
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
        coalesced_start(group, buffers, counts, buffer_count, dtype, op, coalesced_form(&work));
    if (status != DIST_OK || disti_batch_note_work(group, work, &status))
        return status;
    return dist_wait(work);
}
