/* SPDX-License-Identifier: BSD-3-Clause */
/* Backend nccl: which device is whose, and the making of a communicator. */
#include "backends/nccl/stage.h"
#include "base/settings/env.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a rank tells the others about itself. */
struct open_card {
    char node[48]; /* the machine; as in NCCL_HOSTID, if that is set */
    char bus[20];  /* the device's PCI address */
    int32_t device;
    int32_t status; /* a failure: it cannot go on, and text says why */
    char text[176];
};

/* What rank 0 gives all. */
struct open_id {
    int32_t result; /* NCCL's */
    struct disti_nccl_id id;
};

__attribute__((format(printf, 3, 4))) static void
open_refuse(struct open_card *card, dist_status status, const char *format, ...)
{
    va_list arguments;

    card->status = status;
    va_start(arguments, format);
    vsnprintf(card->text, sizeof(card->text), format, arguments);
    va_end(arguments);
}

/* ---- the device ---- */

/* The one that is asked for; else by local rank; else the only one that there is for this rank. */
static bool open_choose(struct disti_nccl_state *nccl, const struct dist_backend_config *config,
                        struct open_card *card)
{
    int count = 0, error = nccl->driver->device_count(&count);
    int device = config->device >= 0 ? config->device : config->world_local_rank;

    if (config->device < 0 && count == 1)
        device = 0;
    nccl->device = device;
    if (!error && device >= 0 && device < count)
        return true;
    if (error || count == 0)
        open_refuse(card, DIST_ERR_SYSTEM, "no GPU is visible%s%s: check CUDA_VISIBLE_DEVICES",
                    error ? ": " : "", error ? disti_driver_text(nccl->driver, error) : "");
    else if (config->device >= 0)
        open_refuse(card, DIST_ERR_INVALID_ARGUMENT,
                    "device %d was requested, but only devices 0 to %d exist: check DIST_DEVICE "
                    "and CUDA_VISIBLE_DEVICES",
                    device, count - 1);
    else
        open_refuse(card, DIST_ERR_INVALID_ARGUMENT,
                    "local rank %d finds only devices 0 to %d: start fewer ranks on this machine, "
                    "or set DIST_DEVICE",
                    device, count - 1);
    return false;
}

static bool open_context(struct disti_nccl_state *nccl, struct open_card *card)
{
    const struct disti_driver *driver = nccl->driver;
    struct disti_nccl_gpu *gpu = calloc(1, sizeof(*gpu));
    int error;

    if (!gpu) {
        open_refuse(card, DIST_ERR_NO_MEMORY, "no memory of the host for device %d: free some",
                    nccl->device);
        return false;
    }
    nccl->gpu = gpu;
    atomic_init(&gpu->holders, 1);
    gpu->driver = driver;
    gpu->api = nccl->api;
    error = driver->device_get(&gpu->handle, nccl->device);
    if (!error)
        error = driver->context_retain(&gpu->context, gpu->handle);
    if (!error)
        error = driver->device_bus(card->bus, sizeof(card->bus), gpu->handle);
    card->device = nccl->device;
    if (error)
        open_refuse(card, DIST_ERR_SYSTEM,
                    "device %d cannot be used: %s. See its state (nvidia-smi)", nccl->device,
                    disti_driver_text(driver, error));
    return !error;
}

/* Before the ranks begin to join: who fails later leaves the others waiting for it. */
static void open_resources(struct disti_nccl_state *nccl, struct open_card *card)
{
    const struct disti_driver *driver = nccl->driver;
    struct disti_nccl_visit visit;
    uintptr_t one = 0;
    int error;

    if (!disti_nccl_enter(nccl->gpu, &visit)) {
        open_refuse(card, DIST_ERR_SYSTEM, "device %d cannot be used: see its state (nvidia-smi)",
                    nccl->device);
        return;
    }
    error = driver->stream_create(&nccl->gpu->stream, DISTI_DRIVER_STREAM_NON_BLOCKING);
    if (!error)
        error = driver->event_create(&nccl->gpu->moment, DISTI_DRIVER_EVENT_NO_TIMING);
    if (!error)
        error = driver->memory_alloc(&one, 1);
    nccl->gpu->one = disti_nccl_pointer(one);
    disti_nccl_exit(nccl->gpu, &visit);
    if (error)
        open_refuse(
            card, DIST_ERR_SYSTEM,
            "device %d has no stream or no memory left: %s. End what else uses it (nvidia-smi)",
            nccl->device, disti_driver_text(driver, error));
}

/* Where this rank is, and on what. */
static void open_card_fill(struct disti_nccl_state *nccl, const struct dist_backend_config *config,
                           struct open_card *card)
{
    const char *host = disti_env("NCCL_HOSTID");

    if (host)
        snprintf(card->node, sizeof(card->node), "%s", host);
    else
        snprintf(card->node, sizeof(card->node), "node %d", config->places[config->rank].node);
    nccl->driver = disti_driver_load(card->text, sizeof(card->text));
    if (nccl->driver)
        nccl->api = disti_nccl_load(nccl->driver, card->text, sizeof(card->text));
    if (!nccl->api)
        card->status = DIST_ERR_NO_BACKEND;
    else if (open_choose(nccl, config, card) && open_context(nccl, card))
        open_resources(nccl, card);
}

