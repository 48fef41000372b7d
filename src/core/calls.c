/* SPDX-License-Identifier: BSD-3-Clause */
/* Arguments are checked here, once, for every collective and every backend. */
#include "base/checked.h"
#include "base/collective.h"
#include "base/dtype.h"
#include "base/log.h"
#include "core/call.h"
#include "store/store.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* ---- whether the blocks of two buffers overlap ---- */

struct blocks_range {
    uintptr_t start, end;
    int buffer; /* 0 or 1 */
};

static struct blocks_range blocks_range(const struct disti_blocks *blocks, int b, int buffer)
{
    uintptr_t start = (uintptr_t)blocks->memory;
    size_t bytes = blocks->bytes;

    if (blocks->counts) {
        start += blocks->offsets[b] * blocks->element;
        bytes = blocks->counts[b] * blocks->element;
    }
    return (struct blocks_range){start, start + bytes, buffer};
}

static int blocks_number(const struct disti_blocks *blocks)
{
    return blocks->counts ? blocks->blocks : 1;
}

/* `one` is not empty. */
static bool blocks_meet_one(const struct disti_blocks *many, const struct disti_blocks *one)
{
    const struct blocks_range range = blocks_range(one, 0, 0);

    for (int b = 0; b < blocks_number(many); b++) {
        const struct blocks_range other = blocks_range(many, b, 1);

        if (other.start < other.end && range.start < other.end && other.start < range.end)
            return true;
    }
    return false;
}

static int blocks_compare(const void *a, const void *b)
{
    uintptr_t one = ((const struct blocks_range *)a)->start;
    uintptr_t other = ((const struct blocks_range *)b)->start;

    return (one > other) - (one < other);
}

static size_t blocks_collect(const struct disti_blocks *blocks, int buffer,
                             struct blocks_range *ranges)
{
    size_t n = 0;

    for (int b = 0; b < blocks_number(blocks); b++) {
        ranges[n] = blocks_range(blocks, b, buffer);
        n += ranges[n].start < ranges[n].end;
    }
    return n;
}

/*
 * From the lowest start up: a block meets the other buffer if one of that has begun and not ended.
 *
 *   a   |-----|     |---|   |--|
 *   b         |--|         |--|
 *                           ^ here: start < ends[b]
 */
static bool blocks_sweep(struct blocks_range *ranges, size_t n)
{
    uintptr_t ends[2] = {0};

    qsort(ranges, n, sizeof(*ranges), blocks_compare);
    for (size_t i = 0; i < n; i++) {
        uintptr_t *end = &ends[ranges[i].buffer];

        if (ranges[i].start < ends[!ranges[i].buffer])
            return true;
        *end = ranges[i].end > *end ? ranges[i].end : *end;
    }
    return false;
}

static bool blocks_extents_meet(const struct disti_blocks *a, const struct disti_blocks *b)
{
    uintptr_t a_start = (uintptr_t)a->memory, b_start = (uintptr_t)b->memory;

    return a->bytes && b->bytes && a_start < b_start + b->bytes && b_start < a_start + a->bytes;
}

dist_status disti_blocks_overlap(const struct disti_blocks *a, const struct disti_blocks *b,
                                 bool *overlap_p)
{
    size_t all = (size_t)blocks_number(a) + (size_t)blocks_number(b), n;
    struct blocks_range *ranges;

    if (!blocks_extents_meet(a, b)) {
        *overlap_p = false;
        return DIST_OK;
    }
    if (!a->counts || !b->counts) {
        *overlap_p = a->counts ? blocks_meet_one(a, b) : blocks_meet_one(b, a);
        return DIST_OK;
    }
    ranges = malloc(all * sizeof(*ranges));
    if (!ranges)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory to compare %zu blocks", all);
    n = blocks_collect(a, 0, ranges);
    n += blocks_collect(b, 1, ranges + n);
    *overlap_p = blocks_sweep(ranges, n);
    free(ranges);
    return DIST_OK;
}

/* ---- checks ---- */

/* The number of blocks that a buffer has: none, one, or one for each rank. */
enum { NONE, ONE, ALL };

/* A buffer of a call, in bytes: all of it, and this rank's block in it. */
struct calls_extent {
    int blocks; /* NONE, ONE or ALL */
    size_t bytes;
    size_t own_offset, own_bytes;
};

