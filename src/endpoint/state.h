/* SPDX-License-Identifier: BSD-3-Clause */
/* What an endpoint is made of; private to this folder. */
#ifndef DISTI_ENDPOINT_STATE_H
#define DISTI_ENDPOINT_STATE_H

#include "endpoint/endpoint.h"

#include <pthread.h>
#include <stdatomic.h>

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

/* ---- endpoint.c ---- */

/*
 * Calls `visit` for each shared endpoint of the world with this name in which this process has this
 * rank, with the endpoint's lock held. The endpoint is open.
 */
void disti_endpoints_visit(const char *job, int rank,
                           void (*visit)(struct disti_endpoint *endpoint, void *arg), void *arg);

/*
 * After each call of the transport in which requests may have ended: they are collected, and who
 * sleeps for them is woken. `attachment`: the caller's, or NULL; `failures`: disti_failures() of
 * this thread before the call. With the lock held.
 */
void disti_endpoint_happened(struct disti_endpoint *endpoint,
                             const struct engine_attachment *attachment, unsigned failures);

/* One round of progress, for `attachment` or, with NULL, for none. With the lock held. */
int disti_endpoint_move(struct disti_endpoint *endpoint,
                        const struct engine_attachment *attachment);

/* ---- notices.c ---- */

/* Frees the notices that have left; all: also those that the transport has dropped. */
void disti_endpoint_free_notices(struct disti_endpoint *endpoint, bool all);

#endif
