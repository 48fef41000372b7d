/* SPDX-License-Identifier: BSD-3-Clause */
/* One message from point to point: at once, or when its receive is posted. */
#include "base/log.h"
#include "engine/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * A short message is sent at once; where its receive is not posted, the transport keeps it. A long
 * one would be too much to keep, or stand in the way of what comes behind it, so it waits:
 *
 *     sender                            receiver
 *       announcement ------------------>
 *                    <------------------ clearance, when the receive is posted
 *       data --------------------------->
 *
 * Both ranks know how long it is. The announcement stands in line with the short messages of the
 * tag; clearance and data have lines of their own.
 */
#define MESSAGE_LONG ((size_t)1 << 20)

enum message_line { LINE_MESSAGE, LINE_CLEARANCE, LINE_DATA };

/* Is it so long that it waits for its receive? */
static bool message_waits(const struct engine_p2p *p)
{
    return p->bytes > MESSAGE_LONG;
}

/* Gives a request whose envelope is filled to the transport. */
static void message_post(struct dist_engine *engine, struct engine_p2p *p,
                         struct engine_request *request, bool send)
{
    struct engine_attachment *link = &engine->links[engine->route[p->peer]];
    struct dist_request *inner = &request->request;

    inner->data = p->call.in;
    inner->sink = (struct dist_sink){
        .dst = p->call.out, .bytes = (size_t)inner->envelope.bytes, .dtype = p->call.dtype};
    if (send)
        disti_attachment_send(link, p->peer, request);
    else
        disti_attachment_recv(link, p->peer, request);
}

static void message_post_on(struct dist_engine *engine, struct engine_p2p *p,
                            struct engine_request *request, enum message_line line, bool send)
{
    request->request.envelope =
        (struct dist_envelope){.tag = disti_tag_p2p(engine->config->group, line, p->call.tag),
                               .fingerprint = p->fingerprint,
                               .bytes = line == LINE_DATA ? p->bytes : 0};
    message_post(engine, p, request, send);
}

/* How the requests that are out stand. */
static dist_status message_status(const struct dist_engine *engine, const struct engine_p2p *p)
{
    dist_status status = DIST_OK;

    for (int i = 0; i < 2; i++) {
        const struct engine_request *request = &p->requests[i];

        if (request->status == DIST_ERR_MISMATCH)
            return disti_mismatch(&request->request, engine->config->rank, 0);
        if (request->status < 0)
            return request->status;
        if (request->status == DIST_IN_PROGRESS)
            status = DIST_IN_PROGRESS;
    }
    return status;
}

/* IN_PROGRESS, OK at the end, or the failure. */
static dist_status message_advance(struct dist_engine *engine, struct engine_p2p *p, int *moved)
{
    dist_status status = message_status(engine, p);

    while (status == DIST_OK && !p->last) {
        /* Announced and, at the sender, cleared: now the data. */
        bool sends = p->call.collective == DIST_COLL_SEND;
        p->last = true;
        message_post_on(engine, p, &p->requests[0], LINE_DATA, sends);
        if (!sends) /* the receive is posted already when the data come */
            message_post_on(engine, p, &p->requests[1], LINE_CLEARANCE, true);
        ++*moved;
        status = message_status(engine, p);
    }
    return status;
}

/* Sends and receives, beside the collectives. */

/*
 *   HELD ----> OPEN ----> OUT ----> ENDED
 *     \          \___________________/       to itself: it has met its partner here
 *      \_________________/                   to or from one peer: a transport takes it at once
 *
 * All stand in one list in the order of posting. A receive from any source stays OPEN until some
 * transport holds a message with its tag that no receive was posted for; only then it becomes a
 * receive from that peer. So receives that were posted before, from one peer, come first, as they
 * are the transport's already; and those posted later are HELD until it has found its peer.
 */

static bool p2p_from_any(const struct engine_p2p *p)
{
    return p->call.root == DIST_ANY_SOURCE;
}

/* Might the next message be meant for either of the two? */
static bool p2p_same_stream(const struct engine_p2p *a, const struct engine_p2p *b)
{
    return a->call.collective == b->call.collective && a->call.tag == b->call.tag &&
           (a->call.root == b->call.root || p2p_from_any(a) || p2p_from_any(b));
}

