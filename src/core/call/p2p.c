/* SPDX-License-Identifier: BSD-3-Clause */
/* The public calls from point to point. */
#include "core/call/calls.h"

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