/* A call on its way through the checks. */
struct calls_check {
    dist_group *group;
    struct dist_call *call;
    const char *name;
    size_t element;
    struct calls_extent in, out;
};

dist_status disti_call_bad(const dist_group *group, const char *name, const char *what)
{
    return disti_fail(DIST_ERR_INVALID_ARGUMENT, "rank %d, %s: %s", dist_get_rank(group), name,
                      what);
}

static dist_status calls_bad(const struct calls_check *check, const char *what)
{
    return disti_call_bad(check->group, check->name, what);
}

/* ---- what is no buffer ---- */

static dist_status calls_check_root(const struct calls_check *check)
{
    int root = check->call->root, last = check->group->world_size - 1;

    if (!disti_collective_rooted(check->call->collective) || (root >= 0 && root <= last))
        return DIST_OK;
    return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                      "rank %d, %s: root %d is not a rank of this group (0 to %d)",
                      check->group->rank, check->name, root, last);
}

static dist_status calls_check_peer(const struct calls_check *check)
{
    int peer = check->call->root, last = check->group->world_size - 1;
    bool any = peer == DIST_ANY_SOURCE && check->call->collective == DIST_COLL_RECV;

    if (!disti_collective_pair(check->call->collective))
        return DIST_OK;
    if (check->call->tag < 0)
        return calls_bad(check, "tag is negative: pass 0 to DIST_TAG_MAX");
    if (any || (peer >= 0 && peer <= last))
        return DIST_OK;
    return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                      "rank %d, %s: peer %d is not a rank of this group (0 to %d)",
                      check->group->rank, check->name, peer, last);
}

static dist_status calls_check_op(struct calls_check *check)
{
    struct dist_call *call = check->call;

    if (!disti_dtype_valid(call->dtype))
        return calls_bad(check, "dtype is not a value of dist_dtype");
    check->element = dist_dtype_size(call->dtype);
    return disti_algorithm_reduces(check->call->collective)
               ? disti_op_resolve(call->op, &call->op, &call->reduction)
               : DIST_OK;
}

/* ---- buffers ---- */

/* Which arrays of counts a v-form has on this rank. */
static bool calls_has_in_counts(const struct calls_check *check)
{
    return disti_collective_uneven(check->call->collective) && check->in.blocks == ALL;
}

static bool calls_has_out_counts(const struct calls_check *check)
{
    return disti_collective_uneven(check->call->collective) && check->out.blocks == ALL;
}

/* What this rank's IN or OUT has: NONE, ONE or ALL. */
static int call_blocks(const dist_group *group, const struct dist_call *call, bool out)
{
    const struct disti_collective *traits = &disti_collectives[call->collective];
    bool root_only = (out ? traits->out_at : traits->in_at) == DISTI_AT_ROOT;
    int blocks = out ? traits->out : traits->in;

    if (root_only && call->root != group->rank && !disti_collective_one_buffer(traits))
        return NONE;
    return blocks == DISTI_BLOCKS_NONE ? NONE : blocks == DISTI_BLOCKS_EACH ? ALL : ONE;
}

/* RECV: memory for the sender's rank, which nobody asked for. */
static dist_status calls_own_source(const struct calls_check *check, void **owned_p)
{
    if (check->call->collective != DIST_COLL_RECV || check->call->source)
        return DIST_OK;
    *owned_p = check->call->source = malloc(sizeof(int));
    return *owned_p ? DIST_OK : disti_fail(DIST_ERR_NO_MEMORY, "no memory to receive");
}

/*
 * A v-form's copies of its arrays, with the offsets filled in, in one malloc:
 *
 *   [in_counts][in_offsets][out_counts][out_offsets]
 */
static dist_status calls_own_counts(const struct calls_check *check, void **owned_p)
{
    size_t ranks = (size_t)check->group->world_size;
    const struct dist_call *call = check->call;

    if (calls_has_in_counts(check) && !call->in_counts)
        return calls_bad(check, check->out.blocks == ALL ? "in_counts is NULL" : "counts is NULL");
    if (calls_has_out_counts(check) && !call->out_counts)
        return calls_bad(check, check->in.blocks == ALL ? "out_counts is NULL" : "counts is NULL");
    *owned_p = malloc(4 * ranks * sizeof(size_t));
    if (!*owned_p)
        return disti_fail(DIST_ERR_NO_MEMORY, "rank %d, %s: no memory for the counts",
                          check->group->rank, check->name);
    return DIST_OK;
}

