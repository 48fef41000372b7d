/* SPDX-License-Identifier: BSD-3-Clause */
/* Loads the GPU driver, and queries it about memory. */
#include "device/driver.h"
#include "base/lock.h"
#include "base/settings/env.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Attributes of a pointer. */
enum { DRIVER_CONTEXT = 1, DRIVER_MEMORY_TYPE = 2, DRIVER_IS_MANAGED = 8, DRIVER_DEVICE = 9 };
/* Memory type of host memory that the driver knows; 0: other host memory. */
enum { DRIVER_TYPE_HOST = 1 };

static const char *const driver_files[] = {"libcuda.so.1", "libamdhip64.so.7", "libamdhip64.so.6",
                                           "libamdhip64.so", NULL};

/* Maximum devices of a process. */
#define DRIVER_DEVICES 256

/* Device files of GPUs: NVIDIA's, on Tegra, in WSL, AMD's. */
static const char *const driver_nodes[] = {"/dev/nvidiactl", "/dev/nvmap", "/dev/dxg", "/dev/kfd",
                                           NULL};

DISTI_PROCESS_LOCK(driver_lock);
static struct disti_driver driver_table;
static const struct disti_driver *_Atomic driver_found;

/* Previous capture mode of this thread, between disti_driver_enter and disti_driver_exit. */
static _Thread_local int driver_mode;

/* Resolves the driver's functions, by the names of its API. Returns NULL, or a missing name. */
static const char *driver_resolve(void *handle, struct disti_driver *driver)
{
    const bool hip = !dlsym(handle, "cuInit");
    void *symbol;

    driver->name = hip ? "HIP" : "CUDA";
#define DRIVER_RESOLVE(member, cuda, hip_name, parameters)                                         \
    symbol = dlsym(handle, hip ? hip_name : cuda);                                                 \
    if (!symbol)                                                                                   \
        return hip ? hip_name : cuda;                                                              \
    memcpy(&driver->member, &symbol, sizeof(symbol));
    DISTI_DRIVER_CALLS(DRIVER_RESOLVE)
#undef DRIVER_RESOLVE
    return NULL;
}

/* Returns the driver; loads it, unless mode is RTLD_NOLOAD and the process has not loaded it. */
static const struct disti_driver *driver_find(int mode, char *reason, size_t reason_size)
{
    const char *given[] = {disti_env("DIST_GPU_DRIVER"), NULL}, *file = NULL;
    const char *const *files = given[0] ? given : driver_files;
    const struct disti_driver *driver = atomic_load(&driver_found);
    void *handle = NULL;

    if (driver)
        return driver;
    pthread_mutex_lock(&driver_lock);
    for (; !atomic_load(&driver_found) && !handle && *files; files++) {
        file = *files;
        handle = dlopen(file, RTLD_NOW | RTLD_LOCAL | mode);
    }
    if (handle) {
        const char *missing = driver_resolve(handle, &driver_table);
        int error = missing ? 0 : driver_table.init(0);

        if (missing)
            snprintf(reason, reason_size,
                     "the GPU driver %s lacks the function %s: install a newer driver", file,
                     missing);
        else if (error)
            snprintf(reason, reason_size, "the GPU driver %s failed to initialize: %s", file,
                     disti_driver_text(&driver_table, error));
        if (missing || error)
            dlclose(handle);
        else {
            snprintf(driver_table.file, sizeof(driver_table.file), "%s", file);
            atomic_store(&driver_found, &driver_table);
        }
    }
    driver = atomic_load(&driver_found);
    if (!driver && !handle && given[0])
        snprintf(reason, reason_size, "DIST_GPU_DRIVER: %s", dlerror());
    else if (!driver && !handle)
        snprintf(reason, reason_size,
                 "there is no GPU driver (libcuda.so.1 or libamdhip64.so): install NVIDIA's or "
                 "AMD's driver, or give the container access to the GPU (docker run --gpus all)");
    pthread_mutex_unlock(&driver_lock);
    return driver;
}

