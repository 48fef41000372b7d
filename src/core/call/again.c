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
} again;

void disti_call_remember(const dist_group *group, const struct dist_call *call, size_t in_bytes,
                         size_t out_bytes)
{
    again.group = NULL;
    if (disti_collective_uneven(call->collective) || disti_collective_pair(call->collective) ||
        call->reduction || !in_bytes || !out_bytes)
        return;
    again.collective = call->collective;
    again.dtype = call->dtype;
    again.op = call->op;
    again.root = call->root;
    again.count = call->count;
    again.in_bytes = in_bytes;
    again.out_bytes = out_bytes;
    again.same = call->in == call->out;
    again.group = group;
}

static bool again_apart(const char *in, const char *out)
{
    return (uintptr_t)in + again.in_bytes <= (uintptr_t)out ||
           (uintptr_t)out + again.out_bytes <= (uintptr_t)in;
}

bool disti_call_again(const dist_group *group, const struct dist_call *call)
{
    return again.group == group && group && group->plain && again.count == call->count &&
           again.collective == call->collective && again.dtype == call->dtype &&
           again.op == call->op && again.root == call->root && call->in && call->out &&
           (call->in == call->out ? again.same : again_apart(call->in, call->out)) &&
           !atomic_load_explicit(&group->destroyed, memory_order_acquire);
}