/* Must `later` wait until `earlier` has gone further? */
static bool p2p_goes_first(const struct engine_p2p *earlier, const struct engine_p2p *later)
{
    if (earlier->state == P2P_ENDED)
        return false;
    if (disti_spans_clash(earlier->spans, later->spans))
        return true;
    return p2p_same_stream(earlier, later) &&
           (earlier->state == P2P_HELD || (earlier->state == P2P_OPEN && p2p_from_any(earlier)));
}

static bool p2p_may_start(const struct dist_engine *engine, const struct engine_p2p *p)
{
    for (const struct engine_p2p *e = engine->p2p_head; e != p; e = e->next) {
        if (p2p_goes_first(e, p))
            return false;
    }
    for (const struct engine_task *t = engine->head; t && t->order < p->order; t = t->next) {
        if (disti_spans_clash(t->spans, p->spans))
            return false;
    }
    return true;
}

bool disti_p2p_clash(const struct dist_engine *engine, const struct engine_task *task)
{
    for (const struct engine_p2p *p = engine->p2p_head; p && p->order < task->order; p = p->next) {
        if (p->state != P2P_ENDED && disti_spans_clash(p->spans, task->spans))
            return true;
    }
    return false;
}

/* ---- steps ---- */

static void p2p_end(struct dist_engine *engine, struct engine_p2p *p, int peer)
{
    if (p->call.collective == DIST_COLL_RECV && p->call.source)
        *p->call.source = peer;
    p->state = P2P_ENDED;
    disti_ticket_end(&p->ticket, DIST_OK);
    engine->p2p_ended++;
}

static void p2p_hand_over(struct dist_engine *engine, struct engine_p2p *p, int peer)
{
    p->state = P2P_OUT;
    bool sends = p->call.collective == DIST_COLL_SEND;
    p->peer = peer;
    p->last = !message_waits(p);
    p->requests[1].status = DIST_OK;
    message_post(engine, p, &p->requests[0], sends);
    if (sends && !p->last)
        message_post_on(engine, p, &p->requests[1], LINE_CLEARANCE, false);
}

/* The oldest of the other kind that is open for this rank's own message. */
static struct engine_p2p *p2p_partner(const struct dist_engine *engine, const struct engine_p2p *p)
{
    for (struct engine_p2p *other = engine->p2p_head; other; other = other->next) {
        if (other->state == P2P_OPEN && other->call.collective != p->call.collective &&
            other->call.tag == p->call.tag)
            return other;
    }
    return NULL;
}

/* Has a message come from whomever? */
static void p2p_look(struct dist_engine *engine, struct engine_p2p *p)
{
    for (int i = 0; i < engine->link_count; i++) {
        struct engine_attachment *link = &engine->links[i];
        int peer = link->peers
                       ? disti_attachment_probe_tag(link, p->requests[0].request.envelope.tag)
                       : -1;

        if (peer >= 0) {
            p2p_hand_over(engine, p, peer);
            return;
        }
    }
}

static void p2p_start(struct dist_engine *engine, struct engine_p2p *p)
{
    struct engine_p2p *partner;

    if (!p2p_from_any(p) && p->call.root != engine->config->rank) {
        p2p_hand_over(engine, p, p->call.root);
        return;
    }
    p->state = P2P_OPEN;
    partner = p2p_partner(engine, p);
    if (partner) {
        /* This rank's own message comes to its receive. */
        struct engine_p2p *send = p->call.collective == DIST_COLL_SEND ? p : partner;
        struct engine_p2p *recv = send == p ? partner : p;
        const struct dist_envelope *sent = &send->requests[0].request.envelope;
        struct dist_request *wanted = &recv->requests[0].request;
        int rank = engine->config->rank;
        if (sent->fingerprint != wanted->envelope.fingerprint ||
            sent->bytes != wanted->envelope.bytes) {
            wanted->peer = rank;
            wanted->arrived = *sent;
            recv->requests[0].status = DIST_ERR_MISMATCH; /* as a transport would end it */
            recv->state = P2P_OUT;
            return;
        }
        if (send->bytes)
            memmove(recv->call.out, send->call.in, send->bytes);
        p2p_end(engine, send, rank);
        p2p_end(engine, recv, rank);
    }
}

