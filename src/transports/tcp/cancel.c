/* SPDX-License-Identifier: BSD-3-Clause */
/* Forgetting the messages of a group that has ended, while others go on. */
#include "base/clock.h"
#include "base/log.h"
#include "transports/match/standin.h"
#include "transports/tcp/state.h"
#include "transports/tcp/tcp.h"

#include <errno.h>

/* How long the kernel may take to have done with memory that it has not copied, where the peer's
 * machine does not answer. */
#define CANCEL_PINNED_MS 500

/*
 * What has not begun is taken out. What is halfway through a connection goes on with a stand-in,
 * which has a copy of the rest, or throws away what comes.
 */
struct cancel {
    struct tcp_state *state;
    struct tcp_peer *peer;
    uint64_t tag, mask;
    bool failed; /* no memory for a stand-in */
};

static bool cancel_means(const struct cancel *cancel, const struct dist_request *request)
{
    return request && disti_standin_is_for(request, cancel->tag, cancel->mask) &&
           !disti_standins_have(&cancel->state->standins, request);
}

/* ---- sends ---- */

/* A stand-in for the send; connections that are sending stripes of it go on with that. */
static struct dist_request *cancel_send(struct cancel *cancel, const struct dist_request *request)
{
    struct dist_request *standin = disti_standin_send(&cancel->state->standins, request, 0);

    cancel->failed = cancel->failed || !standin;
    for (int number = 0; number < cancel->peer->conns; number++) {
        struct tcp_outgoing *out = &cancel->peer->conn[number].out;

        if (out->request != request)
            continue;
        out->request = standin;
        if (standin)
            out->data = (const char *)standin->data + (out->data - (const char *)request->data);
    }
    return standin;
}

/* What has not begun goes, the rest is replaced. */
static void cancel_queue(struct cancel *cancel, struct tcp_queue *queue, bool begun)
{
    struct tcp_queue kept = {NULL, NULL};
    struct dist_request *next;

    for (struct dist_request *request = queue->head; request; request = next) {
        struct dist_request *keep = request;

        next = request->next;
        if (cancel_means(cancel, request))
            keep = begun || request->moved ? cancel_send(cancel, request) : NULL;
        if (keep)
            disti_tcp_queue_put(&kept, keep);
    }
    *queue = kept;
}

static void cancel_sends(struct cancel *cancel)
{
    struct tcp_peer *peer = cancel->peer;

    cancel_queue(cancel, &peer->sends, false);
    cancel_queue(cancel, &peer->stripes.ready, true);
    cancel_queue(cancel, &peer->stripes.offers, true);
    for (int number = 0; number < peer->conns; number++) {
        if (cancel_means(cancel, peer->conn[number].out.request))
            cancel_send(cancel, peer->conn[number].out.request);
    }
}

/* ---- receives ---- */

static void cancel_assemblies(struct cancel *cancel)
{
    struct tcp_assembly *assembly = cancel->peer->stripes.assemblies;

    for (; assembly; assembly = assembly->next) {
        if (cancel_means(cancel, assembly->request))
            assembly->request = NULL;
    }
}

static void cancel_asked(struct cancel *cancel)
{
    struct dist_request **at = &cancel->peer->control.receives;

    while (*at) {
        if (cancel_means(cancel, *at))
            *at = (*at)->next;
        else
            at = &(*at)->next;
    }
}

/* Messages that nobody has received. What was offered is refused, if anybody is there to hear. */
static void cancel_unexpected(struct cancel *cancel)
{
    struct tcp_peer *peer = cancel->peer;

    for (struct disti_unexpected *unexpected = peer->match.unexpected_head, *next; unexpected;
         unexpected = next) {
        next = unexpected->next;
        if ((unexpected->envelope.tag & cancel->mask) != cancel->tag)
            continue;
        if (unexpected->descriptor && disti_tcp_conn_is_open(peer->conn) &&
            disti_tcp_ask(peer, unexpected->note[0], true) != DIST_OK)
            cancel->failed = true;
        disti_tcp_forget(peer, unexpected);
        disti_tcp_unexpected_release(peer, unexpected);
    }
}

