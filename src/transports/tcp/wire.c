/* SPDX-License-Identifier: BSD-3-Clause */
/* Encoding and decoding of addresses, hellos and frames. */
#include "transports/tcp/wire.h"

#include <endian.h>
#include <stddef.h>
#include <string.h>

#define WIRE_ADDRESS_VERSION 2
#define WIRE_FLAG_CHECKSUM 0x80

static const unsigned char wire_magic[8] = {'d', 'i', 's', 't', '-', 't', 'c', 'p'};
static const unsigned char wire_frame_magic[4] = {'d', 'm', 's', 'g'};

/* The layouts in wire.h; all fields are little-endian. */
struct wire_address {
    uint8_t version, family;
    uint16_t port;
    uint8_t further, sockets;
    uint16_t zero;
    uint64_t machine;
    uint8_t host[16];
};

struct wire_further {
    uint16_t port;
    uint8_t zero[6];
    uint8_t host[16];
};

struct wire_hello {
    uint8_t magic[sizeof(wire_magic)];
    uint16_t version;
    uint8_t step, socket;
    uint32_t world_size, from, to;
    uint64_t job, credit;
    uint8_t nonce[DISTI_NONCE_BYTES], proof[DISTI_HMAC_BYTES];
};

struct wire_frame {
    uint8_t magic[sizeof(wire_frame_magic)];
    uint16_t kind, flags;
    uint64_t tag, fingerprint, bytes;
};

_Static_assert(sizeof(struct wire_address) == DISTI_TCP_ADDRESS_BYTES &&
                   sizeof(struct wire_further) == DISTI_TCP_FURTHER_BYTES &&
                   sizeof(struct wire_hello) == DISTI_TCP_HELLO_BYTES &&
                   sizeof(struct wire_frame) == DISTI_TCP_FRAME_BYTES,
               "the layouts have no gaps");

size_t disti_tcp_address_encode(const struct disti_tcp_address *address, unsigned char *blob)
{
    const struct disti_tcp_endpoint *first = &address->endpoint[0];
    struct wire_address head = {.version = WIRE_ADDRESS_VERSION,
                                .family = (uint8_t)first->family,
                                .port = htole16(first->port),
                                .further = (uint8_t)(address->interfaces - 1),
                                .sockets = (uint8_t)address->sockets,
                                .machine = htole64(first->machine)};
    unsigned char *at = blob + sizeof(head);

    memcpy(head.host, first->host, sizeof(head.host));
    memcpy(blob, &head, sizeof(head));
    for (int i = 1; i < address->interfaces; i++, at += sizeof(struct wire_further)) {
        struct wire_further further = {.port = htole16(address->endpoint[i].port)};

        memcpy(further.host, address->endpoint[i].host, sizeof(further.host));
        memcpy(at, &further, sizeof(further));
    }
    return (size_t)(at - blob);
}

bool disti_tcp_address_decode(const unsigned char *blob, size_t size,
                              struct disti_tcp_address *address_p)
{
    struct disti_tcp_address address = {0};
    struct wire_address head;
    struct wire_further further;

    if (size < sizeof(head))
        return false;
    memcpy(&head, blob, sizeof(head));
    if (head.version != WIRE_ADDRESS_VERSION || (head.family != 4 && head.family != 6) ||
        head.further >= DISTI_TCP_INTERFACES || head.sockets > DISTI_TCP_SOCKETS ||
        size != sizeof(head) + head.further * sizeof(further))
        return false;
    address.interfaces = head.further + 1;
    address.sockets = head.sockets;
    for (int i = 0; i < address.interfaces; i++) {
        struct disti_tcp_endpoint *endpoint = &address.endpoint[i];

        if (i)
            memcpy(&further, blob + sizeof(head) + (size_t)(i - 1) * sizeof(further),
                   sizeof(further));
        endpoint->family = head.family;
        endpoint->machine = le64toh(head.machine);
        endpoint->port = le16toh(i ? further.port : head.port);
        memcpy(endpoint->host, i ? further.host : head.host, sizeof(endpoint->host));
        if (endpoint->port == 0)
            return false;
    }
    *address_p = address;
    return true;
}

void disti_tcp_hello_encode(const struct disti_tcp_hello *hello, unsigned char *bytes)
{
    struct wire_hello wire = {
        .version = htole16(DISTI_TCP_VERSION),
        .step = (uint8_t)(hello->step | (hello->checksum ? WIRE_FLAG_CHECKSUM : 0)),
        .socket = (uint8_t)hello->socket,
        .world_size = htole32(hello->world_size),
        .from = htole32(hello->from),
        .to = htole32(hello->to),
        .job = htole64(hello->job),
        .credit = htole64(hello->credit)};

    memcpy(wire.magic, wire_magic, sizeof(wire_magic));
    memcpy(wire.nonce, hello->nonce, sizeof(wire.nonce));
    memcpy(wire.proof, hello->proof, sizeof(wire.proof));
    memcpy(bytes, &wire, sizeof(wire));
}

