/* SPDX-License-Identifier: BSD-3-Clause */
/* Cases of nccl_streams: sends and receives, and all kinds of memory. */
#include "nccl_streams.h"

/* Batches around the ring; half of the ranks post the send first, half the receive. */
void streams_batched(const struct streams *s)
{
    int next = (s->rank + 1) % s->ranks, previous = (s->rank + s->ranks - 1) % s->ranks;
    float *x = streams_vector(s, COUNT), *y = streams_vector(s, COUNT);

    for (int round = 0; round < 3; round++) {
        bool send_first = (s->rank + round) % 2 == 0;

        streams_fill(s, x, COUNT, (float)(s->rank + round), s->a);
        DONE(dist_group_start());
        if (send_first)
            DONE(dist_send(s->group, x, COUNT, DIST_FLOAT32, next, 0));
        DONE(dist_recv(s->group, y, COUNT, DIST_FLOAT32, previous, 0, NULL));
        if (!send_first)
            DONE(dist_send(s->group, x, COUNT, DIST_FLOAT32, next, 0));
        DONE(dist_group_end());
        streams_fill(s, x, COUNT, -1, s->a); /* the old values have been sent already */
        CHECK(streams_is(s, y, COUNT, (float)(previous + round), 1, s->a));
    }
    streams_drop(s, x);
    streams_drop(s, y);
}

/* Without batches; every rank posts the send first. The requests are waited for, or left pending
 * for a while and then tested, or tested. */
void streams_unbatched(const struct streams *s)
{
    int next = (s->rank + 1) % s->ranks, previous = (s->rank + s->ranks - 1) % s->ranks;
    float *x = streams_vector(s, COUNT), *y = streams_vector(s, COUNT);

    for (int round = 0; round < 3; round++) {
        dist_work *send, *recv;
        int source = -1;

        streams_fill(s, x, COUNT, (float)(s->rank + round), s->a);
        DONE(dist_isend(s->group, x, COUNT, DIST_FLOAT32, next, 0, &send));
        DONE(dist_irecv(s->group, y, COUNT, DIST_FLOAT32, previous, 0, &source, &recv));
        if (round == 1)
            streams_sleep_us(20000);
        for (bool done = round != 2; !done;)
            DONE(dist_test(recv, &done));
        DONE(dist_wait(send));
        DONE(dist_wait(recv));
        CHECK(source == previous);
        streams_fill(s, x, COUNT, -1, s->a);
        CHECK(streams_is(s, y, COUNT, (float)(previous + round), 1, s->a));
    }
    streams_drop(s, x);
    streams_drop(s, y);
}

/* Messages to itself: send first, receive first, on two streams, and both in a batch. */
void streams_to_itself(const struct streams *s)
{
    float *x = streams_vector(s, COUNT), *y = streams_vector(s, COUNT);
    dist_work *work;

    streams_fill(s, x, COUNT, 1, s->a);
    DONE(dist_send(s->group, x, COUNT, DIST_FLOAT32, s->rank, 0));
    streams_fill(s, x, COUNT, 2, s->a);
    DONE(dist_recv(s->group, y, COUNT, DIST_FLOAT32, s->rank, 0, NULL));
    CHECK(streams_is(s, y, COUNT, 1, 1, s->a));

    DONE(dist_irecv(s->group, y, COUNT, DIST_FLOAT32, s->rank, 0, NULL, &work));
    DONE(dist_send(s->group, x, COUNT, DIST_FLOAT32, s->rank, 0));
    DONE(dist_wait(work));
    CHECK(streams_is(s, y, COUNT, 2, 1, s->a));

    streams_fill(s, x, COUNT, 4, s->a);
    DONE(dist_isend(s->group, x, COUNT, DIST_FLOAT32, s->rank, 0, &work));
    DONE(dist_recv(s->group, y, COUNT, DIST_FLOAT32, s->rank, 0, NULL));
    CHECK(streams_is(s, y, COUNT, 4, 1, s->a));
    DONE(dist_wait(work));

    streams_fill(s, x, COUNT, 3, s->a);
    DONE(dist_group_start());
    DONE(dist_recv(s->group, y, COUNT, DIST_FLOAT32, s->rank, 0, NULL));
    DONE(dist_send(s->group, x, COUNT, DIST_FLOAT32, s->rank, 0));
    DONE(dist_group_end());
    CHECK(streams_is(s, y, COUNT, 3, 1, s->a));
    CHECK(dist_recv(s->group, y, COUNT, DIST_FLOAT32, s->rank, 0, NULL) ==
          DIST_ERR_INVALID_ARGUMENT);
    streams_drop(s, x);
    streams_drop(s, y);
}

