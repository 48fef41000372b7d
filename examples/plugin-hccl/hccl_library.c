/* SPDX-License-Identifier: BSD-3-Clause */
/* Backend hccl: loads CANN's libraries. */
#include "hccl.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t library_lock = PTHREAD_MUTEX_INITIALIZER;
static struct hccl_api library_api;
static bool library_ready;

/* RTLD_GLOBAL because CANN's libraries load further libraries that use symbols of the first. */
static void *library_open(const char *variable, const char *file, char *reason, size_t size)
{
    const char *given = getenv(variable);
    void *handle = dlopen(given && *given ? given : file, RTLD_NOW | RTLD_GLOBAL);

    if (!handle)
        snprintf(reason, size,
                 "%s: install CANN and source its set_env.sh, or set %s to the library", dlerror(),
                 variable);
    return handle;
}

/*
 * Stores the address of a symbol in the function pointer `to`. False: the symbol is needed but
 * missing.
 */
static bool library_find(void *handle, const char *symbol, bool needed, void *to, char *reason,
                         size_t size)
{
    void *found = dlsym(handle, symbol);

    memcpy(to, &found, sizeof(found));
    if (found || !needed)
        return true;
    snprintf(reason, size, "CANN's library has no %s: install a newer CANN", symbol);
    return false;
}

static bool library_find_all(void *acl, void *hccl, struct hccl_api *api, char *reason, size_t size)
{
    bool found = library_find(acl, "aclGetRecentErrMsg", false, &api->acl.recent, reason, size) &&
                 library_find(hccl, "HcclGetErrorString", false, &api->text, reason, size);

#define LIBRARY_ACL(member, symbol, needed, parameters)                                            \
    found = found && library_find(acl, symbol, needed, &api->acl.member, reason, size);
    HCCL_ACL_CALLS(LIBRARY_ACL)
#undef LIBRARY_ACL
#define LIBRARY_HCCL(member, symbol, needed, parameters)                                           \
    found = found && library_find(hccl, symbol, needed, &api->member, reason, size);
    HCCL_HCCL_CALLS(LIBRARY_HCCL)
#undef LIBRARY_HCCL
    return found;
}

static bool library_init(const struct hccl_api *api, char *reason, size_t size)
{
    uint32_t devices = 0;
    char text[256];
    int error = api->acl.init(NULL);

    if (error == HCCL_ACL_REPEATED)
        error = 0;
    if (error == 0)
        error = api->acl.device_count(&devices);
    if (error) {
        hccl_explain(api, true, error, text, sizeof(text));
        snprintf(reason, size, "cannot start CANN's runtime: %s", text);
    } else if (devices == 0) {
        snprintf(reason, size,
                 "no Ascend device: check npu-smi info and ASCEND_RT_VISIBLE_DEVICES");
    }
    return error == 0 && devices > 0;
}

static bool library_load(char *reason, size_t size)
{
    void *acl = library_open("DIST_ACL_LIBRARY", "libascendcl.so", reason, size);
    void *hccl = acl ? library_open("DIST_HCCL_LIBRARY", "libhccl.so", reason, size) : NULL;

    return hccl && library_find_all(acl, hccl, &library_api, reason, size) &&
           library_init(&library_api, reason, size);
}

const struct hccl_api *hccl_load(char *reason, size_t reason_size)
{
    pthread_mutex_lock(&library_lock);
    if (!library_ready)
        library_ready = library_load(reason, reason_size);
    pthread_mutex_unlock(&library_lock);
    return library_ready ? &library_api : NULL;
}

void hccl_explain(const struct hccl_api *api, bool runtime, int error, char *text, size_t size)
{
    const char *name = !runtime && api->text ? api->text(error) : NULL;
    const char *recent = api->acl.recent ? api->acl.recent() : NULL;

    snprintf(text, size, "%s (%s error %d)%s%s", name ? name : "it failed",
             runtime ? "runtime" : "HCCL", error, recent && *recent ? ": " : "",
             recent ? recent : "");
}
