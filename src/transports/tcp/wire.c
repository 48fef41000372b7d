/* SPDX-License-Identifier: BSD-3-Clause */
/* Encoding and decoding of addresses, hellos and frames. */
#include "base/settings/config.h"

#include "base/faults.h"
#include "base/kernels/crc32c.h"
#include "base/log.h"
#include "transports/tcp/state.h"
#include "transports/tcp/wire.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#define WIRE_ADDRESS_VERSION 2
#define WIRE_FLAG_CHECKSUM 0x80

static const unsigned char wire_magic[8] = {'d', 'i', 's', 't', '-', 't', 'c', 'p'};
static const unsigned char wire_frame_magic[4] = {'d', 'm', 's', 'g'};

static void wire_put16(unsigned char *to, uint16_t value)
{
    value = htole16(value);
    memcpy(to, &value, sizeof(value));
}

static void wire_put32(unsigned char *to, uint32_t value)
{
    value = htole32(value);
    memcpy(to, &value, sizeof(value));
}

static void wire_put64(unsigned char *to, uint64_t value)
{
    value = htole64(value);
    memcpy(to, &value, sizeof(value));
}

static uint16_t wire_get16(const unsigned char *from)
{
    uint16_t value;

    memcpy(&value, from, sizeof(value));
    return le16toh(value);
}

static uint32_t wire_get32(const unsigned char *from)
{
    uint32_t value;

    memcpy(&value, from, sizeof(value));
    return le32toh(value);
}

static uint64_t wire_get64(const unsigned char *from)
{
    uint64_t value;

    memcpy(&value, from, sizeof(value));
    return le64toh(value);
}

size_t disti_tcp_address_encode(const struct disti_tcp_address *address, unsigned char *blob)
{
    const struct disti_tcp_endpoint *first = &address->endpoint[0];
    unsigned char *further = blob + DISTI_TCP_ADDRESS_BYTES;

    memset(blob, 0, DISTI_TCP_ADDRESS_BYTES);
    blob[0] = WIRE_ADDRESS_VERSION;
    blob[1] = (unsigned char)first->family;
    wire_put16(blob + 2, first->port);
    blob[4] = (unsigned char)(address->interfaces - 1);
    blob[5] = (unsigned char)address->sockets;
    wire_put64(blob + 8, first->machine);
    memcpy(blob + 16, first->host, sizeof(first->host));
    for (int i = 1; i < address->interfaces; i++, further += DISTI_TCP_FURTHER_BYTES) {
        memset(further, 0, DISTI_TCP_FURTHER_BYTES);
        wire_put16(further, address->endpoint[i].port);
        memcpy(further + 8, address->endpoint[i].host, sizeof(address->endpoint[i].host));
    }
    return (size_t)(further - blob);
}

bool disti_tcp_address_decode(const unsigned char *blob, size_t size,
                              struct disti_tcp_address *address_p)
{
    const unsigned char *further = blob + DISTI_TCP_ADDRESS_BYTES;
    struct disti_tcp_address address = {0};

    if (size < DISTI_TCP_ADDRESS_BYTES || blob[0] != WIRE_ADDRESS_VERSION ||
        (blob[1] != 4 && blob[1] != 6) || blob[4] >= DISTI_TCP_INTERFACES ||
        blob[5] > DISTI_TCP_SOCKETS ||
        size != DISTI_TCP_ADDRESS_BYTES + blob[4] * (size_t)DISTI_TCP_FURTHER_BYTES)
        return false;
    address.interfaces = blob[4] + 1;
    address.sockets = blob[5];
    for (int i = 0; i < address.interfaces; i++) {
        struct disti_tcp_endpoint *endpoint = &address.endpoint[i];

        endpoint->family = blob[1];
        endpoint->machine = wire_get64(blob + 8);
        endpoint->port = wire_get16(i ? further : blob + 2);
        memcpy(endpoint->host, i ? further + 8 : blob + 16, sizeof(endpoint->host));
        if (endpoint->port == 0)
            return false;
        further += i ? DISTI_TCP_FURTHER_BYTES : 0;
    }
    *address_p = address;
    return true;
}

