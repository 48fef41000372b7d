/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests at the store's server. */
#include "store/server.h"

#include "base/clock.h"

#include <string.h>

static bool serve_waits_for_key(const struct store_wait *wait)
{
    return wait->op == DISTI_WIRE_GET || wait->op == DISTI_WIRE_WAIT;
}

/* The value is there: whoever waits for it gets it. */
static void serve_wake(struct disti_store_server *server, const struct disti_key *key,
                       struct disti_blob *value)
{
    for (int r = 0; r < server->world_size; r++) {
        struct store_peer *peer = server->ranks[r].peer;
        struct store_wait *wait = peer ? peer->waits : NULL, *next;

        for (; wait; wait = next) {
            next = wait->next;
            if (!serve_waits_for_key(wait) || !disti_key_equal(&wait->key, key))
                continue;
            disti_store_peer_reply(server, peer, wait->id, DIST_OK,
                                   wait->op == DISTI_WIRE_GET ? disti_blob_hold(value) : NULL);
            disti_store_wait_remove(peer, wait);
        }
    }
}

void disti_store_serve_fail_keys(struct disti_store_server *server, dist_status status,
                                 const char *text)
{
    for (int r = 0; r < server->world_size; r++) {
        struct store_peer *peer = server->ranks[r].peer;
        struct store_wait *wait = peer ? peer->waits : NULL, *next;

        for (; wait; wait = next) {
            next = wait->next;
            if (!serve_waits_for_key(wait))
                continue;
            disti_store_peer_refuse(server, peer, wait->id, status, "%s (waiting for \"%.*s\")",
                                    text, (int)wait->key.length, wait->key.bytes);
            disti_store_wait_remove(peer, wait);
        }
    }
}

/* Puts the value into the table and answers with `answer` (its reference is taken). */
static void serve_store(struct disti_store_server *server, struct store_peer *peer,
                        const struct disti_key *key, struct disti_blob *value,
                        struct disti_blob *answer)
{
    if (!value || !disti_table_set(&server->table, key, value)) {
        disti_blob_drop(value);
        disti_blob_drop(answer);
        disti_store_peer_refuse(server, peer, peer->in.head.id, DIST_ERR_NO_MEMORY,
                                "the store has no room for \"%.*s\"", (int)key->length, key->bytes);
        return;
    }
    disti_store_peer_reply(server, peer, peer->in.head.id, DIST_OK, answer);
    serve_wake(server, key, value);
}

void disti_store_serve_note(struct disti_store_server *server, const char *name, const char *value)
{
    struct disti_blob *blob = disti_blob_copy(value, strlen(value));
    struct disti_key key = {.length = strlen(name)};

    memcpy(key.bytes, name, key.length);
    if (!blob || !disti_table_set(&server->table, &key, blob))
        disti_blob_drop(blob);
}

static void serve_get(struct disti_store_server *server, struct store_peer *peer,
                      const struct store_wait *request)
{
    const struct disti_key *key = &request->key;
    struct disti_blob *value = disti_table_get(&server->table, key);
    int gone = disti_store_ranks_gone(server);

    if (value)
        disti_store_peer_reply(server, peer, request->id, DIST_OK,
                               request->op == DISTI_WIRE_GET ? disti_blob_hold(value) : NULL);
    else if (server->broken[0])
        disti_store_peer_refuse(server, peer, request->id, DIST_ERR_RENDEZVOUS, "%s",
                                server->broken);
    else if (gone >= 0)
        disti_store_peer_refuse(server, peer, request->id, DIST_ERR_PEER_LOST,
                                "%s (waiting for \"%.*s\")", server->ranks[gone].news,
                                (int)key->length, key->bytes);
    else
        disti_store_wait_add(server, peer, request);
}