const struct disti_driver *disti_driver_load(char *reason, size_t reason_size)
{
    return driver_find(0, reason, reason_size);
}

bool disti_driver_possible(void)
{
    static atomic_int known; /* 0: unknown; 1: no; 2: yes */
    int state = atomic_load_explicit(&known, memory_order_relaxed);

    if (state == 0) {
        state = disti_env("DIST_GPU_DRIVER") ? 2 : 1;
        for (int i = 0; driver_nodes[i] && state == 1; i++)
            state = access(driver_nodes[i], F_OK) == 0 ? 2 : 1;
        atomic_store_explicit(&known, state, memory_order_relaxed);
    }
    return state == 2;
}

/* Reads the number of libraries loaded so far: every entry contains it, so reads the first only. */
static int driver_count_loads(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)size;
    *(unsigned long long *)arg = info->dlpi_adds;
    return 1;
}

const struct disti_driver *disti_driver_loaded(void)
{
    static _Atomic unsigned long long looked_at;
    const struct disti_driver *driver = atomic_load_explicit(&driver_found, memory_order_acquire);
    unsigned long long loads = 0;
    char reason[256];

    if (driver || !disti_driver_possible())
        return driver;
    dl_iterate_phdr(driver_count_loads, &loads);
    if (atomic_load_explicit(&looked_at, memory_order_acquire) == loads)
        return NULL;
    driver = driver_find(RTLD_NOLOAD, reason, sizeof(reason));
    atomic_store_explicit(&looked_at, loads, memory_order_release);
    return driver;
}

/*
 * Queries one attribute. For memory that the driver does not know, the function for several
 * attributes sets them to NULL; the function for a single one fails, which compute-sanitizer
 * reports as an error of the program.
 */
static bool driver_attribute(const struct disti_driver *driver, int attribute, void *data,
                             const void *address)
{
    return driver->pointer_attributes(1, &attribute, &data, (uintptr_t)address) == 0;
}

bool disti_driver_owns(const struct disti_driver *driver, const void *address)
{
    unsigned type = 0, managed = 0;
    int attributes[] = {DRIVER_MEMORY_TYPE, DRIVER_IS_MANAGED};
    void *data[] = {&type, &managed};

    if (!address || driver->pointer_attributes(2, attributes, data, (uintptr_t)address))
        return false;
    return type != DRIVER_TYPE_HOST ? type != 0 : managed;
}

const char *disti_driver_text(const struct disti_driver *driver, int error)
{
    const char *text = NULL;

    return driver->error_text(error, &text) == 0 && text ? text : "unknown error";
}

bool disti_driver_enter(const struct disti_driver *driver, const void *address)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static void *contexts[DRIVER_DEVICES];
    void *context = NULL;
    int ordinal = -1, device;

    if (!driver_attribute(driver, DRIVER_CONTEXT, &context, address))
        return false;
    if (!context && driver_attribute(driver, DRIVER_DEVICE, &ordinal, address) && ordinal >= 0 &&
        ordinal < DRIVER_DEVICES) {
        /*
         * Mapped memory (ncclMemAlloc) and memory of a pool (cudaMallocAsync) belong to no context:
         * use the device's primary one. It is retained from then on, as CUDA's runtime does.
         */
        pthread_mutex_lock(&lock);
        if (!contexts[ordinal] && (driver->device_get(&device, ordinal) ||
                                   driver->context_retain(&contexts[ordinal], device)))
            contexts[ordinal] = NULL;
        context = contexts[ordinal];
        pthread_mutex_unlock(&lock);
    }
    if (!context || driver->context_push(context))
        return false;
    driver_mode = DISTI_DRIVER_CAPTURE_RELAXED;
    driver->capture_mode(&driver_mode);
    return true;
}

void disti_driver_exit(const struct disti_driver *driver)
{
    void *context;

    driver->capture_mode(&driver_mode);
    driver->context_pop(&context);
}
