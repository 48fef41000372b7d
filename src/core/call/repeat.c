/* SPDX-License-Identifier: BSD-3-Clause */
/* A call like one before, which has been checked: the check of a short call costs more than the
 * call. */
#include "core/call/calls.h"

#include "base/collective.h"

#include <string.h>

/* A good call, but for its buffers. */
struct repeat {
    const dist_group *group; /* its handle is never used again for another; NULL: none */
    struct calls_kind kind;
    struct dist_call call;
    size_t in_bytes, out_bytes;
    bool same; /* in and out may be the same */
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

void disti_call_remember(const dist_group *group, const struct dist_call *call, size_t in_bytes,
                         size_t out_bytes)
{
    struct repeat *repeat = &repeats.of[call->collective];

    repeat->group = NULL;
    if (disti_collective_uneven(call->collective) || disti_collective_pair(call->collective) ||
        call->reduction || call->list || !group->host_only)
        return;
    repeat->kind = (struct calls_kind){
        .collective = call->collective, .dtype = call->dtype, .op = call->op, .root = call->root};
    repeat->call = *call;
    repeat->call.waits = true;
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