/*
 * Copies counts and offsets to `copy`; offsets NULL: one block after the other. Sums that overflow
 * wrap here, and calls_measure_v refuses them.
 */
static void calls_copy_layout(const size_t **counts, const size_t **offsets, size_t ranks,
                              size_t *copy)
{
    size_t next = 0;

    memcpy(copy, *counts, ranks * sizeof(*copy));
    for (size_t r = 0; r < ranks; r++) {
        copy[ranks + r] = *offsets ? (*offsets)[r] : next;
        next = copy[ranks + r] + copy[r];
    }
    *counts = copy;
    *offsets = copy + ranks;
}

/* Computes the extent of blocks with counts of their own. */
static dist_status calls_measure_v(const struct calls_check *check, const char *list,
                                   const size_t *counts, const size_t *offsets,
                                   struct calls_extent *extent)
{
    int own = check->group->rank;

    extent->bytes = 0;
    for (int r = 0; r < check->group->world_size; r++) {
        size_t end;

        if (!disti_add(offsets[r], counts[r], &end) || !disti_mul(end, check->element, &end) ||
            end > DISTI_BYTES_MAX)
            return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                              "rank %d, %s: %s[%d] is %zu elements of %s at offset %zu, which is "
                              "larger than memory (%zu bytes at most): pass the sizes of the "
                              "blocks (a negative number becomes a large unsigned one)",
                              own, check->name, list, r, counts[r],
                              dist_dtype_string(check->call->dtype), offsets[r], DISTI_BYTES_MAX);
        if (counts[r] && end > extent->bytes)
            extent->bytes = end;
    }
    extent->own_offset = offsets[own] * check->element;
    extent->own_bytes = counts[own] * check->element;
    return DIST_OK;
}

/* Computes the extent of blocks of one length. */
static dist_status calls_measure(const struct calls_check *check, size_t count,
                                 struct calls_extent *extent)
{
    const int ranks = extent->blocks == ALL ? check->group->world_size : 1;

    if (extent->blocks == NONE)
        return DIST_OK;
    if (!disti_mul(count, check->element, &extent->own_bytes) ||
        !disti_mul(extent->own_bytes, (size_t)ranks, &extent->bytes) ||
        extent->bytes > DISTI_BYTES_MAX)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "rank %d, %s: count is %zu elements of %s, and %d block(s) of it are "
                          "larger than memory (%zu bytes at most): pass the size of the buffer (a "
                          "negative number becomes a large unsigned one)",
                          check->group->rank, check->name, count,
                          dist_dtype_string(check->call->dtype), ranks, DISTI_BYTES_MAX);
    if (extent->blocks == ALL)
        extent->own_offset = (size_t)check->group->rank * extent->own_bytes;
    return DIST_OK;
}

/* What this rank gives or gets as one block, where arrays say it. */
static size_t call_own_count(const dist_group *group, const struct dist_call *call)
{
    if (call->collective == DIST_COLL_ALL_GATHER_V)
        return call->out_counts[group->rank];
    if (call->collective == DIST_COLL_REDUCE_SCATTER_V)
        return call->in_counts[group->rank];
    return call->count;
}

/* `list`: the name of the counts that a v-form has there. */
static dist_status calls_check_buffer(const struct calls_check *check, const char *side,
                                      const char *list, const void *memory, const size_t *counts,
                                      const size_t *offsets, struct calls_extent *extent)
{
    dist_status status =
        counts ? calls_measure_v(check, list, counts, offsets, extent)
               : calls_measure(check, call_own_count(check->group, check->call), extent);

    if (status != DIST_OK || !extent->bytes)
        return status;
    if (!memory)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "rank %d, %s: %s is NULL", check->group->rank,
                          check->name, side);
    if (!disti_addressable(memory, extent->bytes))
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "rank %d, %s: %s is %p, and %zu bytes from there extend past the end of "
                          "the address space: pass the address of a buffer of that size",
                          check->group->rank, check->name, side, memory, extent->bytes);
    return DIST_OK;
}

