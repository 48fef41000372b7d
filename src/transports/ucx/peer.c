/* SPDX-License-Identifier: BSD-3-Clause */
/* Transport ucx: endpoints, one a peer, made when they are needed; losing them, and leaving. */
#include "base/clock.h"
#include "transports/ucx/state.h"

/* How long a close may take: for what has yet to leave, and again for the endpoints. */
#define PEER_LEAVE_MS 200

/* ---- losing ---- */

static dist_status peer_report(struct ucx_peer *peer, const char *why)
{
    const struct ucx_state *ucx = peer->ucx;

    if (peer->leaving)
        return ucx->host->fail(
            DIST_ERR_PEER_LOST,
            "rank %d waits for rank %d, which has left the group: make the same calls on all ranks",
            ucx->rank, peer->rank);
    return ucx->host->fail(DIST_ERR_PEER_LOST,
                           "rank %d lost rank %d (UCX: %s); see that rank's output", ucx->rank,
                           peer->rank, why);
}

dist_status disti_ucx_peer_gone(struct ucx_peer *peer)
{
    return peer_report(peer, "the connection had ended before");
}

/* The only way to another phase. */
static void peer_go(struct ucx_peer *peer, enum ucx_phase to)
{
    if (disti_ucx_phase_leads(peer->phase, to))
        peer->phase = to;
    else
        disti_ucx_broken(peer->ucx, DIST_ERR_INTERNAL, "a connection went where none can go");
}

void disti_ucx_peer_lose(struct ucx_peer *peer, const char *why)
{
    struct ucx_state *ucx = peer->ucx;

    if (ucx_is_lost(peer) || ucx->closing)
        return;
    peer_go(peer, UCX_FAILED);
    ucx->failures = true;
    ucx->happened++;
    if (peer->match.posted_head || peer->inbounds || peer->announced.count || !peer->leaving)
        peer_report(peer, why);
    disti_ucx_receive_fail(peer);
    disti_ucx_pieces_fail(peer);
}

dist_status disti_ucx_ended(struct ucx_peer *peer, ucs_status_t status)
{
    /* What the receiver refused was a mismatch there: the sender need not know. */
    if (status == UCS_OK || (status == UCS_ERR_CANCELED && !ucx_is_lost(peer)))
        return DIST_OK;
    if (status == UCS_ERR_NO_MEMORY)
        return peer->ucx->host->fail(DIST_ERR_NO_MEMORY, "no memory for a message with rank %d",
                                     peer->rank);
    disti_ucx_peer_lose(peer, ucs_status_string(status));
    return DIST_ERR_PEER_LOST;
}

/* UCX calls this from progress. */
static void peer_error(void *arg, ucp_ep_h endpoint, ucs_status_t status)
{
    (void)endpoint;
    disti_ucx_peer_lose(arg, ucs_status_string(status));
}

/* ---- endpoints ---- */

bool disti_ucx_peer_open(struct ucx_peer *peer)
{
    const ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address = peer->address,
        .err_mode = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {.cb = peer_error, .arg = peer},
    };
    ucs_status_t status;

    if (peer->phase == UCX_OPEN)
        return true;
    if (ucx_is_lost(peer)) {
        disti_ucx_peer_gone(peer);
        return false;
    }
    status = ucp_ep_create(peer->ucx->worker, &params, &peer->endpoint);
    if (status == UCS_OK) {
        peer_go(peer, UCX_OPEN);
        return true;
    }
    peer->endpoint = NULL;
    peer->ucx->host->log(DIST_LOG_WARN,
                         "UCX cannot reach rank %d (%s): let UCX_TLS and UCX_NET_DEVICES, where "
                         "set, name what both ranks have",
                         peer->rank, ucs_status_string(status));
    disti_ucx_peer_lose(peer, ucs_status_string(status));
    return false;
}

void disti_ucx_peer_greet(struct ucx_peer *peer)
{
    if (peer->phase == UCX_NEW && disti_ucx_peer_open(peer))
        disti_ucx_send_note(peer, UCX_AM_HELLO);
}

static void peer_close(struct ucx_peer *peer)
{
    const ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                       .flags = UCP_EP_CLOSE_FLAG_FORCE};
    void *closing = peer->endpoint ? ucp_ep_close_nbx(peer->endpoint, &param) : NULL;

    peer->endpoint = NULL;
    peer_go(peer, UCX_CLOSED);
    if (UCS_PTR_IS_PTR(closing))
        peer->closing = closing;
}

void disti_ucx_peers_reap(struct ucx_state *ucx)
{
    ucx->failures = false;
    for (int r = 0; r < ucx->ranks; r++) {
        if (ucx->peers[r].phase == UCX_FAILED)
            peer_close(&ucx->peers[r]);
    }
}

/* ---- waiting for UCX ---- */

/* Until UCX is done with the request, or the time is over: false. Frees it. */
static bool peer_wait(struct ucx_state *ucx, void *request, int64_t deadline)
{
    bool done;

    if (!UCS_PTR_IS_PTR(request))
        return true;
    while (ucp_request_check_status(request) == UCS_INPROGRESS && !disti_expired(deadline)) {
        if (ucp_worker_progress(ucx->worker) == 0)
            disti_sleep_ns(20 * 1000);
    }
    done = ucp_request_check_status(request) != UCS_INPROGRESS;
    ucp_request_free(request);
    return done;
}

void disti_ucx_peers_wait_closed(struct ucx_state *ucx)
{
    int64_t deadline = disti_deadline_ms(PEER_LEAVE_MS);

    for (int r = 0; r < ucx->ranks; r++) {
        peer_wait(ucx, ucx->peers[r].closing, deadline);
        ucx->peers[r].closing = NULL;
    }
}

/* ---- leaving ---- */

/*
 * UCX 1.13 crashes where it hears of a peer's close of a connection whose last bytes it has not
 * sent, and which it has closed (tcp_iface.c: the event to read frees what the event to write is
 * for). So where something has not left, the worker ends without another look.
 */
void disti_ucx_peers_leave(struct ucx_state *ucx)
{
    const ucp_request_param_t param = {0};
    int64_t deadline = disti_deadline_ms(PEER_LEAVE_MS);
    bool all_left;

    for (int r = 0; r < ucx->ranks; r++) {
        if (ucx->peers[r].phase == UCX_OPEN)
            disti_ucx_send_note(&ucx->peers[r], UCX_AM_GOODBYE);
    }
    all_left = peer_wait(ucx, ucp_worker_flush_nbx(ucx->worker, &param), deadline);
    for (int r = 0; r < ucx->ranks; r++) {
        if (ucx->peers[r].endpoint)
            peer_close(&ucx->peers[r]);
    }
    if (all_left)
        disti_ucx_peers_wait_closed(ucx);
}