/* Every rank looks at all cards, and so all come to the same end. */
static dist_status open_check(const struct disti_nccl_state *nccl, const struct open_card *cards)
{
    for (int r = 0; r < nccl->ranks; r++) {
        if (cards[r].status != DIST_OK)
            return nccl->host->fail((dist_status)cards[r].status, "rank %d: backend nccl: %.*s", r,
                                    (int)sizeof(cards[r].text), cards[r].text);
    }
    for (int r = 1; r < nccl->ranks; r++) {
        for (int s = 0; s < r; s++) {
            if (strncmp(cards[r].node, cards[s].node, sizeof(cards[r].node)) == 0 &&
                strncmp(cards[r].bus, cards[s].bus, sizeof(cards[r].bus)) == 0)
                return nccl->host->fail(
                    DIST_ERR_INVALID_ARGUMENT,
                    "rank %d and rank %d are both on device %d (%.*s) of one machine, but NCCL "
                    "takes one rank a device: start as many ranks as there are devices, or give "
                    "each its own (DIST_DEVICE, CUDA_VISIBLE_DEVICES)",
                    s, r, cards[r].device, (int)sizeof(cards[r].bus), cards[r].bus);
        }
    }
    return DIST_OK;
}

static dist_status open_introduce(struct disti_nccl_state *nccl,
                                  const struct dist_backend_config *config)
{
    struct open_card card = {.status = DIST_OK};
    struct open_card *cards = calloc((size_t)nccl->ranks, sizeof(*cards));
    dist_status status;

    if (!cards)
        return disti_nccl_no_memory(nccl);
    open_card_fill(nccl, config, &card);
    status = config->all_gather(config->all_gather_arg, &card, cards, sizeof(card));
    if (status == DIST_OK)
        status = open_check(nccl, cards);
    free(cards);
    return status;
}

/* ---- the communicator ---- */

static dist_status open_id_gather(const struct dist_backend_config *config, struct open_id *id)
{
    struct open_id *all = calloc((size_t)config->world_size, sizeof(*all));
    dist_status status;

    if (!all)
        return config->host->fail(DIST_ERR_NO_MEMORY, "rank %d has no memory for %d ranks",
                                  config->rank, config->world_size);
    status = config->all_gather(config->all_gather_arg, id, all, sizeof(*id));
    if (status == DIST_OK)
        *id = all[0];
    free(all);
    return status;
}

static dist_status open_id(struct disti_nccl_state *nccl, const struct dist_backend_config *config,
                           struct disti_nccl_id *id_p)
{
    struct open_id id = {.result = DISTI_NCCL_SUCCESS};
    dist_status status;

    if (nccl->rank == 0)
        id.result = nccl->api->get_unique_id(&id.id);
    if (config->broadcast)
        status = config->broadcast(config->all_gather_arg, &id, sizeof(id));
    else
        status = open_id_gather(config, &id);
    if (status == DIST_OK && id.result != DISTI_NCCL_SUCCESS)
        status =
            nccl->host->fail(DIST_ERR_SYSTEM,
                             "rank 0: NCCL cannot create the id by which the ranks meet: %s. Check "
                             "NCCL_SOCKET_IFNAME, and run with NCCL_DEBUG=INFO",
                             nccl->api->error_text(id.result));
    if (status == DIST_OK)
        *id_p = id.id;
    return status;
}

static dist_status open_communicator(struct disti_nccl_state *nccl, struct disti_nccl_id id)
{
    struct disti_nccl_config how = {
        .size = sizeof(how),
        .magic = DISTI_NCCL_MAGIC,
        .version = DISTI_NCCL_OLDEST,
        .blocking = 0,
        .unused = DISTI_NCCL_UNDEFINED,
    };
    char what[64];
    int result = nccl->api->comm_init(&nccl->comm, nccl->ranks, id, nccl->rank, &how);

    snprintf(what, sizeof(what), "joining %d ranks on device %d", nccl->ranks, nccl->device);
    if (result != DISTI_NCCL_SUCCESS && result != DISTI_NCCL_IN_PROGRESS)
        return disti_nccl_fail(nccl, result, what);
    return disti_nccl_wait(nccl, what);
}

static void open_log(const struct disti_nccl_state *nccl)
{
    char version[32];

    nccl->host->log(DIST_LOG_INFO, "rank %d: NCCL %s (%s), device %d by %s (%s)", nccl->rank,
                    disti_nccl_version_text(nccl->api->version, version), nccl->api->file,
                    nccl->device, nccl->driver->name, nccl->driver->file);
}

dist_status disti_nccl_open(void *state, const struct dist_backend_config *config)
{
    struct disti_nccl_state *nccl = state;
    struct disti_nccl_visit visit;
    struct disti_nccl_id id;
    dist_status status;

    nccl->host = config->host;
    nccl->rank = config->rank;
    nccl->ranks = config->world_size;
    nccl->timeout_ms = config->timeout_ms;
    nccl->device = -1;
    status = open_introduce(nccl, config);
    if (status != DIST_OK)
        return status;
    if (!disti_nccl_enter(nccl->gpu, &visit))
        return disti_nccl_no_device(nccl);
    nccl->opening = config;
    status = open_id(nccl, config, &id);
    if (status == DIST_OK)
        status = open_communicator(nccl, id);
    nccl->opening = NULL;
    disti_nccl_exit(nccl->gpu, &visit);
    if (status == DIST_OK)
        open_log(nccl);
    else
        disti_nccl_abort(nccl); /* what has not begun cannot be ended otherwise */
    return status;
}