/* Where the one of in and out that is smaller lies in the other when that is in place. */
static dist_status calls_check_overlap(const struct calls_check *check)
{
    const struct dist_call *call = check->call;
    const char *in = call->in, *out = call->out;
    int ranks = check->group->world_size;
    const struct disti_blocks a = {
        in, call->in_counts, call->in_offsets, check->in.bytes, check->element, ranks};
    const struct disti_blocks b = {
        out, call->out_counts, call->out_offsets, check->out.bytes, check->element, ranks};
    bool overlap = false;
    dist_status status = DIST_OK;

    if (call->collective != DIST_COLL_BROADCAST)
        status = disti_blocks_overlap(&a, &b, &overlap);
    if (!overlap)
        return status;
    if (check->in.blocks == ALL && check->out.blocks == ALL)
        return calls_bad(
            check, "in and out overlap, but this call has no in-place form: pass separate buffers");
    if (in + (check->in.blocks == ALL ? check->in.own_offset : 0) ==
        out + (check->out.blocks == ALL ? check->out.own_offset : 0))
        return DIST_OK;
    if (check->in.blocks == check->out.blocks)
        return calls_bad(check, "in and out overlap but differ: pass the same pointer to work in "
                                "place, or separate buffers");
    return calls_bad(check, check->in.blocks == ALL
                                ? "out is inside in, but is not this rank's block: pass that "
                                  "block's address, or separate buffers"
                                : "in is inside out, but is not this rank's block: pass that "
                                  "block's address, or separate buffers");
}

static dist_status calls_check_buffers(struct calls_check *check)
{
    struct dist_call *call = check->call;
    bool both = check->in.blocks == ALL && check->out.blocks == ALL;
    dist_status status = calls_check_buffer(check, "in", both ? "in_counts" : "counts", call->in,
                                            call->in_counts, call->in_offsets, &check->in);

    if (status == DIST_OK)
        status = calls_check_buffer(check, "out", both ? "out_counts" : "counts", call->out,
                                    call->out_counts, call->out_offsets, &check->out);
    if (status != DIST_OK)
        return status;
    if (disti_collective_uneven(call->collective) &&
        disti_collective_rooted(check->call->collective) && call->root == check->group->rank) {
        size_t own = call->in_counts ? call->in_counts[call->root] : call->out_counts[call->root];

        if (own != call->count)
            return calls_bad(check, "count differs from this rank's entry in counts");
    }
    return calls_check_overlap(check);
}

/* ---- the whole ---- */

static dist_status calls_check_all(struct calls_check *check, void **owned_p)
{
    struct dist_call *call = check->call;
    dist_status status = calls_check_op(check);

    if (status == DIST_OK)
        status = calls_check_root(check);
    if (status == DIST_OK)
        status = calls_check_peer(check);
    if (status != DIST_OK)
        return status;
    check->in.blocks = call_blocks(check->group, call, false);
    check->out.blocks = call_blocks(check->group, call, true);
    if (disti_collective_uneven(call->collective)) {
        status = calls_own_counts(check, owned_p);
        if (status == DIST_OK) {
            size_t ranks = (size_t)check->group->world_size, *copy = *owned_p;

            if (calls_has_in_counts(check))
                calls_copy_layout(&call->in_counts, &call->in_offsets, ranks, copy);
            else
                call->in_counts = call->in_offsets = NULL;
            if (calls_has_out_counts(check))
                calls_copy_layout(&call->out_counts, &call->out_offsets, ranks, copy + 2 * ranks);
            else
                call->out_counts = call->out_offsets = NULL;
        }
    } else {
        status = calls_own_source(check, owned_p);
    }
    if (status == DIST_OK)
        status = calls_check_buffers(check);
    return status == DIST_OK ? disti_call_support(check->group, call) : status;
}

/*
 * RECV on a stream: the program goes on before it has ended, so the sender is said at once, and the
 * backend gets memory of the library's.
 */
static dist_status calls_detach_source(const dist_group *group, struct disti_start *start)
{
    if (start->call.collective != DIST_COLL_RECV || start->manner != DIST_MANNER_STREAM)
        return DIST_OK;
    if (start->call.root == DIST_ANY_SOURCE)
        return disti_fail(DIST_ERR_UNSUPPORTED,
                          "rank %d, recv: backend %s cannot receive from any source into device "
                          "memory: pass the source rank",
                          group->rank, group->backend->name);
    *start->call.source = start->call.root;
    if (start->owned)
        return DIST_OK;
    start->owned = start->call.source = malloc(sizeof(int));
    return start->owned ? DIST_OK : disti_fail(DIST_ERR_NO_MEMORY, "no memory to receive");
}

