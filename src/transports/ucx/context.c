/* SPDX-License-Identifier: BSD-3-Clause */
/* Transport ucx: UCX's context, which knows the devices; one a process. */
#include "base/settings/env.h"
#include "transports/ucx/state.h"

#include <dirent.h>
#include <pthread.h>
#include <stdlib.h>

/*
 * UCX looks for a peer's death in what tells it nothing by itself, shared memory above all, every
 * 20 s. That would be long for one who waits.
 */
#define CONTEXT_KEEPALIVE "250ms"

/*
 * UCX 1.13 aborts the process ("comp->count > 0") where a peer dies while memory is sent to it over
 * TCP without a copy; and fetching over TCP, which has to be asked for, takes longer than copies.
 * So where there is no RDMA the payload is copied and sent along.
 */
#define CONTEXT_RDMA_DEVICES "/sys/class/infiniband"

/* What this module wants where the user has said nothing. */
static const struct {
    const char *variable, *name, *value;
    bool without_rdma; /* only there */
} context_wishes[] = {
    {"UCX_KEEPALIVE_INTERVAL", "KEEPALIVE_INTERVAL", CONTEXT_KEEPALIVE, false},
    {"UCX_ZCOPY_THRESH", "ZCOPY_THRESH", "inf", true},
    {"UCX_RNDV_THRESH", "RNDV_THRESH", "inf", true},
};

static pthread_mutex_t context_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t context_once = PTHREAD_ONCE_INIT;
static ucp_context_h context_shared;
static unsigned context_users;

/* What a child inherits is its parent's: it is left alone. */
static void context_forked(void)
{
    pthread_mutex_init(&context_lock, NULL);
    context_shared = NULL;
    context_users = 0;
}

static void context_watch_forks(void)
{
    pthread_atfork(NULL, NULL, context_forked);
}

bool disti_ucx_context_rdma(void)
{
    DIR *devices = opendir(CONTEXT_RDMA_DEVICES);
    struct dirent *entry = NULL;

    while (devices && (entry = readdir(devices)) && entry->d_name[0] == '.')
        continue;
    if (devices)
        closedir(devices);
    return entry != NULL;
}

static ucs_status_t context_wish(ucp_config_t *config)
{
    ucs_status_t status = UCS_OK;
    bool rdma = disti_ucx_context_rdma();

    for (size_t i = 0; i < sizeof(context_wishes) / sizeof(context_wishes[0]); i++) {
        if (status == UCS_OK && !disti_env_raw(context_wishes[i].variable) &&
            !(rdma && context_wishes[i].without_rdma))
            status = ucp_config_modify(config, context_wishes[i].name, context_wishes[i].value);
    }
    return status;
}

static ucs_status_t context_make(int ranks, int local_ranks)
{
    const ucp_params_t params = {
        .field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED |
                      UCP_PARAM_FIELD_ESTIMATED_NUM_EPS | UCP_PARAM_FIELD_ESTIMATED_NUM_PPN |
                      UCP_PARAM_FIELD_NAME,
        .features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP,
        .mt_workers_shared = 1,
        .estimated_num_eps = (size_t)ranks,
        .estimated_num_ppn = (size_t)local_ranks,
        .name = "libdist",
    };
    ucp_config_t *config;
    ucs_status_t status = ucp_config_read(NULL, NULL, &config);

    if (status != UCS_OK)
        return status;
    status = context_wish(config);
    if (status == UCS_OK)
        status = ucp_init(&params, config, &context_shared);
    ucp_config_release(config);
    return status;
}

ucs_status_t disti_ucx_context_take(int ranks, int local_ranks, ucp_context_h *context_p)
{
    ucs_status_t status = UCS_OK;

    pthread_once(&context_once, context_watch_forks);
    pthread_mutex_lock(&context_lock);
    if (!context_users)
        status = context_make(ranks, local_ranks);
    if (status == UCS_OK) {
        context_users++;
        *context_p = context_shared;
    }
    pthread_mutex_unlock(&context_lock);
    return status;
}

void disti_ucx_context_give(void)
{
    pthread_mutex_lock(&context_lock);
    if (context_users && --context_users == 0) {
        ucp_cleanup(context_shared);
        context_shared = NULL;
    }
    pthread_mutex_unlock(&context_lock);
}
