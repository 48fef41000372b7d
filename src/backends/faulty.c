/* SPDX-License-Identifier: BSD-3-Clause */
/* Fault injection (DIST_FAULT): a backend that wraps another one and counts the operations of the
 * world group, and a host whose engines use faulty transports. Not used unless DIST_FAULT is
 * set. */
#include "transports/faulty/faulty.h"
#include "backends/registry.h"
#include "base/collective.h"
#include "base/faults.h"
#include "base/lock.h"
#include "base/log.h"
#include "engine/engine.h"

/*
 * Maximum numbers of wrapped backends per process (FAULTY_EACH has an entry for each), and of
 * transports per engine.
 */
#define FAULTY_EACH(X) X(0) X(1) X(2) X(3)
#define FAULTY_TABLES 4
#define FAULTY_TRANSPORTS 16

DISTI_PROCESS_LOCK(faulty_lock);
static struct faulty_backend {
    const struct dist_backend *inner;
    struct dist_backend table;
} faulty_backends[FAULTY_TABLES];
static struct dist_host faulty_host;

static const struct dist_transport *faulty_transport_find(const char *name)
{
    return disti_transport_faulty(disti_transport_find(name));
}

static dist_status faulty_engine_open(const struct dist_backend_config *config,
                                      const struct dist_engine_config *given,
                                      struct dist_engine **engine_p)
{
    const struct dist_transport *transports[FAULTY_TRANSPORTS + 1] = {NULL};
    struct dist_engine_config engine = *given;

    for (int i = 0; i < FAULTY_TRANSPORTS && given->transports[i]; i++)
        transports[i] = disti_transport_faulty(given->transports[i]);
    engine.transports = transports;
    return disti_host.engine_open(config, &engine, engine_p);
}

const struct dist_host *disti_host_faulty(void)
{
    if (!disti_faults_are_set())
        return &disti_host;
    pthread_mutex_lock(&faulty_lock);
    if (!faulty_host.size) {
        faulty_host = disti_host;
        faulty_host.transport_find = faulty_transport_find;
        faulty_host.engine_open = faulty_engine_open;
    }
    pthread_mutex_unlock(&faulty_lock);
    return &faulty_host;
}

/* ---- operations ---- */

static dist_status faulty_post(const struct faulty_backend *backend, void *state,
                               const struct dist_call *call, struct dist_ticket *ticket)
{
    if (!disti_collective_pair(call->collective))
        disti_faults_at_operation(call->sequence);
    return backend->inner->post(state, call, ticket);
}

#define FAULTY_POST(i)                                                                             \
    static dist_status faulty_post_##i(void *state, const struct dist_call *call,                  \
                                       struct dist_ticket *ticket)                                 \
    {                                                                                              \
        return faulty_post(&faulty_backends[i], state, call, ticket);                              \
    }
FAULTY_EACH(FAULTY_POST)

#define FAULTY_SLOT(i) faulty_post_##i,
static dist_status (*const faulty_posts[])(void *state, const struct dist_call *call,
                                           struct dist_ticket *ticket) = {FAULTY_EACH(FAULTY_SLOT)};

const struct dist_backend *disti_backend_faulty(const struct dist_backend *backend)
{
    const struct dist_backend *faulty = backend;
    int i = 0;

    if (!disti_faults_are_set())
        return backend;
    pthread_mutex_lock(&faulty_lock);
    while (i < FAULTY_TABLES && faulty_backends[i].inner && faulty_backends[i].inner != backend)
        i++;
    if (i < FAULTY_TABLES) {
        if (!faulty_backends[i].inner) {
            faulty_backends[i].table = *backend;
            faulty_backends[i].table.post = faulty_posts[i];
            faulty_backends[i].table.at_once = NULL;
            faulty_backends[i].inner = backend;
        }
        faulty = &faulty_backends[i].table;
    }
    pthread_mutex_unlock(&faulty_lock);
    return faulty;
}