/* dist_alloc returns zeroed, page-aligned device memory. */
void streams_allocated(const struct streams *s)
{
    static const size_t counts[] = {1, COUNT, (size_t)1 << 20};

    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        const size_t bytes = counts[i] * sizeof(float);
        void *memory;

        DONE(dist_alloc(s->group, bytes, &memory));
        CHECK(disti_driver_owns(s->driver, memory));
        CHECK((uintptr_t)memory % 4096 == 0);
        CHECK(bytes < (size_t)2 << 20 || (uintptr_t)memory % ((size_t)2 << 20) == 0);
        CHECK(streams_is(s, memory, counts[i], 0, 0, s->b));
        streams_fill(s, memory, counts[i], (float)(s->rank + 1), s->a);
        DONE(dist_all_reduce(s->group, memory, memory, counts[i], DIST_FLOAT32, DIST_SUM));
        CHECK(streams_is(s, memory, counts[i], streams_sum(s), (float)s->ranks, s->a));
        if (i != 1) /* if it is not freed here, the group frees it */
            DONE(dist_free(s->group, memory));
    }
}

/* Memory of NCCL in a group whose backend refuses device memory: it belongs to no context. */
void streams_elsewhere(const struct streams *s)
{
    const struct dist_group_options gloo = {.size = sizeof(gloo), .backend = "gloo"};
    dist_group *other;
    void *memory;

    DONE(dist_dup_group(s->group, &gloo, &other));
    DONE(dist_alloc(s->group, COUNT * sizeof(float), &memory));
    streams_fill(s, memory, COUNT, (float)(s->rank + 1), s->a);
    DONE(dist_all_reduce(other, memory, memory, COUNT, DIST_FLOAT32, DIST_SUM));
    CHECK(streams_is(s, memory, COUNT, streams_sum(s), (float)s->ranks, s->b));
    DONE(dist_destroy_process_group(other));
    DONE(dist_free(s->group, memory));
}

static float *host_vector(size_t count, float value)
{
    float *vector = malloc(count * sizeof(float));

    CHECK(vector);
    for (size_t i = 0; i < count; i++)
        vector[i] = value + (float)(i % 7);
    return vector;
}

static bool host_is(const float *vector, size_t count, float value, float factor)
{
    for (size_t i = 0; i < count; i++) {
        if (vector[i] != value + factor * (float)(i % 7))
            return false;
    }
    return true;
}

/* Makes two calls at a time. */
static void host_size(const struct streams *s, size_t count)
{
    float *x = host_vector(count, (float)(s->rank + 1)), *y = host_vector(count, 0);
    dist_work *works[2];

    DONE(dist_all_reduce_async(s->group, x, y, count, DIST_FLOAT32, DIST_SUM, &works[0]));
    DONE(dist_broadcast_async(s->group, x, count, DIST_FLOAT32, s->ranks - 1, &works[1]));
    DONE(dist_wait(works[0]));
    DONE(dist_wait(works[1]));
    CHECK(host_is(y, count, streams_sum(s), (float)s->ranks));
    CHECK(host_is(x, count, (float)s->ranks, 1));
    free(x);
    free(y);
}

/* Sizes: that of the pinned memory; a larger one, not a multiple of its pieces; one element. */
void streams_host(const struct streams *s)
{
    host_size(s, (size_t)1 << 20);
    host_size(s, ((size_t)3 << 20) + 17);
    host_size(s, 1);
}

/* Passes host and device buffers to one call, whose results on the host are complete when it
 * returns. */
static void mixed_coalesced(const struct streams *s, float *host, float *device)
{
    void *const buffers[] = {host, device, NULL};
    const size_t counts[] = {COUNT, COUNT, 0};

    for (size_t i = 0; i < COUNT; i++)
        host[i] = (float)(s->rank + 1) + (float)(i % 7);
    streams_fill(s, device, COUNT, (float)(s->rank + 1), s->a);
    DONE(dist_all_reduce_coalesced(s->group, buffers, counts, 3, DIST_FLOAT32, DIST_SUM));
    CHECK(host_is(host, COUNT, streams_sum(s), (float)s->ranks));
    CHECK(streams_is(s, device, COUNT, streams_sum(s), (float)s->ranks, s->a));
}

/* Some ranks use host and some device memory, also at the two ends of a message; calls are ordered
 * after the work that makes their data. */
void streams_mixed(const struct streams *s)
{
    float *device = streams_vector(s, COUNT), *host = host_vector(COUNT, (float)(s->rank + 1));

    streams_fill(s, device, COUNT, (float)(s->rank + 1), s->a);
    DONE(dist_all_reduce(s->group, device, host, COUNT, DIST_FLOAT32, DIST_SUM));
    CHECK(host_is(host, COUNT, streams_sum(s), (float)s->ranks));

    DONE(dist_all_reduce(s->group, host, device, COUNT, DIST_FLOAT32, DIST_MAX));
    CHECK(streams_is(s, device, COUNT, streams_sum(s), (float)s->ranks, s->b));

    if (s->rank == 0)
        DONE(dist_broadcast(s->group, host, COUNT, DIST_FLOAT32, 0));
    else
        DONE(dist_broadcast(s->group, device, COUNT, DIST_FLOAT32, 0));
    CHECK(s->rank == 0 || streams_is(s, device, COUNT, streams_sum(s), (float)s->ranks, s->a));
    mixed_coalesced(s, host, device);
    streams_drop(s, device);
    free(host);
}
