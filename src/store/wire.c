/* SPDX-License-Identifier: BSD-3-Clause */
/* Blobs and frames of the store. */
#include "store/wire.h"
#include "base/checked.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct disti_blob *disti_blob_new(size_t bytes)
{
    struct disti_blob *blob;
    size_t size;

    if (!disti_add(sizeof(*blob), bytes, &size))
        return NULL;
    blob = malloc(size);
    if (!blob)
        return NULL;
    blob->refs = 1;
    blob->bytes = bytes;
    return blob;
}

struct disti_blob *disti_blob_copy(const void *data, size_t bytes)
{
    struct disti_blob *blob = disti_blob_new(bytes);

    if (blob && bytes)
        memcpy(blob->data, data, bytes);
    return blob;
}

struct disti_blob *disti_blob_hold(struct disti_blob *blob)
{
    blob->refs++;
    return blob;
}

void disti_blob_drop(struct disti_blob *blob)
{
    if (blob && --blob->refs == 0)
        free(blob);
}

/* ---- packing and collecting frames ---- */

#define WIRE_ID_HOST 48
#define WIRE_ID_JOB (WIRE_ID_HOST + DISTI_HOST_SIZE)
#define WIRE_ID_SPACE (WIRE_ID_JOB + DISTI_WIRE_JOB)

void disti_wire_put32(unsigned char *bytes, uint32_t value)
{
    value = htole32(value);
    memcpy(bytes, &value, sizeof(value));
}

void disti_wire_put64(unsigned char *bytes, uint64_t value)
{
    value = htole64(value);
    memcpy(bytes, &value, sizeof(value));
}

uint32_t disti_wire_get32(const unsigned char *bytes)
{
    uint32_t value;

    memcpy(&value, bytes, sizeof(value));
    return le32toh(value);
}

uint64_t disti_wire_get64(const unsigned char *bytes)
{
    uint64_t value;

    memcpy(&value, bytes, sizeof(value));
    return le64toh(value);
}

void disti_wire_put_head(unsigned char *bytes, const struct disti_wire_head *head)
{
    disti_wire_put32(bytes, DISTI_WIRE_MAGIC);
    bytes[4] = DISTI_WIRE_VERSION;
    bytes[5] = head->op;
    bytes[6] = bytes[7] = 0;
    disti_wire_put32(bytes + 8, head->id);
    disti_wire_put32(bytes + 12, (uint32_t)head->arg);
    disti_wire_put32(bytes + 16, head->key_bytes);
    disti_wire_put32(bytes + 20, 0);
    disti_wire_put64(bytes + 24, head->value_bytes);
}

bool disti_wire_get_head(const unsigned char *bytes, struct disti_wire_head *head_p)
{
    if (disti_wire_get32(bytes) != DISTI_WIRE_MAGIC || bytes[6] || bytes[7] ||
        disti_wire_get32(bytes + 20) != 0)
        return false;
    head_p->version = bytes[4];
    head_p->op = bytes[5];
    head_p->id = disti_wire_get32(bytes + 8);
    head_p->arg = (int32_t)disti_wire_get32(bytes + 12);
    head_p->key_bytes = disti_wire_get32(bytes + 16);
    head_p->value_bytes = disti_wire_get64(bytes + 24);
    return true;
}

void disti_wire_put_id(unsigned char *bytes, const struct disti_wire_id *id)
{
    memset(bytes, 0, DISTI_WIRE_ID);
    disti_wire_put32(bytes, (uint32_t)id->rank);
    disti_wire_put32(bytes + 4, id->world_size);
    disti_wire_put32(bytes + 8, id->pid);
    disti_wire_put32(bytes + 12, id->flags);
    memcpy(bytes + 16, id->proof, sizeof(id->proof));
    memcpy(bytes + WIRE_ID_HOST, id->host, strnlen(id->host, sizeof(id->host) - 1));
    memcpy(bytes + WIRE_ID_JOB, id->job, strnlen(id->job, sizeof(id->job) - 1));
    disti_wire_put32(bytes + WIRE_ID_SPACE, id->space);
}

/* Copies a text of a fixed-size field: printable, and zero bytes up to the field's end. */
static bool wire_text(const unsigned char *bytes, size_t size, char *text)
{
    size_t length = strnlen((const char *)bytes, size);

    if (length == size)
        return false;
    for (size_t i = 0; i < size; i++) {
        if (i < length ? bytes[i] < ' ' || bytes[i] > '~' : bytes[i] != 0)
            return false;
    }
    memcpy(text, bytes, size);
    return true;
}

bool disti_wire_get_id(const unsigned char *bytes, struct disti_wire_id *id_p)
{
    id_p->rank = (int32_t)disti_wire_get32(bytes);
    id_p->world_size = disti_wire_get32(bytes + 4);
    id_p->pid = disti_wire_get32(bytes + 8);
    id_p->flags = disti_wire_get32(bytes + 12);
    id_p->space = disti_wire_get32(bytes + WIRE_ID_SPACE);
    memcpy(id_p->proof, bytes + 16, sizeof(id_p->proof));
    return (id_p->flags & ~(uint32_t)DISTI_WIRE_SECRET) == 0 &&
           wire_text(bytes + WIRE_ID_HOST, sizeof(id_p->host), id_p->host) &&
           wire_text(bytes + WIRE_ID_JOB, sizeof(id_p->job), id_p->job);
}

