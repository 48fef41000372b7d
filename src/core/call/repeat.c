/* SPDX-License-Identifier: BSD-3-Clause */
/* A call like the one before, which has been checked: the check of a short call costs more than
 * the call. */
#include "core/call/calls.h"

#include "base/collective.h"

/* The last good call of this thread, but for its buffers. */
static _Thread_local struct {
    const dist_group *group; /* its handle is never used again for another */
    dist_collective collective;
    dist_dtype dtype;
    dist_op op;
    int root;
    size_t count, in_bytes, out_bytes;
    bool same; /* in and out may be the same */
} repeat;

void disti_call_remember(const dist_group *group, const struct dist_call *call, size_t in_bytes,
                         size_t out_bytes)
{
    repeat.group = NULL;
    if (disti_collective_uneven(call->collective) || disti_collective_pair(call->collective) ||
        call->reduction || !in_bytes || !out_bytes)
        return;
    repeat.collective = call->collective;
    repeat.dtype = call->dtype;
    repeat.op = call->op;
    repeat.root = call->root;
    repeat.count = call->count;
    repeat.in_bytes = in_bytes;
    repeat.out_bytes = out_bytes;
    repeat.same = call->in == call->out;
    repeat.group = group;
}

static bool repeat_apart(const char *in, const char *out)
{
    return (uintptr_t)in + repeat.in_bytes <= (uintptr_t)out ||
           (uintptr_t)out + repeat.out_bytes <= (uintptr_t)in;
}

bool disti_call_repeat(const dist_group *group, const struct dist_call *call)
{
    return repeat.group == group && group && group->host_only && repeat.count == call->count &&
           repeat.collective == call->collective && repeat.dtype == call->dtype &&
           repeat.op == call->op && repeat.root == call->root && call->in && call->out &&
           (call->in == call->out ? repeat.same : repeat_apart(call->in, call->out)) &&
           !atomic_load_explicit(&group->destroyed, memory_order_acquire);
}
