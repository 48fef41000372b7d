/* SPDX-License-Identifier: BSD-3-Clause */
/* The store's requests, as the ranks make them. */
#include "base/checked.h"
#include "base/clock.h"
#include "base/log.h"
#include "store/client.h"

#include <stdio.h>
#include <string.h>

/* The server ends a wait in time and says who is missing: it gets this much longer to say so. */
#define STORE_GRACE_MS 3000

/* For requests that wait for nobody. Long, because the server's machine may be overloaded. */
#define STORE_REPLY_MS 60000

static dist_status store_no_answer(struct disti_store *store, dist_status status)
{
    char holder[CLIENT_HOLDER];
    int rank;

    if (status == DIST_IN_PROGRESS)
        return disti_fail(DIST_ERR_TIMEOUT,
                          "rank %d: %s, does not answer at %s: see whether that process "
                          "is stopped, or its machine overloaded",
                          store->rank, disti_store_client_holder(store, holder, sizeof(holder)),
                          store->where);
    if (status != DIST_ERR_ABORTED)
        return disti_fail(DIST_ERR_PEER_LOST, "rank %d: %s", store->rank, store->lost_text);
    pthread_mutex_lock(&store->lock);
    rank = disti_store_client_aborted(store)->rank;
    pthread_mutex_unlock(&store->lock);
    return disti_fail(status, "rank %d: rank %d aborted the group meanwhile", store->rank, rank);
}

/* The store's reason, and for one that waited in vain for how long, and what to do. */
static dist_status store_refused(const struct disti_store *store,
                                 const struct client_request *request, int64_t since_ns,
                                 const struct disti_wire_reader *reply)
{
    const bool reported = reply->head.arg < -DISTI_WIRE_REPORTED;
    dist_status status = disti_wire_failure(reply->head.arg + (reported ? DISTI_WIRE_REPORTED : 0));
    const char *text = (const char *)disti_wire_value(reply);
    const struct disti_party *party = request->party;
    int length = (int)reply->head.value_bytes;

    if (status != DIST_ERR_TIMEOUT || reported)
        return disti_fail(status, "rank %d: %.*s", store->rank, length, text);
    if (party && party->since_ns)
        since_ns = party->since_ns;
    return disti_fail(
        status,
        "rank %d waited %lld ms %s: %.*s. Check whether they run and where they are, or raise the "
        "timeout given to this call, init_process_group or new_group, else DIST_TIMEOUT (seconds)",
        store->rank, (long long)(disti_now_ns() - since_ns) / 1000000,
        party && party->what ? party->what : "for the others", length, text);
}

/*
 * Sends the request, waits for the reply. OK: the reply's value is in *reply_p, to be given to
 * disti_wire_next. A failure has been reported.
 */
static dist_status store_call(struct disti_store *store, const struct client_request *request,
                              int64_t wait_ms, struct disti_wire_reader *reply_p)
{
    int64_t start = disti_now_ns();
    dist_status status =
        disti_store_client_call(store, request, disti_deadline_ms(wait_ms), reply_p);

    if (status != DIST_OK)
        return store_no_answer(store, status);
    if (reply_p->head.arg == DIST_OK)
        return DIST_OK;
    status = store_refused(store, request, start, reply_p);
    disti_wire_next(reply_p);
    return status;
}

static dist_status store_odd_reply(struct disti_store *store, const char *key)
{
    return disti_fail(DIST_ERR_INTERNAL,
                      "rank %d: the store's reply has the wrong size (\"%s\"): use one build of "
                      "libdist for all ranks",
                      store->rank, key);
}

static dist_status store_check_value(const char *key, size_t bytes)
{
    if (bytes <= DISTI_VALUE_MAX)
        return DIST_OK;
    return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                      "a value in the store has at most %u bytes, not %zu (\"%s\")",
                      DISTI_VALUE_MAX, bytes, key);
}

dist_status disti_store_take_numbers(struct disti_store *store, int count, int64_t *first_p)
{
    unsigned char bytes[4];
    const struct client_request request = {
        .op = DISTI_WIRE_NUMBERS, .key = "numbers", .value = bytes, .bytes = sizeof(bytes)};
    struct disti_wire_reader reply;
    dist_status status;

    disti_wire_put32(bytes, (uint32_t)count);
    status = store_call(store, &request, STORE_REPLY_MS, &reply);
    if (status != DIST_OK)
        return status;
    if (reply.head.value_bytes == 8)
        *first_p = (int64_t)disti_wire_get64(disti_wire_value(&reply));
    else
        status = store_odd_reply(store, request.key);
    disti_wire_next(&reply);
    return status;
}

dist_status disti_store_seen_host(struct disti_store *store, char host[DISTI_HOST_SIZE])
{
    const struct client_request request = {.op = DISTI_WIRE_SEEN, .key = "seen host"};
    struct disti_wire_reader reply;
    dist_status status = store_call(store, &request, STORE_REPLY_MS, &reply);

    if (status != DIST_OK)
        return status;
    if (reply.head.value_bytes < DISTI_HOST_SIZE)
        snprintf(host, DISTI_HOST_SIZE, "%s", (const char *)disti_wire_value(&reply));
    else
        status = store_odd_reply(store, request.key);
    disti_wire_next(&reply);
    return status;
}

