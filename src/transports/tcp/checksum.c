/* SPDX-License-Identifier: BSD-3-Clause */
/* DIST_CHECKSUM: what is sent carries a CRC-32C, and what comes is compared with it. */
#include "base/faults/faults.h"
#include "base/kernels/crc32c.h"
#include "base/log.h"
#include "base/settings/config.h"
#include "transports/tcp/state.h"

#include <string.h>

dist_status disti_tcp_checksum_setting(struct tcp_state *state)
{
    int wanted;
    dist_status status = disti_env_int("DIST_CHECKSUM", 0, 1, 0, &wanted);

    if (status == DIST_OK)
        state->checksum = wanted;
    return status;
}

static uint32_t checksum_header(const unsigned char *frame)
{
    return disti_crc32c(0, frame + DISTI_TCP_SUM_BYTES,
                        DISTI_TCP_FRAME_BYTES - DISTI_TCP_SUM_BYTES);
}

void disti_tcp_seal(const struct tcp_peer *peer, unsigned char *frame,
                    const struct dist_request *request, uint64_t offset, uint64_t bytes)
{
    uint32_t sum;

    if (!peer->checksum)
        return;
    sum = checksum_header(frame);
    if (bytes)
        sum = disti_crc32c(sum, (const char *)request->data + offset, (size_t)bytes);
    if (bytes && disti_faults_is_flipped(request->data)) /* on the wire, that is */
        sum ^= 1;
    disti_tcp_frame_put_sum(frame, sum);
}

const unsigned char *disti_tcp_unseal(struct tcp_incoming *in, const unsigned char *frame,
                                      unsigned char unsealed[DISTI_TCP_FRAME_BYTES])
{
    memcpy(unsealed, frame, DISTI_TCP_FRAME_BYTES);
    in->sum_wanted = disti_tcp_frame_take_sum(unsealed);
    in->sum = in->sum_header = checksum_header(unsealed);
    return unsealed;
}

void disti_tcp_sum(const struct tcp_peer *peer, struct tcp_incoming *in, const void *data,
                   size_t bytes)
{
    if (peer->checksum)
        in->sum = disti_crc32c(in->sum, data, bytes);
}

void disti_tcp_sum_again(const struct tcp_peer *peer, struct tcp_incoming *in, const void *data,
                         size_t bytes)
{
    in->sum = in->sum_header;
    disti_tcp_sum(peer, in, data, bytes);
}

bool disti_tcp_sum_fits(struct tcp_state *state, const struct tcp_conn *conn)
{
    if (!conn->peer->checksum || conn->in.sum == conn->in.sum_wanted)
        return true;
    /* The others' errors may come before this one: they know that a connection ended, not why. */
    disti_notice("rank %d: what rank %d sent was damaged on the way, DIST_CHECKSUM shows",
                 state->rank, conn->peer->rank);
    disti_tcp_lose(state, conn->peer, 0,
                   "what it sent was damaged on the way, DIST_CHECKSUM shows: look for faulty "
                   "memory or network cards on both hosts");
    return false;
}
