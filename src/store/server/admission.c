/* SPDX-License-Identifier: BSD-3-Clause */
/* Who may come in: the server's side of the handshake. */
#include "store/server/server.h"

#include "base/log.h"
#include "base/net/socket.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void disti_store_refusal(struct disti_store_server *server, const struct store_peer *peer,
                         const char *format, ...)
{
    const struct sockaddr *from = (const struct sockaddr *)&peer->from;
    char why[256], host[DISTI_HOST_SIZE];
    bool told = ++server->refusals <= STORE_REFUSALS;
    va_list args;

    va_start(args, format);
    vsnprintf(why, sizeof(why), format, args);
    va_end(args);
    disti_address_text(from, host);
    disti_log_line(told ? DIST_LOG_WARN : DIST_LOG_INFO,
                   "the store at port %d lets nobody in from %s port %d: %s%s", server->port, host,
                   disti_address_port(from), why,
                   server->refusals == STORE_REFUSALS ? " (more are told of at level INFO)" : "");
}

/* Refuses, and says so in the log. */
static void admission_refuse(struct disti_store_server *server, struct store_peer *peer,
                             dist_status status, const char *text)
{
    disti_store_refusal(server, peer, "%s", text);
    peer->closing = true;
    disti_store_peer_refuse(server, peer, peer->in.head.id, status, "%s", text);
}

static void admission_drop(struct disti_store_server *server, struct store_peer *peer)
{
    /* A client that gives up on its hello says goodbye, and comes again. */
    if (peer->in.head.op != DISTI_WIRE_GOODBYE)
        disti_store_refusal(server, peer, "it sent what no rank sends");
    peer->dead = server->reap = true;
}

static void admission_challenge(struct disti_store_server *server, struct store_peer *peer)
{
    const struct disti_wire_reader *in = &peer->in;
    unsigned char *challenge = peer->said.challenge;
    struct disti_wire_id id;

    if (in->head.op != DISTI_WIRE_HELLO || in->head.key_bytes != 0 ||
        in->head.value_bytes != DISTI_WIRE_ID || !disti_wire_get_id(disti_wire_value(in), &id) ||
        !disti_nonce(challenge)) {
        admission_drop(server, peer);
        return;
    }
    memcpy(peer->said.hello, disti_wire_value(in), DISTI_WIRE_ID);
    peer->said.binding_bytes = disti_tls_binding(peer->tls, peer->said.binding);
    disti_wire_put32(challenge + DISTI_NONCE_BYTES, server->secret.length ? DISTI_WIRE_SECRET : 0);
    memcpy(challenge + DISTI_NONCE_BYTES + 4, server->job, DISTI_WIRE_JOB);
    peer->challenged = true;
    disti_store_peer_reply(server, peer, in->head.id, DIST_OK,
                           disti_blob_copy(challenge, DISTI_WIRE_CHALLENGE));
}

/* What a refused client is told is no secret; the log also says where the store's own is from. */
static void admission_unproved(struct disti_store_server *server, struct store_peer *peer,
                               const struct disti_wire_id *id)
{
    char host[DISTI_HOST_SIZE];

    disti_host_name(host);
    disti_store_refusal(server, peer,
                        "who says to be rank %d on host %s does not prove that it has this job's "
                        "secret, which is here on %s %s%.80s",
                        id->rank, id->host, host, server->secret.path[0] ? "that in " : "known",
                        server->secret.path);
    peer->closing = true;
    disti_store_peer_refuse(server, peer, peer->in.head.id, DIST_ERR_MISMATCH,
                            "the store there belongs to another job (choose another port, "
                            "MASTER_PORT), or its secret is another");
}

static void admission_check(struct disti_store_server *server, struct store_peer *peer)
{
    const struct disti_wire_reader *in = &peer->in;
    unsigned char proof[DISTI_HMAC_BYTES];
    struct disti_wire_id id;

    if (in->head.op != DISTI_WIRE_PROOF || in->head.key_bytes != 0 ||
        in->head.value_bytes != DISTI_HMAC_BYTES || !disti_wire_get_id(peer->said.hello, &id)) {
        admission_drop(server, peer);
        return;
    }
    disti_wire_prove_client(&peer->said, &server->secret, proof);
    if (disti_hmac_same(proof, disti_wire_value(in)))
        disti_store_ranks_join(server, peer, &id);
    else
        admission_unproved(server, peer, &id);
}

void disti_store_admit(struct disti_store_server *server, struct store_peer *peer)
{
    char text[128];

    if (peer->in.head.version != DISTI_WIRE_VERSION) {
        snprintf(text, sizeof(text),
                 "the store speaks protocol %d, this rank %d: give all ranks the same version of "
                 "libdist",
                 DISTI_WIRE_VERSION, peer->in.head.version);
        admission_refuse(server, peer, DIST_ERR_RENDEZVOUS, text);
    } else if (peer->challenged) {
        admission_check(server, peer);
    } else {
        admission_challenge(server, peer);
    }
}
