/* SPDX-License-Identifier: BSD-3-Clause */
/* Loading of modules: shared objects that bring a backend. */
#include "backends/registry.h"
#include "base/config.h"
#include "base/log.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#ifndef DISTI_MODULE_DIR
#define DISTI_MODULE_DIR "/usr/local/lib/dist"
#endif

/* The folder that this library was loaded from: an installation that was moved still works. */
static bool module_own_folder(char *folder, size_t size)
{
    Dl_info info;
    const char *slash;

    if (!dladdr((void *)(uintptr_t)&disti_host, &info) || !info.dli_fname)
        return false;
    slash = strrchr(info.dli_fname, '/');
    if (!slash || (size_t)(slash - info.dli_fname) >= size)
        return false;
    snprintf(folder, size, "%.*s", (int)(slash - info.dli_fname), info.dli_fname);
    return true;
}

/*
 * Folder number i of those where modules are looked for: DIST_PLUGIN_PATH (folders, split by ':'),
 * then dist/ beside the library, then the library's own folder (a build tree that was not
 * installed), then the place it was configured for. False: there are no more.
 */
static bool module_folder(int i, char *folder, size_t size)
{
    const char *list = disti_env("DIST_PLUGIN_PATH");
    char own[PATH_MAX - sizeof("/dist")];
    int listed = 0;

    while (list && disti_list_item(list, ':', listed, folder, size)) {
        if (listed++ == i)
            return true;
    }
    i -= listed;
    if (!module_own_folder(own, sizeof(own)))
        i += 2;
    if (i > 2)
        return false;
    snprintf(folder, size, "%s%s", i == 2 ? DISTI_MODULE_DIR : own, i == 0 ? "/dist" : "");
    return true;
}

static bool module_locate(const char *name, char *path, size_t size)
{
    char folder[PATH_MAX];

    for (int i = 0; module_folder(i, folder, sizeof(folder)); i++) {
        int n = snprintf(path, size, "%s/dist_%s.so", folder, name);

        if (n > 0 && (size_t)n < size && access(path, F_OK) == 0)
            return true;
    }
    return false;
}

size_t dist_list_module_folders(char *buffer, size_t size)
{
    char folder[PATH_MAX];
    size_t used = 0;

    if (size)
        buffer[0] = '\0';
    for (int i = 0; module_folder(i, folder, sizeof(folder)); i++)
        used += (size_t)snprintf(used < size ? buffer + used : NULL, used < size ? size - used : 0,
                                 "%s\n", folder);
    return used;
}

/* What builds those modules of this project that are only built where something else is there. */
static const struct {
    const char *name, *needs;
} module_makers[] = {
    {"mpi_openmpi", "apt-get install libopenmpi-dev openmpi-bin"},
    {"mpi_mpich", "apt-get install libmpich-dev mpich"},
};

static void module_missing(const char *name, char *reason, size_t size)
{
    size_t used =
        (size_t)snprintf(reason, size, "there is no module dist_%s.so in DIST_PLUGIN_PATH or %s",
                         name, DISTI_MODULE_DIR);

    for (size_t i = 0; i < sizeof(module_makers) / sizeof(module_makers[0]); i++) {
        if (strcmp(module_makers[i].name, name) == 0 && used < size)
            snprintf(reason + used, size - used, " (to have it: %s, then build libdist again)",
                     module_makers[i].needs);
    }
}

/* The whole of a module must be right before anything in it is called. */
static dist_status module_check(const struct dist_module *module, const char *path)
{
    dist_status status;

    if (module->abi != DIST_ABI || module->size < sizeof(*module) || !module->backend)
        return disti_fail(DIST_ERR_ABI,
                          "module %s has ABI %u, this library has ABI %d: build the module again "
                          "with this library's headers",
                          path, module->abi, DIST_ABI);
    status = disti_backend_check(module->backend, path);
    for (int i = 0; status == DIST_OK && module->transports && module->transports[i]; i++)
        status = disti_transport_check(module->transports[i], path);
    return status;
}

dist_status disti_module_load(const char *name, const struct dist_module **module_p, char *reason,
                              size_t reason_size)
{
    const struct dist_module *module;
    char path[PATH_MAX];
    dist_status status;
    void *handle;

    if (strchr(name, '/') || !module_locate(name, path, sizeof(path))) {
        module_missing(name, reason, reason_size);
        return DIST_ERR_NO_BACKEND;
    }
    handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!handle) {
        snprintf(reason, reason_size, "module %s cannot be loaded: %s", path, dlerror());
        return DIST_ERR_NO_BACKEND;
    }
    module = dlsym(handle, DIST_MODULE_SYMBOL);
    if (!module) {
        snprintf(reason, reason_size, "module %s does not define " DIST_MODULE_SYMBOL, path);
        dlclose(handle);
        return DIST_ERR_ABI;
    }
    status = module_check(module, path);
    if (status != DIST_OK) {
        snprintf(reason, reason_size, "%s", dist_last_error());
        dlclose(handle);
        return status;
    }
    disti_info("module %s loaded", path);
    *module_p = module;
    return DIST_OK;
}
