/* SPDX-License-Identifier: BSD-3-Clause */
/* Endpoints: opened, found again by the world's other groups, closed with the world. */
#include "endpoint/endpoint.h"
#include "base/clock.h"
#include "base/descriptor.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/thread.h"

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Groups that have ended of late, whose peers may not have heard of it. */
#define ENDPOINT_ENDED 16

struct endpoint_ended {
    uint32_t group;
    int64_t until_ns; /* 0: nothing */
};

/* News on their way to a peer or from it, see disti_endpoints_tell. */
struct endpoint_notice {
    struct dist_request request;
    SLIST_ENTRY(endpoint_notice) entry;
    STAILQ_ENTRY(endpoint_notice) fresh; /* of one that is to be received */
    char text[];                         /* the request's bytes, and a zero byte that is not sent */
};
SLIST_HEAD(endpoint_notices, endpoint_notice);

struct disti_endpoint {
    struct disti_endpoint *next; /* of all that are shared */
    const struct dist_transport *transport;
    void *state; /* the transport's; NULL: closed */
    bool shared;
    atomic_int references; /* of its attachments, of the list, and of threads that owe it a watch */
    struct dist_transport_config config;
    char *job, *bind_host;
    uint8_t *secret;
    bool *connected; /* by rank of the world */
    bool *lost;      /* the same: a request ended because of it; guarded by lock */
    unsigned char address[DIST_ADDRESS_MAX];
    size_t address_bytes; /* 0: not asked for yet */

    pthread_mutex_t lock; /* of all that follows, and of the calls of the transport */
    LIST_HEAD(, engine_attachment) attachments;
    struct endpoint_notices notices, arriving; /* sent, and being received */
    struct engine_attachment *asleep,
        *watcher; /* by next_asleep; one of these, if the transport is armed */
    int movers;   /* threads that have to see to the watch */
    uint64_t happened;
    dist_status broken; /* what progress said, with */
    char *broken_text;
    struct endpoint_ended ended[ENDPOINT_ENDED]; /* a ring */
    unsigned ended_next, sweeps;
};

static inline void endpoint_lock(struct disti_endpoint *endpoint)
{
    if (endpoint->shared)
        pthread_mutex_lock(&endpoint->lock);
}

static inline bool endpoint_try_lock(struct disti_endpoint *endpoint)
{
    return !endpoint->shared || pthread_mutex_trylock(&endpoint->lock) == 0;
}

static inline void endpoint_unlock(struct disti_endpoint *endpoint)
{
    if (endpoint->shared)
        pthread_mutex_unlock(&endpoint->lock);
}

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

/* Frees the notices that have left; all: also those that the transport has dropped. */
static void endpoint_free_notices(struct disti_endpoint *endpoint, bool all)
{
    notices_free(&endpoint->notices, all);
    if (all)
        notices_free(&endpoint->arriving, true);
}

DISTI_PROCESS_LOCK(endpoint_list_lock);
static struct disti_endpoint *endpoint_list;

/* ---- one endpoint ---- */

static void endpoint_shut(struct disti_endpoint *endpoint)
{
    if (endpoint->state)
        endpoint->transport->close(endpoint->state);
    free(endpoint->state);
    endpoint->state = NULL;
    endpoint_free_notices(endpoint, true);
}

static void endpoint_let_go(struct disti_endpoint *endpoint)
{
    if (atomic_fetch_sub(&endpoint->references, 1) > 1)
        return;
    endpoint_shut(endpoint);
    pthread_mutex_destroy(&endpoint->lock);
    free(endpoint->job);
    free(endpoint->bind_host);
    if (endpoint->secret)
        explicit_bzero(endpoint->secret, endpoint->config.secret_bytes);
    free(endpoint->secret);
    free(endpoint->connected);
    free(endpoint->lost);
    free(endpoint->broken_text);
    free(endpoint);
}

