/* SPDX-License-Identifier: BSD-3-Clause */
/* Failure notices between the ranks of a world whose store is gone. */
#include "base/clock.h"
#include "base/log.h"
#include "endpoint/endpoint.h"
#include "endpoint/state.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/*
 * A notice is a message whose bytes are a text. No collective and no program's message has its tag,
 * see engine/mismatch.c. Its fingerprint:
 *
 *     63                32 31                        0
 *    | 0, or minus status | rank or group             |
 */
#define NOTICES_TAG (UINT64_C(1) << 43 | UINT64_C(1) << 42)
#define NOTICES_NEWS_SHIFT 32
#define NOTICES_TEXT_MAX 1200
#define NOTICES_SEND_MS 500
#define NOTICES_NAP_NS (100 * 1000)

static void notices_free(struct endpoint_notices *list, bool all)
{
    struct endpoint_notice *notice = SLIST_FIRST(list), *next;

    for (; notice; notice = next) {
        next = SLIST_NEXT(notice, entry);
        if (!all && notice->request.status == DIST_IN_PROGRESS)
            continue;
        SLIST_REMOVE(list, notice, endpoint_notice, entry);
        free(notice);
    }
}

void disti_endpoint_free_notices(struct disti_endpoint *endpoint, bool all)
{
    notices_free(&endpoint->notices, all);
    if (all)
        notices_free(&endpoint->arriving, true);
}

/* NULL: no memory. */
static struct endpoint_notice *notices_new(int peer, uint64_t fingerprint, size_t bytes)
{
    struct endpoint_notice *notice = calloc(1, sizeof(*notice) + bytes + 1);

    if (!notice)
        return NULL;
    notice->request.status = DIST_IN_PROGRESS;
    notice->request.peer = peer;
    notice->request.envelope =
        (struct dist_envelope){.tag = NOTICES_TAG, .fingerprint = fingerprint, .bytes = bytes};
    return notice;
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
    const char *text;
    const bool *to;
    bool pending;
};

/* Without memory that peer has its own deadline. */
static void notices_send(struct disti_endpoint *endpoint, int peer,
                         const struct notices_sending *sending)
{
    const size_t bytes = strnlen(sending->text, NOTICES_TEXT_MAX);
    struct endpoint_notice *notice = notices_new(peer, sending->fingerprint, bytes);

    if (!notice)
        return;
    memcpy(notice->text, sending->text, bytes);
    notice->request.data = notice->text;
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
            notices_send(endpoint, r, sending);
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

void disti_endpoints_tell(const char *job, int rank, dist_status news, int of, const char *text,
                          const bool *to)
{
    const struct disti_log *log = disti_log_current();
    struct notices_sending sending = {.fingerprint =
                                          (uint64_t)-news << NOTICES_NEWS_SHIFT | (unsigned)of,
                                      .text = text ? text : "",
                                      .to = to};
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
    STAILQ_HEAD(, endpoint_notice) fresh; /* seen, and to be received */
};

static void notices_give(const struct notices_hearing *hearing, int peer, uint64_t fingerprint,
                         const char *text)
{
    const uint64_t news = fingerprint >> NOTICES_NEWS_SHIFT;
    const uint32_t of = (uint32_t)fingerprint;
    const uint32_t end = news == 0 ? (uint32_t)hearing->world_size : (uint32_t)INT32_MAX;

    if (news <= -DIST_ERR_INTERNAL && of < end)
        hearing->heard(hearing->arg, peer, (dist_status)(-(int)news), (int)of, text);
}

/* A text has to be received, which the caller of this function may not do yet. */
static bool notices_see(void *arg, int peer, const struct dist_envelope *envelope)
{
    struct notices_hearing *hearing = arg;
    struct endpoint_notice *notice;

    if (envelope->bytes == 0) {
        notices_give(hearing, peer, envelope->fingerprint, "");
        return true;
    }
    if (envelope->bytes > NOTICES_TEXT_MAX)
        return false;
    notice = notices_new(peer, envelope->fingerprint, (size_t)envelope->bytes);
    if (notice)
        STAILQ_INSERT_TAIL(&hearing->fresh, notice, fresh);
    return false;
}

static void notices_hear(struct disti_endpoint *endpoint, void *arg)
{
    struct notices_hearing *hearing = arg;

    hearing->world_size = endpoint->config.world_size;
    STAILQ_INIT(&hearing->fresh);
    if (notices_is_usable(endpoint)) {
        disti_endpoint_move(endpoint, NULL);
        if (endpoint->transport->unexpected)
            endpoint->transport->unexpected(endpoint->state, NOTICES_TAG, ~UINT64_C(0), INT_MAX,
                                            notices_see, hearing);
        struct endpoint_notice *notice, *next;
        while ((notice = STAILQ_FIRST(&hearing->fresh))) {
            STAILQ_REMOVE_HEAD(&hearing->fresh, fresh);
            notice->request.sink =
                (struct dist_sink){.dst = notice->text,
                                   .bytes = (size_t)notice->request.envelope.bytes,
                                   .dtype = DIST_UINT8};
            SLIST_INSERT_HEAD(&endpoint->arriving, notice, entry);
            endpoint->transport->recv(endpoint->state, &notice->request);
        }
        if (!SLIST_EMPTY(&endpoint->arriving))
            disti_endpoint_move(endpoint, NULL);
        for (notice = SLIST_FIRST(&endpoint->arriving); notice; notice = next) {
            next = SLIST_NEXT(notice, entry);
            if (notice->request.status == DIST_IN_PROGRESS)
                continue;
            /* Printable, whatever the peer sent. */
            char *text = notice->text;
            for (; *text; text++) {
                if (*text < ' ' || *text > '~')
                    *text = ' ';
            }
            notices_give(hearing, notice->request.peer, notice->request.envelope.fingerprint,
                         notice->request.status == DIST_OK ? notice->text : "");
            SLIST_REMOVE(&endpoint->arriving, notice, endpoint_notice, entry);
            free(notice);
        }
    }
    for (int r = 0; r < hearing->world_size; r++) {
        if (endpoint->lost[r])
            hearing->heard(hearing->arg, endpoint->config.rank, DISTI_ENDPOINT_LOST, r, "");
        endpoint->lost[r] = false;
    }
}

void disti_endpoints_hear(const char *job, int rank, disti_endpoint_heard heard, void *arg)
{
    struct notices_hearing hearing = {.heard = heard, .arg = arg};

    disti_endpoints_visit(job, rank, notices_hear, &hearing);
    disti_endpoints_release();
}
