/* SPDX-License-Identifier: BSD-3-Clause */
/* Encoding and decoding of addresses, hellos and frames. */
#include "transports/tcp/tcp_wire.h"

#include <endian.h>
#include <string.h>

#define WIRE_ADDRESS_VERSION 1

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

void disti_tcp_address_encode(const struct disti_tcp_endpoint *endpoint, unsigned char *blob)
{
    memset(blob, 0, DISTI_TCP_ADDRESS_BYTES);
    blob[0] = WIRE_ADDRESS_VERSION;
    blob[1] = (unsigned char)endpoint->family;
    wire_put16(blob + 2, endpoint->port);
    wire_put64(blob + 8, endpoint->machine);
    memcpy(blob + 16, endpoint->host, sizeof(endpoint->host));
}

bool disti_tcp_address_decode(const unsigned char *blob, size_t size,
                              struct disti_tcp_endpoint *endpoint_p)
{
    if (size != DISTI_TCP_ADDRESS_BYTES || blob[0] != WIRE_ADDRESS_VERSION ||
        (blob[1] != 4 && blob[1] != 6) || wire_get16(blob + 2) == 0)
        return false;
    endpoint_p->family = blob[1];
    endpoint_p->port = wire_get16(blob + 2);
    endpoint_p->machine = wire_get64(blob + 8);
    memcpy(endpoint_p->host, blob + 16, sizeof(endpoint_p->host));
    return true;
}

void disti_tcp_hello_encode(const struct disti_tcp_hello *hello, unsigned char *bytes)
{
    memset(bytes, 0, DISTI_TCP_HELLO_BYTES);
    memcpy(bytes, wire_magic, sizeof(wire_magic));
    wire_put16(bytes + 8, DISTI_TCP_VERSION);
    wire_put32(bytes + 12, hello->world_size);
    wire_put32(bytes + 16, hello->from);
    wire_put32(bytes + 20, hello->to);
    wire_put64(bytes + 24, hello->job);
}

bool disti_tcp_hello_decode(const unsigned char *bytes, struct disti_tcp_hello *hello_p)
{
    if (memcmp(bytes, wire_magic, sizeof(wire_magic)) != 0 ||
        wire_get16(bytes + 8) != DISTI_TCP_VERSION || wire_get16(bytes + 10) != 0)
        return false;
    hello_p->world_size = wire_get32(bytes + 12);
    hello_p->from = wire_get32(bytes + 16);
    hello_p->to = wire_get32(bytes + 20);
    hello_p->job = wire_get64(bytes + 24);
    return true;
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

bool disti_tcp_frame_decode(const unsigned char *bytes, enum disti_tcp_kind *kind_p,
                            struct dist_envelope *envelope_p)
{
    uint16_t kind = wire_get16(bytes + 4);

    if (memcmp(bytes, wire_frame_magic, sizeof(wire_frame_magic)) != 0 ||
        wire_get16(bytes + 6) != 0 || (kind != DISTI_TCP_MESSAGE && kind != DISTI_TCP_GOODBYE))
        return false;
    envelope_p->tag = wire_get64(bytes + 8);
    envelope_p->fingerprint = wire_get64(bytes + 16);
    envelope_p->bytes = wire_get64(bytes + 24);
    if (kind == DISTI_TCP_GOODBYE &&
        (envelope_p->tag || envelope_p->fingerprint || envelope_p->bytes))
        return false;
    *kind_p = (enum disti_tcp_kind)kind;
    return true;
}

uint64_t disti_tcp_hash(const void *data, size_t bytes, uint64_t seed)
{
    const unsigned char *at = data;
    uint64_t hash = UINT64_C(14695981039346656037) ^ seed;

    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ at[i]) * UINT64_C(1099511628211);
    return hash;
}
