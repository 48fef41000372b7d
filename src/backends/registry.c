/* SPDX-License-Identifier: BSD-3-Clause */
/* The backends there are: built in, and modules found on disk. */
#include "backends/registry.h"

#include "backends/module.h"
#include "base/dtype.h"
#include "base/kernels/sink.h"
#include "base/log.h"
#include "engine/engine.h"
#include "transports/shm/shm.h"
#include "transports/tcp/tcp.h"

#include <stdio.h>
#include <string.h>

/* Room for a reason: a path, what is wrong with it, and what to do. */
#define REGISTRY_REASON 1024

static const struct dist_backend *const registry_built_in[] = {
    &disti_backend_gloo,
    &disti_backend_self,
    NULL,
};

/* Backends that come as modules of this project; any other name is looked for as well. */
static const char *const registry_modules[] = {"mpi", "nccl", "ucx", NULL};

static const struct dist_transport *const registry_transports[] = {
    &disti_transport_shm,
    &disti_transport_tcp,
    NULL,
};

const struct dist_backend *disti_built_in_backend(int i)
{
    return registry_built_in[i];
}

const struct dist_transport *disti_built_in_transport(int i)
{
    return registry_transports[i];
}

const char *disti_own_module(int i)
{
    return registry_modules[i];
}

bool disti_module_is_own(const char *name)
{
    int i = 0;

    while (registry_modules[i] && strcmp(registry_modules[i], name) != 0)
        i++;
    return registry_modules[i];
}

/* Transports that a module's backend gives to the engine are as foreign as the module. */
static dist_status registry_engine_open(const struct dist_backend_config *config,
                                        const struct dist_engine_config *engine,
                                        struct dist_engine **engine_p)
{
    dist_status status = DIST_OK;

    for (int i = 0; engine->transports[i] && status == DIST_OK; i++)
        status = disti_transport_check(engine->transports[i], "a transport of the backend");
    return status == DIST_OK ? disti_engine_open(config, engine, engine_p) : status;
}

const struct dist_host disti_host = {
    .abi = DIST_ABI,
    .size = sizeof(struct dist_host),
    .fail = disti_fail,
    .log = disti_log_line,
    .sink_apply = disti_sink_apply,
    .dtype_size = dist_dtype_size,
    .collective_string = dist_collective_string,
    .transport_find = disti_transport_find,
    .engine_open = registry_engine_open,
    .engine_post = disti_engine_post,
    .engine_progress = disti_engine_progress,
    .engine_describe = disti_engine_describe,
    .engine_close = disti_engine_close,
    .engine_arm = disti_engine_arm,
    .engine_disarm = disti_engine_disarm,
    .op_fits = disti_op_fits,
    .engine_prepare = disti_engine_prepare,
    .engine_release = disti_engine_release,
    .engine_at_once = disti_engine_at_once,
    .transport_missing = disti_transport_missing,
};

/* ---- probes ---- */

/* May a probe answer this? */
static bool registry_is_answer(dist_status status)
{
    switch (status) {
#define REGISTRY_STATUS(name, value, text)                                                         \
    case DIST_##name:                                                                              \
        return status != DIST_IN_PROGRESS;
        DIST_STATUS_MAP(REGISTRY_STATUS)
#undef REGISTRY_STATUS
    }
    return false;
}

dist_status disti_probe(dist_status (*probe)(char *reason, size_t reason_size), const char *from,
                        char *reason, size_t reason_size)
{
    dist_status status;

    reason[0] = '\0';
    status = probe(reason, reason_size);
    reason[reason_size - 1] = '\0';
    if (status == DIST_OK)
        return DIST_OK;
    if (!registry_is_answer(status))
        snprintf(reason, reason_size,
                 "the probe of %s returned %d, which is neither DIST_OK nor a DIST_ERR_", from,
                 (int)status);
    else if (!reason[0])
        snprintf(reason, reason_size, "the probe of %s failed (%s) without giving a reason", from,
                 dist_status_string(status));
    return DIST_ERR_NO_BACKEND;
}

/* ---- backends ---- */

/* The candidates for a name: more than one, or none with a reason, only for mpi. */
static int registry_module_names(const char *name, const char *names[DISTI_MPI_FLAVOURS],
                                 char *reason, size_t reason_size)
{
    reason[0] = '\0';
    if (strcmp(name, "mpi") == 0)
        return disti_mpi_flavours(names, reason, reason_size);
    names[0] = name;
    return 1;
}

bool disti_backend_is_loaded(const char *name)
{
    const char *names[DISTI_MPI_FLAVOURS];
    char reason[REGISTRY_REASON];
    int count = registry_module_names(name, names, reason, sizeof(reason));

    for (int i = 0; i < count; i++) {
        if (disti_module_is_loaded(names[i]))
            return true;
    }
    return false;
}

