/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Backend hccl: sends and receives. HCCL's functions require the same order on both ranks and one
 * operation per communicator at a time, so two ranks that both send first would deadlock. Therefore
 * messages use libdist's transports, with a copy on the host for device memory.
 */
#include "hccl.h"

#include <stdlib.h>
#include <time.h>

static dist_status pair_fail(const struct hccl_group *g, const struct dist_call *call, int error,
                             const char *what)
{
    char text[256];

    hccl_explain(g->api, true, error, text, sizeof(text));
    return g->host->fail(DIST_ERR_SYSTEM, "rank %d, %s with rank %d on device %d: %s: %s", g->rank,
                         g->host->collective_string(call->collective), call->root, g->device, what,
                         text);
}

/* Waits until the work on the stream has completed, at most the timeout. */
static dist_status pair_wait_for_stream(struct hccl_group *g, const struct dist_call *call)
{
    int64_t until = hccl_now_ns() + g->timeout_ms * INT64_C(1000000);
    const struct timespec interval = {.tv_nsec = 20 * 1000};
    int recorded = 0, error = 0;
    void *event = hccl_event(g, call->stream, &error);

    while (event && !error && recorded != HCCL_ACL_RECORDED && hccl_now_ns() < until) {
        error = g->api->acl.event_status(event, &recorded);
        if (!error && recorded != HCCL_ACL_RECORDED)
            nanosleep(&interval, NULL);
    }
    if (event)
        g->api->acl.event_destroy(event);
    if (error)
        return pair_fail(g, call, error, "the program's stream");
    if (recorded != HCCL_ACL_RECORDED)
        return g->host->fail(
            DIST_ERR_TIMEOUT,
            "rank %d, %s: the work on the program's stream has not completed for %d ms", g->rank,
            g->host->collective_string(call->collective), g->timeout_ms);
    return DIST_OK;
}

static dist_status pair_copy(struct hccl_group *g, const struct hccl_pair *p, bool out)
{
    int error = out ? g->api->acl.memcpy(p->user, p->bytes, p->copy, p->bytes, HCCL_ACL_TO_DEVICE)
                    : g->api->acl.memcpy(p->copy, p->bytes, p->user, p->bytes, HCCL_ACL_TO_HOST);

    return error ? pair_fail(g, &p->call, error, "a copy") : DIST_OK;
}

/*
 * The work on the stream may still write the data to be sent or use the receive buffer, so wait for
 * it first.
 */
static dist_status pair_begin(struct hccl_group *g, struct hccl_pair *p)
{
    dist_status status;
    void *previous;

    if (!hccl_enter(g, &previous))
        return g->host->fail(DIST_ERR_SYSTEM, "rank %d cannot use device %d", g->rank, g->device);
    status = pair_wait_for_stream(g, &p->call);
    if (status == DIST_OK && p->call.collective == DIST_COLL_SEND)
        status = pair_copy(g, p, false);
    hccl_leave(g, previous);
    return status;
}

static void pair_free(struct hccl_pair *p)
{
    free(p->copy);
    free(p);
}

static struct hccl_pair *pair_new(const struct hccl_group *g, const struct dist_call *call,
                                  struct dist_ticket *ticket)
{
    struct hccl_pair *p = calloc(1, sizeof(*p));

    if (!p)
        return NULL;
    p->bytes = call->count * g->host->dtype_size(call->dtype);
    p->user = call->collective == DIST_COLL_SEND ? (void *)(uintptr_t)call->in : call->out;
    p->copy = malloc(p->bytes);
    if (!p->copy) {
        free(p);
        return NULL;
    }
    p->users = ticket;
    p->call = *call;
    if (call->collective == DIST_COLL_SEND)
        p->call.in = p->copy;
    else
        p->call.out = p->copy;
    p->ticket.status = DIST_IN_PROGRESS;
    return p;
}

dist_status hccl_pair_post(struct hccl_state *s, const struct dist_call *call,
                           struct dist_ticket *ticket)
{
    const void *memory = call->collective == DIST_COLL_SEND ? call->in : call->out;
    struct hccl_group *g = s->group;
    struct hccl_pair *p;
    dist_status status;

    if (call->count == 0 || !hccl_is_device(g, memory))
        return s->host->engine_post(s->engine, call, ticket);
    p = pair_new(g, call, ticket);
    if (!p)
        return s->host->fail(DIST_ERR_NO_MEMORY,
                             "rank %d, %s: out of memory for a copy on the host", g->rank,
                             s->host->collective_string(call->collective));
    status = pair_begin(g, p);
    if (status == DIST_OK)
        status = s->host->engine_post(s->engine, &p->call, &p->ticket);
    if (status != DIST_OK) {
        pair_free(p);
        return status;
    }
    p->next = s->pairs;
    s->pairs = p;
    return DIST_OK;
}

static dist_status pair_end(struct hccl_group *g, struct hccl_pair *p)
{
    dist_status status = p->ticket.status;
    void *previous;

    if (status == DIST_OK && p->call.collective == DIST_COLL_RECV) {
        if (!hccl_enter(g, &previous))
            return g->host->fail(DIST_ERR_SYSTEM, "rank %d cannot use device %d", g->rank,
                                 g->device);
        status = pair_copy(g, p, true);
        hccl_leave(g, previous);
    }
    return status;
}

int hccl_pair_progress(struct hccl_state *s)
{
    struct hccl_pair **link = &s->pairs, *p;
    int moved = 0;

    while ((p = *link)) {
        struct dist_ticket *ticket = p->users;
        dist_status status;

        if (p->ticket.status == DIST_IN_PROGRESS) {
            link = &p->next;
            continue;
        }
        status = pair_end(s->group, p);
        *link = p->next;
        pair_free(p);
        ticket->status = status;
        if (status != DIST_OK)
            return status;
        moved++;
    }
    return moved;
}

void hccl_pair_drop(struct hccl_state *s)
{
    while (s->pairs) {
        struct hccl_pair *p = s->pairs;

        s->pairs = p->next;
        pair_free(p);
    }
}
