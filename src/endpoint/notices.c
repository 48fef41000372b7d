/* SPDX-License-Identifier: BSD-3-Clause */
/* Failure notices between the ranks of a world whose store is gone. */
#include "base/clock.h"
#include "base/log.h"
#include "endpoint/endpoint.h"
#include "endpoint/state.h"

#include <limits.h>
#include <stdlib.h>

/*
 * A notice is a message without bytes. No collective and no program's message has its tag, see
 * engine/envelope.c. Its fingerprint:
 *
 *     63                32 31                        0
 *    | news               | rank or group             |
 */
#define NOTICES_TAG (UINT64_C(1) << 43 | UINT64_C(1) << 42)
#define NOTICES_NEWS_SHIFT 32
#define NOTICES_SEND_MS 500
#define NOTICES_NAP_NS (100 * 1000)

void disti_endpoint_free_notices(struct disti_endpoint *endpoint, bool all)
{
    struct endpoint_notice *notice = SLIST_FIRST(&endpoint->notices), *next;

    for (; notice; notice = next) {
        next = SLIST_NEXT(notice, entry);
        if (!all && notice->request.status == DIST_IN_PROGRESS)
            continue;
        SLIST_REMOVE(&endpoint->notices, notice, endpoint_notice, entry);
        free(notice);
    }
}

static bool notices_is_usable(const struct disti_endpoint *endpoint)
{
    bool reaches = false;

    for (int r = 0; r < endpoint->config.world_size; r++)
        reaches = reaches || endpoint->connected[r];
    return reaches && endpoint->state && endpoint->broken == DIST_OK;
}

/* ---- sending ---- */

struct notices_sending {
    uint64_t fingerprint;
    const bool *to;
    bool pending;
};

/* Without memory that peer has its own deadline. */
static void notices_send(struct disti_endpoint *endpoint, int peer, uint64_t fingerprint)
{
    struct endpoint_notice *notice = calloc(1, sizeof(*notice));

    if (!notice)
        return;
    notice->request.status = DIST_IN_PROGRESS;
    notice->request.peer = peer;
    notice->request.envelope.tag = NOTICES_TAG;
    notice->request.envelope.fingerprint = fingerprint;
    SLIST_INSERT_HEAD(&endpoint->notices, notice, entry);
    endpoint->transport->send(endpoint->state, &notice->request);
}

static void notices_begin(struct disti_endpoint *endpoint, void *arg)
{
    const struct notices_sending *sending = arg;
    unsigned failures = disti_failures();

    if (!notices_is_usable(endpoint))
        return;
    disti_endpoint_free_notices(endpoint, false);
    for (int r = 0; r < endpoint->config.world_size; r++) {
        if (sending->to[r] && endpoint->connected[r])
            notices_send(endpoint, r, sending->fingerprint);
    }
    disti_endpoint_happened(endpoint, NULL, failures);
}

static void notices_go_on(struct disti_endpoint *endpoint, void *arg)
{
    struct notices_sending *sending = arg;

    if (SLIST_EMPTY(&endpoint->notices) || !notices_is_usable(endpoint))
        return;
    disti_endpoint_move(endpoint, NULL);
    disti_endpoint_free_notices(endpoint, false);
    sending->pending = sending->pending || !SLIST_EMPTY(&endpoint->notices);
}

void disti_endpoints_tell(const char *job, int rank, enum disti_endpoint_news news, int of,
                          const bool *to)
{
    const struct disti_log *log = disti_log_current();
    struct notices_sending sending = {
        .fingerprint = (uint64_t)news << NOTICES_NEWS_SHIFT | (unsigned)of, .to = to};
    const int64_t until = disti_deadline_ms(NOTICES_SEND_MS);

    disti_log_use(NULL); /* a peer that cannot be told is no error of the caller's */
    disti_endpoints_visit(job, rank, notices_begin, &sending);
    do {
        sending.pending = false;
        disti_endpoints_visit(job, rank, notices_go_on, &sending);
        if (sending.pending)
            disti_sleep_ns(NOTICES_NAP_NS);
    } while (sending.pending && !disti_expired(until));
    disti_endpoints_release();
    disti_log_use(log);
}

/* ---- receiving ---- */

struct notices_hearing {
    disti_endpoint_heard heard;
    void *arg;
    int world_size;
};

static bool notices_see(void *arg, int peer, const struct dist_envelope *envelope)
{
    const struct notices_hearing *hearing = arg;
    const uint64_t news = envelope->fingerprint >> NOTICES_NEWS_SHIFT;
    const uint32_t of = (uint32_t)envelope->fingerprint;
    const uint32_t end =
        news == DISTI_ENDPOINT_LOST ? (uint32_t)hearing->world_size : (uint32_t)INT32_MAX;

    if (news <= DISTI_ENDPOINT_ABORTED && of < end)
        hearing->heard(hearing->arg, peer, (enum disti_endpoint_news)news, (int)of);
    return true;
}

static void notices_hear(struct disti_endpoint *endpoint, void *arg)
{
    struct notices_hearing *hearing = arg;

    hearing->world_size = endpoint->config.world_size;
    if (notices_is_usable(endpoint)) {
        disti_endpoint_move(endpoint, NULL);
        if (endpoint->transport->unexpected)
            endpoint->transport->unexpected(endpoint->state, NOTICES_TAG, ~UINT64_C(0), INT_MAX,
                                            notices_see, hearing);
    }
    for (int r = 0; r < hearing->world_size; r++) {
        if (endpoint->lost[r])
            hearing->heard(hearing->arg, endpoint->config.rank, DISTI_ENDPOINT_LOST, r);
        endpoint->lost[r] = false;
    }
}

void disti_endpoints_hear(const char *job, int rank, disti_endpoint_heard heard, void *arg)
{
    struct notices_hearing hearing = {.heard = heard, .arg = arg};

    disti_endpoints_visit(job, rank, notices_hear, &hearing);
    disti_endpoints_release();
}
