/* SPDX-License-Identifier: BSD-3-Clause */
/* Who of the sleeping threads watches an endpoint, and who is woken. */
#include "base/clock.h"
#include "base/descriptor.h"
#include "base/log.h"
#include "base/thread.h"
#include "endpoint/endpoint.h"
#include "endpoint/state.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* Endpoints that one thread moves in one call of the library: a few transports of a group. */
#define WATCH_OWED 8

/* Those that this thread has moved while others slept: it has to see to the watch when it leaves.
 */
static _Thread_local struct disti_endpoint *watch_owed[WATCH_OWED];
static _Thread_local int watch_owed_count;

static bool watch_is_owed(const struct disti_endpoint *endpoint)
{
    for (int i = 0; i < watch_owed_count; i++) {
        if (watch_owed[i] == endpoint)
            return true;
    }
    return false;
}

static void watch_owe(struct disti_endpoint *endpoint)
{
    if (watch_is_owed(endpoint) || watch_owed_count == WATCH_OWED)
        return;
    watch_owed[watch_owed_count++] = endpoint;
    atomic_fetch_add(&endpoint->references, 1);
    endpoint->movers++;
}

/* The thread goes to sleep on the endpoint itself. It holds a attachment to it, so it stays. */
static void watch_release(struct disti_endpoint *endpoint)
{
    for (int i = 0; i < watch_owed_count; i++) {
        if (watch_owed[i] != endpoint)
            continue;
        watch_owed[i] = watch_owed[--watch_owed_count];
        endpoint->movers--;
        disti_endpoint_let_go(endpoint);
        return;
    }
}

static void watch_disarm(struct disti_endpoint *endpoint)
{
    if (endpoint->watcher)
        endpoint->transport->disarm(endpoint->state);
    endpoint->watcher = NULL;
}

void disti_endpoint_take_watch(struct disti_endpoint *endpoint)
{
    watch_disarm(endpoint);
    if (endpoint->asleep)
        watch_owe(endpoint);
}

/*
 * Messages may end while the transport is armed, and no progress will tell of them. A failure's
 * text is for the caller's attachment, if it has one.
 */
static int watch_arm(struct disti_endpoint *endpoint, const struct engine_attachment *attachment)
{
    int held = disti_cancel_hold();
    unsigned failures = disti_failures();
    int fd = endpoint->transport->arm(endpoint->state);

    disti_cancel_let(held);
    disti_endpoint_happened(endpoint, attachment, failures);
    return fd;
}

/* Preferably one that sleeps on the descriptor already: it need not be woken for that. */
void disti_endpoint_give_watch(struct disti_endpoint *endpoint)
{
    struct engine_attachment *attachment = endpoint->asleep;

    if (!attachment || endpoint->watcher || !endpoint->state || endpoint->broken < 0)
        return;
    while (attachment && attachment->fd < 0)
        attachment = attachment->next_asleep;
    if (attachment && watch_arm(endpoint, NULL) == attachment->fd) {
        endpoint->watcher = attachment;
        return;
    }
    if (attachment)
        endpoint->transport->disarm(endpoint->state);
    disti_doorbell_ring(attachment ? attachment->doorbell : endpoint->asleep->doorbell);
}

static bool watch_has_ended(const struct engine_attachment *attachment)
{
    const struct engine_request *request;

    for (request = LIST_FIRST(&attachment->out); request; request = LIST_NEXT(request, entry)) {
        if (request->request.status != DIST_IN_PROGRESS)
            return true;
    }
    return false;
}

void disti_endpoint_wake(struct disti_endpoint *endpoint)
{
    for (struct engine_attachment *attachment = endpoint->asleep; attachment;
         attachment = attachment->next_asleep) {
        if (attachment->from_any || endpoint->broken < 0 || watch_has_ended(attachment))
            disti_doorbell_ring(attachment->doorbell);
    }
}

