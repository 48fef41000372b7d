/* SPDX-License-Identifier: BSD-3-Clause */
/* Transport ucx: payload that UCX is told to fetch, into place or to be reduced. */
#include "transports/ucx/state.h"

#include <stdlib.h>

/* Is it thrown away instead of fetched? */
static bool pull_is_dropped(const struct ucx_inbound *inbound)
{
    return !inbound->request || ucx_is_lost(inbound->peer);
}

static unsigned char *pull_scratch(struct ucx_state *ucx)
{
    unsigned char *scratch;

    if (ucx->scratches_free)
        return ucx->scratch_free[--ucx->scratches_free];
    if (ucx->scratches == UCX_SCRATCHES)
        return NULL;
    scratch = malloc(UCX_PIECE_BYTES);
    ucx->scratches += scratch != NULL;
    return scratch;
}

/* Ends a pull that was started, or could not be, or need not be. */
static void pull_end(struct ucx_state *ucx, struct ucx_pull *pull, dist_status status)
{
    struct ucx_inbound *inbound = pull->inbound;

    if (status == DIST_OK && pull->scratch && inbound->request &&
        disti_ucx_inbound_holds(inbound, pull->offset, pull->bytes))
        ucx->host->sink_apply(&inbound->request->sink, pull->offset, pull->scratch, pull->bytes);
    if (pull->scratch)
        ucx->scratch_free[ucx->scratches_free++] = pull->scratch;
    if (inbound->status == DIST_OK)
        inbound->status = status;
    inbound->left -= pull->bytes;
    inbound->pulling--;
    inbound->in_place -= pull->in_place;
    ucx->happened++;
    free(pull);
    disti_ucx_inbound_finish(inbound);
}

/* A pull that UCX refuses because the peer is gone is not its receiver's choice: never OK. */
static dist_status pull_status(struct ucx_peer *peer, ucs_status_t status)
{
    if (status == UCS_ERR_CANCELED)
        status = UCS_ERR_CONNECTION_RESET;
    return disti_ucx_ended(peer, status);
}

static void pull_ended(void *ucx_request, ucs_status_t status, size_t length, void *arg)
{
    struct ucx_pull *pull = arg;
    struct ucx_state *ucx = pull->ucx;

    (void)length;
    ucp_request_free(ucx_request);
    if (!ucx->closing) {
        pull_end(ucx, pull, pull_status(pull->inbound->peer, status));
        return;
    }
    if (pull->scratch)
        ucx->scratch_free[ucx->scratches_free++] = pull->scratch;
    free(pull);
}

static void pull_start(struct ucx_state *ucx, struct ucx_pull *pull)
{
    const ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                        UCP_OP_ATTR_FIELD_MEMORY_TYPE,
        .cb.recv_am = pull_ended,
        .user_data = pull,
        .memory_type = UCS_MEMORY_TYPE_HOST,
    };
    struct ucx_inbound *inbound = pull->inbound;
    void *target =
        pull->scratch ? pull->scratch : (unsigned char *)inbound->request->sink.dst + pull->offset;
    void *got;

    pull->in_place = !pull->scratch; /* it may end within the call */
    inbound->in_place += pull->in_place;
    got = ucp_am_recv_data_nbx(ucx->worker, pull->descriptor, target, pull->bytes, &param);
    if (!UCS_PTR_IS_PTR(got))
        pull_end(ucx, pull, pull_status(inbound->peer, UCS_PTR_STATUS(got)));
}

static void pull_drop(struct ucx_state *ucx, struct ucx_pull *pull)
{
    ucp_am_data_release(ucx->worker, pull->descriptor);
    pull_end(ucx, pull, pull->inbound->request ? DIST_ERR_PEER_LOST : DIST_OK);
}

void disti_ucx_pulls_start(struct ucx_state *ucx)
{
    struct ucx_pull **at = &ucx->ready;

    while (*at) {
        struct ucx_pull *pull = *at;
        bool dropped = pull_is_dropped(pull->inbound) ||
                       !disti_ucx_inbound_holds(pull->inbound, pull->offset, pull->bytes);

        if (!dropped && pull->inbound->request->sink.src) {
            pull->scratch = pull_scratch(ucx);
            if (!pull->scratch) {
                at = &pull->next; /* others may need none */
                continue;
            }
        }
        *at = pull->next;
        (dropped ? pull_drop : pull_start)(ucx, pull);
    }
}

void disti_ucx_pull_ready(struct ucx_state *ucx, struct ucx_pull *pull)
{
    struct ucx_pull **at = &ucx->ready;

    while (*at)
        at = &(*at)->next;
    pull->next = NULL;
    pull->inbound->pulling++;
    *at = pull;
}

void disti_ucx_pulls_drop(struct ucx_state *ucx)
{
    while (ucx->ready) {
        struct ucx_pull *pull = ucx->ready;

        ucx->ready = pull->next;
        ucp_am_data_release(ucx->worker, pull->descriptor);
        free(pull);
    }
}