/* The party stands before the value. */
static dist_status store_name_party(const struct disti_store *store,
                                    const struct disti_party *party, struct client_request *request)
{
    if (party && party->ranks && party->count > store->world_size)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "a party of %d ranks in a world of %d",
                          party->count, store->world_size);
    request->of_party = true;
    request->party = party;
    return DIST_OK;
}

/* A request of a party: `total` bytes come back, to `out` unless that is NULL. */
static dist_status store_call_party(struct disti_store *store, const struct disti_party *party,
                                    struct client_request *request, void *out, size_t total)
{
    struct disti_wire_reader reply;
    dist_status status = store_name_party(store, party, request);

    if (status != DIST_OK)
        return status;
    status = store_call(store, request, (int64_t)request->arg + STORE_GRACE_MS, &reply);
    if (status != DIST_OK)
        return status;
    if (reply.head.value_bytes != total)
        status = store_odd_reply(store, request->key);
    else if (total && out)
        memcpy(out, disti_wire_value(&reply), total);
    disti_wire_next(&reply);
    return status;
}

dist_status disti_store_all_gather(struct disti_store *store, const struct disti_party *party,
                                   const char *key, const void *in, void *out, size_t bytes,
                                   int timeout_ms)
{
    struct client_request request = {
        .op = DISTI_WIRE_ALL_GATHER, .arg = timeout_ms, .key = key, .value = in, .bytes = bytes};
    int ranks = party && party->ranks ? party->count : store->world_size;
    dist_status status = store_check_value(key, bytes);
    size_t total;

    if (status != DIST_OK)
        return status;
    if (!disti_mul(bytes, (size_t)ranks, &total) || total > DISTI_WIRE_GATHER_MAX)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "%zu bytes from each of %d ranks are too many for the store (\"%s\")",
                          bytes, ranks, key);
    return store_call_party(store, party, &request, out, total);
}

dist_status disti_store_broadcast(struct disti_store *store, const struct disti_party *party,
                                  const char *key, void *data, size_t bytes, int timeout_ms)
{
    struct client_request request = {.op = DISTI_WIRE_BROADCAST, .arg = timeout_ms, .key = key};
    dist_status status = store_check_value(key, bytes);

    if (status != DIST_OK)
        return status;
    if (store->rank == (party->ranks ? party->ranks[0] : 0)) {
        request.value = data;
        request.bytes = bytes;
    }
    return store_call_party(store, party, &request, data, bytes);
}

dist_status disti_store_leave(struct disti_store *store, const struct disti_party *party,
                              const char *key, const void *in, void *out, size_t bytes,
                              int timeout_ms, void (*late)(void *arg), void *arg)
{
    struct client_request request = {.op = DISTI_WIRE_LEAVE,
                                     .arg = timeout_ms,
                                     .key = key,
                                     .value = in,
                                     .bytes = bytes,
                                     .late = late,
                                     .late_arg = arg};
    const int ranks = party->ranks ? party->count : store->world_size;

    return store_call_party(store, party, &request, out, bytes * (size_t)ranks);
}

dist_status disti_store_arrive(struct disti_store *store, const struct disti_party *party,
                               const char *key, int timeout_ms)
{
    struct client_request request = {.op = DISTI_WIRE_ARRIVE, .arg = timeout_ms, .key = key};

    return store_call_party(store, party, &request, NULL, 0);
}

/* Of a party, without a reply. */
static void store_tell(struct disti_store *store, const struct disti_party *party,
                       struct client_request *request)
{
    /* So few bytes always fit, unless the server has been stuck for long. */
    if (store_name_party(store, party, request) == DIST_OK)
        disti_store_client_send(store, request, disti_deadline_ms(100));
}

void disti_store_report(struct disti_store *store, const struct disti_party *party,
                        dist_status status, const char *why)
{
    char text[DISTI_REASON_MAX];
    struct client_request request = {.op = DISTI_WIRE_REPORT, .arg = status, .value = text};

    request.bytes = disti_text(text, sizeof(text), "%s", why);
    store_tell(store, party, &request);
}

void disti_store_refuse(struct disti_store *store, const struct disti_party *party, const char *key,
                        dist_status status, const char *why)
{
    char text[DISTI_REASON_MAX];
    struct client_request request = {
        .op = DISTI_WIRE_REFUSE, .arg = status, .key = key, .value = text};

    request.bytes = disti_text(text, sizeof(text), "%s", why);
    store_tell(store, party, &request);
}

void disti_store_tell_leaving(struct disti_store *store, const struct disti_party *party,
                              uint64_t calls)
{
    unsigned char bytes[8];
    struct client_request request = {
        .op = DISTI_WIRE_LEAVING, .value = bytes, .bytes = sizeof(bytes)};

    disti_wire_put64(bytes, calls);
    store_tell(store, party, &request);
}
