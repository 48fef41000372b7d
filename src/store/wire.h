/* SPDX-License-Identifier: BSD-3-Clause */
/* The store's frames, and blobs: bytes that several replies may send at a time. */
#ifndef DISTI_STORE_WIRE_H
#define DISTI_STORE_WIRE_H

#include "base/auth.h"
#include "base/tls/tls.h"
#include "store/store.h"

struct disti_blob {
    size_t refs, bytes;
    unsigned char data[];
};

/* One reference; data is not set. NULL: no memory. */
struct disti_blob *disti_blob_new(size_t bytes);
struct disti_blob *disti_blob_copy(const void *data, size_t bytes);
struct disti_blob *disti_blob_hold(struct disti_blob *blob);
void disti_blob_drop(struct disti_blob *blob); /* NULL is accepted */

/* ---- frames between a rank and the store's server ---- */

/*
 * A frame is a head of 32 bytes, then key_bytes of key, then value_bytes of value. All
 * numbers are little-endian; nothing is aligned beyond what the offsets say.
 *
 *     0  u32  magic "DIST"
 *     4  u8   version (7)
 *     5  u8   op
 *     6  u16  flags (0)
 *     8  u32  id: a request's number, repeated in its reply; 0 in a notice
 *    12  i32  arg: a request's timeout in ms, a reply's dist_status, a notice's rank
 *    16  u32  key_bytes, at most DISTI_KEY_MAX
 *    20  u32  reserved (0)
 *    24  u64  value_bytes
 *
 * A connection begins with the handshake of base/auth.h: HELLO, which the server answers
 * with a REPLY whose value is a challenge, and PROOF, which it answers with one whose value is a
 * welcome, or either with the reason of a refusal. Before it has the proof the server believes
 * nothing of the hello, and before it has the welcome so does the client. Then each request has one
 * REPLY. A client may have several requests under way, and the replies come as they are ready. A
 * NOTICE may stand between any two frames to a client.
 *
 *     op          key   value                            reply's value
 *     HELLO             a hello, below                   a challenge, below
 *     PROOF             u8[32] the client's proof        a welcome, below
 *     NUMBERS     text  u32 how many                     i64 the first: they are nobody else's
 *     SEEN        text                                     text: see disti_store_seen_host
 *     ALL_GATHER  name  a party, this rank's bytes       all ranks' bytes, in the party's order
 *     ARRIVE      name  a party
 *     BROADCAST   name  a party, its first rank's bytes  these bytes
 *     LEAVE       name  a party, this rank's bytes       (as ALL_GATHER; with the reply all that
 *                                                        the group has left here is gone)
 *     REPORT            a party, text: why it failed     no reply; arg: the group's dist_status;
 *                                                        DIST_ERR_ABORTED: without a text
 *     LEAVING           a party, u64 calls               no reply: this rank waits for the other
 *                                                        ranks to leave the party's group, after
 *                                                        that number of collective calls in it
 *     REFUSE      name  a party, text: why               no reply; arg: a status. Cancels the
 *                                                        ALL_GATHER of that name, which ends with
 *                                                        status and text
 *     GOODBYE                                            no reply: the server closes. arg 1: the
 *                                                        client has given up on its hello, and may
 *                                                        come again
 *     NOTICE            (to a client) i32 group, u8 manner, u8 failure, with LEFT u64 calls, text;
 *                                                        arg: the rank it is about. failure: 0, or
 *                                                        the negated dist_status of a failed group
 *
 * A party is i32 group (-1: none), u32 n, n * u32 rank. n = 0: all ranks of the job.
 *
 * A reply whose arg is negative is a failure, and its value is the text. DIST_IN_PROGRESS
 * in answer to HELLO or PROOF means: come again later; DIST_ERR_MISMATCH: this is another job, or
 * has another secret.
 */
#define DISTI_WIRE_MAGIC 0x54534944u
#define DISTI_WIRE_VERSION 7
/* Subtracted from a REPLY's arg if the failure is that of a group, reported by a rank. */
#define DISTI_WIRE_REPORTED 64
#define DISTI_WIRE_WITHDRAW 1 /* arg of a GOODBYE: the hello counts for nothing */
#define DISTI_WIRE_HEAD 32
#define DISTI_WIRE_HELLO_LIMIT 1024u                   /* of a client's frame before its proof */
#define DISTI_WIRE_ANSWER_LIMIT 4096u                  /* of the server's before the welcome */
#define DISTI_WIRE_REQUEST_LIMIT (2 * DISTI_VALUE_MAX) /* with the party before the value */
#define DISTI_WIRE_GATHER_MAX (4 * (size_t)DISTI_VALUE_MAX) /* all ranks' bytes together */

enum disti_wire_op {
    DISTI_WIRE_HELLO = 1,
    DISTI_WIRE_NUMBERS,
    DISTI_WIRE_SEEN,
    DISTI_WIRE_ALL_GATHER,
    DISTI_WIRE_ARRIVE,
    DISTI_WIRE_REPORT,
    DISTI_WIRE_GOODBYE,
    DISTI_WIRE_BROADCAST,
    DISTI_WIRE_LEAVE,
    DISTI_WIRE_PROOF,
    DISTI_WIRE_LEAVING,
    DISTI_WIRE_REFUSE,
    DISTI_WIRE_REPLY = 64,
    DISTI_WIRE_NOTICE
};

struct disti_wire_head {
    uint8_t version, op;
    uint32_t id;
    int32_t arg;
    uint32_t key_bytes;
    uint64_t value_bytes;
};

void disti_wire_put_head(unsigned char *bytes, const struct disti_wire_head *head);

/* False if the magic is not ours or a reserved field is used. */
bool disti_wire_get_head(const unsigned char *bytes, struct disti_wire_head *head_p);