static void cancel_receives(struct cancel *cancel)
{
    struct tcp_peer *peer = cancel->peer;

    disti_standin_unpost(&peer->match, cancel->tag, cancel->mask);
    for (int number = 0; number < peer->conns; number++) {
        if (cancel_means(cancel, peer->conn[number].in.request))
            peer->conn[number].in.request = NULL;
    }
    cancel_assemblies(cancel);
    cancel_asked(cancel);
    cancel_unexpected(cancel);
}

/* ---- what the kernel reads ---- */

/* `answers`: only by peers whose machines do. */
static bool cancel_is_pinned(const struct cancel *cancel, bool answers)
{
    struct tcp_peer *peer = cancel->peer;
    bool pinned = false;

    for (int number = 0; peer && peer->pinned && number < peer->conns; number++) {
        struct tcp_conn *conn = &peer->conn[number];

        if (!disti_tcp_zerocopy_holds(cancel->state, conn, cancel->tag, cancel->mask) ||
            (answers && disti_tcp_silence_shows(conn)))
            continue;
        disti_tcp_zerocopy_reap(cancel->state, conn);
        pinned |= disti_tcp_zerocopy_holds(cancel->state, conn, cancel->tag, cancel->mask);
    }
    return pinned;
}

static bool cancel_any_is_pinned(struct tcp_state *state, uint64_t tag, uint64_t mask, bool answers)
{
    bool pinned = false;

    for (int rank = 0; state->pinned && rank < state->world_size; rank++) {
        const struct cancel cancel = {
            .state = state, .peer = state->peers[rank], .tag = tag, .mask = mask};

        pinned |= cancel_is_pinned(&cancel, answers);
    }
    return pinned;
}

/*
 * The program may use its memory again at once, so the kernel must have done with it, which takes a
 * peer that reads. That may just be doing the same as this rank, so both go on moving messages; the
 * group's are copied from here on. A peer that computes reads when it calls the library again, and
 * has as long as for any call. One that does not read by then, or whose machine does not answer, is
 * given up with all its groups: nothing else takes the memory back.
 */
static void cancel_unpin(struct tcp_state *state, uint64_t tag, uint64_t mask)
{
    const int64_t patience = disti_deadline_ms(CANCEL_PINNED_MS);
    const int64_t deadline = disti_deadline_ms(state->timeout_ms);
    int moved = 0;

    state->ending_tag = tag;
    state->ending_mask = mask;
    while (moved >= 0 && !disti_expired(deadline) &&
           cancel_any_is_pinned(state, tag, mask, disti_expired(patience))) {
        moved = disti_transport_tcp.progress(state);
        if (moved == 0)
            disti_sleep_ns(100 * 1000);
    }
    state->ending_mask = 0;
}

/* ---- the slot ---- */

static void cancel_peer(struct cancel *cancel)
{
    struct tcp_peer *peer = cancel->peer;

    if (cancel_is_pinned(cancel, false)) {
        disti_tcp_lose(cancel->state, peer, 0,
                       "it did not read the last message of a group that has ended");
        return;
    }
    cancel_receives(cancel);
    cancel_sends(cancel);
    if (cancel->failed)
        disti_tcp_lose(cancel->state, peer, ENOMEM, NULL);
    else if (disti_tcp_can_control(peer))
        disti_tcp_list(cancel->state, peer);
}

void disti_tcp_cancel(void *instance, uint64_t tag, uint64_t mask)
{
    struct tcp_state *state = instance;

    cancel_unpin(state, tag, mask);
    for (int rank = 0; rank < state->world_size; rank++) {
        struct cancel cancel = {
            .state = state, .peer = state->peers[rank], .tag = tag, .mask = mask};

        if (cancel.peer)
            cancel_peer(&cancel);
    }
    disti_standins_sweep(&state->standins);
}
