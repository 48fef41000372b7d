/* SPDX-License-Identifier: BSD-3-Clause */
/* A call like one before, which has been checked: the check of a short call costs more than the
 * call. */
#include "core/call/calls.h"

#include "base/collective.h"

#include <string.h>

/* A v-form of more ranks is checked each time. */
#define REPEAT_RANKS 16

/* A good call, but for its buffers. */
struct repeat {
    const dist_group *group; /* its handle is never used again for another; NULL: none */
    struct calls_kind kind;
    struct dist_call call;
    size_t in_bytes, out_bytes;
    bool same;                     /* in and out may be the same */
    size_t lists[4][REPEAT_RANKS]; /* what call's counts and offsets point to */
};

/* The last of each collective in this thread. */
static _Thread_local struct repeats {
    int held; /* none is to run here and now */
    struct repeat of[DIST_COLL_COUNT];
} repeats;

/* Asked for once a call: in a shared library the address takes a function of the linker's. */
__attribute__((noinline)) static struct repeats *repeat_mine(void)
{
    return &repeats;
}

static bool repeat_may(const dist_group *group, const struct dist_call *call)
{
    if (disti_collective_pair(call->collective) || call->reduction || call->list ||
        !group->host_only)
        return false;
    /* Lists are not written over while a call that refers to them may be under way. */
    return !disti_collective_uneven(call->collective) ||
           (group->world_size <= REPEAT_RANKS && !repeats.held);
}

static void repeat_keep(const size_t **list, size_t *kept, int ranks)
{
    if (!*list)
        return;
    memcpy(kept, *list, (size_t)ranks * sizeof(*kept));
    *list = kept;
}

void disti_call_remember(const dist_group *group, const struct dist_call *call, size_t in_bytes,
                         size_t out_bytes)
{
    struct repeat *repeat = &repeats.of[call->collective];

    repeat->group = NULL;
    if (!repeat_may(group, call))
        return;
    repeat->kind = (struct calls_kind){
        .collective = call->collective, .dtype = call->dtype, .op = call->op, .root = call->root};
    repeat->call = *call;
    repeat->call.waits = true;
    repeat_keep(&repeat->call.in_counts, repeat->lists[0], group->world_size);
    repeat_keep(&repeat->call.in_offsets, repeat->lists[1], group->world_size);
    repeat_keep(&repeat->call.out_counts, repeat->lists[2], group->world_size);
    repeat_keep(&repeat->call.out_offsets, repeat->lists[3], group->world_size);
    repeat->in_bytes = in_bytes;
    repeat->out_bytes = out_bytes;
    repeat->same = call->in == call->out;
    repeat->group = group;
}

void disti_call_hold(int by)
{
    repeats.held += by;
}

/* Are the buffers as good as those that were checked? */
static bool repeat_fits(const struct repeat *repeat, const char *in, const char *out)
{
    if ((!in && repeat->in_bytes) || (!out && repeat->out_bytes))
        return false;
    if (in == out)
        return repeat->same;
    return (uintptr_t)in + repeat->in_bytes <= (uintptr_t)out ||
           (uintptr_t)out + repeat->out_bytes <= (uintptr_t)in || !repeat->in_bytes ||
           !repeat->out_bytes;
}

struct dist_call *disti_call_repeat(const dist_group *group, struct calls_kind kind, const void *in,
                                    void *out, size_t count)
{
    struct repeats *mine = repeat_mine();
    struct repeat *repeat = &mine->of[kind.collective];
    struct dist_call *call = &repeat->call;

    if (mine->held || repeat->group != group || !group || call->count != count ||
        memcmp(&repeat->kind, &kind, sizeof(kind)) != 0 || !repeat_fits(repeat, in, out) ||
        atomic_load_explicit(&group->destroyed, memory_order_acquire))
        return NULL;
    call->in = in;
    call->out = out;
    return call;
}

/* Are the program's lists those that were kept, if they matter here? */
static bool repeat_same_lists(const size_t *counts, const size_t *offsets,
                              const size_t *kept_counts, const size_t *kept_offsets, int ranks)
{
    size_t next = 0;

    if (!kept_counts)
        return true;
    for (int r = 0; counts && r < ranks; r++) {
        if (counts[r] != kept_counts[r] || (offsets ? offsets[r] : next) != kept_offsets[r])
            return false;
        next = kept_offsets[r] + kept_counts[r];
    }
    return counts;
}

struct dist_call *disti_call_repeat_lists(const dist_group *group, const struct dist_call *call)
{
    const struct calls_kind kind = {
        .collective = call->collective, .dtype = call->dtype, .op = call->op, .root = call->root};
    struct dist_call *kept = disti_call_repeat(group, kind, call->in, call->out, call->count);

    return kept &&
                   repeat_same_lists(call->in_counts, call->in_offsets, kept->in_counts,
                                     kept->in_offsets, group->world_size) &&
                   repeat_same_lists(call->out_counts, call->out_offsets, kept->out_counts,
                                     kept->out_offsets, group->world_size)
               ? kept
               : NULL;
}