static dist_status endpoint_fill(struct disti_endpoint *endpoint,
                                 const struct dist_backend_config *config, void *context)
{
    const struct dist_transport *transport = endpoint->transport;

    endpoint->config = (struct dist_transport_config){
        .size = sizeof(endpoint->config),
        .rank = config->rank,
        .world_size = config->world_size,
        .timeout_ms = config->timeout_ms,
        .job = config->job,
        .bind_host = config->bind_host,
        .local_ranks = config->local_ranks,
        .host = config->host,
        .context = context,
        .secret = config->secret,
        .secret_bytes = config->secret_bytes,
    };
    if (endpoint->shared) {
        endpoint->job = strdup(config->world_job);
        endpoint->bind_host = config->bind_host ? strdup(config->bind_host) : NULL;
        uint8_t *copy = config->secret ? malloc(config->secret_bytes + 1) : NULL;
        if (copy)
            memcpy(copy, config->secret, config->secret_bytes);
        endpoint->secret = copy;
        /* What one for all groups of the world is told. The strings outlive the group that is
         * first. */
        endpoint->config.rank = config->world_rank;
        endpoint->config.world_size = config->world_ranks;
        endpoint->config.timeout_ms = config->world_timeout_ms;
        endpoint->config.local_ranks = config->world_local_ranks;
        endpoint->config.job = endpoint->job;
        endpoint->config.bind_host = endpoint->bind_host;
        endpoint->config.secret = endpoint->secret;
    }
    endpoint->connected = calloc((size_t)endpoint->config.world_size, sizeof(bool));
    endpoint->lost = calloc((size_t)endpoint->config.world_size, sizeof(bool));
    endpoint->state = calloc(1, transport->state_size);
    if (!endpoint->state || !endpoint->connected || !endpoint->lost ||
        (endpoint->shared && (!endpoint->job || (config->bind_host && !endpoint->bind_host) ||
                              (config->secret && !endpoint->secret))))
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for transport %s", transport->name);
    return DIST_OK;
}

static dist_status endpoint_open(const struct dist_transport *transport,
                                 const struct dist_backend_config *config, void *context,
                                 bool shared, struct disti_endpoint **endpoint_p)
{
    struct disti_endpoint *endpoint = calloc(1, sizeof(*endpoint));
    dist_status status;

    if (!endpoint)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for transport %s", transport->name);
    endpoint->transport = transport;
    endpoint->shared = shared;
    atomic_init(&endpoint->references, 1);
    pthread_mutex_init(&endpoint->lock, NULL);
    status = endpoint_fill(endpoint, config, context);
    if (status != DIST_OK) {
        free(endpoint->state); /* it has not been opened */
        endpoint->state = NULL;
    } else {
        status = transport->open(endpoint->state, &endpoint->config);
    }
    if (status == DIST_OK)
        *endpoint_p = endpoint;
    else
        endpoint_let_go(endpoint);
    return status;
}

/* ---- those that are shared ---- */

/*
 * Another process's after a fork, or another world's: the job's name tells. A backend's context is
 * one group's own, so that it goes to none of these.
 */
static bool endpoint_is(const struct disti_endpoint *endpoint,
                        const struct dist_transport *transport,
                        const struct dist_backend_config *config)
{
    return endpoint->transport == transport && endpoint->config.rank == config->world_rank &&
           endpoint->config.world_size == config->world_ranks &&
           strcmp(endpoint->job, config->world_job) == 0;
}

/* With the list's lock held. NULL: there is none. */
static struct disti_endpoint *endpoint_find(const struct dist_transport *transport,
                                            const struct dist_backend_config *config)
{
    struct disti_endpoint *endpoint = endpoint_list;

    while (endpoint && !endpoint_is(endpoint, transport, config))
        endpoint = endpoint->next;
    return endpoint;
}

static bool endpoint_is_of(const struct disti_endpoint *endpoint, const char *job, int rank)
{
    return endpoint->config.rank == rank && strcmp(endpoint->job, job) == 0;
}

/*
 * Calls `visit` for each shared endpoint of the world with this name in which this process has this
 * rank, with the endpoint's lock held. The endpoint is open.
 */