/* As far as it goes. *moved counts what happened. */
static dist_status p2p_advance(struct dist_engine *engine, struct engine_p2p *p, int *moved)
{
    enum engine_p2p_state was = p->state;

    if (p->state == P2P_HELD && p2p_may_start(engine, p))
        p2p_start(engine, p);
    if (p->state == P2P_OPEN && p2p_from_any(p))
        p2p_look(engine, p);
    *moved += p->state != was;
    if (p->state != P2P_OUT)
        return DIST_OK;
    dist_status status = message_advance(engine, p, moved);
    if (status == DIST_IN_PROGRESS)
        return DIST_OK;
    ++*moved;
    if (status == DIST_OK)
        p2p_end(engine, p, p->peer);
    else
        disti_ticket_end(&p->ticket, status); /* it stays until close, as others' requests do */
    return status;
}

static dist_status p2p_advance_all(struct dist_engine *engine, int *moved)
{
    dist_status status = DIST_OK;

    for (struct engine_p2p *p = engine->p2p_head; p && status == DIST_OK; p = p->next)
        status = p2p_advance(engine, p, moved);
    return status;
}

/* ---- the list ---- */

/* Ended ones leave the list, to be used again. */
static void p2p_sweep(struct dist_engine *engine)
{
    struct engine_p2p **at = &engine->p2p_head;

    if (!engine->p2p_ended)
        return;
    engine->p2p_tail = NULL;
    while (*at) {
        struct engine_p2p *p = *at;

        if (p->state == P2P_ENDED) {
            *at = p->next;
            p->next = engine->p2p_idle;
            engine->p2p_idle = p;
        } else {
            engine->p2p_tail = p;
            at = &p->next;
        }
    }
    engine->p2p_ended = 0;
}

dist_status disti_p2p_post(struct dist_engine *engine, const struct dist_call *call,
                           struct dist_ticket *ticket)
{
    struct engine_p2p *p = engine->p2p_idle;
    int moved = 0;

    if (p)
        engine->p2p_idle = p->next;
    else
        p = malloc(sizeof(*p));
    if (!p)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory to start %s",
                          dist_collective_string(call->collective));
    *p = (struct engine_p2p){.call = *call, .ticket = ticket, .order = engine->posted++};
    disti_node_publish_cpu(engine->node);
    /* The messages of one send or receive. */
    struct dist_envelope *envelope = &p->requests[0].request.envelope;
    p->bytes = p->call.count * dist_dtype_size(p->call.dtype);
    p->fingerprint = disti_fingerprint(&p->call, engine->config->world_size);
    envelope->tag = disti_tag_p2p(engine->config->group, LINE_MESSAGE, p->call.tag);
    envelope->fingerprint = p->fingerprint;
    envelope->bytes = p->bytes;
    if (message_waits(p)) {
        envelope->fingerprint = disti_announce(p->fingerprint, p->call.count);
        envelope->bytes = 0;
    }
    if (call->collective == DIST_COLL_SEND)
        p->spans[DISTI_IN] = (struct engine_span){call->in, p->bytes};
    else
        p->spans[DISTI_OUT] = (struct engine_span){call->out, p->bytes};
    if (engine->p2p_tail)
        engine->p2p_tail->next = p;
    else
        engine->p2p_head = p;
    engine->p2p_tail = p;
    ticket->status = DIST_IN_PROGRESS;
    /* A failure shows in a ticket. What was announced before must be cleared before. */
    if (message_waits(p))
        p2p_advance_all(engine, &moved);
    else
        p2p_advance(engine, p, &moved);
    p2p_sweep(engine);
    return DIST_OK;
}

int disti_p2p_run(struct dist_engine *engine)
{
    int moved = 0;
    dist_status status = p2p_advance_all(engine, &moved);

    p2p_sweep(engine);
    return status == DIST_OK ? moved : (int)status;
}

bool disti_p2p_waits_for_any(const struct dist_engine *engine)
{
    for (const struct engine_p2p *p = engine->p2p_head; p; p = p->next) {
        if (p->state == P2P_OPEN && p2p_from_any(p))
            return true;
    }
    return false;
}

void disti_p2p_describe(const struct dist_engine *engine, const struct engine_p2p *p, char *text,
                        size_t size)
{
    if (p2p_from_any(p))
        snprintf(text, size, "any rank");
    else
        disti_engine_name(engine, p->call.root, text, size);
}

static void p2p_free(struct engine_p2p *p)
{
    while (p) {
        struct engine_p2p *next = p->next;

        free(p);
        p = next;
    }
}

void disti_p2p_clear(struct dist_engine *engine)
{
    p2p_free(engine->p2p_head);
    p2p_free(engine->p2p_idle);
    engine->p2p_head = engine->p2p_tail = engine->p2p_idle = NULL;
}
