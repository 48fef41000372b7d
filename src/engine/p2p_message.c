/* SPDX-License-Identifier: BSD-3-Clause */
/* One message from point to point: at once, or when its receive is posted. */
#include "engine/state.h"

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

bool disti_message_waits(const struct engine_p2p *p)
{
    return p->bytes > MESSAGE_LONG;
}

void disti_message_init(const struct dist_engine *engine, struct engine_p2p *p)
{
    struct dist_envelope *envelope = &p->requests[0].request.envelope;

    p->bytes = p->call.count * dist_dtype_size(p->call.dtype);
    p->fingerprint = disti_fingerprint(&p->call, engine->config->world_size);
    envelope->tag = disti_tag_p2p(engine->config->group, LINE_MESSAGE, p->call.tag);
    envelope->fingerprint = p->fingerprint;
    envelope->bytes = p->bytes;
    if (disti_message_waits(p)) {
        envelope->fingerprint = disti_announce(p->fingerprint, p->call.count);
        envelope->bytes = 0;
    }
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

void disti_message_start(struct dist_engine *engine, struct engine_p2p *p, int peer)
{
    bool sends = p->call.collective == DIST_COLL_SEND;

    p->peer = peer;
    p->last = !disti_message_waits(p);
    p->requests[1].status = DIST_OK;
    message_post(engine, p, &p->requests[0], sends);
    if (sends && !p->last)
        message_post_on(engine, p, &p->requests[1], LINE_CLEARANCE, false);
}

/* Announced and, at the sender, cleared: now the data. */
static void message_move(struct dist_engine *engine, struct engine_p2p *p)
{
    bool sends = p->call.collective == DIST_COLL_SEND;

    p->last = true;
    message_post_on(engine, p, &p->requests[0], LINE_DATA, sends);
    if (!sends) /* the receive is posted already when the data come */
        message_post_on(engine, p, &p->requests[1], LINE_CLEARANCE, true);
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

dist_status disti_message_advance(struct dist_engine *engine, struct engine_p2p *p, int *moved)
{
    dist_status status = message_status(engine, p);

    while (status == DIST_OK && !p->last) {
        message_move(engine, p);
        ++*moved;
        status = message_status(engine, p);
    }
    return status;
}
