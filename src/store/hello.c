/* SPDX-License-Identifier: BSD-3-Clause */
/* The client's side of the handshake: hello, challenge, proof, welcome. */
#include "store/client.h"

#include "base/descriptor.h"
#include "base/log.h"
#include "base/process/space.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct disti_secret hello_no_secret;

static const struct disti_secret *hello_secret(const struct disti_store_target *target)
{
    return target->secret ? target->secret : &hello_no_secret;
}

void disti_store_tried(struct disti_store_tries *tries, const char *format, ...)
{
    size_t at = strlen(tries->text);
    va_list args;

    if (at && at + 2 < sizeof(tries->text)) {
        memcpy(tries->text + at, "; ", 3);
        at += 2;
    }
    va_start(args, format);
    vsnprintf(tries->text + at, sizeof(tries->text) - at, format, args);
    va_end(args);
}

/* Not let in: for now, or for good, where the store is known to be the right one. */
static dist_status hello_refused(const struct disti_store *store,
                                 const struct disti_store_target *target, dist_status status,
                                 struct disti_store_tries *tries, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
static dist_status hello_refused(const struct disti_store *store,
                                 const struct disti_store_target *target, dist_status status,
                                 struct disti_store_tries *tries, const char *format, ...)
{
    char text[DISTI_NEWS_MAX + DISTI_SECRET_WHY];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (status == DIST_IN_PROGRESS || (status == DIST_ERR_MISMATCH && target->doubtful)) {
        disti_store_tried(tries, "%s: %s", store->where, text);
        return DIST_IN_PROGRESS;
    }
    return disti_fail(DIST_ERR_RENDEZVOUS, "%s refused rank %d: %s", store->where, target->rank,
                      text);
}

/* What to do where the secrets are not the same: where this rank has its own from. */
static void hello_remedy(const struct disti_store_target *target, char text[DISTI_SECRET_WHY])
{
    const struct disti_secret *secret = hello_secret(target);
    char host[DISTI_HOST_SIZE];

    disti_host_name(host);
    if (secret->path[0])
        snprintf(text, DISTI_SECRET_WHY,
                 "the secret of this rank (host %s) is that in %s: give all hosts and containers a "
                 "file with the same secret (DIST_SECRET_FILE, distrun --secret-file), or "
                 "DIST_AUTH=none to all ranks",
                 host, secret->path);
    else if (secret->length)
        snprintf(text, DISTI_SECRET_WHY,
                 "the secret of this rank (host %s) came from its launcher or from rank 0: start "
                 "all ranks in the same way",
                 host);
    else
        snprintf(text, DISTI_SECRET_WHY,
                 "this rank (host %s) has no secret: give it the file that rank 0 has "
                 "(DIST_SECRET_FILE, distrun --secret-file), or DIST_AUTH=none to all ranks",
                 host);
}

/* What a server said that has proved nothing: nothing of it may act on a terminal. */
static void hello_quote(const struct disti_wire_reader *reply, char text[DISTI_NEWS_MAX])
{
    const unsigned char *said = disti_wire_value(reply);
    size_t length = reply->head.value_bytes;

    if (length > DISTI_NEWS_MAX - 1)
        length = DISTI_NEWS_MAX - 1;
    for (size_t i = 0; i < length; i++)
        text[i] = said[i] >= ' ' && said[i] <= '~' ? (char)said[i] : '?';
    text[length] = '\0';
}

/* The server's answer was a refusal. */
static dist_status hello_take_refusal(const struct disti_store *store,
                                      const struct disti_store_target *target,
                                      const struct disti_wire_reader *reply,
                                      struct disti_store_tries *tries)
{
    char remedy[DISTI_SECRET_WHY] = "", said[DISTI_NEWS_MAX];
    bool other = reply->head.arg == DIST_ERR_MISMATCH;

    if (other)
        hello_remedy(target, remedy);
    hello_quote(reply, said);
    return hello_refused(store, target, reply->head.arg, tries, "%s%s%s", said, other ? "; " : "",
                         remedy);
}

static dist_status hello_nonsense(const struct disti_store *store,
                                  const struct disti_store_target *target, const char *what)
{
    return disti_fail(DIST_ERR_RENDEZVOUS,
                      "rank %d: %s %s: it is not the store of this job. Choose another port "
                      "(MASTER_PORT), and find out what listens there",
                      target->rank, store->where, what);
}

/* Certificates that do not fit today will not in a moment. */
static dist_status hello_no_tls(const struct disti_store *store,
                                const struct disti_store_target *target,
                                struct disti_store_tries *tries)
{
    const char *why = disti_tls_why(store->tls);

    disti_store_tried(tries, "%s: TLS: %s", store->where, why);
    if (target->doubtful || target->probe)
        return DIST_IN_PROGRESS;
    return disti_fail(DIST_ERR_RENDEZVOUS,
                      "rank %d has no TLS connection with the store at %s, called \"%s\": %s",
                      target->rank, store->where, target->host, why);
}

/* A store may be slow, and one that is just ending hangs up: only who says nonsense is none. */
static dist_status hello_no_answer(struct disti_store *store, dist_status status,
                                   const struct disti_store_target *target,
                                   struct disti_store_tries *tries)
{
    const struct client_request withdraw = {.op = DISTI_WIRE_GOODBYE, .arg = DISTI_WIRE_WITHDRAW};

    if (store->no_tls)
        return hello_no_tls(store, target, tries);
    if (status == DIST_IN_PROGRESS) /* it may read our hello yet, and we may come again */
        disti_store_client_send(store, &withdraw, 0);
    disti_store_tried(tries, "%s: %s", store->where,
                      store->asks_tls                ? "speaks TLS"
                      : disti_tls_why(store->tls)[0] ? disti_tls_why(store->tls)
                      : store->tls && !disti_tls_is_up(store->tls)
                          ? "does not go on with the TLS handshake"
                      : status == DIST_ERR_RENDEZVOUS ? "answers in another protocol"
                      : status == DIST_ERR_PEER_LOST  ? "closed the connection"
                                                      : "accepts connections but does not answer");
    tries->stranger = true;
    tries->tls_ended |= disti_tls_why(store->tls)[0] != '\0';
    if (target->doubtful || status != DIST_ERR_RENDEZVOUS)
        return DIST_IN_PROGRESS;
    if (store->asks_tls)
        return disti_fail(DIST_ERR_RENDEZVOUS,
                          "rank %d: the store at %s speaks TLS, and this rank does not: set "
                          "DIST_TLS_CERT, DIST_TLS_KEY and DIST_TLS_CA on all ranks, or on none",
                          target->rank, store->where);
    return disti_fail(
        DIST_ERR_RENDEZVOUS,
        "rank %d: what listens on %s is not a store of libdist (it answers in another protocol): "
        "another program has that port; choose another one (MASTER_PORT)",
        target->rank, store->where);
}

/* Asks, and takes a reply of that size. OK: *reply_p is to be given to disti_wire_next. */
static dist_status hello_ask(struct disti_store *store, const struct disti_store_target *target,
                             const struct client_request *request, size_t bytes, int64_t deadline,
                             struct disti_store_tries *tries, struct disti_wire_reader *reply_p)
{
    dist_status status = disti_store_client_call(store, request, deadline, reply_p);

    if (status != DIST_OK)
        return hello_no_answer(store, status, target, tries);
    if (reply_p->head.arg != DIST_OK)
        status = hello_take_refusal(store, target, reply_p, tries);
    else if (reply_p->head.value_bytes != bytes)
        status = hello_nonsense(store, target, "answers with the wrong size");
    if (status != DIST_OK)
        disti_wire_next(reply_p);
    return status;
}

static dist_status hello_say(struct disti_store *store, const struct disti_store_target *target,
                             int64_t deadline, struct disti_store_tries *tries,
                             struct disti_wire_handshake *said)
{
    struct disti_wire_id id = {.rank = target->rank,
                               .world_size = (uint32_t)target->world_size,
                               .pid = (uint32_t)getpid(),
                               .space = disti_process_space(),
                               .flags = hello_secret(target)->length ? DISTI_WIRE_SECRET : 0};
    const struct client_request hello = {
        .op = DISTI_WIRE_HELLO, .value = said->hello, .bytes = sizeof(said->hello)};
    struct disti_wire_reader reply;
    dist_status status;

    if (!disti_nonce(id.proof))
        return disti_fail_call("getrandom", "rank %d cannot get random bytes", target->rank);
    disti_host_name(id.host);
    disti_wire_put_id(said->hello, &id);
    store->rank = target->rank;
    store->world_size = target->world_size;
    store->packed = malloc(disti_wire_party_bytes((size_t)target->world_size));
    if (!store->packed)
        return disti_fail(DIST_ERR_NO_MEMORY, "rank %d has no memory for a world of %d ranks",
                          target->rank, target->world_size);
    status = hello_ask(store, target, &hello, sizeof(said->challenge), deadline, tries, &reply);
    if (status != DIST_OK)
        return status;
    memcpy(said->challenge, disti_wire_value(&reply), sizeof(said->challenge));
    said->binding_bytes = disti_tls_binding(store->tls, said->binding);
    disti_wire_next(&reply);
    return DIST_OK;
}

/* Is it worth while to prove anything? A secret is not given up because the other has none. */
static dist_status hello_compare(const struct disti_store *store,
                                 const struct disti_store_target *target,
                                 const struct disti_wire_handshake *said,
                                 struct disti_store_tries *tries)
{
    uint32_t flags = disti_wire_get32(said->challenge + DISTI_NONCE_BYTES);
    char remedy[DISTI_SECRET_WHY];

    if (target->probe)
        return hello_refused(store, target, DIST_IN_PROGRESS, tries, "a store is there");
    if ((flags & DISTI_WIRE_SECRET) == (hello_secret(target)->length ? DISTI_WIRE_SECRET : 0))
        return DIST_OK;
    hello_remedy(target, remedy);
    return hello_refused(store, target, DIST_ERR_MISMATCH, tries, "the store there %s; %s",
                         flags & DISTI_WIRE_SECRET ? "asks for a secret" : "has no secret", remedy);
}

/* Who holds the store, and which rank it has let this client be. */
static dist_status hello_take_welcome(struct disti_store *store,
                                      const struct disti_store_target *target,
                                      const struct disti_wire_handshake *said,
                                      const unsigned char *welcome)
{
    unsigned char proof[DISTI_HMAC_BYTES];
    int rank = (int32_t)disti_wire_get32(welcome + DISTI_WIRE_ID);

    disti_wire_prove_server(said, welcome, hello_secret(target), proof);
    if (!disti_hmac_same(proof, welcome + 16))
        return hello_nonsense(store, target, "does not prove that it has the job's secret");
    if (!disti_wire_get_id(welcome, &store->holder) || rank < 0 || rank >= target->world_size ||
        (target->rank >= 0 && rank != target->rank))
        return hello_nonsense(store, target, "answers with a welcome that makes no sense");
    disti_wire_key(hello_secret(target), welcome + DISTI_WIRE_ID + 4, store->key);
    store->rank = rank;
    store->in.limit = DISTI_WIRE_GATHER_MAX;
    disti_tls_trust(store->tls);
    return DIST_OK;
}

dist_status disti_store_client_greet(struct disti_store *store,
                                     const struct disti_store_target *target, int64_t deadline,
                                     struct disti_store_tries *tries)
{
    unsigned char proof[DISTI_HMAC_BYTES];
    const struct client_request prove = {
        .op = DISTI_WIRE_PROOF, .value = proof, .bytes = sizeof(proof)};
    struct disti_wire_handshake said;
    struct disti_wire_reader reply;
    dist_status status = hello_say(store, target, deadline, tries, &said);

    if (status == DIST_OK)
        status = hello_compare(store, target, &said, tries);
    if (status != DIST_OK)
        return status;
    disti_wire_prove_client(&said, hello_secret(target), proof);
    status = hello_ask(store, target, &prove, DISTI_WIRE_WELCOME, deadline, tries, &reply);
    if (status != DIST_OK)
        return status;
    status = hello_take_welcome(store, target, &said, disti_wire_value(&reply));
    disti_wire_next(&reply);
    return status;
}
