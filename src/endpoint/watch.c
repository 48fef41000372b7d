/* SPDX-License-Identifier: BSD-3-Clause */
/* Who of the sleeping threads watches an endpoint, and who is woken. */
#include "base/doorbell.h"
#include "base/log.h"
#include "base/thread.h"
#include "endpoint/endpoint.h"
#include "endpoint/state.h"

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