static void serve_add(struct disti_store_server *server, struct store_peer *peer,
                      const struct disti_key *key)
{
    const struct disti_wire_head *head = &peer->in.head;
    struct disti_blob *old = disti_table_get(&server->table, key), *value;
    unsigned char bytes[8];
    int64_t sum;

    if (head->value_bytes != 8 || (old && old->bytes != 8)) {
        disti_store_peer_refuse(server, peer, head->id, DIST_ERR_INVALID_ARGUMENT,
                                "\"%.*s\" holds no counter", (int)key->length, key->bytes);
        return;
    }
    sum = (int64_t)disti_wire_get64(disti_wire_value(&peer->in));
    if (old && __builtin_add_overflow(sum, (int64_t)disti_wire_get64(old->data), &sum)) {
        disti_store_peer_refuse(server, peer, head->id, DIST_ERR_INVALID_ARGUMENT,
                                "the counter \"%.*s\" would overflow", (int)key->length,
                                key->bytes);
        return;
    }
    disti_wire_put64(bytes, (uint64_t)sum);
    value = disti_blob_copy(bytes, sizeof(bytes));
    serve_store(server, peer, key, value, value ? disti_blob_hold(value) : NULL);
}

static void serve_compare_set(struct disti_store_server *server, struct store_peer *peer,
                              const struct disti_key *key)
{
    const struct disti_wire_head *head = &peer->in.head;
    const unsigned char *value = disti_wire_value(&peer->in);
    struct disti_blob *old = disti_table_get(&server->table, key);
    uint64_t expected, rest;
    unsigned char swap;

    if (head->value_bytes < 8)
        goto malformed;
    expected = disti_wire_get64(value);
    rest = head->value_bytes - 8;
    value += 8;
    if (expected == UINT64_MAX) {
        swap = !old;
        expected = 0;
    } else if (expected <= rest) {
        swap = old && old->bytes == expected && memcmp(old->data, value, expected) == 0;
    } else {
        goto malformed;
    }
    if (swap)
        serve_store(server, peer, key, disti_blob_copy(value + expected, (size_t)(rest - expected)),
                    disti_blob_copy(&swap, 1));
    else
        disti_store_peer_reply(server, peer, head->id, DIST_OK, disti_blob_copy(&swap, 1));
    return;
malformed:
    peer->dead = server->reap = true;
}

/* A request with a key. */
static void serve_request(struct disti_store_server *server, struct store_peer *peer)
{
    const struct disti_wire_head *head = &peer->in.head;
    struct store_wait request = {.op = head->op,
                                 .id = head->id,
                                 .deadline = disti_deadline_ms(head->arg > 0 ? head->arg : 0)};

    request.key.length = head->key_bytes;
    memcpy(request.key.bytes, peer->in.body, head->key_bytes);
    switch (head->op) {
    case DISTI_WIRE_SET:
        serve_store(server, peer, &request.key,
                    disti_blob_copy(disti_wire_value(&peer->in), (size_t)head->value_bytes), NULL);
        break;
    case DISTI_WIRE_GET:
    case DISTI_WIRE_WAIT:
        serve_get(server, peer, &request);
        break;
    case DISTI_WIRE_ADD:
        serve_add(server, peer, &request.key);
        break;
    case DISTI_WIRE_CAS:
        serve_compare_set(server, peer, &request.key);
        break;
    case DISTI_WIRE_ALL_GATHER:
    case DISTI_WIRE_ARRIVE:
    case DISTI_WIRE_BROADCAST:
    case DISTI_WIRE_LEAVE:
        disti_store_gather_join(server, peer, &request);
        break;
    default:
        peer->dead = server->reap = true;
    }
}

void disti_store_serve_frame(struct disti_store_server *server, struct store_peer *peer)
{
    const struct disti_wire_head *head = &peer->in.head;

    if (head->version != DISTI_WIRE_VERSION)
        peer->dead = server->reap = true;
    else if (head->op == DISTI_WIRE_REPORT)
        disti_store_ranks_report(server, peer);
    else if (head->op == DISTI_WIRE_GOODBYE)
        disti_store_ranks_goodbye(server, peer);
    else
        serve_request(server, peer);
}