static void endpoints_visit(const char *job, int rank,
                            void (*visit)(struct disti_endpoint *endpoint, void *arg), void *arg)
{
    pthread_mutex_lock(&endpoint_list_lock);
    for (struct disti_endpoint *endpoint = endpoint_list; endpoint; endpoint = endpoint->next) {
        if (!endpoint_is_of(endpoint, job, rank))
            continue;
        endpoint_lock(endpoint);
        visit(endpoint, arg);
        endpoint_unlock(endpoint);
    }
    pthread_mutex_unlock(&endpoint_list_lock);
}

static bool endpoint_may_share(const struct dist_transport *transport,
                               const struct dist_backend_config *config)
{
    return transport->cancel && config->world_ranks > 0 && config->world_job;
}

static dist_status endpoint_share(const struct dist_transport *transport,
                                  const struct dist_backend_config *config,
                                  struct disti_endpoint **endpoint_p)
{
    struct disti_endpoint *endpoint;
    dist_status status = DIST_OK;

    pthread_mutex_lock(&endpoint_list_lock);
    endpoint = endpoint_find(transport, config);
    if (!endpoint) {
        status = endpoint_open(transport, config, NULL, true, &endpoint);
        if (status == DIST_OK) {
            endpoint->next = endpoint_list;
            endpoint_list = endpoint;
        }
    }
    if (status == DIST_OK) {
        atomic_fetch_add(&endpoint->references, 1);
        *endpoint_p = endpoint;
    }
    pthread_mutex_unlock(&endpoint_list_lock);
    return status;
}

void disti_endpoints_close(const char *job, int rank)
{
    struct disti_endpoint **at = &endpoint_list;

    pthread_mutex_lock(&endpoint_list_lock);
    while (*at) {
        struct disti_endpoint *endpoint = *at;

        if (!endpoint_is_of(endpoint, job, rank)) {
            at = &endpoint->next;
            continue;
        }
        *at = endpoint->next;
        endpoint_lock(endpoint);
        endpoint_shut(endpoint);
        endpoint_unlock(endpoint);
        endpoint_let_go(endpoint);
    }
    pthread_mutex_unlock(&endpoint_list_lock);
}

/* ---- attachments ---- */

bool disti_attachment_is_open(const struct dist_transport *transport,
                              const struct dist_backend_config *config)
{
    bool open;

    if (!endpoint_may_share(transport, config))
        return false;
    pthread_mutex_lock(&endpoint_list_lock);
    open = endpoint_find(transport, config);
    pthread_mutex_unlock(&endpoint_list_lock);
    return open;
}

dist_status disti_attachment_open(struct engine_attachment *attachment,
                                  const struct dist_transport *transport,
                                  const struct dist_backend_config *config, void *context)
{
    bool shared = endpoint_may_share(transport, config);
    struct disti_endpoint *endpoint;
    dist_status status;

    *attachment = (struct engine_attachment){.transport = transport,
                                             .rank = config->rank,
                                             .ranks = config->world_size,
                                             .members = shared ? config->members : NULL,
                                             .group = config->group,
                                             .doorbell = -1,
                                             .fd = -1};
    status = shared ? endpoint_share(transport, config, &endpoint)
                    : endpoint_open(transport, config, context, false, &endpoint);
    if (status != DIST_OK)
        return status;
    attachment->endpoint = endpoint;
    endpoint_lock(endpoint);
    if (endpoint->config.timeout_ms < config->timeout_ms) /* nobody is lost before its calls end */
        endpoint->config.timeout_ms = config->timeout_ms;
    LIST_INSERT_HEAD(&endpoint->attachments, attachment, entry);
    endpoint_unlock(endpoint);
    return DIST_OK;
}

/* Who of the sleeping threads watches an endpoint, and who is woken. */

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

static void watch_disarm(struct disti_endpoint *endpoint)
{
    if (endpoint->watcher)
        endpoint->transport->disarm(endpoint->state);
    endpoint->watcher = NULL;
}

/* The calling thread is about to move the endpoint: nobody watches meanwhile. */
static void endpoint_take_watch(struct disti_endpoint *endpoint)
{
    watch_disarm(endpoint);
    if (endpoint->asleep)
        watch_owe(endpoint);
}