static void call_remember(dist_group *group, struct dist_call *call, size_t in_bytes,
                          size_t out_bytes);

dist_status disti_call_check(dist_group *group, const struct dist_call *call,
                             struct calls_form form, struct disti_start *start_p)
{
    struct disti_start start = {.call = *call, .name = form.name};
    struct calls_check check = {.group = group,
                                .call = &start.call,
                                .name = form.name ?: dist_collective_string(call->collective)};
    dist_status status = disti_group_check(group, check.name);

    if (status == DIST_OK && form.async && !form.work_p)
        status = calls_bad(&check, "work_p is NULL");
    if (status == DIST_OK)
        status = calls_check_all(&check, &start.owned);
    if (status == DIST_OK) {
        start.in_bytes = check.in.bytes;
        start.out_bytes = check.out.bytes;
        disti_call_locate(group, &start);
        status = calls_detach_source(group, &start);
    }
    if (status != DIST_OK) {
        free(start.owned);
        return status;
    }
    if (start.call.memory == DIST_MEMORY_HOST)
        call_remember(group, &start.call, check.in.bytes, check.out.bytes);
    *start_p = start;
    return DIST_OK;
}

static dist_status calls_run(dist_group *group, struct disti_start *start, struct calls_form form)
{
    if (form.async)
        return disti_work_post(group, start, form.work_p);
    if (start->manner != DIST_MANNER_STREAM)
        return disti_work_run(group, start);
    start->detached = start->call.waits = true;
    return disti_work_post(group, start, NULL);
}

dist_status disti_call(dist_group *group, const struct dist_call *call, struct calls_form form)
{
    struct disti_start start;
    dist_status status;

    status = disti_call_check(group, call, form, &start);
    if (status == DIST_OK && (form.async || !disti_batch_note(group, &start, &status))) {
        status = disti_stage(group, &start);
        if (status == DIST_OK)
            status = calls_run(group, &start, form);
        if (status != DIST_OK)
            disti_start_release(&start);
    }
    return status == DIST_OK ? status : disti_group_unstarted(group, status);
}

/* What a group's backend does not do is refused here, before anything is started. */

static dist_status calls_support_lacks(const dist_group *group, const struct dist_call *call)
{
    const char *name = dist_collective_string(call->collective);

    if (call->root == DIST_ANY_SOURCE && (group->backend->lacks & DIST_LACKS_ANY_SOURCE))
        return disti_fail(DIST_ERR_UNSUPPORTED,
                          "rank %d, %s: backend %s cannot receive from any source: pass the source "
                          "rank, or create a group with backend gloo for the call (dist_new_group)",
                          group->rank, name, group->backend->name);
    if (call->tag && (group->backend->lacks & DIST_LACKS_TAGS))
        return disti_fail(DIST_ERR_UNSUPPORTED,
                          "rank %d, %s: backend %s does not support tags: pass tag 0 instead of %d "
                          "(messages between two ranks stay in order), or create a group with "
                          "backend gloo for the call (dist_new_group)",
                          group->rank, name, group->backend->name, call->tag);
    return DIST_OK;
}

dist_status disti_call_support(const dist_group *group, const struct dist_call *call)
{
    const char *name = dist_collective_string(call->collective);
    bool reduces = disti_algorithm_reduces(call->collective);

    if ((!reduces || disti_op_fits(call->op, call->dtype)) &&
        group->backend->query(group->state, call->collective, call->dtype, call->op) == DIST_OK)
        return disti_collective_pair(call->collective) ? calls_support_lacks(group, call) : DIST_OK;
    if (!reduces)
        return disti_fail(DIST_ERR_UNSUPPORTED,
                          "rank %d: backend %s does not support %s for dtype %s", group->rank,
                          group->backend->name, name, dist_dtype_string(call->dtype));
    return disti_fail(DIST_ERR_UNSUPPORTED,
                      "rank %d: backend %s does not support %s for dtype %s with op %s",
                      group->rank, group->backend->name, name, dist_dtype_string(call->dtype),
                      dist_op_string(call->op));
}

