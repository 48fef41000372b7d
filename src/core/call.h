/* SPDX-License-Identifier: BSD-3-Clause */
/* Arguments of calls: checks, blocks, lists of buffers, operations; private to the core. */
#ifndef DISTI_CORE_CALL_H
#define DISTI_CORE_CALL_H

#include "core/group.h"

#include <dist/dist.h>
#include <dist/transport.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/*
 * How the caller wants it: work_p is what it passed as such, and means something only with async.
 * Without async the call blocks, or is noted while dist_group_start is open in this thread.
 */
struct calls_form {
    bool async;
    dist_work **work_p;
    const char *name; /* of the function, for errors; NULL: as the collective */
};

static const struct calls_form calls_blocking = {.async = false};

static inline struct calls_form calls_async(dist_work **work_p)
{
    return (struct calls_form){.async = true, .work_p = work_p};
}

/* What a call is, but for its buffers and its length; root 0 where there is none. */
struct calls_kind {
    dist_collective collective;
    dist_dtype dtype;
    dist_op op;
    int root;
};

/*
 * Checks a call as the program made it, `op` as the program gave it, offsets NULL for blocks one
 * after the other; then starts it in the wanted form. Arrays are copied.
 */
dist_status disti_call(dist_group *group, const struct dist_call *call, struct calls_form form);

/*
 * The first half of it. On success *start_p is what is to be started, and the memory that it refers
 * to is to be freed when the call has ended.
 */
dist_status disti_call_check(dist_group *group, const struct dist_call *call,
                             struct calls_form form, struct disti_start *start_p);

/*
 * stage.c: where are the buffers of this checked call, and how is it to be done? Sets memory and
 * stream of the call, and manner.
 */
void disti_call_locate(struct dist_group *group, struct disti_start *start);
/*
 * Before the start of a call that is to be STAGED (else nothing): copies its data to host memory,
 * and from then on the call is about the copies, and owns them. Blocks until the device has got
 * there.
 */
dist_status disti_stage(const struct dist_group *group, struct disti_start *start);
/* Copies bytes, of which one side may be memory of a device; after what is on the group's stream.
 */
dist_status disti_stage_copy(const struct dist_group *group, void *to, const void *from,
                             size_t bytes);
/* As disti_stage, without data: they are copied each time a persistent call starts. */
dist_status disti_stage_empty(const struct dist_group *group, struct disti_start *start);

/* A blocking call of blocks of one length, or of none: run as the last of its collective was, or
 * checked. */
dist_status disti_call_even(dist_group *group, struct calls_kind kind, const void *in, void *out,
                            size_t count);

/* What a v-form has beside that; NULL where it has none. */
struct calls_lists {
    const size_t *in_counts, *in_offsets, *out_counts, *out_offsets;
};

/* The same for a v-form, whose lists are compared. */
dist_status disti_call_uneven(dist_group *group, struct calls_kind kind, const void *in, void *out,
                              size_t count, const struct calls_lists *lists);

static inline struct dist_call disti_call_of(struct calls_kind kind, const void *in, void *out,
                                             size_t count)
{
    return (struct dist_call){.collective = kind.collective,
                              .in = in,
                              .out = out,
                              .count = count,
                              .dtype = kind.dtype,
                              .op = kind.op,
                              .root = kind.root};
}

static inline struct dist_call disti_call_with(struct calls_kind kind, const void *in, void *out,
                                               size_t count, const struct calls_lists *lists)
{
    struct dist_call call = disti_call_of(kind, in, out, count);

    call.in_counts = lists->in_counts;
    call.in_offsets = lists->in_offsets;
    call.out_counts = lists->out_counts;
    call.out_offsets = lists->out_offsets;
    return call;
}

/* The same in any form. */
static inline dist_status calls_even(dist_group *group, struct calls_kind kind, const void *in,
                                     void *out, size_t count, struct calls_form form)
{
    const struct dist_call call = disti_call_of(kind, in, out, count);

    return form.async ? disti_call(group, &call, form)
                      : disti_call_even(group, kind, in, out, count);
}

static inline dist_status calls_uneven(dist_group *group, struct calls_kind kind, const void *in,
                                       void *out, size_t count, const struct calls_lists *lists,
                                       struct calls_form form)
{
    if (form.async) {
        const struct dist_call call = disti_call_with(kind, in, out, count, lists);

        return disti_call(group, &call, form);
    }
    return disti_call_uneven(group, kind, in, out, count, lists);
}

/* By 1 before and by -1 after a time in which this thread's calls are not to run here and now:
 * while they are noted, and in a function of the program where they may not wait. */
void disti_call_hold(int by);

/* calls.c: does the group's backend do this, checked but for that? Else UNSUPPORTED. */
dist_status disti_call_support(const dist_group *group, const struct dist_call *call);