/*
 * After each call of the transport in which requests may have ended: they are collected, and who
 * sleeps for them is woken. `attachment`: the caller's, or NULL; `failures`: disti_failures() of
 * this thread before the call. With the lock held.
 */
static void endpoint_happened(struct disti_endpoint *endpoint,
                              const struct engine_attachment *attachment, unsigned failures);

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
    endpoint_happened(endpoint, attachment, failures);
    return fd;
}

/* The watcher, if there was one, is gone, or the calling thread leaves: a sleeper shall watch. */
/* Preferably one that sleeps on the descriptor already: it need not be woken for that. */
static void endpoint_give_watch(struct disti_endpoint *endpoint)
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

/* Something has happened: rings those that sleep and have something of it. */
static void endpoint_wake(struct disti_endpoint *endpoint)
{
    for (struct engine_attachment *attachment = endpoint->asleep; attachment;
         attachment = attachment->next_asleep) {
        if (attachment->from_any || endpoint->broken < 0 || watch_has_ended(attachment))
            disti_doorbell_ring(attachment->doorbell);
    }
}

/* The attachment sleeps no more. */
static void endpoint_end_sleep(struct disti_endpoint *endpoint,
                               struct engine_attachment *attachment)
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
    /* The thread goes to sleep on the endpoint itself. It holds a attachment to it, so it stays. */
    for (int i = 0; i < watch_owed_count; i++) {
        if (watch_owed[i] != endpoint)
            continue;
        watch_owed[i] = watch_owed[--watch_owed_count];
        endpoint->movers--;
        endpoint_let_go(endpoint);
        return;
    }
}

static void endpoint_sweep(struct disti_endpoint *endpoint);