void disti_tcp_hello_encode(const struct disti_tcp_hello *hello, unsigned char *bytes)
{
    memset(bytes, 0, DISTI_TCP_HELLO_BYTES);
    memcpy(bytes, wire_magic, sizeof(wire_magic));
    wire_put16(bytes + 8, DISTI_TCP_VERSION);
    bytes[10] = (unsigned char)(hello->step | (hello->checksum ? WIRE_FLAG_CHECKSUM : 0));
    bytes[11] = (unsigned char)hello->socket;
    wire_put32(bytes + 12, hello->world_size);
    wire_put32(bytes + 16, hello->from);
    wire_put32(bytes + 20, hello->to);
    wire_put64(bytes + 24, hello->job);
    wire_put64(bytes + 32, hello->credit);
    memcpy(bytes + 40, hello->nonce, sizeof(hello->nonce));
    memcpy(bytes + 72, hello->proof, sizeof(hello->proof));
}

bool disti_tcp_hello_decode(const unsigned char *bytes, struct disti_tcp_hello *hello_p)
{
    if (memcmp(bytes, wire_magic, sizeof(wire_magic)) != 0 ||
        wire_get16(bytes + 8) != DISTI_TCP_VERSION ||
        (bytes[10] & ~WIRE_FLAG_CHECKSUM) > DISTI_TCP_ANSWER || bytes[11] >= DISTI_TCP_SOCKETS)
        return false;
    hello_p->step = (enum disti_tcp_step)(bytes[10] & ~WIRE_FLAG_CHECKSUM);
    hello_p->checksum = bytes[10] & WIRE_FLAG_CHECKSUM;
    hello_p->socket = bytes[11];
    hello_p->world_size = wire_get32(bytes + 12);
    hello_p->from = wire_get32(bytes + 16);
    hello_p->to = wire_get32(bytes + 20);
    hello_p->job = wire_get64(bytes + 24);
    hello_p->credit = wire_get64(bytes + 32);
    memcpy(hello_p->nonce, bytes + 40, sizeof(hello_p->nonce));
    memcpy(hello_p->proof, bytes + 72, sizeof(hello_p->proof));
    return true;
}

void disti_tcp_hello_prove(const struct disti_secret *key, const unsigned char *bytes,
                           const unsigned char *nonce, const struct disti_hmac_piece *session,
                           unsigned char proof[DISTI_HMAC_BYTES])
{
    const struct disti_hmac_piece pieces[] = {
        {nonce, DISTI_NONCE_BYTES}, {bytes, 72}, session ? *session : (struct disti_hmac_piece){0}};
    const bool caller = (bytes[10] & ~WIRE_FLAG_CHECKSUM) == DISTI_TCP_PROOF;

    disti_prove(key, caller ? "libdist tcp caller" : "libdist tcp called", pieces,
                session && session->bytes ? 3 : 2, proof);
}

void disti_tcp_frame_encode(enum disti_tcp_kind kind, const struct dist_envelope *envelope,
                            unsigned char *bytes)
{
    memcpy(bytes, wire_frame_magic, sizeof(wire_frame_magic));
    wire_put16(bytes + 4, (uint16_t)kind);
    wire_put16(bytes + 6, 0);
    wire_put64(bytes + 8, envelope->tag);
    wire_put64(bytes + 16, envelope->fingerprint);
    wire_put64(bytes + 24, envelope->bytes);
}

void disti_tcp_frame_put_sum(unsigned char *bytes, uint32_t sum)
{
    wire_put32(bytes, sum);
}

static uint32_t tcp_frame_take_sum(unsigned char *bytes)
{
    uint32_t sum = wire_get32(bytes);

    memcpy(bytes, wire_frame_magic, sizeof(wire_frame_magic));
    return sum;
}

/* What each kind leaves unused is zero. */
static bool wire_frame_sane(enum disti_tcp_kind kind, const struct dist_envelope *envelope)
{
    switch (kind) {
    case DISTI_TCP_GOODBYE:
        return !envelope->tag && !envelope->fingerprint && !envelope->bytes;
    case DISTI_TCP_CREDIT:
        return envelope->tag && !envelope->fingerprint && !envelope->bytes;
    case DISTI_TCP_ASK:
        return envelope->fingerprint <= 1 && !envelope->bytes;
    default:
        return true;
    }
}

