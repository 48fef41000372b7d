/* SPDX-License-Identifier: BSD-3-Clause */
/* Receives: posted, met by a message that was there before, ended when none will come. */
#include "base/kernels/sink.h"
#include "base/log.h"
#include "transports/tcp/state.h"

#include <errno.h>
#include <string.h>

bool disti_tcp_has_receives(const struct tcp_peer *peer)
{
    return peer->match.posted_head || peer->conn->in.request || peer->control.receives ||
           disti_tcp_assembles(peer);
}

void disti_tcp_unexpected_release(struct tcp_peer *peer, struct disti_unexpected *unexpected)
{
    if (!unexpected->descriptor)
        disti_tcp_give_back(&peer->credit, unexpected->envelope.bytes);
    disti_match_release(&peer->match, unexpected);
}

void disti_tcp_fail_receives(struct tcp_peer *peer, dist_status status)
{
    struct tcp_incoming *in = &peer->conn->in;
    struct dist_request *request = peer->match.posted_head;

    peer->match.posted_head = peer->match.posted_tail = NULL;
    while (request) {
        struct dist_request *next = request->next;

        request->status = status;
        request = next;
    }
    if (!in->assembly && in->unexpected)
        disti_tcp_unexpected_release(peer, in->unexpected);
    if (!in->assembly && in->request)
        in->request->status = status;
    for (int number = 0; number < peer->conns; number++)
        disti_tcp_incoming_clear(&peer->conn[number].in);
    disti_tcp_assemblies_fail(peer, status);
    disti_tcp_control_end(peer, status);
    disti_match_release_descriptors(&peer->match);
}

/* The receive takes a message that came before it, whole or as far as it has come. */
static void post_claim(struct tcp_peer *peer, struct disti_unexpected *unexpected,
                       struct dist_request *request)
{
    const struct dist_sink *sink = &request->sink;
    struct tcp_incoming *in = &peer->conn->in;
    bool whole = unexpected != in->unexpected;
    size_t rest = 0;

    if (!whole && sink->src)
        rest = unexpected->arrived % dist_dtype_size(sink->dtype);
    request->moved = unexpected->arrived - rest;
    disti_sink_apply(sink, 0, unexpected->payload, request->moved);
    if (!whole) {
        if (rest)
            disti_tcp_sum_again(peer, in, unexpected->payload, request->moved);
        memcpy(in->small, unexpected->payload + request->moved, rest);
        in->stash_bytes = rest;
        in->left += rest;
        in->offset = request->moved;
        in->unexpected = NULL;
        in->request = request;
    }
    disti_tcp_unexpected_release(peer, unexpected);
    if (whole)
        request->status = DIST_OK;
}

/* The receive takes a message that was only offered. */
static void post_claim_offer(struct tcp_state *state, struct tcp_peer *peer,
                             struct disti_unexpected *unexpected, struct dist_request *request)
{
    dist_status status =
        disti_tcp_ask_for(peer, unexpected->note[0], unexpected->envelope.bytes, request);

    disti_tcp_unexpected_release(peer, unexpected);
    if (status != DIST_OK) {
        request->status =
            disti_fail(status, "tcp: rank %d has no memory to ask rank %d for a message",
                       state->rank, peer->rank);
        return;
    }
    disti_tcp_list(state, peer);
    disti_tcp_control(state, peer);
}

/* A message that had come early is not the one that the receive meant: it goes. */
static void post_refused(struct tcp_state *state, struct tcp_peer *peer,
                         struct disti_unexpected *unexpected)
{
    struct tcp_incoming *in = &peer->conn->in;
    dist_status status = DIST_OK;

    if (!unexpected->descriptor && disti_tcp_assembly_refused(peer))
        return;
    if (unexpected->descriptor)
        status = disti_tcp_ask(peer, unexpected->note[0], true);
    else if (in->unexpected == unexpected)
        in->unexpected = NULL;
    disti_tcp_unexpected_release(peer, unexpected);
    if (status != DIST_OK)
        disti_tcp_lose(state, peer, ENOMEM, NULL);
    else
        disti_tcp_list(state, peer);
}

static void post_receive(struct tcp_state *state, struct tcp_peer *peer,
                         struct dist_request *request)
{
    struct disti_unexpected *unexpected = disti_match_post(&peer->match, request);

    if (unexpected && unexpected->refused)
        post_refused(state, peer, unexpected);
    else if (unexpected && unexpected->descriptor)
        post_claim_offer(state, peer, unexpected, request);
    /* What comes in stripes is taken when all are there. */
    else if (unexpected && !disti_tcp_assembling(peer, unexpected))
        post_claim(peer, unexpected, request);
}

void disti_tcp_recv(struct tcp_state *state, struct tcp_peer *peer, struct dist_request *request)
{
    request->moved = 0;
    post_receive(state, peer, request);
    if (disti_tcp_conn_has_ended(peer->conn) && peer->match.posted_head) {
        disti_tcp_report(state, peer);
        disti_tcp_fail_receives(peer, DIST_ERR_PEER_LOST);
    } else if (request->status == DIST_IN_PROGRESS || peer->conn->state == TCP_CONN_RESUMING ||
               disti_tcp_can_control(peer)) {
        disti_tcp_list(state, peer);
    }
}
