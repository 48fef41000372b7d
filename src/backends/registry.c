/* SPDX-License-Identifier: BSD-3-Clause */
/* The backends there are: built in, and modules found on disk. */
#include "backends/registry.h"

#include "base/dtype.h"
#include "base/log.h"
#include "base/sink.h"
#include "engine/engine.h"
#include "transports/shm/shm.h"
#include "transports/tcp/tcp.h"

#include <stdio.h>
#include <string.h>

static const struct dist_backend *const registry_built_in[] = {
    &disti_backend_gloo,
    &disti_backend_self,
    NULL,
};

/* Backends that come as modules of this project; any other name is looked for as well. */
static const char *const registry_modules[] = {"mpi", "nccl", NULL};

static const struct dist_transport *const registry_transports[] = {
    &disti_transport_shm,
    &disti_transport_tcp,
    NULL,
};

const struct dist_transport *disti_transport_find(const char *name)
{
    for (int i = 0; registry_transports[i]; i++) {
        if (strcmp(registry_transports[i]->name, name) == 0)
            return registry_transports[i];
    }
    return NULL;
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
    .engine_open = disti_engine_open,
    .engine_post = disti_engine_post,
    .engine_progress = disti_engine_progress,
    .engine_describe = disti_engine_describe,
    .engine_close = disti_engine_close,
    .engine_arm = disti_engine_arm,
    .engine_disarm = disti_engine_disarm,
    .op_fits = disti_op_fits,
    .engine_prepare = disti_engine_prepare,
    .engine_release = disti_engine_release,
};

static dist_status registry_abi(uint32_t abi, uint32_t size, size_t expected, const char *from)
{
    if (abi == DIST_ABI && size >= expected)
        return DIST_OK;
    return disti_fail(DIST_ERR_ABI,
                      "%s was built for ABI %u (%u bytes), this library has ABI %d (%zu bytes): "
                      "build the module again with this library's headers",
                      from, abi, size, DIST_ABI, expected);
}

/* A slot that must be set, and whether it is. */
struct registry_slot {
    const char *name;
    bool set;
};

static dist_status registry_slots(const struct registry_slot *slots, const char *from)
{
    for (; slots->name; slots++) {
        if (!slots->set)
            return disti_fail(DIST_ERR_ABI, "%s lacks the mandatory slot '%s': it must be set",
                              from, slots->name);
    }
    return DIST_OK;
}

dist_status disti_backend_check(const struct dist_backend *b, const char *from)
{
    dist_status status = registry_abi(b->abi, b->size, sizeof(*b), from);

    if (status != DIST_OK)
        return status;
    const struct registry_slot slots[] = {
        {"name", b->name && *b->name},
        {"summary", b->summary != NULL},
        {"probe", b->probe != NULL},
        {"query", b->query != NULL},
        {"open", b->open != NULL},
        {"close", b->close != NULL},
        {"post", b->post != NULL},
        {"progress", b->progress != NULL},
        {"abort", b->abort != NULL},
        {"disarm", !b->arm || b->disarm},
        {"release", !b->prepare || b->release},
        {NULL, true},
    };

    return registry_slots(slots, from);
}

dist_status disti_transport_check(const struct dist_transport *t, const char *from)
{
    dist_status status = registry_abi(t->abi, t->size, sizeof(*t), from);

    if (status != DIST_OK)
        return status;
    const struct registry_slot slots[] = {
        {"name", t->name && *t->name},
        {"open", t->open != NULL},
        {"address", t->address != NULL},
        {"reach", t->reach != NULL},
        {"connect", t->connect != NULL},
        {"send", t->send != NULL},
        {"recv", t->recv != NULL},
        {"progress", t->progress != NULL},
        {"arm", t->arm != NULL},
        {"disarm", t->disarm != NULL},
        {"close", t->close != NULL},
        {"probe_tag", t->probe_tag != NULL},
        {NULL, true},
    };

    return registry_slots(slots, from);
}

/* The candidates for a name: more than one only for mpi. */
static int registry_module_names(const char *name, const char *names[DISTI_MPI_FLAVOURS])
{
    if (strcmp(name, "mpi") == 0)
        return disti_mpi_flavours(names);
    names[0] = name;
    return 1;
}

static dist_status registry_load(const char *name, const struct dist_backend **backend_p,
                                 char *reason, size_t reason_size)
{
    const char *names[DISTI_MPI_FLAVOURS];
    int count = registry_module_names(name, names);
    const struct dist_module *module;
    dist_status status = DIST_ERR_NO_BACKEND;
    size_t used = 0;

    reason[0] = '\0';
    for (int i = 0; i < count; i++) {
        status = disti_module_load(names[i], &module, reason + used, reason_size - used);
        if (status == DIST_OK)
            status = module->backend->probe(reason + used, reason_size - used);
        if (status == DIST_OK) {
            *backend_p = module->backend;
            return DIST_OK;
        }
        used += strlen(reason + used);
        if (i + 1 < count && used + 3 < reason_size)
            used += (size_t)snprintf(reason + used, reason_size - used, "; ");
    }
    return status;
}

/* Finds without reporting: the reason goes to the caller. */
static dist_status registry_find(const char *name, const struct dist_backend **backend_p,
                                 char *reason, size_t reason_size)
{
    for (int i = 0; registry_built_in[i]; i++) {
        const struct dist_backend *backend = registry_built_in[i];

        if (strcmp(backend->name, name) != 0)
            continue;
        if (backend->probe(reason, reason_size) != DIST_OK)
            return DIST_ERR_NO_BACKEND;
        *backend_p = backend;
        return DIST_OK;
    }
    return registry_load(name, backend_p, reason, reason_size);
}

static size_t registry_line(const char *name, char *buffer, size_t size)
{
    const struct dist_backend *backend = NULL;
    char reason[512] = "";
    dist_status status = registry_find(name, &backend, reason, sizeof(reason));

    return (size_t)snprintf(buffer, size, "  %-6s %-4s %s\n", name,
                            status == DIST_OK ? "yes" : "no",
                            status == DIST_OK ? backend->summary : reason);
}

size_t dist_list_backends(char *buffer, size_t size)
{
    size_t used = 0;

    if (size)
        buffer[0] = '\0';
    for (int i = 0; registry_built_in[i]; i++)
        used += registry_line(registry_built_in[i]->name, used < size ? buffer + used : NULL,
                              used < size ? size - used : 0);
    for (int i = 0; registry_modules[i]; i++)
        used += registry_line(registry_modules[i], used < size ? buffer + used : NULL,
                              used < size ? size - used : 0);
    return used;
}

dist_status disti_backend_find(const char *name, const struct dist_backend **backend_p)
{
    char reason[512] = "", list[2048];
    dist_status status = registry_find(name, backend_p, reason, sizeof(reason));

    if (status == DIST_OK)
        return DIST_OK;
    dist_list_backends(list, sizeof(list));
    return disti_fail(status == DIST_ERR_ABI ? status : DIST_ERR_NO_BACKEND,
                      "backend '%s' cannot be used: %s. Choose one of these:\n%s", name, reason,
                      list);
}