void disti_wire_put32(unsigned char *bytes, uint32_t value);
void disti_wire_put64(unsigned char *bytes, uint64_t value);
uint32_t disti_wire_get32(const unsigned char *bytes);
uint64_t disti_wire_get64(const unsigned char *bytes);

/*
 * Who someone is. In a hello: the client, `rank` being -1 where the store shall hand one out. In a
 * welcome: the process that holds the store, `rank` being -1 for a launcher.
 *
 *     0 i32 rank   4 u32 world_size   8 u32 pid   12 u32 flags   16 proof[32]
 *     48 host[68]   116 job[128]       both texts, filled up with zero bytes
 *     244 u32 space: the PID namespace of `pid` (base/process.h)
 *
 * proof: in a hello the client's nonce, in a welcome the server's proof. job: in a hello "".
 *
 * A challenge is the server's nonce[32], u32 flags, and the job. A welcome is an id, i32 the
 * client's rank, and a seed[32] from which those who have the secret make the key of the world. The
 * proofs are over the hello and the challenge, the server's also over the rest of the welcome.
 */
#define DISTI_WIRE_ID 248
#define DISTI_WIRE_JOB 128
#define DISTI_WIRE_SEED 32
#define DISTI_WIRE_CHALLENGE (DISTI_NONCE_BYTES + 4 + DISTI_WIRE_JOB)
#define DISTI_WIRE_WELCOME (DISTI_WIRE_ID + 4 + DISTI_WIRE_SEED)
#define DISTI_WIRE_SECRET 1 /* of flags: its sender has a secret */
struct disti_wire_id {
    int32_t rank;
    uint32_t world_size, pid, space, flags;
    unsigned char proof[DISTI_HMAC_BYTES];
    char host[DISTI_HOST_SIZE];
    char job[DISTI_WIRE_JOB];
};
void disti_wire_put_id(unsigned char *bytes, const struct disti_wire_id *id);
/* False if a text is not ended or holds control characters, or a flag is not known. */
bool disti_wire_get_id(const unsigned char *bytes, struct disti_wire_id *id_p);

/* What both ends of a connection have said, packed; the proofs are over that. */
struct disti_wire_handshake {
    unsigned char hello[DISTI_WIRE_ID];
    unsigned char challenge[DISTI_WIRE_CHALLENGE];
    unsigned char binding[DISTI_TLS_BINDING]; /* of the TLS session */
    size_t binding_bytes;                     /* 0: there is none */
};
void disti_wire_prove_client(const struct disti_wire_handshake *said,
                             const struct disti_secret *secret,
                             unsigned char proof[DISTI_HMAC_BYTES]);
/* Of a packed welcome, whose own proof is left out. */
void disti_wire_prove_server(const struct disti_wire_handshake *said,
                             const unsigned char welcome[DISTI_WIRE_WELCOME],
                             const struct disti_secret *secret,
                             unsigned char proof[DISTI_HMAC_BYTES]);

#define DISTI_WIRE_NEWS 6 /* bytes of a notice's value before its text */

/* A notice's manner, bits. */
#define DISTI_WIRE_GRACEFUL 1
#define DISTI_WIRE_LEFT 2 /* the rank waits for the others to leave the group */

/* Returns the failure that came over the wire; ERR_INTERNAL if the number is not one. */
static inline dist_status disti_wire_failure(int32_t arg)
{
    return arg < 0 && arg >= DIST_ERR_INTERNAL ? (dist_status)arg : DIST_ERR_INTERNAL;
}

/* A party as it came: its ranks still packed. */
#define DISTI_WIRE_PARTY 8 /* bytes, without the ranks */
struct disti_wire_party {
    int32_t group;
    uint32_t count;
    const unsigned char *ranks;
};
static inline size_t disti_wire_party_bytes(size_t count)
{
    return DISTI_WIRE_PARTY + 4 * count;
}
/* From the beginning of a value of `size` bytes. False if it does not hold one for world_size. */
bool disti_wire_get_party(const unsigned char *bytes, size_t size, int world_size,
                          struct disti_wire_party *party_p);
static inline int disti_wire_party_rank(const struct disti_wire_party *party, uint32_t i)
{
    return party->count ? (int)disti_wire_get32(party->ranks + 4 * (size_t)i) : (int)i;
}

/* Collects one frame after the other from a non-blocking socket. Zeroed is ready; set limit. */
struct disti_wire_reader {
    struct disti_tls *tls; /* the session over the socket, its owner's; NULL: all comes in clear */
    size_t limit;          /* of key and value together: more is refused before it is allocated */
    size_t got;            /* bytes of this frame so far, head included */
    unsigned char head_bytes[DISTI_WIRE_HEAD];
    struct disti_wire_head head;
    unsigned char *body; /* the key, the value, and a zero byte that is not counted */
};

enum disti_wire_event {
    DISTI_WIRE_FRAME,   /* a frame is complete: use it, then disti_wire_next */
    DISTI_WIRE_MORE,    /* nothing more to read now, or no memory for it: later, perhaps */
    DISTI_WIRE_CLOSED,  /* the peer closed, or the connection broke */
    DISTI_WIRE_NO_TLS,  /* disti_tls_why says what is wrong with the session */
    DISTI_WIRE_STRANGE, /* not our protocol */
    DISTI_WIRE_TOO_LONG /* over the limit */
};

/* Never blocks. */
enum disti_wire_event disti_wire_read(struct disti_wire_reader *reader, int fd);
void disti_wire_next(struct disti_wire_reader *reader);

static inline const unsigned char *disti_wire_value(const struct disti_wire_reader *reader)
{
    return reader->body ? reader->body + reader->head.key_bytes : NULL;
}

#endif
