/* SPDX-License-Identifier: BSD-3-Clause */
/* Transport ucx: forgetting the messages of a group that has ended, while others go on. */
#include "base/clock.h"
#include "transports/ucx/state.h"

/*
 * What UCX reads or writes it does not give back before it has ended. Most of what leaves is a copy
 * (send.c, pieces.c). With RDMA a peer that stops in the middle of what it has just asked for is
 * given up with all its groups, which closes its endpoint.
 */
#define CANCEL_PINNED_MS 500

struct cancel {
    uint64_t tag, mask;
};

/* ---- what is taken back at once ---- */

static void cancel_unexpected(const struct cancel *cancel, struct ucx_peer *peer)
{
    for (struct disti_unexpected *unexpected = peer->match.unexpected_head, *next; unexpected;
         unexpected = next) {
        next = unexpected->next;
        if ((unexpected->envelope.tag & cancel->mask) == cancel->tag)
            disti_ucx_refuse(peer, unexpected);
    }
}

static void cancel_peer(const struct cancel *cancel, struct ucx_peer *peer)
{
    disti_standin_unpost(&peer->match, cancel->tag, cancel->mask);
    cancel_unexpected(cancel, peer);
    disti_ucx_inbounds_forget(peer, cancel->tag, cancel->mask);
    disti_ucx_sends_forget(peer, cancel->tag, cancel->mask);
    if (!disti_ucx_pieces_forget(peer, cancel->tag, cancel->mask))
        disti_ucx_peer_lose(peer, "no memory to cancel messages");
}

/* ---- what UCX has ---- */

static bool cancel_is_pinned(const struct ucx_peer *peer)
{
    return disti_ucx_pieces_pinned(peer) || disti_ucx_inbounds_pinned(peer);
}

static bool cancel_any_is_pinned(const struct ucx_state *ucx)
{
    int rank = 0;

    while (rank < ucx->ranks && !cancel_is_pinned(&ucx->peers[rank]))
        rank++;
    return rank < ucx->ranks;
}

/* The peer may be doing the same: both go on moving messages. */
static void cancel_unpin(struct ucx_state *ucx)
{
    int64_t deadline = disti_deadline_ms(CANCEL_PINNED_MS);
    int moved = 0;

    while (moved >= 0 && cancel_any_is_pinned(ucx) && !disti_expired(deadline)) {
        moved = disti_transport_ucx.progress(ucx);
        if (moved == 0)
            disti_sleep_ns(100 * 1000);
    }
}

static void cancel_give_up(struct ucx_state *ucx)
{
    for (int rank = 0; rank < ucx->ranks; rank++) {
        if (cancel_is_pinned(&ucx->peers[rank]))
            disti_ucx_peer_lose(&ucx->peers[rank],
                                "it did not take the last message of a group that has ended");
    }
    disti_ucx_peers_reap(ucx);
    disti_ucx_peers_wait_closed(ucx);
}

/* ---- the slot ---- */

void disti_ucx_cancel(void *state, uint64_t tag, uint64_t mask)
{
    struct ucx_state *ucx = state;
    const struct cancel cancel = {.tag = tag, .mask = mask};

    for (int rank = 0; rank < ucx->ranks; rank++)
        cancel_peer(&cancel, &ucx->peers[rank]);
    disti_ucx_pulls_start(ucx);
    cancel_unpin(ucx);
    if (cancel_any_is_pinned(ucx))
        cancel_give_up(ucx);
    disti_standins_sweep(&ucx->standins);
}