/* The backend `name` of module `file`. */
static dist_status registry_load(const char *name, const char *file,
                                 const struct dist_backend **backend_p, char *reason,
                                 size_t reason_size)
{
    const struct disti_module *module;
    const struct dist_backend *backend;
    dist_status status = disti_module_load(file, &module, reason, reason_size);

    if (status != DIST_OK)
        return status;
    backend = module->entry->backend;
    if (!backend) {
        snprintf(reason, reason_size,
                 "module %s provides transports but no backend: name one of them in "
                 "DIST_TRANSPORT, with backend gloo",
                 module->path);
        return DIST_ERR_UNSUPPORTED;
    }
    if (strcmp(backend->name, name) != 0) {
        snprintf(reason, reason_size,
                 "module %s provides backend '%.60s', not '%s': a module dist_NAME.so must provide "
                 "backend NAME",
                 module->path, backend->name, name);
        return DIST_ERR_NO_BACKEND;
    }
    *backend_p = backend;
    return disti_probe(backend->probe, module->path, reason, reason_size);
}

static dist_status registry_try(const char *name, const struct dist_backend **backend_p,
                                char *reason, size_t reason_size)
{
    const char *names[DISTI_MPI_FLAVOURS];
    int count = registry_module_names(name, names, reason, reason_size);
    dist_status status = DIST_ERR_NO_BACKEND;
    const struct dist_backend *backend;
    size_t used = 0;

    for (int i = 0; i < count && used + 1 < reason_size; i++) {
        status = registry_load(name, names[i], &backend, reason + used, reason_size - used);
        if (status == DIST_OK) {
            *backend_p = backend;
            return DIST_OK;
        }
        used += strlen(reason + used);
        if (i + 1 < count && used + 3 < reason_size)
            used += (size_t)snprintf(reason + used, reason_size - used, "; ");
    }
    return status;
}

dist_status disti_backend_reason(const char *name, const struct dist_backend **backend_p,
                                 char *reason, size_t reason_size)
{
    for (int i = 0; registry_built_in[i]; i++) {
        const struct dist_backend *backend = registry_built_in[i];

        if (strcmp(backend->name, name) != 0)
            continue;
        if (disti_probe(backend->probe, name, reason, reason_size) != DIST_OK)
            return DIST_ERR_NO_BACKEND;
        *backend_p = backend;
        return DIST_OK;
    }
    return registry_try(name, backend_p, reason, reason_size);
}

dist_status disti_backend_find(const char *name, const struct dist_backend **backend_p)
{
    char reason[REGISTRY_REASON], folders[REGISTRY_REASON], choices[2048];
    dist_status status = disti_backend_reason(name, backend_p, reason, sizeof(reason));

    if (status == DIST_OK)
        return DIST_OK;
    disti_module_folders(folders, sizeof(folders));
    disti_list_choices(choices, sizeof(choices));
    return disti_fail(
        status == DIST_ERR_ABI ? status : DIST_ERR_NO_BACKEND,
        "backend '%s' cannot be used: %s. Modules are looked for in %s. Choose one of these:\n%s",
        name, reason, folders, choices);
}

/* ---- transports ---- */

/* The transport `name` of a module; NULL: "this, that" is what it has instead. */
static const struct dist_transport *registry_transport(const struct dist_module *entry,
                                                       const char *name, char *others, size_t size)
{
    size_t used = 0;

    snprintf(others, size, "none");
    for (int i = 0; entry->transports && entry->transports[i]; i++) {
        if (strcmp(entry->transports[i]->name, name) == 0)
            return entry->transports[i];
        if (used < size)
            used += (size_t)snprintf(others + used, size - used, "%s%s", i ? ", " : "",
                                     entry->transports[i]->name);
    }
    return NULL;
}

dist_status disti_transport_reason(const char *name, const struct dist_transport **transport_p,
                                   char *reason, size_t reason_size)
{
    const struct dist_transport *transport;
    const struct disti_module *module;
    dist_status status;
    char others[128];

    for (int i = 0; registry_transports[i]; i++) {
        if (strcmp(registry_transports[i]->name, name) != 0)
            continue;
        *transport_p = registry_transports[i];
        return DIST_OK;
    }
    status = disti_module_load(name, &module, reason, reason_size);
    if (status != DIST_OK)
        return status;
    transport = registry_transport(module->entry, name, others, sizeof(others));
    if (transport) {
        *transport_p = transport;
        return DIST_OK;
    }
    snprintf(reason, reason_size,
             "module %s has no transport '%s' (it has: %s): a transport is looked for in a module "
             "of its name",
             module->path, name, others);
    return DIST_ERR_NO_BACKEND;
}

const struct dist_transport *disti_transport_find(const char *name)
{
    const struct dist_transport *transport = NULL;
    char reason[REGISTRY_REASON];

    return disti_transport_reason(name, &transport, reason, sizeof(reason)) == DIST_OK ? transport
                                                                                       : NULL;
}

void disti_transport_missing(const char *name, char *text, size_t size)
{
    char reason[REGISTRY_REASON] = "it is there", folders[REGISTRY_REASON];
    const struct dist_transport *transport;
    size_t used = 0;

    disti_transport_reason(name, &transport, reason, sizeof(reason));
    disti_module_folders(folders, sizeof(folders));
    used = (size_t)snprintf(text, size, "%s. Built in are", reason);
    for (int i = 0; registry_transports[i] && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s %s", i ? "," : "",
                                 registry_transports[i]->name);
    if (used < size)
        snprintf(text + used, size - used, "; modules are looked for in %s", folders);
}