void disti_wire_prove_client(const struct disti_wire_handshake *said,
                             const struct disti_secret *secret,
                             unsigned char proof[DISTI_HMAC_BYTES])
{
    const struct disti_hmac_piece pieces[] = {{said->hello, sizeof(said->hello)},
                                              {said->challenge, sizeof(said->challenge)},
                                              {said->binding, said->binding_bytes}};

    disti_prove(secret, "libdist store client", pieces, 3, proof);
}

void disti_wire_prove_server(const struct disti_wire_handshake *said,
                             const unsigned char welcome[DISTI_WIRE_WELCOME],
                             const struct disti_secret *secret,
                             unsigned char proof[DISTI_HMAC_BYTES])
{
    const struct disti_hmac_piece pieces[] = {{said->hello, sizeof(said->hello)},
                                              {said->challenge, sizeof(said->challenge)},
                                              {welcome, 16},
                                              {welcome + 48, DISTI_WIRE_WELCOME - 48},
                                              {said->binding, said->binding_bytes}};

    disti_prove(secret, "libdist store server", pieces, 5, proof);
}

bool disti_wire_get_party(const unsigned char *bytes, size_t size, int world_size,
                          struct disti_wire_party *party_p)
{
    if (size < DISTI_WIRE_PARTY)
        return false;
    party_p->group = (int32_t)disti_wire_get32(bytes);
    party_p->count = disti_wire_get32(bytes + 4);
    party_p->ranks = bytes + DISTI_WIRE_PARTY;
    if (party_p->group < DISTI_NO_GROUP || party_p->count > (uint32_t)world_size ||
        disti_wire_party_bytes(party_p->count) > size)
        return false;
    for (uint32_t i = 0; i < party_p->count; i++) {
        if (disti_wire_get32(party_p->ranks + 4 * (size_t)i) >= (uint32_t)world_size)
            return false;
    }
    return true;
}

/* The head is complete: is the rest acceptable? Makes room for it. */
static enum disti_wire_event wire_accept_head(struct disti_wire_reader *reader)
{
    struct disti_wire_head *head = &reader->head;

    if (!disti_wire_get_head(reader->head_bytes, head))
        return DISTI_WIRE_STRANGE;
    if (head->key_bytes > DISTI_KEY_MAX || head->value_bytes > reader->limit ||
        !disti_inside(head->key_bytes, head->value_bytes, reader->limit))
        return DISTI_WIRE_TOO_LONG;
    reader->body = malloc(head->key_bytes + (size_t)head->value_bytes + 1);
    if (!reader->body)
        return DISTI_WIRE_MORE;
    reader->body[head->key_bytes + head->value_bytes] = 0;
    return DISTI_WIRE_FRAME;
}

/* Reads up to `end` bytes of the frame. FRAME: they are there. */
static enum disti_wire_event wire_fill(struct disti_wire_reader *reader, int fd,
                                       unsigned char *base, size_t base_at, size_t end)
{
    while (reader->got < end) {
        ssize_t n =
            disti_tls_or_recv(reader->tls, fd, base + (reader->got - base_at), end - reader->got);

        if (n > 0)
            reader->got += (size_t)n;
        else if (n < 0 && errno == EINTR)
            continue;
        else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return DISTI_WIRE_MORE;
        else
            return reader->tls && n < 0 && errno == EPROTO ? DISTI_WIRE_NO_TLS : DISTI_WIRE_CLOSED;
    }
    return DISTI_WIRE_FRAME;
}

enum disti_wire_event disti_wire_read(struct disti_wire_reader *reader, int fd)
{
    enum disti_wire_event event;

    if (reader->got < DISTI_WIRE_HEAD) {
        event = wire_fill(reader, fd, reader->head_bytes, 0, DISTI_WIRE_HEAD);
        /* Strangers are known by their first bytes, even if they send no more. */
        if (event != DISTI_WIRE_FRAME && reader->got >= 4 &&
            disti_wire_get32(reader->head_bytes) != DISTI_WIRE_MAGIC)
            return DISTI_WIRE_STRANGE;
        if (event != DISTI_WIRE_FRAME)
            return event;
    }
    if (!reader->body) { /* a new frame, or there was no memory for it */
        event = wire_accept_head(reader);
        if (event != DISTI_WIRE_FRAME)
            return event;
    }
    return wire_fill(reader, fd, reader->body, DISTI_WIRE_HEAD,
                     DISTI_WIRE_HEAD + reader->head.key_bytes + (size_t)reader->head.value_bytes);
}

void disti_wire_next(struct disti_wire_reader *reader)
{
    free(reader->body);
    reader->body = NULL;
    reader->got = 0;
}
