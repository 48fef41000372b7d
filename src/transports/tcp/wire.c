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

uint32_t disti_tcp_frame_take_sum(unsigned char *bytes)
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

bool disti_tcp_frame_decode(const unsigned char *bytes, enum disti_tcp_kind *kind_p,
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
