/* SPDX-License-Identifier: BSD-3-Clause */
/* Backend hccl: opening a group. Broadcasts rank 0's root info; HCCL then connects the ranks. */
#include "hccl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The data that rank 0 broadcasts: the root info, or rank 0's failure. */
struct open_root {
    struct hccl_root root;
    int32_t status;
    char text[512];
};

/* A job that is freed only if HCCL returns. */
struct open_job {
    struct hccl_job job;
    struct open_root info;
};

static void open_fail(struct hccl_group *g, struct hccl_job *job, bool runtime, int error,
                      const char *what)
{
    char text[256];

    hccl_explain(g->api, runtime, error, text, sizeof(text));
    hccl_job_fail(job, DIST_ERR_SYSTEM, "rank %d, device %d: %s: %s", g->rank, g->device, what,
                  text);
}

static void open_device(struct hccl_group *g, struct hccl_job *job)
{
    const char *what = "aclrtSetDevice";
    int error = g->api->acl.device_set(g->device);

    if (!error) {
        what = "aclrtGetCurrentContext";
        error = g->api->acl.context_get(&g->context);
    }
    if (!error) {
        what = "aclrtCreateStream";
        error = g->api->acl.stream_create(&g->stream);
    }
    if (error)
        open_fail(g, job, true, error, what);
    hccl_job_reach(g, job, HCCL_DONE);
}

static void open_get_root(struct hccl_group *g, struct hccl_job *job)
{
    struct open_job *open = (struct open_job *)job;
    int error = g->api->root(&open->info.root);

    if (error)
        open_fail(g, job, false, error, "HcclGetRootInfo");
    hccl_job_reach(g, job, HCCL_DONE);
}

static void open_connect(struct hccl_group *g, struct hccl_job *job)
{
    struct open_job *open = (struct open_job *)job;
    void *comm = NULL;
    int error = g->api->comm_init((uint32_t)g->ranks, &open->info.root, (uint32_t)g->rank, &comm);

    atomic_store(&g->comm, comm);
    if (error)
        open_fail(g, job, false, error, "HcclCommInitRootInfo");
    hccl_job_reach(g, job, HCCL_DONE);
}

/*
 * Runs a job in the thread and waits for it. After a timeout, *open_p is NULL and the thread keeps
 * the job.
 */
static dist_status open_run(struct hccl_group *g, struct open_job **open_p,
                            void (*run)(struct hccl_group *g, struct hccl_job *job))
{
    struct open_job *open = *open_p;
    dist_status status;

    open->job = (struct hccl_job){.run = run};
    hccl_enqueue(g, &open->job);
    status = hccl_wait(g, &open->job, HCCL_DONE);
    if (atomic_load(&open->job.stage) < HCCL_DONE)
        *open_p = NULL;
    return status;
}

static dist_status open_broadcast(const struct dist_backend_config *config, struct open_root *info)
{
    struct open_root *all;
    dist_status status;

    if (config->broadcast)
        return config->broadcast(config->all_gather_arg, info, sizeof(*info));
    all = calloc((size_t)config->world_size, sizeof(*all));
    if (!all)
        return config->host->fail(DIST_ERR_NO_MEMORY, "rank %d is out of memory for the rendezvous",
                                  config->rank);
    status = config->all_gather(config->all_gather_arg, info, all, sizeof(*info));
    *info = all[0];
    free(all);
    return status;
}

/*
 * Broadcasts the root info and connects. status: result of the previous steps, which rank 0 also
 * broadcasts.
 */
static dist_status open_connect_ranks(const struct dist_backend_config *config,
                                      struct hccl_group *g, struct open_job **open_p,
                                      dist_status status)
{
    struct open_root info = {.status = status};

    if (g->rank == 0) {
        if (status == DIST_OK)
            info.status = open_run(g, open_p, open_get_root);
        if (info.status == DIST_OK)
            info.root = (*open_p)->info.root;
        else
            snprintf(info.text, sizeof(info.text), "%s",
                     *open_p ? (*open_p)->job.text : "HCCL has not returned");
    }
    status = open_broadcast(config, &info);
    if (status == DIST_OK && info.status != DIST_OK)
        status =
            g->host->fail((dist_status)info.status, "rank %d cannot join: %s", g->rank, info.text);
    if (status != DIST_OK)
        return status;
    (*open_p)->info = info;
    return open_run(g, open_p, open_connect);
}

static int open_choose_device(const struct hccl_api *api, const struct dist_backend_config *config)
{
    uint32_t devices = 0;

    if (config->device >= 0)
        return config->device;
    return api->acl.device_count(&devices) || !devices ? 0
                                                       : config->world_local_rank % (int)devices;
}

static dist_status open_all(const struct dist_backend_config *config, struct hccl_state *s)
{
    const struct dist_transport *const transports[] = {config->host->transport_find("shm"),
                                                       config->host->transport_find("tcp"), NULL};
    const struct dist_engine_config engine = {.size = sizeof(engine), .transports = transports};
    struct open_job *open = calloc(1, sizeof(*open));
    dist_status status;

    if (!open)
        return config->host->fail(DIST_ERR_NO_MEMORY, "rank %d is out of memory for a group",
                                  config->rank);
    status = open_run(s->group, &open, open_device);
    if (config->world_size > 1 && (status == DIST_OK || config->rank == 0))
        status = open_connect_ranks(config, s->group, &open, status);
    free(open);
    return status == DIST_OK ? config->host->engine_open(config, &engine, &s->engine) : status;
}

dist_status hccl_open(void *state, const struct dist_backend_config *config)
{
    struct hccl_state *s = state;
    char reason[512] = "";
    struct hccl_group *g;
    dist_status status;

    s->host = config->host;
    g = calloc(1, sizeof(*g));
    if (!g)
        return s->host->fail(DIST_ERR_NO_MEMORY, "rank %d is out of memory for the group's state",
                             config->rank);
    g->api = hccl_load(reason, sizeof(reason));
    g->host = config->host;
    g->rank = config->rank;
    g->ranks = config->world_size;
    g->timeout_ms = config->timeout_ms;
    if (!g->api) {
        free(g);
        return s->host->fail(DIST_ERR_NO_BACKEND, "rank %d: %s", config->rank, reason);
    }
    g->device = open_choose_device(g->api, config);
    status = hccl_start(g);
    if (status != DIST_OK) {
        free(g);
        return status;
    }
    s->group = g;
    return open_all(config, s);
}