/* One that moves the endpoint sees to the watch when it has done. */
static int watch_begin(struct disti_endpoint *endpoint, struct engine_attachment *attachment,
                       bool from_any)
{
    bool moved = endpoint->movers - watch_is_owed(endpoint) > 0;
    int fd = -1;

    if (!moved && !endpoint->watcher) {
        endpoint_sweep(endpoint);
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
    endpoint_end_sleep(endpoint, attachment);
    pthread_mutex_unlock(&endpoint->lock);
}

void disti_endpoints_release(void)
{
    while (watch_owed_count) {
        struct disti_endpoint *endpoint = watch_owed[--watch_owed_count];

        pthread_mutex_lock(&endpoint->lock);
        if (--endpoint->movers == 0)
            endpoint_give_watch(endpoint);
        pthread_mutex_unlock(&endpoint->lock);
        endpoint_let_go(endpoint);
    }
}

/* ---- closing ---- */

/* A peer hears of a group's end from the store, or meets its own deadline. */
#define ENDPOINT_ENDED_MS (60 * 1000)

/* Throws away what has come for groups that have ended of late. With the lock held. */
/*
 * A peer that has not heard of a group's end may still send messages of it, which nobody will ever
 * receive: they are looked for now and then.
 */
static void endpoint_sweep(struct disti_endpoint *endpoint)
{
    endpoint->sweeps = 0;
    for (int i = 0; i < ENDPOINT_ENDED && endpoint->broken == DIST_OK; i++) {
        struct endpoint_ended *ended = &endpoint->ended[i];

        if (!ended->until_ns)
            continue;
        endpoint->transport->cancel(endpoint->state, disti_tag_group(ended->group),
                                    DISTI_TAG_GROUP_MASK);
        if (disti_expired(ended->until_ns))
            ended->until_ns = 0;
    }
}

void disti_attachment_close(struct engine_attachment *attachment)
{
    struct disti_endpoint *endpoint = attachment->endpoint;

    if (!endpoint)
        return;
    endpoint_lock(endpoint);
    endpoint_end_sleep(endpoint, attachment);
    if (endpoint->shared && endpoint->state) {
        endpoint->ended[endpoint->ended_next++ % ENDPOINT_ENDED] = (struct endpoint_ended){
            .group = attachment->group, .until_ns = disti_deadline_ms(ENDPOINT_ENDED_MS)};
        endpoint_sweep(endpoint);
        endpoint->happened++;
        endpoint_wake(endpoint);
    }
    LIST_REMOVE(attachment, entry);
    if (!endpoint->movers)
        endpoint_give_watch(endpoint);
    endpoint_unlock(endpoint);
    free(attachment->why);
    attachment->why = NULL;
    attachment->endpoint = NULL;
    LIST_INIT(&attachment->out);
    endpoint_let_go(endpoint);
}

/* The attachment of an engine to an endpoint: messages, in the ranks of the engine's group. */

static int attachment_rank_outside(const struct engine_attachment *attachment, int peer)
{
    return attachment->members ? attachment->members[peer] : peer;
}

/* -1: that rank is not in the group. */
static int attachment_rank_inside(const struct engine_attachment *attachment, int outside)
{
    if (!attachment->members || outside < 0)
        return outside;
    for (int rank = 0; rank < attachment->ranks; rank++) {
        if (attachment->members[rank] == outside)
            return rank;
    }
    return -1;
}

/* ---- opening ---- */

dist_status disti_attachment_address(struct engine_attachment *attachment, void *blob,
                                     size_t *size_p)
{
    struct disti_endpoint *endpoint = attachment->endpoint;
    dist_status status = DIST_OK;
    size_t bytes = 0;

    endpoint_lock(endpoint);
    if (!endpoint->address_bytes) {
        status = attachment->transport->address(endpoint->state, endpoint->address, &bytes);
        if (status == DIST_OK && (bytes < 1 || bytes > DIST_ADDRESS_MAX))
            status =
                disti_fail(DIST_ERR_INTERNAL,
                           "rank %d: transport %s returned an address of %zu bytes: it must have 1 "
                           "to %d bytes",
                           attachment->rank, attachment->transport->name, bytes, DIST_ADDRESS_MAX);
        if (status == DIST_OK)
            endpoint->address_bytes = bytes;
    }
    *size_p = endpoint->address_bytes;
    memcpy(blob, endpoint->address, endpoint->address_bytes);
    endpoint_unlock(endpoint);
    return status;
}

dist_status disti_attachment_reach(struct engine_attachment *attachment, const void *blob,
                                   size_t size, struct dist_reach *reach_p)
{
    dist_status status;

    endpoint_lock(attachment->endpoint);
    status = attachment->transport->reach(attachment->endpoint->state, blob, size, reach_p);
    endpoint_unlock(attachment->endpoint);
    return status;
}

dist_status disti_attachment_connect(struct engine_attachment *attachment, int peer,
                                     const void *blob, size_t size)
{
    struct disti_endpoint *endpoint = attachment->endpoint;
    int outside = attachment_rank_outside(attachment, peer);
    dist_status status = DIST_OK;

    endpoint_lock(endpoint);
    if (!endpoint->connected[outside])
        status = attachment->transport->connect(endpoint->state, outside, blob, size);
    endpoint->connected[outside] = endpoint->connected[outside] || status == DIST_OK;
    endpoint_unlock(endpoint);
    return status;
}

/* ---- requests ---- */

/* The text of a failure is the thread's in whose call it was found. */
static void attachment_ended(struct engine_attachment *attachment, struct engine_request *request)
{
    request->status = request->request.status;
    if (request->status == DIST_ERR_PEER_LOST)
        attachment->endpoint->lost[request->request.peer] = true;
    request->request.peer = request->peer;
    if (request->status < 0 && request->status != DIST_ERR_MISMATCH && attachment->why)
        disti_fail_unlogged(attachment->why);
}

static bool attachment_has_failed(const struct engine_attachment *attachment)
{
    const struct engine_request *request;

    for (request = LIST_FIRST(&attachment->out); request; request = LIST_NEXT(request, entry)) {
        if (request->request.status < 0 && request->request.status != DIST_ERR_MISMATCH)
            return true;
    }
    return false;
}

/* A failure was reported just now: other groups' threads will ask what it was. */
static void attachment_blame(struct disti_endpoint *endpoint, const struct engine_attachment *mine)
{
    struct engine_attachment *attachment;

    for (attachment = LIST_FIRST(&endpoint->attachments); attachment;
         attachment = LIST_NEXT(attachment, entry)) {
        if (attachment != mine && !attachment->why && attachment_has_failed(attachment))
            attachment->why = strdup(dist_last_error());
    }
}

static void endpoint_happened(struct disti_endpoint *endpoint,
                              const struct engine_attachment *attachment, unsigned failures)
{
    endpoint->happened++;
    if (!endpoint->shared)
        return;
    if (disti_failures() != failures)
        attachment_blame(endpoint, attachment);
    if (endpoint->asleep)
        endpoint_wake(endpoint);
}

static void attachment_start(struct engine_attachment *attachment, int peer,
                             struct engine_request *request,
                             void (*start)(void *state, struct dist_request *request))
{
    struct disti_endpoint *endpoint = attachment->endpoint;
    struct dist_request *inner = &request->request;
    unsigned failures = disti_failures();

    inner->status = request->status = DIST_IN_PROGRESS;
    inner->peer = attachment_rank_outside(attachment, peer);
    inner->next = inner->prev = NULL;
    inner->moved = 0;
    request->peer = peer;
    endpoint_lock(endpoint);
    if (endpoint->asleep)
        endpoint_take_watch(endpoint);
    if (endpoint->broken < 0)
        inner->status = endpoint->broken;
    else
        start(endpoint->state, inner);
    if (inner->status == DIST_IN_PROGRESS)
        LIST_INSERT_HEAD(&attachment->out, request, entry);
    else
        attachment_ended(attachment, request);
    endpoint_happened(endpoint, attachment, failures);
    endpoint_unlock(endpoint);
}

void disti_attachment_send(struct engine_attachment *attachment, int peer,
                           struct engine_request *request)
{
    attachment_start(attachment, peer, request, attachment->transport->send);
}

void disti_attachment_recv(struct engine_attachment *attachment, int peer,
                           struct engine_request *request)
{
    attachment_start(attachment, peer, request, attachment->transport->recv);
}

/* ---- moving ---- */

/* Calls between two looks for messages of groups that have ended. */
#define LINK_SWEEP 4096

/* One round of progress, for `attachment` or, with NULL, for none. With the lock held. */
static int endpoint_move(struct disti_endpoint *endpoint,
                         const struct engine_attachment *attachment)
{
    unsigned failures = disti_failures();
    bool swept = false;
    int moved;

    if (endpoint->broken < 0) {
        /* The transport is broken for all groups. */
        if (endpoint->broken_text)
            disti_fail_unlogged(endpoint->broken_text);
        return endpoint->broken;
    }
    if (endpoint->asleep)
        endpoint_take_watch(endpoint);
    if (endpoint->shared && ++endpoint->sweeps >= LINK_SWEEP) {
        endpoint_sweep(endpoint);
        swept = true;
    }
    moved = endpoint->transport->progress(endpoint->state);
    if (moved < 0) {
        endpoint->broken = moved;
        endpoint->broken_text = strdup(dist_last_error());
    }
    if (moved != 0 || swept || !endpoint->shared)
        endpoint_happened(endpoint, attachment, failures);
    return moved;
}

int disti_attachment_progress(struct engine_attachment *attachment)
{
    int moved, ended;

    if (!endpoint_try_lock(attachment->endpoint))
        return 0;
    moved = endpoint_move(attachment->endpoint, attachment);
    /* The attachment's requests that have ended become the engine's again. */
    struct disti_endpoint *endpoint = attachment->endpoint;
    ended = 0;
    if (!endpoint->shared || attachment->seen != endpoint->happened) {
        attachment->seen = endpoint->happened;
        for (struct engine_request *request = LIST_FIRST(&attachment->out), *next; request;
             request = next) {
            next = LIST_NEXT(request, entry);
            if (request->request.status == DIST_IN_PROGRESS)
                continue;
            LIST_REMOVE(request, entry);
            attachment_ended(attachment, request);
            ended++;
        }
    }
    endpoint_unlock(attachment->endpoint);
    /* What moves for others is no reason to go on looking. */
    return moved <= 0 || LIST_FIRST(&attachment->out) || !attachment->endpoint->shared
               ? moved + (moved ? 0 : ended)
               : ended;
}

int disti_attachment_probe_tag(struct engine_attachment *attachment, uint64_t tag)
{
    int outside;

    if (!endpoint_try_lock(attachment->endpoint))
        return -1;
    outside = attachment->transport->probe_tag(attachment->endpoint->state, tag);
    endpoint_unlock(attachment->endpoint);
    return attachment_rank_inside(attachment, outside);
}

static void attachment_describe(const struct engine_attachment *attachment, int peer, char *text,
                                size_t size)
{
    text[0] = '\0';
    /* Who has the lock may keep it for long: then it is not known. */
    if (!attachment->endpoint || !attachment->transport->describe ||
        !endpoint_try_lock(attachment->endpoint))
        return;
    if (attachment->endpoint->state)
        attachment->transport->describe(attachment->endpoint->state,
                                        attachment_rank_outside(attachment, peer), text, size);
    endpoint_unlock(attachment->endpoint);
}

void disti_attachment_trouble(const struct engine_attachment *attachment, int peer, char *text,
                              size_t size)
{
    char said[640];
    const char *trouble;

    attachment_describe(attachment, peer, said, sizeof(said));
    trouble = strchr(said, ';');
    snprintf(text, size, "%s", trouble ? trouble : "");
}

bool disti_attachment_unreachable(const struct engine_attachment *attachment, int peer)
{
    static const char word[] = "unreachable";
    char text[512];

    attachment_describe(attachment, peer, text, sizeof(text));
    return strncmp(text, word, sizeof(word) - 1) == 0;
}

/* What the transport shows, in ranks of the group. */
struct attachment_look {
    const struct engine_attachment *attachment;
    dist_unexpected_fn see;
    void *arg;
};

static bool attachment_see(void *arg, int outside, const struct dist_envelope *envelope)
{
    const struct attachment_look *look = arg;
    int peer = attachment_rank_inside(look->attachment, outside);

    return peer >= 0 && look->see(look->arg, peer, envelope);
}

void disti_attachment_unexpected(struct engine_attachment *attachment, uint64_t tag, uint64_t mask,
                                 int most, dist_unexpected_fn see, void *arg)
{
    struct attachment_look look = {attachment, see, arg};

    if (!attachment->transport->unexpected)
        return;
    endpoint_lock(attachment->endpoint);
    attachment->transport->unexpected(attachment->endpoint->state, tag, mask, most, attachment_see,
                                      &look);
    endpoint_unlock(attachment->endpoint);
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

static void notices_begin(struct disti_endpoint *endpoint, void *arg)
{
    const struct notices_sending *sending = arg;
    unsigned failures = disti_failures();

    if (!notices_is_usable(endpoint))
        return;
    endpoint_free_notices(endpoint, false);
    for (int r = 0; r < endpoint->config.world_size; r++) {
        if (sending->to[r] && endpoint->connected[r]) {
            /* Without memory that peer has its own deadline. */
            const size_t bytes = strnlen(sending->text, NOTICES_TEXT_MAX);
            struct endpoint_notice *notice = notices_new(r, sending->fingerprint, bytes);
            if (notice) {
                memcpy(notice->text, sending->text, bytes);
                notice->request.data = notice->text;
                SLIST_INSERT_HEAD(&endpoint->notices, notice, entry);
                endpoint->transport->send(endpoint->state, &notice->request);
            }
        }
    }
    endpoint_happened(endpoint, NULL, failures);
}

static void notices_go_on(struct disti_endpoint *endpoint, void *arg)
{
    struct notices_sending *sending = arg;

    if (SLIST_EMPTY(&endpoint->notices) || !notices_is_usable(endpoint))
        return;
    endpoint_move(endpoint, NULL);
    endpoint_free_notices(endpoint, false);
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
    endpoints_visit(job, rank, notices_begin, &sending);
    do {
        sending.pending = false;
        endpoints_visit(job, rank, notices_go_on, &sending);
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
        endpoint_move(endpoint, NULL);
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
            endpoint_move(endpoint, NULL);
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

    endpoints_visit(job, rank, notices_hear, &hearing);
    disti_endpoints_release();
}