/* A blocking call like one before. That one has been checked; and a short one ends as it is made:
 * no work, no queue, no clock. */

#define REPEAT_NONE DIST_COLL_COUNT

/* A good call, but for its buffers; the last of its collective in the group. */
struct disti_repeat {
    struct calls_kind kind; /* REPEAT_NONE: there is none yet */
    size_t count;
    uint64_t flight; /* what the flight recorder keeps of it */
    bool same;       /* in and out may be the same */
    size_t in_bytes, out_bytes;
    struct dist_call call;
    struct lists_kept lists; /* call's counts and offsets */
};

static struct calls_kind repeat_kind(const struct dist_call *call)
{
    return (struct calls_kind){call->collective, call->dtype, call->op, call->root};
}

/* Is it of that kind and length? Without lists that is all that matters, but for the buffers. */
static inline bool repeat_is_alike(const struct disti_repeat *repeat, struct calls_kind kind,
                                   size_t count)
{
    uint64_t these[2], those[2]; /* as a call passes them: in two registers */

    memcpy(these, &kind, sizeof(these));
    memcpy(those, &repeat->kind, sizeof(those));
    return repeat->count == count && these[0] == those[0] && these[1] == those[1];
}

static struct disti_repeat *repeat_new(void)
{
    struct disti_repeat *repeats = calloc(DIST_COLL_COUNT, sizeof(*repeats));

    for (int i = 0; repeats && i < DIST_COLL_COUNT; i++)
        repeats[i].kind.collective = REPEAT_NONE;
    return repeats;
}

static void repeat_set(const dist_group *group, const struct dist_call *call, size_t in_bytes,
                       size_t out_bytes, struct disti_repeat *repeat)
{
    repeat->kind = repeat_kind(call);
    repeat->count = call->count;
    repeat->flight = disti_flight_what(call, DISTI_FLIGHT_ENDED);
    repeat->same = call->in == call->out;
    repeat->in_bytes = in_bytes;
    repeat->out_bytes = out_bytes;
    repeat->call = *call;
    repeat->call.waits = true;
    lists_keep(&repeat->call, &repeat->lists, group->world_size);
}

/* The number of the last one alike, or a new one. */
static uint32_t repeat_number(dist_group *group, const struct disti_repeat *repeat,
                              const struct dist_call *call)
{
    if (!disti_collective_uneven(call->collective) &&
        repeat_is_alike(repeat, repeat_kind(call), call->count))
        return repeat->call.repeats;
    return ++group->remembered ?: ++group->remembered;
}

/* Remembers and numbers a checked call with the bytes of IN and OUT, unless the group is
 * busy. */
static void call_remember(dist_group *group, struct dist_call *call, size_t in_bytes,
                          size_t out_bytes)
{
    struct disti_repeat *repeat;

    if (disti_collective_pair(call->collective) || call->reduction || call->list ||
        group->numerics || !group->host_only || !group->backend->at_once ||
        !disti_lock_try(&group->lock))
        return;
    if (!group->repeats)
        group->repeats = repeat_new();
    /* Lists are not overwritten while a work may refer to them. */
    if (group->repeats && (!disti_collective_uneven(call->collective) ||
                           (group->world_size <= LISTS_RANKS && !group->works))) {
        repeat = &group->repeats[call->collective];
        call->repeats = repeat_number(group, repeat, call);
        repeat_set(group, call, in_bytes, out_bytes, repeat);
    }
    disti_lock_release(&group->lock);
}

/* ---- who may not run a call here and now ---- */

/* In this thread, and in all: without one of them nobody asks for the thread's own. */
static _Thread_local int repeat_holds;
static atomic_int repeat_all_holds;

void disti_call_hold(int by)
{
    repeat_holds += by;
    atomic_fetch_add_explicit(&repeat_all_holds, by, memory_order_relaxed);
}

/* ---- once more ---- */

/*
 *              the last of its collective; no works, and nobody drives
 *    called ----------------------------------------------------------> at_once ----> OK
 *       |     |                                                           |
 *       |     | works are pending            not all ranks are there yet, |
 *       |     |                              or something is wrong        |
 *       v     v                                                           |
 *   checked  a work, which waits for its turn  <--------------------------'
 */

