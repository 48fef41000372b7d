/* SPDX-License-Identifier: BSD-3-Clause */
/* The counts and offsets of a v-form, kept and compared with those of the next. */
#ifndef DISTI_CORE_CALL_LISTS_H
#define DISTI_CORE_CALL_LISTS_H

#include "core/call/calls.h"

#include <string.h>

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

#endif
