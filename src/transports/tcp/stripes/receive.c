/* SPDX-License-Identifier: BSD-3-Clause */
/* Receiving in stripes: messages that are put together from several connections. */
#include "base/kernels/sink.h"
#include "transports/tcp/state.h"

#include <stdlib.h>

bool disti_tcp_assemble(struct tcp_peer *peer, uint64_t number, uint64_t bytes,
                        struct dist_request *request, struct disti_unexpected *unexpected)
{
    struct tcp_assembly **end = &peer->stripes.assemblies;
    struct tcp_assembly *assembly = malloc(sizeof(*assembly));

    if (!assembly)
        return false;
    *assembly = (struct tcp_assembly){.number = number,
                                      .bytes = bytes,
                                      .unseen = bytes,
                                      .left = bytes,
                                      .costs = !request && !unexpected,
                                      .request = request,
                                      .unexpected = unexpected};
    while (*end)
        end = &(*end)->next;
    *end = assembly;
    for (int i = 1; i < peer->conns; i++) {
        if (peer->conn[i].state == TCP_CONN_WAITING)
            disti_tcp_conn_go(&peer->conn[i], TCP_CONN_RESUMING);
    }
    return true;
}

enum tcp_stripe_answer disti_tcp_stripe_begin(struct tcp_conn *conn,
                                              const struct dist_envelope *frame)
{
    const struct tcp_peer *peer = conn->peer;
    struct tcp_incoming *in = &conn->in;
    struct tcp_assembly *assembly = peer->stripes.assemblies;

    if (frame->tag >= peer->stripes.arrived)
        return TCP_STRIPE_WAIT;
    while (assembly && assembly->number != frame->tag)
        assembly = assembly->next;
    if (!assembly || frame->bytes > assembly->unseen ||
        !disti_tcp_stripe_fits(assembly->bytes, frame->fingerprint, frame->bytes))
        return TCP_STRIPE_BAD;
    assembly->unseen -= frame->bytes;
    in->active = true;
    in->assembly = assembly;
    in->offset = frame->fingerprint;
    in->left = in->stripe = frame->bytes;
    in->request = assembly->request;
    in->unexpected = assembly->unexpected;
    return TCP_STRIPE_OK;
}

/* All of it is here: it ends its receive, if there is one yet. */
static void assembly_whole(struct tcp_conn *conn, struct tcp_assembly *assembly)
{
    struct tcp_peer *peer = conn->peer;
    struct disti_unexpected *unexpected = assembly->unexpected;
    struct dist_request *request = unexpected ? unexpected->claimed : assembly->request;

    if (assembly->costs)
        disti_tcp_give_back(&peer->credit, assembly->bytes);
    if (unexpected && request) {
        disti_sink_apply(&request->sink, 0, unexpected->payload, (size_t)assembly->bytes);
        disti_tcp_unexpected_release(peer, unexpected);
    }
    if (request) {
        request->status = DIST_OK;
        conn->finished = true;
    }
}

void disti_tcp_stripe_end(struct tcp_conn *conn)
{
    struct tcp_incoming *in = &conn->in;
    struct tcp_assembly **at = &conn->peer->stripes.assemblies, *assembly = in->assembly;

    assembly->left -= in->stripe;
    in->active = false;
    in->assembly = NULL;
    in->request = NULL;
    in->unexpected = NULL;
    if (assembly->left)
        return;
    while (*at != assembly)
        at = &(*at)->next;
    *at = assembly->next;
    assembly_whole(conn, assembly);
    free(assembly);
}

bool disti_tcp_assembles(const struct tcp_peer *peer)
{
    const struct tcp_assembly *assembly = peer->stripes.assemblies;

    while (assembly && !assembly->request &&
           !(assembly->unexpected && assembly->unexpected->claimed))
        assembly = assembly->next;
    return assembly;
}

bool disti_tcp_assembling(const struct tcp_peer *peer, const struct disti_unexpected *unexpected)
{
    const struct tcp_assembly *assembly = peer->stripes.assemblies;

    while (assembly && assembly->unexpected != unexpected)
        assembly = assembly->next;
    return assembly;
}

void disti_tcp_forget(struct tcp_peer *peer, const struct disti_unexpected *unexpected)
{
    struct tcp_assembly *assembly = peer->stripes.assemblies;

    for (; assembly; assembly = assembly->next) {
        if (assembly->unexpected == unexpected)
            assembly->unexpected = NULL;
    }
    for (int number = 0; number < peer->conns; number++) {
        if (peer->conn[number].in.unexpected == unexpected)
            peer->conn[number].in.unexpected = NULL;
    }
}

bool disti_tcp_assembly_refused(struct tcp_peer *peer)
{
    struct tcp_assembly *assembly = peer->stripes.assemblies;
    struct disti_unexpected *unexpected;

    while (assembly && !(assembly->unexpected && assembly->unexpected->refused))
        assembly = assembly->next;
    if (!assembly)
        return false;
    unexpected = assembly->unexpected;
    assembly->costs = true;
    disti_tcp_forget(peer, unexpected);
    disti_match_release(&peer->match, unexpected);
    return true;
}

void disti_tcp_assemblies_clear(struct tcp_peer *peer)
{
    while (peer->stripes.assemblies) {
        struct tcp_assembly *assembly = peer->stripes.assemblies;

        peer->stripes.assemblies = assembly->next;
        free(assembly);
    }
}

void disti_tcp_assemblies_fail(struct tcp_peer *peer, dist_status status)
{
    struct tcp_stripes *stripes = &peer->stripes;

    while (stripes->assemblies) {
        struct tcp_assembly *assembly = stripes->assemblies;
        struct disti_unexpected *unexpected = assembly->unexpected;
        struct dist_request *request = unexpected ? unexpected->claimed : assembly->request;

        stripes->assemblies = assembly->next;
        free(assembly);
        if (unexpected)
            disti_tcp_unexpected_release(peer, unexpected);
        if (request)
            request->status = status;
    }
}
