/* SPDX-License-Identifier: BSD-3-Clause */
/* Endpoints: opened, found again by the world's other groups, closed with the world. */
#include "endpoint/endpoint.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/process_lock.h"
#include "endpoint/state.h"

#include <stdlib.h>
#include <string.h>

DISTI_PROCESS_LOCK(endpoint_list_lock);
static struct disti_endpoint *endpoint_list;

/* ---- one endpoint ---- */

static void endpoint_shut(struct disti_endpoint *endpoint)
{
    if (endpoint->state)
        endpoint->transport->close(endpoint->state);
    free(endpoint->state);
    endpoint->state = NULL;
    disti_endpoint_free_notices(endpoint, true);
}

void disti_endpoint_let_go(struct disti_endpoint *endpoint)
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

/* What one for all groups of the world is told. The strings outlive the group that is first. */
static void endpoint_config_world(struct disti_endpoint *endpoint,
                                  const struct dist_backend_config *config)
{
    endpoint->config.rank = config->world_rank;
    endpoint->config.world_size = config->world_ranks;
    endpoint->config.timeout_ms = config->world_timeout_ms;
    endpoint->config.local_ranks = config->world_local_ranks;
    endpoint->config.job = endpoint->job;
    endpoint->config.bind_host = endpoint->bind_host;
    endpoint->config.secret = endpoint->secret;
}

static uint8_t *endpoint_copy_secret(const struct dist_backend_config *config)
{
    uint8_t *copy = config->secret ? malloc(config->secret_bytes + 1) : NULL;

    if (copy)
        memcpy(copy, config->secret, config->secret_bytes);
    return copy;
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
        endpoint->secret = endpoint_copy_secret(config);
        endpoint_config_world(endpoint, config);
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
        disti_endpoint_let_go(endpoint);
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

void disti_endpoints_visit(const char *job, int rank,
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
        disti_endpoint_let_go(endpoint);
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

/* ---- closing ---- */

/* A peer hears of a group's end from the store, or meets its own deadline. */
#define ENDPOINT_ENDED_MS (60 * 1000)

/*
 * A peer that has not heard of a group's end may still send messages of it, which nobody will ever
 * receive: they are looked for now and then.
 */
void disti_endpoint_sweep(struct disti_endpoint *endpoint)
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

static void endpoint_forget(struct disti_endpoint *endpoint, uint32_t group)
{
    endpoint->ended[endpoint->ended_next++ % ENDPOINT_ENDED] =
        (struct endpoint_ended){.group = group, .until_ns = disti_deadline_ms(ENDPOINT_ENDED_MS)};
    disti_endpoint_sweep(endpoint);
}

void disti_attachment_close(struct engine_attachment *attachment)
{
    struct disti_endpoint *endpoint = attachment->endpoint;

    if (!endpoint)
        return;
    endpoint_lock(endpoint);
    disti_endpoint_end_sleep(endpoint, attachment);
    if (endpoint->shared && endpoint->state) {
        endpoint_forget(endpoint, attachment->group);
        endpoint->happened++;
        disti_endpoint_wake(endpoint);
    }
    LIST_REMOVE(attachment, entry);
    if (!endpoint->movers)
        disti_endpoint_give_watch(endpoint);
    endpoint_unlock(endpoint);
    free(attachment->why);
    attachment->why = NULL;
    attachment->endpoint = NULL;
    LIST_INIT(&attachment->out);
    disti_endpoint_let_go(endpoint);
}
