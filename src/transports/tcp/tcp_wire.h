/* SPDX-License-Identifier: BSD-3-Clause */
/* What the tcp transport puts on the wire: all fields little-endian, of fixed width. */
#ifndef DISTI_TRANSPORTS_TCP_WIRE_H
#define DISTI_TRANSPORTS_TCP_WIRE_H

#include <dist/transport.h>

/*
 * Address, handed to the peers by the rendezvous, 32 bytes:
 *
 *      0  u8   version         2  u16  port        8  u64      machine and network namespace
 *      1  u8   family: 4, 6    4  u32  zero       16  u8[16]   IPv4 in the first 4, or IPv6
 */
#define DISTI_TCP_ADDRESS_BYTES 32

struct disti_tcp_endpoint {
    int family; /* 4 or 6 */
    uint16_t port;
    uint64_t machine;
    uint8_t host[16];
};

void disti_tcp_address_encode(const struct disti_tcp_endpoint *endpoint, unsigned char *blob);
bool disti_tcp_address_decode(const unsigned char *blob, size_t size,
                              struct disti_tcp_endpoint *endpoint_p);

/*
 * Hello, 96 bytes, from the caller first, then from the one who was called; nothing else
 * travels before both have been accepted:
 *
 *      0  u8[8] magic "dist-tcp"       16  u32  sender's rank      32  u8[32]  nonce, zero
 *      8  u16   version                20  u32  receiver's rank    64  u8[32]  mac, zero
 *     10  u16   flags, zero            24  u64  hash of the job
 *     12  u32   world size
 *
 * flags, nonce and mac are kept for authentication and TLS: a flag that the receiver does
 * not know is a refusal, and with authentication the caller's proof follows as a third hello.
 */
#define DISTI_TCP_HELLO_BYTES 96
#define DISTI_TCP_VERSION 1

struct disti_tcp_hello {
    uint32_t world_size;
    uint32_t from;
    uint32_t to;
    uint64_t job;
};

void disti_tcp_hello_encode(const struct disti_tcp_hello *hello, unsigned char *bytes);

/* False: not a hello of this version. Ranks and job are the caller's to judge. */
bool disti_tcp_hello_decode(const unsigned char *bytes, struct disti_tcp_hello *hello_p);

/*
 * Frame, 32 bytes, then `bytes` bytes of payload:
 *
 *      0  u32  magic "dmsg"     8  u64  tag              24  u64  bytes
 *      4  u16  kind            16  u64  fingerprint
 *      6  u16  flags, zero
 *
 * A goodbye has no payload, its other fields are zero, and no frame follows it.
 */
#define DISTI_TCP_FRAME_BYTES 32

enum disti_tcp_kind { DISTI_TCP_MESSAGE = 1, DISTI_TCP_GOODBYE = 2 };

void disti_tcp_frame_encode(enum disti_tcp_kind kind, const struct dist_envelope *envelope,
                            unsigned char *bytes);
bool disti_tcp_frame_decode(const unsigned char *bytes, enum disti_tcp_kind *kind_p,
                            struct dist_envelope *envelope_p);

/* FNV-1a, 64 bits: tells jobs and machines apart, keeps no secret. */
uint64_t disti_tcp_hash(const void *data, size_t bytes, uint64_t seed);

#endif
