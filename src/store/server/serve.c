/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests at the store's server. */
#include "store/server/server.h"

#include "base/clock.h"

#include <string.h>

static void serve_numbers(struct disti_store_server *server, struct store_peer *peer)
{
    const struct disti_wire_head *head = &peer->in.head;
    unsigned char first[8];

    if (head->value_bytes != 4) {
        peer->dead = server->reap = true;
        return;
    }
    disti_wire_put64(first, (uint64_t)server->numbers + 1);
    server->numbers += disti_wire_get32(disti_wire_value(&peer->in));
    disti_store_peer_reply(server, peer, head->id, DIST_OK, disti_blob_copy(first, sizeof(first)));
}

static void serve_seen(struct disti_store_server *server, struct store_peer *peer)
{
    disti_store_peer_reply(server, peer, peer->in.head.id, DIST_OK,
                           disti_blob_copy(server->seen, strlen(server->seen)));
}

/* A request with a key. */
static void serve_request(struct disti_store_server *server, struct store_peer *peer)
{
    const struct disti_wire_head *head = &peer->in.head;
    struct store_request request = {.op = head->op,
                                    .id = head->id,
                                    .deadline = disti_deadline_ms(head->arg > 0 ? head->arg : 0)};

    request.key.length = head->key_bytes;
    memcpy(request.key.bytes, peer->in.body, head->key_bytes);
    switch (head->op) {
    case DISTI_WIRE_NUMBERS:
        serve_numbers(server, peer);
        break;
    case DISTI_WIRE_SEEN:
        serve_seen(server, peer);
        break;
    case DISTI_WIRE_ALL_GATHER:
    case DISTI_WIRE_ARRIVE:
    case DISTI_WIRE_BROADCAST:
    case DISTI_WIRE_LEAVE:
        disti_store_coll_join(server, peer, &request);
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
    else if (head->op == DISTI_WIRE_LEAVING)
        disti_store_leavings_take(server, peer);
    else if (head->op == DISTI_WIRE_REFUSE)
        disti_store_coll_take_refusal(server, peer);
    else if (head->op == DISTI_WIRE_GOODBYE)
        disti_store_ranks_goodbye(server, peer);
    else
        serve_request(server, peer);
}