/* Is it that call, and are the buffers as good as those that were checked? */
static inline bool repeat_is(const struct disti_repeat *repeat, struct calls_kind kind,
                             const void *in, const void *out, size_t count)
{
    uintptr_t from = (uintptr_t)in, to = (uintptr_t)out;

    if (!repeat_is_alike(repeat, kind, count))
        return false;
    if ((!in && repeat->in_bytes) || (!out && repeat->out_bytes))
        return false;
    return from == to ? repeat->same
                      : to - from >= repeat->in_bytes && from - to >= repeat->out_bytes;
}

/* Apart: a call is large, and one that is repeated is not to make room for it. */
__attribute__((cold, noinline)) static dist_status
repeat_not(dist_group *group, struct calls_kind kind, const void *in, void *out, size_t count)
{
    const struct dist_call call = disti_call_of(kind, in, out, count);

    return disti_call(group, &call, calls_blocking);
}

/* With the lock held, which is given back. Apart: a work is large too. */
__attribute__((cold, noinline)) static dist_status repeat_wait(struct dist_group *group,
                                                               const struct dist_call *call)
{
    struct disti_work work;

    disti_work_fill_call(group, call, DISTI_WORK_BLOCKING, &work);
    disti_log_use(disti_drive_state(&group->drive) == DISTI_DRIVE_CLOSED ? NULL : group->log);
    return disti_work_wait_here(&work);
}

/* The last of its collective, with the lock; NULL, without it: there is none, or the group is busy
 * or over. */
static inline struct disti_repeat *repeat_take(dist_group *group, dist_collective collective)
{
    if (!group || !disti_lock_try(&group->lock))
        return NULL;
    if (group->repeats && !atomic_load_explicit(&group->over, memory_order_relaxed))
        return &group->repeats[collective];
    disti_lock_release(&group->lock);
    return NULL;
}

/* With the lock held, which is given back. */
static inline dist_status repeat_run(dist_group *group, struct disti_repeat *repeat, const void *in,
                                     void *out)
{
    repeat->call.in = in;
    repeat->call.out = out;
    repeat->call.sequence = group->sequence;
    disti_last_call_note(group->number, &repeat->call);
    disti_flight_ended(&group->flight, repeat->flight, repeat->count, group->sequence);
    if (group->works || disti_drive_state(&group->drive) != DISTI_DRIVE_IDLE ||
        group->backend->at_once(group->state, &repeat->call) != DIST_OK)
        return repeat_wait(group, &repeat->call);
    group->sequence++;
    disti_lock_release(&group->lock);
    return DIST_OK;
}

static inline dist_status repeat_try(dist_group *group, struct calls_kind kind, const void *in,
                                     void *out, size_t count)
{
    struct disti_repeat *repeat = repeat_take(group, kind.collective);

    if (!repeat)
        return repeat_not(group, kind, in, out, count);
    if (repeat_is(repeat, kind, in, out, count))
        return repeat_run(group, repeat, in, out);
    disti_lock_release(&group->lock);
    return repeat_not(group, kind, in, out, count);
}

/* One thread's calls are held; this one's too? */
__attribute__((cold, noinline)) static bool repeat_is_held(void)
{
    return repeat_holds;
}

dist_status disti_call_even(dist_group *group, struct calls_kind kind, const void *in, void *out,
                            size_t count)
{
    if (atomic_load_explicit(&repeat_all_holds, memory_order_relaxed) && repeat_is_held())
        return repeat_not(group, kind, in, out, count);
    return repeat_try(group, kind, in, out, count);
}

/* ---- the same with lists ---- */

__attribute__((cold, noinline)) static dist_status
repeat_uneven_not(dist_group *group, struct calls_kind kind, const void *in, void *out,
                  size_t count, const struct calls_lists *lists)
{
    const struct dist_call call = disti_call_with(kind, in, out, count, lists);

    return disti_call(group, &call, calls_blocking);
}

static inline dist_status repeat_try_uneven(dist_group *group, struct calls_kind kind,
                                            const void *in, void *out, size_t count,
                                            const struct calls_lists *lists)
{
    struct disti_repeat *repeat = repeat_take(group, kind.collective);

    if (!repeat)
        return repeat_uneven_not(group, kind, in, out, count, lists);
    if (repeat_is(repeat, kind, in, out, count) &&
        lists_are_kept(lists, &repeat->call, &repeat->lists, group->world_size))
        return repeat_run(group, repeat, in, out);
    disti_lock_release(&group->lock);
    return repeat_uneven_not(group, kind, in, out, count, lists);
}