/* ERR_INVALID_ARGUMENT: "rank 1, reduce: WHAT". */
dist_status disti_call_bad(const dist_group *group, const char *name, const char *what);

/* stage.c: notes a checked call if dist_group_start is open, and takes what belongs to it. False:
 * it is not. *status_p: could it be noted? */
bool disti_batch_note(dist_group *group, const struct disti_start *start, dist_status *status_p);
/* The same for a work that has been started: dist_group_end will wait for it. */
bool disti_batch_note_work(dist_group *group, dist_work *work, dist_status *status_p);
bool disti_batch_is_open(void);
/* Starts what is noted, so that what the caller starts next comes after it. */
void disti_batch_start(void);

/* The counts and offsets of a v-form, kept and compared with those of the next. */

/* Those of more ranks are not kept. */
#define LISTS_RANKS 16

struct lists_kept {
    size_t in_counts[LISTS_RANKS], in_offsets[LISTS_RANKS];
    size_t out_counts[LISTS_RANKS], out_offsets[LISTS_RANKS];
    bool in_packed, out_packed; /* blocks lie one behind the other, as where no offsets are given */
};

static inline void lists_keep_one(const size_t **list, size_t *kept, int ranks)
{
    if (!*list)
        return;
    memcpy(kept, *list, (size_t)ranks * sizeof(*kept));
    *list = kept;
}

static inline bool lists_are_packed(const size_t *counts, const size_t *offsets, int ranks)
{
    size_t next = 0;

    for (int r = 0; counts && r < ranks; r++) {
        if (offsets[r] != next)
            return false;
        next += counts[r];
    }
    return true;
}

/* Copies those of a checked call, which refers to the copies from then on. */
static inline void lists_keep(struct dist_call *call, struct lists_kept *kept, int ranks)
{
    lists_keep_one(&call->in_counts, kept->in_counts, ranks);
    lists_keep_one(&call->in_offsets, kept->in_offsets, ranks);
    lists_keep_one(&call->out_counts, kept->out_counts, ranks);
    lists_keep_one(&call->out_offsets, kept->out_offsets, ranks);
    kept->in_packed = lists_are_packed(call->in_counts, call->in_offsets, ranks);
    kept->out_packed = lists_are_packed(call->out_counts, call->out_offsets, ranks);
}

static inline bool lists_same(const size_t *list, const size_t *kept, int ranks)
{
    size_t differ = 0;

    for (int r = 0; r < ranks; r++)
        differ |= list[r] ^ kept[r];
    return !differ;
}

static inline bool lists_are_kept_side(const size_t *counts, const size_t *offsets,
                                       const size_t *kept_counts, const size_t *kept_offsets,
                                       bool packed, int ranks)
{
    if (!kept_counts) /* this rank has no lists there, or they do not matter */
        return true;
    if (!counts || !lists_same(counts, kept_counts, ranks))
        return false;
    return offsets ? lists_same(offsets, kept_offsets, ranks) : packed;
}

/* Are the program's lists those that `call` has, if they matter here? */
static inline bool lists_are_kept(const struct calls_lists *lists, const struct dist_call *call,
                                  const struct lists_kept *kept, int ranks)
{
    return lists_are_kept_side(lists->in_counts, lists->in_offsets, call->in_counts,
                               call->in_offsets, kept->in_packed, ranks) &&
           lists_are_kept_side(lists->out_counts, lists->out_offsets, call->out_counts,
                               call->out_offsets, kept->out_packed, ranks);
}

/* Do the blocks of two buffers overlap? Not their extents: blocks may lie in others' gaps. */

/* A buffer: its first `bytes`, or blocks in these with gaps between them. */
struct disti_blocks {
    const void *memory;
    const size_t *counts, *offsets; /* elements, by block; NULL: all is one block */
    size_t bytes;                   /* to the end of the last block; 0: there is no buffer */
    size_t element;                 /* bytes */
    int blocks;
};

/*
 * Is there a byte in a block of a and in one of b? Blocks of the same buffer may share bytes. If
 * the buffers do not lie in each other it costs nothing, else O(n) steps if one of them is one
 * block, and O(n log n) if not. ERR_NO_MEMORY.
 */
dist_status disti_blocks_overlap(const struct disti_blocks *a, const struct disti_blocks *b,
                                 bool *overlap_p);

/* Reduction operations that the program created. */

/*
 * What the program's op is: a built-in one is itself, and *reduction_p NULL; a created one is
 * PREMUL_SUM or USER, and its reduction stays where it is until it is freed. ERR_INVALID_ARGUMENT
 * for one that was freed, for nonsense, and for PREMUL_SUM and USER by themselves. Thread-safe.
 */
dist_status disti_op_resolve(dist_op op, dist_op *kind_p,
                             const struct dist_reduction **reduction_p);

#endif
