/* SPDX-License-Identifier: BSD-3-Clause */
/* What the tcp transport puts on the wire: all fields little-endian, of fixed width. */
#ifndef DISTI_TRANSPORTS_TCP_WIRE_H
#define DISTI_TRANSPORTS_TCP_WIRE_H

#include "base/auth.h"

#include <dist/transport.h>

/*
 * Address, handed to the peers by the rendezvous: 32 bytes and, for each interface beyond the
 * first, 24 more:
 *
 *      0  u8   version         4  u8   further interfaces      8  u64      machine and namespace
 *      1  u8   family: 4, 6    5  u8   sockets a pair, 0:     16  u8[16]   IPv4 in the first 4,
 *      2  u16  port                    one an interface                    or IPv6
 *                              6  u16  zero
 *
 *      0  u16  port            2  u8[6]  zero                  8  u8[16]   as above
 */
#define DISTI_TCP_ADDRESS_BYTES 32
#define DISTI_TCP_FURTHER_BYTES 24
/* Interfaces of a rank that carry, and sockets of a pair. */
#define DISTI_TCP_INTERFACES 8
#define DISTI_TCP_SOCKETS 16 /* as DIST_TCP_SOCKETS allows in variables.def */

struct disti_tcp_endpoint {
    int family; /* 4 or 6 */
    uint16_t port;
    uint64_t machine;
    uint8_t host[16];
};

struct disti_tcp_address {
    int interfaces; /* 1 to 8 */
    int sockets;    /* that this rank wants with each peer; 0: one an interface */
    struct disti_tcp_endpoint endpoint[DISTI_TCP_INTERFACES]; /* of one family and machine */
};

/* Returns the bytes of it; at most DIST_ADDRESS_MAX. */
size_t disti_tcp_address_encode(const struct disti_tcp_address *address, unsigned char *blob);
bool disti_tcp_address_decode(const unsigned char *blob, size_t size,
                              struct disti_tcp_address *address_p);

/*
 * The handshake of base/auth.h: four hellos of 104 bytes, the first and third from the
 * caller, the others from the one who was called; nothing else travels before all have been
 * accepted:
 *
 *      0  u8[8] magic "dist-tcp"       16  u32  sender's rank      32  u64     credit
 *      8  u16   version                20  u32  receiver's rank    40  u8[32]  sender's nonce
 *     10  u8    step and flag, below   24  u64  hash of the job    72  u8[32]  proof
 *     11  u8    which socket of the pair, from 0
 *     12  u32   world size
 *
 * credit: what the receiver of this hello may send before its receives are posted (see frames).
 *
 * flag, 0x80: frames carry checksums, on both sides or on none.
 *
 * CALL and CHALLENGE have no proof, but zero bytes: whoever has called knows no more of the other
 * than his nonce, and is nobody yet. PROOF and ANSWER repeat their sender's nonce; their proof,
 * with the key of the world, is over both nonces and all fields of the hello itself.
 */
#define DISTI_TCP_HELLO_BYTES 104
#define DISTI_TCP_VERSION 4

enum disti_tcp_step { DISTI_TCP_CALL, DISTI_TCP_CHALLENGE, DISTI_TCP_PROOF, DISTI_TCP_ANSWER };

struct disti_tcp_hello {
    uint32_t world_size;
    uint32_t from;
    uint32_t to;
    uint64_t job;
    uint64_t credit;
    int socket; /* below DISTI_TCP_SOCKETS */
    bool checksum;
    enum disti_tcp_step step;
    unsigned char nonce[DISTI_NONCE_BYTES];
    unsigned char proof[DISTI_HMAC_BYTES];
};

void disti_tcp_hello_encode(const struct disti_tcp_hello *hello, unsigned char *bytes);

/* False: not a hello of this version. Ranks, job and proof are the caller's to judge. */
bool disti_tcp_hello_decode(const unsigned char *bytes, struct disti_tcp_hello *hello_p);

/*
 * The proof of a packed PROOF or ANSWER, whose receiver's nonce is `nonce`; over the binding of the
 * TLS session too, if there is one (NULL, or no bytes: there is none).
 */
void disti_tcp_hello_prove(const struct disti_secret *key, const unsigned char *bytes,
                           const unsigned char *nonce, const struct disti_hmac_piece *session,
                           unsigned char proof[DISTI_HMAC_BYTES]);

/*
 * Frame, 32 bytes, then `bytes` bytes of payload:
 *
 *      0  u32  magic "dmsg"     8  u64  tag              24  u64  bytes
 *      4  u16  kind            16  u64  fingerprint
 *      6  u16  flags, zero
 *
 * With checksums the CRC-32C of the other 28 bytes and of the payload stands in place of the magic.
 *
 * A goodbye has no payload, its other fields are zero, and no frame follows it.
 *
 * A message may also be only announced, or offered: its frame then has no payload, which comes in
 * stripes, on any socket of the pair and in any order; of one that is offered only when the
 * receiver has asked for it. A stripe's frame says in place of the tag which message it is of, and
 * in place of the fingerprint where its bytes begin: a multiple of 64, and so are its bytes, but
 * for a message's last stripe. So no element is cut. Announced and offered messages are counted
 * together, from 0 in each direction. Only pairs with several sockets announce, and only messages
 * of 64 KiB and more. Further sockets carry stripes and nothing else, the first has all the rest.
 *
 * A message that comes whole or is announced may have to be kept until its receive is posted, so it
 * costs credit: its bytes, and 128 more. When it is matched the receiver gives that back, many
 * messages' at once. A message for which no credit is left is offered.
 *
 *                 tag                        fingerprint                   bytes
 *      credit     bytes that are given back  0                             0
 *      ask        number of the message      0: send it; 1: throw it away  0
 */
#define DISTI_TCP_FRAME_BYTES 32

enum disti_tcp_kind {
    DISTI_TCP_MESSAGE = 1,
    DISTI_TCP_GOODBYE = 2,
    DISTI_TCP_ANNOUNCED = 3,
    DISTI_TCP_STRIPE = 4,
    DISTI_TCP_RTS = 5,
    DISTI_TCP_CREDIT = 6,
    DISTI_TCP_CTS = 7
};

/* What a message costs beside its bytes: about what its place among the unexpected ones takes. */
#define DISTI_TCP_MESSAGE_COST 128

void disti_tcp_frame_encode(enum disti_tcp_kind kind, const struct dist_envelope *envelope,
                            unsigned char *bytes);
/* False: not a frame, or a field that its kind leaves unused is not zero. */
bool disti_tcp_frame_decode(const unsigned char *bytes, enum disti_tcp_kind *kind_p,
                            struct dist_envelope *envelope_p);

/* Puts a checksum in place of the magic; and takes it, and puts the magic back. */
#define DISTI_TCP_SUM_BYTES 4
void disti_tcp_frame_put_sum(unsigned char *bytes, uint32_t sum);
uint32_t disti_tcp_frame_take_sum(unsigned char *bytes);

#endif