dist_status disti_call_uneven(dist_group *group, struct calls_kind kind, const void *in, void *out,
                              size_t count, const struct calls_lists *lists)
{
    if (atomic_load_explicit(&repeat_all_holds, memory_order_relaxed) && repeat_is_held())
        return repeat_uneven_not(group, kind, in, out, count, lists);
    return repeat_try_uneven(group, kind, in, out, count, lists);
}

/* DIST_CHECK_NUMERICS: who gives a NaN or an infinity to a call first, and who gets one. */

#define NUMERICS_FOUND_NOTHING SIZE_MAX

/* The magnitude's bits of an element at any address; the machine is little-endian. */
static inline uint64_t numerics_magnitude(const char *at, size_t bytes)
{
    uint64_t bits = 0;

    memcpy(&bits, at, bytes);
    return bits & (UINT64_MAX >> (65 - 8 * bytes));
}

/* The index of the first NaN or infinity in one block. */
static size_t numerics_find(const char *block, size_t count, dist_dtype dtype)
{
    const uint64_t special = disti_dtype_formats[dtype].special;
    const size_t bytes = dist_dtype_size(dtype);

    for (size_t i = 0; i < count; i++) {
        if (numerics_magnitude(block + i * bytes, bytes) >= special)
            return i;
    }
    return NUMERICS_FOUND_NOTHING;
}

/* In all blocks, in the order of the ranks: an index in the buffer. */
static size_t numerics_find_in(const struct disti_work *work, bool out)
{
    const struct dist_call *call = &work->call;
    const int kind = call_blocks(work->group, call, out);
    const int blocks = kind == 2 ? work->group->world_size : kind;
    const size_t *counts = out ? call->out_counts : call->in_counts;
    const size_t *offsets = out ? call->out_offsets : call->in_offsets;
    const size_t own = call_own_count(work->group, call);
    const char *buffer = out ? call->out : call->in;

    for (int b = 0; b < blocks; b++) {
        const size_t from = counts ? offsets[b] : (size_t)b * own;
        const size_t count = counts ? counts[b] : own;
        const size_t at =
            numerics_find(buffer + from * dist_dtype_size(call->dtype), count, call->dtype);

        if (at != NUMERICS_FOUND_NOTHING)
            return from + at;
    }
    return NUMERICS_FOUND_NOTHING;
}

static void numerics_tell(const struct disti_work *work, bool out, size_t at)
{
    const size_t bytes = dist_dtype_size(work->call.dtype);
    const char *element = (const char *)(out ? work->call.out : work->call.in) + at * bytes;
    const uint64_t mantissa =
        UINT64_MAX >> (65 - 8 * bytes + disti_dtype_formats[work->call.dtype].exponent);
    const bool nan = numerics_magnitude(element, bytes) & mantissa;
    char call[GROUP_CALL], name[GROUP_NAME];

    disti_notice("%s: %s %s %s at element %zu (DIST_CHECK_NUMERICS)",
                 disti_failure_call(work, call), disti_group_name(work->group, name),
                 out ? "received" : "passed", nan ? "NaN" : "infinity", at);
}

/* Tells of the first of several calls in a row. Only the host's memory can be read. */
static void numerics_look(const struct disti_work *work, bool out)
{
    size_t at = NUMERICS_FOUND_NOTHING;

    if (work->call.memory != DIST_MEMORY_HOST || !disti_dtype_is_float(work->call.dtype))
        return;
    at = numerics_find_in(work, out);
    if (at != NUMERICS_FOUND_NOTHING && !work->group->strange[out])
        numerics_tell(work, out, at);
    work->group->strange[out] = at != NUMERICS_FOUND_NOTHING;
}

/* What lies in memory that a broadcast is about to write is nobody's gift. */
void disti_numerics_given(const struct disti_work *work)
{
    if (work->call.collective != DIST_COLL_BROADCAST || work->call.root == work->group->rank)
        numerics_look(work, false);
}

/* A receive may get less than its buffer holds. */
void disti_numerics_got(const struct disti_work *work)
{
    if (work->call.collective != DIST_COLL_RECV)
        numerics_look(work, true);
}
