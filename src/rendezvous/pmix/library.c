/* SPDX-License-Identifier: BSD-3-Clause */
/* Finding PMIx's library and its functions. */
#include "rendezvous/pmix/library.h"

#include "base/process_lock.h"
#include "base/settings/env.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * Versions 3 and 4 keep what the server says of each rank in memory that a second PMIx_Init of the
 * process does not find again: it gets no local rank, and MPI_Init of Open MPI 4 fails.
 */
#define LIBRARY_REOPENS 5

DISTI_PROCESS_LOCK(library_lock);
static struct disti_pmix_api library_api;
static bool library_loaded;

/* The one that the program has already, as MPI may have brought it; the launcher's own; any. */
static void *library_find(void)
{
    static const char *const folders[] = {"lib", "lib64", "lib/openmpi"};
    const char *prefix = disti_env("PMIX_PREFIX");
    void *handle = dlopen(DISTI_PMIX_FILE, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    char path[1024];

    for (size_t i = 0; !handle && prefix && i < sizeof(folders) / sizeof(folders[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s/%s", prefix, folders[i], DISTI_PMIX_FILE);
        handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    return handle ? handle : dlopen(DISTI_PMIX_FILE, RTLD_NOW | RTLD_LOCAL);
}

/* Its functions. NULL: all are there; else what is not. */
static const char *library_resolve(void *handle, struct disti_pmix_api *api)
{
    void *symbol = dlsym(handle, DISTI_PMIX_SINCE_3);

    if (!symbol)
        return DISTI_PMIX_SINCE_3;
#define LIBRARY_RESOLVE(member, name, parameters)                                                  \
    symbol = dlsym(handle, name);                                                                  \
    if (!symbol)                                                                                   \
        return name;                                                                               \
    memcpy(&api->member, &symbol, sizeof(symbol));
    DISTI_PMIX_CALLS(LIBRARY_RESOLVE)
    LIBRARY_RESOLVE(error_string, "PMIx_Error_string", ())
    LIBRARY_RESOLVE(version, "PMIx_Get_version", ())
#undef LIBRARY_RESOLVE
    return NULL;
}

/* The first number of a text such as "OpenPMIx 4.2.2 (PMIx Standard: 4.2, ...)". */
static int library_major(const char *version)
{
    return (int)strtol(version + strcspn(version, "0123456789"), NULL, 10);
}

static bool library_try(char reason[DISTI_PMIX_REASON])
{
    void *handle = library_find();
    const char *missing = handle ? library_resolve(handle, &library_api) : NULL;

    if (!handle)
        snprintf(reason, DISTI_PMIX_REASON, "there is no library of PMIx (%.250s)", dlerror());
    else if (missing)
        snprintf(reason, DISTI_PMIX_REASON, "%s has no function %s: it is older than PMIx 3",
                 DISTI_PMIX_FILE, missing);
    else
        library_api.reopens = library_major(library_api.version()) >= LIBRARY_REOPENS;
    return handle && !missing;
}

const struct disti_pmix_api *disti_pmix_load(char reason[DISTI_PMIX_REASON])
{
    bool loaded;

    pthread_mutex_lock(&library_lock);
    library_loaded = library_loaded || library_try(reason);
    loaded = library_loaded;
    pthread_mutex_unlock(&library_lock);
    return loaded ? &library_api : NULL;
}