static bool tcp_frame_decode(const unsigned char *bytes, enum disti_tcp_kind *kind_p,
                             struct dist_envelope *envelope_p)
{
    uint16_t kind = wire_get16(bytes + 4);

    if (memcmp(bytes, wire_frame_magic, sizeof(wire_frame_magic)) != 0 ||
        wire_get16(bytes + 6) != 0 || kind < DISTI_TCP_MESSAGE || kind > DISTI_TCP_ASK)
        return false;
    envelope_p->tag = wire_get64(bytes + 8);
    envelope_p->fingerprint = wire_get64(bytes + 16);
    envelope_p->bytes = wire_get64(bytes + 24);
    *kind_p = (enum disti_tcp_kind)kind;
    return wire_frame_sane(*kind_p, envelope_p);
}

/* What a frame means that has come: a message begins, or a word about messages. */

static bool frame_bad(struct tcp_state *state, struct tcp_conn *conn)
{
    disti_tcp_lose(state, conn->peer, 0, "it sent what is not a message of libdist");
    return false;
}

/*
 * No receive waits for this message: it is kept. Where a message has just been received, its
 * receiver may be about to post the next receive: it has until the next turn, which spares the
 * copy.
 */
static bool frame_unexpected(struct tcp_state *state, struct tcp_conn *conn,
                             const struct dist_envelope *envelope)
{
    if (conn->finished && conn->state == TCP_CONN_UP) {
        disti_tcp_conn_go(conn, TCP_CONN_RESUMING);
        return false;
    }
    conn->in.unexpected = disti_match_hold(&conn->peer->match, envelope, false);
    if (!conn->in.unexpected)
        disti_tcp_lose(state, conn->peer, ENOMEM, NULL);
    return conn->in.unexpected;
}

/* An announced message's stripes will find it: this connection goes on without it. */
static bool frame_announced(struct tcp_state *state, struct tcp_conn *conn,
                            const struct dist_envelope *envelope)
{
    struct tcp_peer *peer = conn->peer;
    struct tcp_incoming *in = &conn->in;
    uint64_t number = peer->stripes.arrived++;

    if (!disti_tcp_assemble(peer, number, envelope->bytes, in->request, in->unexpected)) {
        disti_tcp_lose(state, peer, ENOMEM, NULL);
        return false;
    }
    in->active = false;
    in->request = NULL;
    in->unexpected = NULL;
    return true;
}

/* A message begins, as a whole or as an announcement. False: it cannot be taken now. */
static bool frame_message(struct tcp_state *state, struct tcp_conn *conn,
                          const struct dist_envelope *envelope, bool whole)
{
    struct tcp_peer *peer = conn->peer;
    struct tcp_incoming *in = &conn->in;
    bool mismatch = false;

    if (!disti_tcp_affords(peer->credit.unused, envelope))
        return frame_bad(state, conn);
    in->request = disti_match_arrival(&peer->match, envelope, &mismatch);
    if (!in->request && !frame_unexpected(state, conn, envelope))
        return false;
    if (mismatch)
        in->request = NULL;
    peer->credit.unused -= envelope->bytes + DISTI_TCP_MESSAGE_COST;
    if (!in->unexpected && (whole || !mismatch))
        disti_tcp_give_back(&peer->credit, envelope->bytes);
    in->active = true;
    in->left = envelope->bytes;
    in->offset = 0;
    return whole || frame_announced(state, conn, envelope);
}

dist_status disti_tcp_ask_for(struct tcp_peer *peer, uint64_t number, uint64_t bytes,
                              struct dist_request *request)
{
    dist_status status;

    if (bytes && !disti_tcp_assemble(peer, number, bytes, request, NULL))
        return DIST_ERR_NO_MEMORY;
    status = disti_tcp_ask(peer, number, false);
    if (!bytes && status == DIST_OK) {
        request->next = peer->control.receives;
        peer->control.receives = request;
    }
    return status;
}