void disti_endpoint_end_sleep(struct disti_endpoint *endpoint, struct engine_attachment *attachment)
{
    struct engine_attachment **at = &endpoint->asleep;

    if (!attachment->asleep)
        return;
    while (*at != attachment)
        at = &(*at)->next_asleep;
    *at = attachment->next_asleep;
    attachment->asleep = false;
    attachment->fd = -1;
    if (endpoint->watcher != attachment)
        return;
    watch_disarm(endpoint);
    if (endpoint->asleep)
        watch_owe(endpoint);
}

static void watch_sleep(struct disti_endpoint *endpoint, struct engine_attachment *attachment,
                        bool from_any, int fd)
{
    attachment->asleep = true;
    attachment->from_any = from_any;
    attachment->fd = fd;
    attachment->next_asleep = endpoint->asleep;
    endpoint->asleep = attachment;
    watch_release(endpoint);
}

/* One that moves the endpoint sees to the watch when it has done. */
static int watch_begin(struct disti_endpoint *endpoint, struct engine_attachment *attachment,
                       bool from_any)
{
    bool moved = endpoint->movers - watch_is_owed(endpoint) > 0;
    int fd = -1;

    if (!moved && !endpoint->watcher) {
        disti_endpoint_sweep(endpoint);
        fd = watch_arm(endpoint, attachment);
        if (fd < 0 || watch_has_ended(attachment)) {
            endpoint->transport->disarm(endpoint->state);
            return fd < 0 ? fd : DIST_ARM_READY;
        }
        endpoint->watcher = attachment;
    }
    watch_sleep(endpoint, attachment, from_any, fd);
    return fd >= 0 ? fd : DISTI_ATTACHMENT_DOORBELL;
}

int disti_attachment_arm(struct engine_attachment *attachment, bool from_any)
{
    struct disti_endpoint *endpoint = attachment->endpoint;
    int fd;

    if (!endpoint->shared)
        return attachment->transport->arm(endpoint->state);
    attachment->doorbell = disti_doorbell();
    if (attachment->doorbell < 0)
        return -1;
    pthread_mutex_lock(&endpoint->lock);
    fd = endpoint->broken < 0 || watch_has_ended(attachment)
             ? DIST_ARM_READY
             : watch_begin(endpoint, attachment, from_any);
    pthread_mutex_unlock(&endpoint->lock);
    return fd;
}

void disti_attachment_disarm(struct engine_attachment *attachment)
{
    struct disti_endpoint *endpoint = attachment->endpoint;

    if (!endpoint->shared) {
        attachment->transport->disarm(endpoint->state);
        return;
    }
    pthread_mutex_lock(&endpoint->lock);
    disti_endpoint_end_sleep(endpoint, attachment);
    pthread_mutex_unlock(&endpoint->lock);
}

void disti_endpoints_release(void)
{
    while (watch_owed_count) {
        struct disti_endpoint *endpoint = watch_owed[--watch_owed_count];

        pthread_mutex_lock(&endpoint->lock);
        if (--endpoint->movers == 0)
            disti_endpoint_give_watch(endpoint);
        pthread_mutex_unlock(&endpoint->lock);
        disti_endpoint_let_go(endpoint);
    }
}

/* Failure notices between the ranks of a world whose store is gone. */

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

/* Printable, whatever the peer sent. */
static void notices_clean(char *text)
{
    for (; *text; text++) {
        if (*text < ' ' || *text > '~')
            *text = ' ';
    }
}

static void notices_receive(struct disti_endpoint *endpoint, struct notices_hearing *hearing)
{
    struct endpoint_notice *notice, *next;

    while ((notice = STAILQ_FIRST(&hearing->fresh))) {
        STAILQ_REMOVE_HEAD(&hearing->fresh, fresh);
        notice->request.sink = (struct dist_sink){.dst = notice->text,
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
        notices_clean(notice->text);
        notices_give(hearing, notice->request.peer, notice->request.envelope.fingerprint,
                     notice->request.status == DIST_OK ? notice->text : "");
        SLIST_REMOVE(&endpoint->arriving, notice, endpoint_notice, entry);
        free(notice);
    }
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
        notices_receive(endpoint, hearing);
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
