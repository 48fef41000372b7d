/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Wire format of the tcp transport: addresses, hellos and frames. All fields are little-endian and
 * of fixed width.
 */
#ifndef DISTI_TRANSPORTS_TCP_WIRE_H
#define DISTI_TRANSPORTS_TCP_WIRE_H

#include "base/auth.h"

#include <dist/transport.h>

/*
 * An address, as exchanged through the rendezvous: 32 bytes for the first interface, then 24 bytes
 * for each further interface. The two layouts:
 *
 *      0  u8   version         4  u8   further interfaces      8  u64      machine and namespace
 *      1  u8   family: 4, 6    5  u8   sockets per pair,      16  u8[16]   IPv4 in the first 4,
 *      2  u16  port                    0: one per interface                or IPv6
 *                              6  u16  zero
 *
 *      0  u16  port            2  u8[6]  zero                  8  u8[16]   as above
 */
#define DISTI_TCP_ADDRESS_BYTES 32
#define DISTI_TCP_FURTHER_BYTES 24
/* The most interfaces that a rank uses, and the most sockets between two ranks. */
#define DISTI_TCP_INTERFACES 8
#define DISTI_TCP_SOCKETS 16 /* the maximum of DIST_TCP_SOCKETS in variables.def */

struct disti_tcp_endpoint {
    int family; /* 4 or 6 */
    uint16_t port;
    uint64_t machine;
    uint8_t host[16];
};

struct disti_tcp_address {
    int interfaces; /* 1 to 8 */
    int sockets;    /* sockets requested for each peer; 0: one per interface */
    struct disti_tcp_endpoint endpoint[DISTI_TCP_INTERFACES]; /* all of one family and machine */
};

/* Returns the encoded size, at most DIST_ADDRESS_MAX. */
size_t disti_tcp_address_encode(const struct disti_tcp_address *address, unsigned char *blob);
bool disti_tcp_address_decode(const unsigned char *blob, size_t size,
                              struct disti_tcp_address *address_p);

/*
 * The handshake of base/auth.h: four hellos of 104 bytes. The connecting rank sends the first and
 * the third, the accepting rank the second and the fourth. Nothing else is sent before both sides
 * have accepted all hellos:
 *
 *      0  u8[8] magic "dist-tcp"       16  u32  sender's rank      32  u64     credit
 *      8  u16   version                20  u32  receiver's rank    40  u8[32]  sender's nonce
 *     10  u8    step and flag, below   24  u64  hash of the job    72  u8[32]  proof
 *     11  u8    socket of the pair, from 0
 *     12  u32   world size
 *
 * credit: bytes that the receiver of this hello may send without a posted receive (see the frames
 * below).
 *
 * flag, 0x80: frames carry checksums. Both sides must agree.
 *
 * In CALL and CHALLENGE the proof is zero, since neither side is authenticated yet. PROOF and
 * ANSWER repeat their sender's nonce. Their proof covers both nonces and all other fields of the
 * hello, with the world's key.
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

/*
 * Returns false if the bytes are not a hello of this version. The caller checks ranks, job and
 * proof.
 */
bool disti_tcp_hello_decode(const unsigned char *bytes, struct disti_tcp_hello *hello_p);

/*
 * Computes the proof of an encoded PROOF or ANSWER for the receiver's nonce `nonce`. `session` is
 * the binding of the TLS session, which the proof covers too; NULL or empty without TLS.
 */
void disti_tcp_hello_prove(const struct disti_secret *key, const unsigned char *bytes,
                           const unsigned char *nonce, const struct disti_hmac_piece *session,
                           unsigned char proof[DISTI_HMAC_BYTES]);

/*
 * Frame: 32 bytes, then `bytes` bytes of payload:
 *
 *      0  u32  magic "dmsg"     8  u64  tag              24  u64  bytes
 *      4  u16  kind            16  u64  fingerprint
 *      6  u16  flags, zero
 *
 * With checksums, the CRC-32C of the other 28 bytes and of the payload replaces the magic.
 *
 * A goodbye has no payload, its tag, fingerprint and bytes are zero, and no frame follows it.
 *
 * The frame of an announced message and the frame of an RTS have no payload: the payload is sent in
 * stripes, on any socket of the pair and in any order. The stripes of an announced message follow
 * without delay, the stripes of an RTS after the receiver has sent CTS. The tag field of a stripe's
 * frame contains the number of its message, and the fingerprint field the offset of its first byte
 * in the message. Offset and size are multiples of 64, except the size of a message's last stripe,
 * so no element is split. Announced messages and RTS are numbered together, from 0 in each
 * direction. A message is announced only if the pair has several sockets and the message has 64 KiB
 * or more. The first socket carries all kinds of frames, further sockets carry only stripes.
 *
 * A message that is sent whole or announced may have to be buffered until its receive is posted, so
 * it uses credit: its size plus 128 bytes. After the message has been matched, the receiver returns
 * the credit, in one frame for many messages. Without enough credit the sender sends an RTS.
 *
 * Fields of credit and CTS frames:
 *
 *                 tag                        fingerprint                   bytes
 *      credit     returned bytes             0                             0
 *      CTS        number of the message      0: send it; 1: discard it     0
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

/*
 * Credit that a message uses in addition to its size: about the memory of its entry in the
 * unexpected queue.
 */
#define DISTI_TCP_MESSAGE_COST 128

void disti_tcp_frame_encode(enum disti_tcp_kind kind, const struct dist_envelope *envelope,
                            unsigned char *bytes);
/* Returns false if the bytes are not a frame, or if a field that its kind does not use is nonzero.
 */
bool disti_tcp_frame_decode(const unsigned char *bytes, enum disti_tcp_kind *kind_p,
                            struct dist_envelope *envelope_p);

/*
 * put_sum replaces the magic of an encoded frame by the checksum; take_sum returns the checksum and
 * restores the magic.
 */
#define DISTI_TCP_SUM_BYTES 4
void disti_tcp_frame_put_sum(unsigned char *bytes, uint32_t sum);
uint32_t disti_tcp_frame_take_sum(unsigned char *bytes);

#endif