bool disti_tcp_hello_decode(const unsigned char *bytes, struct disti_tcp_hello *hello_p)
{
    struct wire_hello wire;

    memcpy(&wire, bytes, sizeof(wire));
    if (memcmp(wire.magic, wire_magic, sizeof(wire_magic)) != 0 ||
        le16toh(wire.version) != DISTI_TCP_VERSION ||
        (wire.step & ~WIRE_FLAG_CHECKSUM) > DISTI_TCP_ANSWER || wire.socket >= DISTI_TCP_SOCKETS)
        return false;
    *hello_p =
        (struct disti_tcp_hello){.step = (enum disti_tcp_step)(wire.step & ~WIRE_FLAG_CHECKSUM),
                                 .checksum = wire.step & WIRE_FLAG_CHECKSUM,
                                 .socket = wire.socket,
                                 .world_size = le32toh(wire.world_size),
                                 .from = le32toh(wire.from),
                                 .to = le32toh(wire.to),
                                 .job = le64toh(wire.job),
                                 .credit = le64toh(wire.credit)};
    memcpy(hello_p->nonce, wire.nonce, sizeof(hello_p->nonce));
    memcpy(hello_p->proof, wire.proof, sizeof(hello_p->proof));
    return true;
}

void disti_tcp_hello_prove(const struct disti_secret *key, const unsigned char *bytes,
                           const unsigned char *nonce, const struct disti_hmac_piece *session,
                           unsigned char proof[DISTI_HMAC_BYTES])
{
    const struct disti_hmac_piece pieces[] = {{nonce, DISTI_NONCE_BYTES},
                                              {bytes, offsetof(struct wire_hello, proof)},
                                              session ? *session : (struct disti_hmac_piece){0}};
    const bool caller =
        (bytes[offsetof(struct wire_hello, step)] & ~WIRE_FLAG_CHECKSUM) == DISTI_TCP_PROOF;

    disti_prove(key, caller ? "libdist tcp caller" : "libdist tcp called", pieces,
                session && session->bytes ? 3 : 2, proof);
}

void disti_tcp_frame_encode(enum disti_tcp_kind kind, const struct dist_envelope *envelope,
                            unsigned char *bytes)
{
    const struct wire_frame frame = {.magic = {'d', 'm', 's', 'g'},
                                     .kind = htole16((uint16_t)kind),
                                     .tag = htole64(envelope->tag),
                                     .fingerprint = htole64(envelope->fingerprint),
                                     .bytes = htole64(envelope->bytes)};

    memcpy(bytes, &frame, sizeof(frame));
}

void disti_tcp_frame_put_sum(unsigned char *bytes, uint32_t sum)
{
    sum = htole32(sum);
    memcpy(bytes, &sum, sizeof(sum));
}

uint32_t disti_tcp_frame_take_sum(unsigned char *bytes)
{
    uint32_t sum;

    memcpy(&sum, bytes, sizeof(sum));
    memcpy(bytes, wire_frame_magic, sizeof(wire_frame_magic));
    return le32toh(sum);
}

bool disti_tcp_frame_decode(const unsigned char *bytes, enum disti_tcp_kind *kind_p,
                            struct dist_envelope *envelope_p)
{
    struct wire_frame frame;
    enum disti_tcp_kind kind;
    bool fits = false; /* the fields are valid for the kind */

    memcpy(&frame, bytes, sizeof(frame));
    kind = (enum disti_tcp_kind)le16toh(frame.kind);
    if (memcmp(frame.magic, wire_frame_magic, sizeof(wire_frame_magic)) != 0 || frame.flags != 0)
        return false;
    switch (kind) {
    case DISTI_TCP_MESSAGE:
    case DISTI_TCP_ANNOUNCED:
    case DISTI_TCP_STRIPE:
    case DISTI_TCP_RTS:
        fits = true;
        break;
    case DISTI_TCP_GOODBYE:
        fits = !frame.tag && !frame.fingerprint && !frame.bytes;
        break;
    case DISTI_TCP_CREDIT:
        fits = frame.tag && !frame.fingerprint && !frame.bytes;
        break;
    case DISTI_TCP_CTS:
        fits = le64toh(frame.fingerprint) <= 1 && !frame.bytes;
        break;
    }
    if (!fits)
        return false;
    *kind_p = kind;
    envelope_p->tag = le64toh(frame.tag);
    envelope_p->fingerprint = le64toh(frame.fingerprint);
    envelope_p->bytes = le64toh(frame.bytes);
    return true;
}
