/* SPDX-License-Identifier: BSD-3-Clause */
/* Loading of modules: shared objects that bring a backend, transports, or both. */
#include "backends/module.h"

#include "backends/registry.h"
#include "base/log.h"
#include "base/process_lock.h"

#include <config.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is loaded; grows only. */
DISTI_PROCESS_LOCK(module_lock);
static struct disti_module *module_loaded;

#define MODULE_NEEDS(what, packages)                                                               \
    "configure found no " what " (apt-get install " packages                                       \
    ", then configure and build libdist again)"

/* Why modules of this project may not have been built, and what builds them. */
static const struct {
    const char *name, *why;
} module_makers[] = {
    {"mpi_openmpi", MODULE_NEEDS("Open MPI", "libopenmpi-dev openmpi-bin")},
    {"mpi_mpich", MODULE_NEEDS("MPICH", "libmpich-dev mpich")},
    {"nccl", "this build leaves it out (configure --with-nccl=no): configure without that option, "
             "build and install again"},
    {"ucx", MODULE_NEEDS("UCX", "libucx-dev")},
};

static void module_missing(const char *name, char *reason, size_t size)
{
    char similar[256];

    for (size_t i = 0; i < sizeof(module_makers) / sizeof(module_makers[0]); i++) {
        if (strcmp(module_makers[i].name, name) != 0)
            continue;
        snprintf(reason, size, "there is no module dist_%s.so: %s", name,
                 DISTI_SHARED ? module_makers[i].why
                              : "libdist was configured with --disable-shared: configure, build "
                                "and install it without that");
        return;
    }
    disti_module_similar(name, similar, sizeof(similar));
    snprintf(reason, size, "there is no module dist_%s.so%s", name, similar);
}

/* ---- what is in it ---- */

static dist_status module_check_entry(const struct dist_module *entry, const char *path)
{
    if (entry->abi != DIST_ABI)
        return disti_fail(DIST_ERR_ABI,
                          "module %s was built for ABI %u, this library has ABI %d: build the "
                          "module again with this library's headers",
                          path, entry->abi, DIST_ABI);
    if (entry->size < sizeof(*entry))
        return disti_fail(DIST_ERR_ABI,
                          "module %s: its struct dist_module has %u bytes, this library's has %zu: "
                          "set its size to sizeof(struct dist_module)",
                          path, entry->size, sizeof(*entry));
    if (!entry->backend && (!entry->transports || !entry->transports[0]))
        return disti_fail(DIST_ERR_ABI,
                          "module %s provides neither a backend nor a transport: set one in "
                          "its " DIST_MODULE_SYMBOL,
                          path);
    return DIST_OK;
}

/* The whole of a module must be right before anything in it is called. */
static dist_status module_check(const struct dist_module *entry, const char *path)
{
    dist_status status = module_check_entry(entry, path);
    char from[PATH_MAX + 64];

    snprintf(from, sizeof(from), "the backend of module %s", path);
    if (status == DIST_OK && entry->backend)
        status = disti_backend_check(entry->backend, from);
    for (int i = 0; status == DIST_OK && entry->transports && entry->transports[i]; i++) {
        snprintf(from, sizeof(from), "transport %d of module %s", i + 1, path);
        status = disti_transport_check(entry->transports[i], from);
    }
    return status;
}

/* ---- loading ---- */

/* What the user can do about what the dynamic linker says. */
static const char *module_advice(const char *text)
{
    static const struct {
        const char *said, *advice;
    } advices[] = {
        {"undefined symbol: dist_", "a module takes the library's functions from struct dist_host"},
        {"undefined symbol", "link the module with the library that has this symbol"},
        {"cannot open shared object file", "install that library, or name its folder in "
                                           "LD_LIBRARY_PATH"},
        {"version `", "build the module on this machine, or for libraries as old as these"},
    };

    for (size_t i = 0; i < sizeof(advices) / sizeof(advices[0]); i++) {
        if (strstr(text, advices[i].said))
            return advices[i].advice;
    }
    return "build it with cc -shared -fPIC for this machine";
}

static dist_status module_open(const char *path, const struct dist_module **entry_p, char *reason,
                               size_t size)
{
    char place[PATH_MAX];
    const char *text;
    void *handle;

    if (!disti_module_place(path, place, reason, size) ||
        !disti_module_loadable(place, reason, size))
        return DIST_ERR_NO_BACKEND;
    handle = dlopen(place, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!handle) {
        text = dlerror();
        snprintf(reason, size, "module %s cannot be loaded: %s: %s", path, text,
                 module_advice(text));
        return DIST_ERR_NO_BACKEND;
    }
    *entry_p = dlsym(handle, DIST_MODULE_SYMBOL);
    if (*entry_p)
        return DIST_OK;
    snprintf(reason, size,
             "module %s does not define " DIST_MODULE_SYMBOL ": define it as a const struct "
             "dist_module that other objects can see (visibility default)",
             path);
    dlclose(handle);
    return DIST_ERR_ABI;
}

static dist_status module_load(const char *path, struct disti_module **module_p, char *reason,
                               size_t size)
{
    const struct dist_module *entry = NULL;
    struct disti_module *module;
    dist_status status = module_open(path, &entry, reason, size);

    if (status != DIST_OK)
        return status;
    status = module_check(entry, path);
    if (status != DIST_OK) {
        snprintf(reason, size, "%s", dist_last_error());
        return status;
    }
    module = calloc(1, sizeof(*module));
    if (!module) {
        snprintf(reason, size, "no memory for module %s", path);
        return DIST_ERR_NO_MEMORY;
    }
    snprintf(module->path, sizeof(module->path), "%s", path);
    module->entry = entry;
    module->next = module_loaded;
    module_loaded = module;
    *module_p = module;
    return DIST_OK;
}

static struct disti_module *module_known(const char *path)
{
    struct disti_module *module = module_loaded;

    while (module && strcmp(module->path, path) != 0)
        module = module->next;
    return module;
}

bool disti_module_is_loaded(const char *name)
{
    char path[1][PATH_MAX];
    bool loaded = false;

    if (strchr(name, '/') || disti_module_locate(name, path, 1) == 0)
        return false;
    pthread_mutex_lock(&module_lock);
    loaded = module_known(path[0]) != NULL;
    pthread_mutex_unlock(&module_lock);
    return loaded;
}

dist_status disti_module_load(const char *name, const struct disti_module **module_p, char *reason,
                              size_t reason_size)
{
    char(*paths)[PATH_MAX] = calloc(2, sizeof(*paths)); /* too large for a small stack */
    int found = !paths || strchr(name, '/') ? 0 : disti_module_locate(name, paths, 2);
    struct disti_module *module;
    dist_status status = DIST_OK;

    if (!found) {
        module_missing(name, reason, reason_size);
        free(paths);
        return DIST_ERR_NO_BACKEND;
    }
    pthread_mutex_lock(&module_lock);
    module = module_known(paths[0]);
    if (!module) {
        status = module_load(paths[0], &module, reason, reason_size);
        if (status == DIST_OK)
            disti_info("module %s loaded", paths[0]);
        if (found > 1)
            disti_info("module %s is ignored: %s comes first", paths[1], paths[0]);
    }
    pthread_mutex_unlock(&module_lock);
    free(paths);
    if (status == DIST_OK)
        *module_p = module;
    return status;
}