/* An offer takes its place in the order of messages, or is answered at once. */
static bool frame_offer(struct tcp_state *state, struct tcp_peer *peer,
                        const struct dist_envelope *envelope)
{
    uint64_t number = peer->stripes.arrived++;
    struct disti_unexpected *unexpected = NULL;
    dist_status status = DIST_OK;
    bool mismatch = false;
    struct dist_request *request = disti_match_arrival(&peer->match, envelope, &mismatch);

    if (mismatch)
        status = disti_tcp_ask(peer, number, true);
    else if (request)
        status = disti_tcp_ask_for(peer, number, envelope->bytes, request);
    else
        unexpected = disti_match_hold(&peer->match, envelope, true);
    if (unexpected)
        unexpected->note[0] = number;
    if (status == DIST_OK && (unexpected || request))
        return true;
    if (request && request->status == DIST_IN_PROGRESS)
        request->status = DIST_ERR_NO_MEMORY;
    disti_tcp_lose(state, peer, ENOMEM, NULL);
    return false;
}

/* A stripe begins. On a further connection it may have to wait for its announcement. */
static bool frame_stripe(struct tcp_state *state, struct tcp_conn *conn,
                         const struct dist_envelope *frame)
{
    enum tcp_stripe_answer answer = disti_tcp_stripe_begin(conn, frame);

    if (answer == TCP_STRIPE_BAD || (answer == TCP_STRIPE_WAIT && conn->number == 0))
        return frame_bad(state, conn);
    if (answer == TCP_STRIPE_WAIT)
        disti_tcp_conn_go(conn, TCP_CONN_WAITING);
    return answer == TCP_STRIPE_OK;
}

static bool frame_has_payload(enum disti_tcp_kind kind)
{
    return kind == DISTI_TCP_MESSAGE || kind == DISTI_TCP_STRIPE;
}

/* Any frame of the first connection but a stripe's. */
static bool frame_of_first(struct tcp_state *state, struct tcp_conn *conn, enum disti_tcp_kind kind,
                           const struct dist_envelope *frame)
{
    struct tcp_peer *peer = conn->peer;

    switch (kind) {
    case DISTI_TCP_MESSAGE:
        return frame_message(state, conn, frame, true);
    case DISTI_TCP_ANNOUNCED:
        if (peer->conns == 1 || frame->bytes < DISTI_TCP_STRIPED_LEAST)
            return frame_bad(state, conn);
        return frame_message(state, conn, frame, false);
    case DISTI_TCP_OFFERED:
        return frame_offer(state, peer, frame);
    case DISTI_TCP_CREDIT:
        return disti_tcp_credit_came(peer, frame->tag) || frame_bad(state, conn);
    case DISTI_TCP_ASK:
        return disti_tcp_asked(peer, frame->tag, frame->fingerprint) || frame_bad(state, conn);
    default:
        return disti_tcp_conn_go(conn, TCP_CONN_LEAVING) == DIST_OK;
    }
}

static const unsigned char *tcp_unseal(struct tcp_incoming *in, const unsigned char *frame,
                                       unsigned char unsealed[DISTI_TCP_FRAME_BYTES]);

bool disti_tcp_frame(struct tcp_state *state, struct tcp_conn *conn, const unsigned char *bytes)
{
    unsigned char unsealed[DISTI_TCP_FRAME_BYTES];
    struct dist_envelope frame;
    enum disti_tcp_kind kind;

    if (conn->peer->checksum)
        bytes = tcp_unseal(&conn->in, bytes, unsealed);
    if (!tcp_frame_decode(bytes, &kind, &frame))
        return frame_bad(state, conn);
    if (!frame_has_payload(kind) && !disti_tcp_sum_fits(state, conn))
        return false;
    if (kind == DISTI_TCP_STRIPE)
        return frame_stripe(state, conn, &frame);
    if (conn->number || conn->state == TCP_CONN_LEAVING)
        return frame_bad(state, conn);
    return frame_of_first(state, conn, kind, &frame);
}

/* DIST_CHECKSUM: what is sent carries a CRC-32C, and what comes is compared with it. */

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

/* A sealed frame has come. Returns `unsealed`: what it was before. */
static const unsigned char *tcp_unseal(struct tcp_incoming *in, const unsigned char *frame,
                                       unsigned char unsealed[DISTI_TCP_FRAME_BYTES])
{
    memcpy(unsealed, frame, DISTI_TCP_FRAME_BYTES);
    in->sum_wanted = tcp_frame_take_sum(unsealed);
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
