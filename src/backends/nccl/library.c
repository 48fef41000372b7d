/* SPDX-License-Identifier: BSD-3-Clause */
/* Finding NCCL or RCCL at run time. */
#include "backends/nccl/nccl.h"
#include "base/settings/env.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const library_cuda[] = {"libnccl.so.2", NULL};
static const char *const library_hip[] = {"librccl.so.1", NULL};

static pthread_mutex_t library_lock = PTHREAD_MUTEX_INITIALIZER;
static struct disti_nccl_api library_api;
static bool library_loaded;

const char *disti_nccl_version_text(int version, char text[32])
{
    /* Up to 2.8 there were two digits less. */
    int scale = version < 10000 ? 1000 : 10000;

    snprintf(text, 32, "%d.%d.%d", version / scale, version % scale / 100, version % 100);
    return text;
}

/* Its functions. NULL: all that must be there are; else the first that is not. */
static const char *library_resolve(void *handle, struct disti_nccl_api *api)
{
    void *symbol;

#define LIBRARY_TAKE(member, name, parameters)                                                     \
    symbol = dlsym(handle, name);                                                                  \
    memcpy(&api->member, &symbol, sizeof(symbol));
#define LIBRARY_NEED(member, name, parameters)                                                     \
    LIBRARY_TAKE(member, name, parameters)                                                         \
    if (!symbol)                                                                                   \
        return name;
    DISTI_NCCL_OPTIONAL_CALLS(LIBRARY_TAKE)
    DISTI_NCCL_CALLS(LIBRARY_NEED)
    DISTI_NCCL_TEXT_CALLS(LIBRARY_NEED)
#undef LIBRARY_NEED
#undef LIBRARY_TAKE
    return NULL;
}

/* The version first: an old one has not all the functions either. 0: it has none. */
static int library_version(void *handle)
{
    void *symbol = dlsym(handle, "ncclGetVersion");
    int (*get_version)(int *);
    int version = 0;

    memcpy(&get_version, &symbol, sizeof(symbol));
    return symbol && get_version(&version) == DISTI_NCCL_SUCCESS ? version : 0;
}

static bool library_check(void *handle, const char *file, char *reason, size_t reason_size)
{
    const char *missing;
    char found[32];

    library_api.version = library_version(handle);
    if (library_api.version < DISTI_NCCL_OLDEST) {
        snprintf(reason, reason_size,
                 "%s is version %s, but libdist needs 2.14.0 or newer: install a newer one, or "
                 "name its file in DIST_NCCL_LIBRARY",
                 file, disti_nccl_version_text(library_api.version, found));
        return false;
    }
    missing = library_resolve(handle, &library_api);
    if (missing)
        snprintf(reason, reason_size,
                 "%s has no function %s: install a complete NCCL or RCCL, or name its file in "
                 "DIST_NCCL_LIBRARY",
                 file, missing);
    return !missing;
}

static void *library_open(const struct disti_driver *driver, const char **file_p, char *reason,
                          size_t reason_size)
{
    const char *given = disti_env("DIST_NCCL_LIBRARY");
    const bool hip = strcmp(driver->name, "HIP") == 0;
    const char *const *files = hip ? library_hip : library_cuda;
    void *handle;

    *file_p = given ? given : files[0];
    handle = dlopen(*file_p, RTLD_NOW | RTLD_LOCAL);
    if (!handle && given)
        snprintf(reason, reason_size, "DIST_NCCL_LIBRARY: %s", dlerror());
    else if (!handle)
        snprintf(reason, reason_size,
                 "there is no %s (%s): install %s, or name the file in DIST_NCCL_LIBRARY", files[0],
                 dlerror(), hip ? "AMD's rccl" : "NVIDIA's libnccl2");
    return handle;
}

/* It is not closed again: threads of it may run. */
static bool library_try(const struct disti_driver *driver, char *reason, size_t reason_size)
{
    const char *file;
    void *handle = library_open(driver, &file, reason, reason_size);

    if (!handle)
        return false;
    if (!library_check(handle, file, reason, reason_size)) {
        dlclose(handle);
        return false;
    }
    snprintf(library_api.file, sizeof(library_api.file), "%s", file);
    return true;
}

const struct disti_nccl_api *disti_nccl_load(const struct disti_driver *driver, char *reason,
                                             size_t reason_size)
{
    bool loaded;

    pthread_mutex_lock(&library_lock);
    library_loaded = library_loaded || library_try(driver, reason, reason_size);
    loaded = library_loaded;
    pthread_mutex_unlock(&library_lock);
    return loaded ? &library_api : NULL;
}
